"""What a prefix block weighs and saves: bytes in each tier, prefill FLOPs and time that a hit spares, access latency.

Tiers are G1 to G4 of "The Price of Anarchy in Disaggregated Inference" (section 2.2): HBM, DRAM, local SSD, networked
storage. They are exclusive: what G1 evicts moves to G2, and so on. Under LRU such a chain is one stack, so an access
whose stack distance lies between the sums of the first k - 1 and of the first k sizes is a hit in tier k.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Real, jit
from dmodels.models.latency import Efficiency, prefill_attention_flop, step
from dmodels.models.memory import kv_bytes


def block_bytes(model: Model, block_tokens: Real, tp: Real = 1.0) -> Real:
    """Bytes of one stored prefix block over all `tp` GPUs; tp = 1 is one copy, as DRAM, SSD and network hold it.

    A prefix can be resumed at the end of any block, so a block keeps its tokens in sliding layers too (at most a
    window of them) and a snapshot of every linear layer's state. KV heads beyond tp, and MLA's latent, are stored
    once per rank in HBM.

    >>> float(block_bytes(Model(80, 8, 128), 512.0)) / 2**20, float(block_bytes(Model(80, 8, 128), 512.0, 16.0)) / 2**20
    (160.0, 320.0)
    """
    return tp * kv_bytes(model, block_tokens, tp)


def prefill_flop(model: Model, new_tokens: Real, cached_tokens: Real) -> Real:
    """FLOPs, over all GPUs, to prefill `new_tokens` tokens behind `cached_tokens` that are in the cache.

    2 per parameter that a token uses (the output head is used once per prompt and left out), and attention to what is
    cached and to half of what is new.
    """
    params = model.active_params_count - model.head_params
    return new_tokens * (2.0 * params + prefill_attention_flop(model, cached_tokens + new_tokens / 2.0))


def remaining_prefill_s(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    new_tokens: Real,
    cached_tokens: Real,
    efficiency: Efficiency | None = None,
) -> Real:
    """Seconds to prefill the rest of one prompt alone on one instance; `latency.prefill_s` where nothing is cached."""
    attended = cached_tokens + new_tokens / 2.0
    return step(
        model,
        gpu,
        parallel,
        decode_count=0.0,
        context_tokens=0.0,
        prefill_tokens=parallel.dp * new_tokens,
        attended_tokens=attended,
        efficiency=efficiency,
    ).total_s


def tier_fracs(hits_at: Real) -> Real:
    """Share of the accesses that each tier serves (.., tiers), from the hit rates (.., tiers) at its sizes' sums.

    >>> tier_fracs(jnp.array([0.2, 0.3, 0.35])).round(3).tolist()
    [0.2, 0.1, 0.05]
    """
    return jnp.diff(hits_at, axis=-1, prepend=0.0)


@jit
def access_s(tier_frac: Real, tier_s: Real, miss_s: Real) -> Real:
    r"""Expected latency of one block access, $\sum_k f_k \alpha_k + (1 - \sum_k f_k)\gamma$: Eq. (6) in the mean.

    >>> round(float(access_s(jnp.array([0.2, 0.1]), jnp.array([1.0, 10.0]), 100.0)), 6)
    71.2
    """
    return jnp.sum(tier_frac * tier_s, axis=-1) + (1.0 - jnp.sum(tier_frac, axis=-1)) * miss_s
