"""What is left for KV on a GPU, as each engine counts it: one budget, which every command asks for."""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Real

from .activations import activation_bytes
from .engines import FAST_LINK, VLLM, EngineMemory, default_utilization
from .weights import weight_bytes_per_gpu


def runtime_bytes(gpu: GPU, parallel: Parallel, engine: EngineMemory = VLLM) -> Real:
    """What the engine charges for the driver and, with several GPUs, for communicators."""
    fast = gpu.nvlink_bytes_per_s_oneway > FAST_LINK
    buffers = jnp.where(fast, engine.communicator_bytes, engine.bus_communicator_bytes)
    return engine.driver_bytes + jnp.where(parallel.gpus > 1, buffers, 0.0)


def room_and_need_bytes(
    gpu: GPU, parallel: Parallel, budget_bytes: float, batched_tokens: Real = 8192, engine: EngineMemory = VLLM
) -> tuple[float, float]:
    r"""(what weights and all that the engine charges may take of a GPU, what they take) where `budget_bytes` are left.

    The room is $u M$ for vLLM, $R + u (M - R)$ for SGLang, M for TensorRT-LLM, whose share is of what they leave; u is
    the engine's default. They take more than there is exactly where the budget is negative.
    """
    memory, share = float(gpu.memory_bytes), float(default_utilization(engine, gpu, parallel, batched_tokens))
    if engine.of_rest:
        return memory, memory - budget_bytes / share
    runtime = 0.0 if engine.activations_charged else float(runtime_bytes(gpu, parallel, engine))
    room = runtime + share * (memory - runtime)
    return room, room - budget_bytes


def kv_budget_bytes(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    utilization: Real | None = None,
    batched_tokens: Real = 8192,
    sequences: Real = 256,
    engine: EngineMemory = VLLM,
) -> Real:
    r"""Bytes for KV on the fullest GPU, by the engine's own rule (`engines`): $u M - W - A - N$ for vLLM.

    M is what the driver reports, `utilization` None the engine's default. Negative: the model does not fit, by that
    much.
    """
    share = default_utilization(engine, gpu, parallel, batched_tokens) if utilization is None else utilization
    held = weight_bytes_per_gpu(model, parallel).total_bytes
    active = engine.activations_charged * activation_bytes(model, parallel, batched_tokens, sequences, engine)
    runtime = runtime_bytes(gpu, parallel, engine)
    of_free = share * (gpu.memory_bytes - runtime - held - active)
    static = share * (gpu.memory_bytes - runtime) - held
    dynamic = share * gpu.memory_bytes - held - active - runtime
    return jnp.where(engine.of_rest > 0, of_free, jnp.where(engine.activations_charged > 0, dynamic, static))
