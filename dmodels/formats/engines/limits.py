"""What an engine refuses at its start, found before it is asked: by the model's shape, the GPU's memory, the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..serving import Server

if TYPE_CHECKING:
    from dmodels.core.hardware import GPU
    from dmodels.core.model import Model


def refusals(server: Server, model: Model, gpu: GPU | None = None) -> list[str]:
    """Why the engine would not start, one reason each; [] where it would. `gpu` also checks its memory.

    Tensor parallelism divides the query heads, experts are spread where there are some and over a whole stage, the
    context is within the model's and one request of it within the cache. `model` is as the server stores it.
    """
    from . import ENGINES

    heads, layers = float(model.n_q_heads), float(model.n_layers)
    context, asked = float(model.max_context_tokens), server.max_model_len_tokens
    found = []
    if heads % server.tp:
        found.append(f"tp {server.tp} does not divide the model's {heads:.0f} query heads")
    if server.pp > layers:
        found.append(f"pp {server.pp} exceeds the model's {layers:.0f} layers")
    if server.ep > 1 and not float(model.n_moe_layers) > 0:
        found.append(f"ep {server.ep}: the model has no experts")
    if server.ep not in (1, server.tp * server.dp):
        found.append(f"ep {server.ep}: accepted are 1 and all {server.tp * server.dp} GPUs of a stage")
    if asked is not None and 0 < context < asked:
        found.append(f"a context of {asked:,} tokens exceeds the model's {context:,.0f}")
    if gpu is not None:
        found += _memory(server, model, gpu)
    return found + ENGINES[server.engine].limits(server)


def _memory(server: Server, model: Model, gpu: GPU) -> list[str]:
    """Whether weights and one request of the longest context fit in the share of memory that the engine takes."""
    from dmodels.core.records import float64

    context = server.max_model_len_tokens or int(model.max_context_tokens)
    budget, needed = float64(_cache_bytes)(server, model, gpu, float(context))
    if budget <= 0:
        return [f"the weights leave no memory for a cache on a GPU of {float(gpu.memory_bytes) / 2**30:.0f} GiB"]
    if needed <= budget:
        return []
    return [
        f"a request of {context:,} tokens takes {needed / 2**30:.1f} GiB of cache per GPU; there are "
        f"{budget / 2**30:.1f} GiB"
    ]


def _cache_bytes(server: Server, model: Model, gpu: GPU, context_tokens: float) -> tuple[float, float]:
    """(what there is for the cache on a GPU, what a request of so many tokens takes of it)."""
    from dmodels.core.hardware import Parallel
    from dmodels.models.memory import default_sequences, engine_memory, kv_budget_bytes, kv_reserved_bytes, stage

    parallel = Parallel(float(server.tp), float(server.pp), float(server.dp), float(server.ep))
    batched = float(server.max_num_batched_tokens or 8192)
    sequences = server.max_num_seqs_count or default_sequences(server.engine, gpu)
    memory = engine_memory(server.engine)
    budget = kv_budget_bytes(model, gpu, parallel, server.memory_frac, batched, sequences, engine=memory)
    if not context_tokens:
        return float(budget), 0.0
    needed = kv_reserved_bytes(stage(model, parallel.pp), context_tokens, parallel.tp, max_batched_tokens=batched)
    return float(budget), float(needed)
