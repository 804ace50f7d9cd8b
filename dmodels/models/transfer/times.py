r"""KV transfer between prefill and decode: how many bytes, at which rate, and what else stands before the first token.

The seven equations of NetKV (its displayed formulas are lost in the text; they follow from its prose and numbers).
Bandwidths are bytes per second of the whole transfer unless said otherwise; arguments broadcast.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_where
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real
from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve
from dmodels.models.memory import kv_bytes_per_token

from .choice import ObliviousLoss, oblivious_loss
from .paths import fan_out_time_s, pipelined_transfer_s, shared_transfer_s, staged_transfer_s
from .staleness import (
    correlation_time_s,
    cost_staleness_tolerance,
    refresh_interval_s,
    same_tier_tolerance,
    stale_regret_bound_s,
    tier_staleness_tolerance,
    worst_stale_regret_s,
)

__all__ = [
    "MAX_IN_FLIGHT",
    "NETKV_CURVE",
    "BatchingCurve",
    "ObliviousLoss",
    "PostPrefill",
    "correlation_time_s",
    "cost_staleness_tolerance",
    "effective_bandwidth_bytes_per_s",
    "effective_bytes",
    "fan_out_time_s",
    "first_step_s",
    "kv_cache_bytes",
    "oblivious_loss",
    "pipelined_transfer_s",
    "post_prefill_latency",
    "queue_delay_s",
    "refresh_interval_s",
    "same_tier_tolerance",
    "shared_transfer_s",
    "slot_wait_s",
    "staged_transfer_s",
    "stale_regret_bound_s",
    "tier_staleness_tolerance",
    "transfer_time_s",
    "worst_stale_regret_s",
]


class PostPrefill(NamedTuple):
    """TTFT minus prefill, and its parts. `flags` says why a candidate is no candidate."""

    total_s: Real
    transfer_s: Real
    queue_s: Real
    step_s: Real
    flags: Real


def kv_cache_bytes(model: Model, tokens: Real, tp: Real = 1.0, kv_dtype_bytes: Real | None = None) -> Real:
    r"""KV cache of `tokens` tokens; with `tp` the shard of one GPU. Eq. (1): $2 n_l n_{kv} d_h b \cdot L$.

    `kv_dtype_bytes` overrides the model's: 1 for FP8, 1 + 2/g for INT8 with an FP16 scale per g elements, and so on.

    >>> float(kv_cache_bytes(Model(80, 8, 128), 32768.0)) / 2**30, float(kv_cache_bytes(Model(80, 8, 128), 1.0, 4.0))
    (10.0, 81920.0)
    """
    stored = model if kv_dtype_bytes is None else model.replace(kv_dtype_bytes=kv_dtype_bytes)
    return tokens * kv_bytes_per_token(stored, tp)


def effective_bytes(kv_bytes: Real, input_tokens: Real, hit_tokens: Real, block_tokens: Real = 16.0) -> Real:
    r"""Bytes that still have to move: $s\,(1 - h/L)$, Eq. (2), with the hit rounded down to whole blocks.

    >>> float(effective_bytes(1000.0, 100.0, 55.0))     # 3 blocks of 16 are there
    520.0
    """
    aligned = jnp.floor(jnp.clip(hit_tokens, 0.0, input_tokens) / block_tokens) * block_tokens
    return kv_bytes * (1.0 - safe_divide(aligned, input_tokens, 0.0))


def effective_bandwidth_bytes_per_s(
    tier_bytes_per_s: Real,
    congestion: Real = 0.0,
    in_flight: Real = 0.0,
    *,
    destination_bytes_per_s: Real = jnp.inf,
    destination_in_flight: Real = 0.0,
    max_in_flight: Real = MAX_IN_FLIGHT,
) -> Real:
    r"""Rate one more transfer will see: $B_\tau (1-c)/(n+1)$, Eq. (4), n counted up to `max_in_flight`.

    Exact when external traffic is inelastic and the n transfers share nothing else; the paper's "stationary and
    uncorrelated" is not enough (one elastic external flow on a "full" link leaves half of it, not nothing), and beyond
    the cap the rate is too optimistic. The destination's link is missing from (4): transfers from different sources
    that meet at one instance are invisible to it. `destination_bytes_per_s` adds $B_{dst}/(m+1)$ as a second bound,
    m being the transfers on their way to that instance. 0 where congestion is 1 or more.

    >>> float(effective_bandwidth_bytes_per_s(10.0, 0.2, 1.0))
    4.0
    >>> float(effective_bandwidth_bytes_per_s(10.0, destination_bytes_per_s=10.0, destination_in_flight=3.0))
    2.5
    """
    source = tier_bytes_per_s * jnp.maximum(1.0 - congestion, 0.0) / (jnp.minimum(in_flight, max_in_flight) + 1.0)
    return jnp.minimum(source, destination_bytes_per_s / (destination_in_flight + 1.0))


def transfer_time_s(bytes_: Real, bandwidth_bytes_per_s: Real, latency_s: Real = 0.0) -> Real:
    r"""$T = \ell_\tau + s_{eff}/B_{eff}$, Eq. (3). `inf` without bandwidth, the latency alone without bytes.

    >>> float(transfer_time_s(10e9, 25e9 / 8))     # 10 GB over 25 Gbit/s
    3.2
    """
    return latency_s + jnp.where(bytes_ == 0, 0.0, safe_divide(bytes_, bandwidth_bytes_per_s))


def queue_delay_s(queued: Real, batch: Real, curve: BatchingCurve = NETKV_CURVE) -> Real:
    r"""Eq. (6) as NetKV states it: no wait while slots are free, else one iteration per blocked predecessor.

    It ranks instances, but is far too short as a prediction: a full batch frees a slot every $L_{out}/\beta$
    iterations, not every one. `slot_wait_s` has that.
    """
    blocked = jnp.maximum(queued - jnp.maximum(curve.max_batch - batch, 0.0), 0.0)
    return blocked * curve.iteration_s(batch)


def slot_wait_s(queued: Real, batch: Real, output_tokens: Real, curve: BatchingCurve = NETKV_CURVE) -> Real:
    r"""Mean wait for a slot behind `queued` requests: $(k+1)\,L_{out}/\beta_{max}$ iterations, k those blocked.

    Exact for geometric output lengths of mean `output_tokens`: each iteration frees $\beta/L_{out}$ slots on average,
    whatever came before, and the newcomer needs the (k+1)-th of them. 0 while a slot is free.

    >>> round(float(slot_wait_s(9.0, 64.0, 256.0) / BatchingCurve().iteration_s(64.0)), 6)   # Eq. (6) says 9
    40.0
    """
    free = curve.max_batch - batch
    waits = jnp.maximum(queued + 1.0 - jnp.maximum(free, 0.0), 0.0)
    return waits * output_tokens / curve.max_batch * curve.iteration_s(curve.max_batch)


def first_step_s(batch: Real, curve: BatchingCurve = NETKV_CURVE) -> Real:
    """The decode step that emits the first token, the request itself counted in the batch. Eq. (7)."""
    return curve.iteration_s(jnp.minimum(batch + 1.0, curve.max_batch))


def post_prefill_latency(
    bytes_: Real,
    bandwidth_bytes_per_s: Real,
    latency_s: Real = 0.0,
    queued: Real = 0.0,
    batch: Real = 0.0,
    free_bytes: Real = jnp.inf,
    reserve_bytes: Real = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
) -> PostPrefill:
    r"""$T_{xfer} + T_{queue} + T_{dec}$, Eq. (5), with the memory condition as a flag.

    NO_FIT: payload and reserve exceed the free memory. INFEASIBLE: no bandwidth. OUT_OF_DOMAIN: a negative input.
    The serial form is an upper bound for engines that overlap transfer and prefill: see `pipelined_transfer_s`.
    """
    transfer = transfer_time_s(bytes_, bandwidth_bytes_per_s, latency_s)
    queue, step = queue_delay_s(queued, batch, curve), first_step_s(batch, curve)
    negative = (bytes_ < 0) | (bandwidth_bytes_per_s < 0) | (queued < 0) | (batch < 0) | (latency_s < 0)
    flags = (
        flag_where(bytes_ + reserve_bytes > free_bytes, Flag.NO_FIT)
        | flag_where((bytes_ != 0) & jnp.logical_not(bandwidth_bytes_per_s > 0), Flag.INFEASIBLE)
        | flag_where(negative, Flag.OUT_OF_DOMAIN)
        | flag_where(jnp.isnan(transfer + queue + step), Flag.NONFINITE)
    )
    return PostPrefill(transfer + queue + step, transfer, queue, step, flags)
