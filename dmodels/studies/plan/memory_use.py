"""Where the memory of a recommended pool's GPUs goes: weights, activations, runtime, KV in use, KV free, left over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.hardware import Parallel
from dmodels.core.records import float64
from dmodels.models.instance import Engine
from dmodels.models.memory import activation_bytes, residents, runtime_bytes, weight_bytes_per_gpu
from dmodels.models.traffic import condition

from .deployment import Pool
from .designs import Role
from .layouts import in_precision
from .search import Plan
from .sizing import compressed


@dataclass(frozen=True)
class MemoryUse(Answer):
    """One GPU (the fullest) of a pool in steady state; the six parts add up to `gpu_bytes`."""

    pool: Pool
    gpu_bytes: float
    weights_bytes: float
    activations_bytes: float
    runtime_bytes: float
    kv_used_bytes: float  # on average
    kv_free_bytes: float
    reserved_bytes: float  # what the engine leaves alone
    slots_by_memory_count: float  # requests per instance that memory holds with probability 0.99
    slots_by_engine_count: float  # requests per instance that the engine's batch limit allows

    @property
    def parts(self) -> dict[str, float]:
        """Component -> bytes, from the bottom up."""
        return {
            "weights": self.weights_bytes,
            "activations": self.activations_bytes,
            "runtime": self.runtime_bytes,
            "KV in use": self.kv_used_bytes,
            "KV free": self.kv_free_bytes,
            "left over": self.reserved_bytes,
        }


@float64
def memory_use(answer: Plan) -> tuple[MemoryUse, ...]:
    """The memory of each recommended pool's GPUs.

    Llama-3.1-70B in BF16 on tp4 H100s: 32.9 GiB of weights of 79.2 GiB on each GPU.
    """
    return tuple(_of(answer, pool) for pool in answer.best.pools)


def _of(answer: Plan, pool: Pool) -> MemoryUse:
    asked, x = answer.question, pool.layout
    engine: Engine = asked.engine
    model, gpu = in_precision(asked.model, x), asked.gpus[x.gpu]
    parallel = Parallel(x.tp, x.pp, x.dp, x.ep)
    place = answer.priced.cell_of(pool)
    total, budget = float(gpu.memory_bytes), float(answer.priced.cells.budget_bytes[place, 0])
    weights = float(weight_bytes_per_gpu(model, parallel).total_bytes)
    memory, limits = asked.memory, (engine.max_num_batched_tokens, engine.max_num_seqs_count)
    active = float(activation_bytes(model, parallel, *limits, memory))
    runtime = float(runtime_bytes(gpu, parallel, memory))
    used = min(_in_flight(answer, pool) / x.dp * _one_request_bytes(answer, pool, model), budget)
    return MemoryUse(
        pool,
        gpu_bytes=total,
        weights_bytes=weights,
        activations_bytes=active,
        runtime_bytes=runtime,
        kv_used_bytes=used,
        kv_free_bytes=budget - used,
        reserved_bytes=total - weights - active - runtime - budget,
        slots_by_memory_count=float(answer.priced.cells.slots_count[place, 0]),
        slots_by_engine_count=float(engine.max_num_seqs_count) * x.dp,
    )


def _in_flight(answer: Plan, pool: Pool) -> float:
    """Requests that hold KV on an instance; of a prefill worker, those that it holds until they have left."""
    if pool.stage.role != Role.PREFILL:
        return pool.decode_count
    return answer.priced.rate_rps * pool.request_share_frac / pool.instances * pool.ttft_mean_s


def _one_request_bytes(answer: Plan, pool: Pool, model) -> float:
    """KV per GPU of a running request, seen at a random moment."""
    small = condition(compressed(answer.priced.admitted.workload), pool.stage.low_tokens, pool.stage.high_tokens)
    outputs = np.ones_like(small.output_tokens) if pool.stage.role == Role.PREFILL else small.output_tokens
    x, asked = pool.layout, answer.question
    held = residents(
        model,
        asked.gpus[x.gpu],
        Parallel(x.tp, x.pp, x.dp, x.ep),
        small.input_tokens,
        outputs,
        small.weight_frac,
        batched_tokens=asked.engine.max_num_batched_tokens,
        engine=asked.memory,
    )
    return float(held.each.mean_bytes)
