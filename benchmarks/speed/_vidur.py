"""Vidur's event loop (arXiv:2405.05465; `pip install vidur`) on our requests, with our iteration law.

Everything of Vidur runs but its learned execution times: its Sarathi scheduler, blocks, batches and event queue. In
their place, registered as Vidur asks, stands t(n) = W + H n, so that both simulate the same system. Vidur batches like
`Prefill.OWN` with `emits` where its chunk holds all prompts of an iteration whole. With smaller chunks it differs from
`Prefill.PACKED` in two ways: decoding requests use up the chunk as well, and a prompt that gets no share of it is
neither admitted nor counted in n.
"""

from __future__ import annotations

import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from vidur.config import config as vc
from vidur.execution_time_predictor import BaseExecutionTimePredictor, ExecutionTimePredictorRegistry
from vidur.simulator import Simulator
from vidur.types import ExecutionTimePredictorType

logging.getLogger("vidur").setLevel(logging.ERROR)


@dataclass
class AffineConfig(vc.BaseExecutionTimePredictorConfig):
    """An iteration of n requests takes w_s + h_s n."""

    w_s: float = 0.0
    h_s: float = 0.0

    @staticmethod
    def get_type():
        return ExecutionTimePredictorType.DUMMY


def _layer_ms(self, batch) -> float:
    return 1e3 * (self._config.w_s + self._config.h_s * batch.size) / self._num_layers_per_pipeline_stage


_nothing = {name: lambda self, batch: 0.0 for name in BaseExecutionTimePredictor.__abstractmethods__}
_Affine = type(
    "_Affine", (BaseExecutionTimePredictor,), {**_nothing, "_get_mlp_layer_up_proj_execution_time": _layer_ms}
)
ExecutionTimePredictorRegistry.register(ExecutionTimePredictorType.DUMMY, _Affine)


def run(requests, law, slots: int, chunk_tokens: int, metrics: bool) -> tuple[float, pd.DataFrame | None]:
    """CPU seconds of the event loop; with `metrics` also Vidur's table of request metrics, in the order of arrival.

    `requests`: arrival_s, input_tokens, output_tokens, (n,) each. Reading them in is not timed.
    """
    arrival, prompt, output = (np.asarray(column) for column in requests)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        table = pd.DataFrame(
            {"Date": "today", "Time": arrival, "PromptTokenCount": prompt, "CompletionTokenCount": output}
        )
        table.to_csv(trace, index=False)
        config = vc.SimulationConfig(
            cluster_config=vc.ClusterConfig(
                replica_config=vc.ReplicaConfig(num_pipeline_stages=1, tensor_parallel_size=1),
                cache_config=vc.CacheConfig(num_blocks=10**6),
                # of its routers the one that serves two simulations in a process: the others number replicas from 0
                global_scheduler_config=vc.LORGlobalSchedulerConfig(),
                replica_scheduler_config=vc.SarathiSchedulerConfig(batch_size_cap=slots, chunk_size=chunk_tokens),
            ),
            request_generator_config=vc.TraceRequestGeneratorConfig(
                trace_file=str(trace),
                date="today",
                prefill_scale_factor=1.0,
                time_scale_factor=1.0,
                max_tokens=int((prompt + output).max()),
            ),
            execution_time_predictor_config=AffineConfig(w_s=law.base_s, h_s=law.per_sequence_s),
            metrics_config=vc.MetricsConfig(
                write_metrics=metrics,
                store_plots=False,
                enable_chrome_trace=False,
                store_batch_metrics=False,
                store_utilization_metrics=False,
                output_dir=folder,
            ),
        )
        simulator = Simulator(config)
        start = time.process_time()
        simulator.run()
        seconds = time.process_time() - start
        if not metrics:
            return seconds, None
        return seconds, pd.read_csv(next(Path(folder).rglob("request_metrics.csv"))).sort_values("Request Id")
