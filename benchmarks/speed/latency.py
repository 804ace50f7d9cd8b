"""Predictions per second: TTFT and TPOT of closed-loop serving points, and single steps, in float64 on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from dmodels import catalog
from dmodels.core.hardware import Parallel
from dmodels.core.records import stack
from dmodels.models.latency import iteration_s, serve

CHUNK = 16_384  # at a time: its arrays stay in the caches
MODELS = ("llama-3.1-70b", "gpt-oss-120b", "deepseek-r1", "qwen3-32b")
GPUS = ("h100_sxm", "h200_sxm", "b200_sxm")


@benchmark()
def latency_speed(quick: bool) -> Iterator[Row]:
    """Predictions per second: TTFT and TPOT of closed-loop serving points, and single steps."""
    jax.config.update("jax_enable_x64", True)
    count = CHUNK if quick else 60 * CHUNK
    rng = np.random.default_rng(0)
    models = stack(*map(catalog.model, MODELS))
    gpus = stack(*map(catalog.gpu, GPUS))
    batch = (models[rng.integers(0, len(MODELS), CHUNK)], gpus[rng.integers(0, len(GPUS), CHUNK)])
    tp = Parallel(2.0 ** rng.integers(0, 4, CHUNK))
    ranges = ((100, 9000), (50, 2000), (1, 300))
    isl, osl, clients = (jnp.asarray(rng.uniform(low, high, CHUNK)) for low, high in ranges)

    @jax.jit
    def one(model, gpu, layout, isl, osl, clients):
        s = serve(model, gpu, layout, isl, osl, clients)
        return s.ttft_s, s.tpot_s

    @jax.jit
    def single(model, gpu, layout, isl, osl, clients):
        return iteration_s(model, gpu, layout, clients, isl + osl / 2.0)

    for name, function in (("closed loop (TTFT and TPOT)", one), ("one step", single)):

        def run(function=function):
            for _ in range(count // CHUNK):
                out = function(*batch, tp, isl, osl, clients)
            jax.block_until_ready(out)

        wall, cpu = (interleaved({"": run}, 3, clock)[""] for clock in (time.perf_counter, time.process_time))
        yield {"case": name, "points": count, "per_s": count / wall, "per_cpu_s": count / cpu}
