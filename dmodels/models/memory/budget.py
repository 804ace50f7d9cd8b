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
