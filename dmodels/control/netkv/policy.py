"""Decode-instance selection that sees the network: the operator's oracle, Algorithm 1 of NetKV, and its baselines.

Everything here works on whole batches of decisions, from pure state to pure choice. For one request at a time inside
a Python router see `router`; for the optimum over a batch, `joint`; for forecasts, `congestion`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve
from dmodels.models.transfer import PostPrefill, effective_bandwidth_bytes_per_s, post_prefill_latency

from . import _kernels as kernels


class Policy(IntEnum):
    """How a decode instance is chosen among those with room. The last four form the paper's ablation ladder."""

    ROUND_ROBIN = kernels.ROUND_ROBIN
    LOAD = kernels.LOAD  # least queueing delay plus first step
    CACHE = kernels.CACHE  # longest prefix hit, load breaks ties
    CACHE_LOAD = kernels.CACHE_LOAD  # CLA*: weighted sum of miss and load
    NETKV_TOPO = kernels.TOPO  # post-prefill latency on static tier bandwidths
    NETKV_STATIC = kernels.STATIC  # ... and the transfers in flight
    NETKV_FULL = kernels.FULL  # ... and the congestion that the operator reports


class Oracle(NamedTuple):
    """What the operator tells the scheduler every refresh: three static maps and a dynamic one.

    tier_map[p, d] is the tier of prefill instance p and decode instance d; the others are indexed by tier, 0 (same
    node) to 3 (cross pod). Bandwidths are of one whole transfer on an idle tier.
    """

    tier_map: np.ndarray
    tier_bandwidth_bytes_per_s: np.ndarray
    tier_latency_s: np.ndarray
    congestion: np.ndarray


class TransferIntent(NamedTuple):
    """What the scheduler may tell the operator about a transfer that is about to start."""

    source: int
    destination: int
    payload_bytes: float
    priority: int = 0


class Pool(NamedTuple):
    """State of D decode instances: shape (D,), or (N, D) where each of N decisions has a state of its own."""

    free_bytes: np.ndarray
    queued: np.ndarray
    batch: np.ndarray
    inbound: np.ndarray | float = 0.0  # transfers on their way to the instance


class Choice(NamedTuple):
    """Index of the chosen instance per request (-1: rejected), what the policy minimised, and why not."""

    index: np.ndarray  # type: ignore[assignment]  # hides `tuple.index`, which means nothing here
    cost: np.ndarray
    flags: np.ndarray
    intents: list[TransferIntent] | None = None


def oracle_problems(oracle: Oracle) -> list[str]:
    """What is wrong with an oracle's answer, one sentence per fault; empty if nothing is."""
    found = []
    tiers = len(oracle.tier_bandwidth_bytes_per_s)
    used = np.unique(oracle.tier_map)
    if oracle.tier_map.size == 0:
        found.append(f"tier_map is {oracle.tier_map.shape}; there is no pair of a prefill and a decode instance")
    if used.size and (used.min() < 0 or used.max() >= tiers):
        odd = used.max() if used.max() >= tiers else used.min()
        found.append(f"tier_map holds tier {odd}; accepted: 0..{tiers - 1}")
        used = used[(used >= 0) & (used < tiers)]
    for t in used:
        rate, late, c = (float(column[t]) for column in oracle[1:])
        if not rate > 0 or not np.isfinite(rate):
            found.append(f"tier {t} has bandwidth {rate:g} B/s; its pairs are disconnected")
        if not 0 <= c < 1:
            found.append(f"tier {t} has congestion {c:g}; accepted: 0 to below 1 (1 or more leaves no bandwidth)")
        if not late >= 0:
            found.append(f"tier {t} has latency {late:g} s; accepted: 0 or more")
    return found


def costs(
    oracle: Oracle,
    source: Any,
    payload_bytes: Any,
    pool: Pool,
    in_flight: Any = 0.0,
    reserve_bytes: float = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
    destination_bytes_per_s: Any = np.inf,
) -> PostPrefill:
    """Post-prefill latency of every candidate, Eq. (5), in JAX: composes under jit, vmap and grad.

    `payload_bytes` (D,) is the effective size at each candidate, `in_flight` (4,) the transfers of this source by tier.
    """
    import jax.numpy as jnp

    tier = jnp.asarray(oracle.tier_map)[source]
    counts = jnp.asarray(in_flight).astype(jnp.asarray(oracle.congestion).dtype)
    rate = effective_bandwidth_bytes_per_s(
        jnp.asarray(oracle.tier_bandwidth_bytes_per_s)[tier],
        jnp.asarray(oracle.congestion)[tier],
        jnp.broadcast_to(counts, jnp.shape(oracle.congestion))[tier],
        destination_bytes_per_s=destination_bytes_per_s,
        destination_in_flight=jnp.broadcast_to(pool.inbound, tier.shape),
    )
    late = jnp.asarray(oracle.tier_latency_s)[tier]
    state = (pool.queued, pool.batch, pool.free_bytes)
    return post_prefill_latency(payload_bytes, rate, late, *state, reserve_bytes, curve)


def choose(
    policy: Policy,
    oracle: Oracle,
    source: Any,
    kv_bytes: Any,
    hit_frac: Any,
    pool: Pool,
    *,
    in_flight: Any = None,
    reserve_bytes: float = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
    cache_weight: float = 0.5,
    max_in_flight: float = MAX_IN_FLIGHT,
    destination_bytes_per_s: float = np.inf,
) -> Choice:
    """N independent decisions: requests (N,) from prefill instances `source`, hits (N, D) or (D,), one pool or N.

    Each decision sees the state given, not what the others of the batch take; `dispatch` is the sequential form.
    An instance without room for payload and reserve is never chosen.
    """
    return _run(
        kernels.choose_many,
        policy,
        oracle,
        source,
        kv_bytes,
        hit_frac,
        pool,
        in_flight,
        reserve_bytes,
        curve,
        cache_weight,
        max_in_flight,
        destination_bytes_per_s,
        2,
    )[0]


def dispatch(
    policy: Policy,
    oracle: Oracle,
    source: Any,
    kv_bytes: Any,
    hit_frac: Any,
    pool: Pool,
    *,
    in_flight: Any = None,
    reserve_bytes: float = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
    cache_weight: float = 0.5,
    max_in_flight: float = MAX_IN_FLIGHT,
    destination_bytes_per_s: float = np.inf,
) -> tuple[Choice, Pool, np.ndarray]:
    """Algorithm 1 over a burst: each request sees memory, batches and transfers in flight that the earlier ones took.

    Returns the choices (with their `TransferIntent`s), the pool and the counters afterwards; inputs stay as they are.
    """
    choice, state = _run(
        kernels.dispatch_many,
        policy,
        oracle,
        source,
        kv_bytes,
        hit_frac,
        pool,
        in_flight,
        reserve_bytes,
        curve,
        cache_weight,
        max_in_flight,
        destination_bytes_per_s,
        1,
    )
    free, queued, batch, inbound, counters, source, kv, hits = state
    intents = [
        TransferIntent(int(p), int(j), float(kv[r] * (1.0 - hits[r if len(hits) > 1 else 0, j])))
        for r, (p, j) in enumerate(zip(source, choice.index, strict=True))
        if j >= 0
    ]
    return choice._replace(intents=intents), Pool(free, queued, batch, inbound), counters


def _run(
    kernel: Callable[..., None],
    policy: Policy,
    oracle: Oracle,
    source: Any,
    kv_bytes: Any,
    hit_frac: Any,
    pool: Pool,
    in_flight: Any,
    reserve_bytes: float,
    curve: BatchingCurve,
    cache_weight: float,
    max_in_flight: float,
    destination_bytes_per_s: float,
    rank: int,
) -> tuple[Choice, tuple[np.ndarray, ...]]:
    """Shapes, types and flags around a kernel. `rank` 1: a pool of (D,), 2: of (1, D) or (N, D)."""
    tier_map = np.ascontiguousarray(oracle.tier_map, np.int64)
    if tier_map.ndim != 2 or tier_map.shape[1] == 0:
        raise InputError(f"tier_map: shape {tier_map.shape}; accepted: (prefill, at least one decode instance)")
    prefill, decode = tier_map.shape
    bandwidth, latency, congestion = (_row(x) for x in oracle[1:])
    if tier_map.min(initial=0) < 0 or tier_map.max(initial=0) >= len(bandwidth):
        raise InputError(f"tier_map: tier {tier_map.max()}; accepted: 0..{len(bandwidth) - 1}")
    kv = np.atleast_1d(np.ascontiguousarray(kv_bytes, np.float64))
    source = np.ascontiguousarray(np.broadcast_to(source, kv.shape), np.int64)
    if source.min(initial=0) < 0 or source.max(initial=0) >= prefill:
        raise InputError(f"source: instance {source.max()}; accepted: 0..{prefill - 1}")
    hits = _rows(hit_frac, decode, 2, "hit_frac")
    state = [np.array(_rows(x, decode, rank, name)) for name, x in pool._asdict().items()]
    rows = max(len(x) for x in state) if rank == 2 else 1
    if rank == 2:
        state = [np.ascontiguousarray(np.broadcast_to(x, (rows, decode))) for x in state]
    if rows not in (1, len(kv)) or len(hits) not in (1, len(kv)):
        raise InputError(f"pool and hits have {rows} and {len(hits)} rows; accepted: 1 or one per request ({len(kv)})")
    free, queued, batch, inbound = state
    counters = np.zeros((prefill, len(bandwidth))) if in_flight is None else np.array(in_flight, np.float64)
    if counters.shape != (prefill, len(bandwidth)):
        raise InputError(f"in_flight: shape {counters.shape}; accepted: {(prefill, len(bandwidth))}")
    index, cost = np.empty(len(kv), np.int64), np.empty(len(kv))
    flags = np.zeros(len(kv), np.int32)
    most, least = hits.max(1), hits.min(1)
    needs = kv[:, None] * (1.0 - hits) + reserve_bytes
    bad = ~(np.isfinite(kv) & (kv >= 0)) | ~((least >= 0) & (most <= 1))
    flags[bad] |= Flag.OUT_OF_DOMAIN
    used = np.unique(tier_map)
    if not ((congestion[used] >= 0) & (congestion[used] < 1)).all():
        flags |= np.int32(Flag.OUT_OF_DOMAIN)
    kernel(
        int(policy),
        source,
        kv,
        hits,
        free,
        float(reserve_bytes),
        queued,
        batch,
        tier_map,
        bandwidth,
        latency,
        congestion,
        counters,
        float(destination_bytes_per_s),
        inbound,
        float(curve.base_s),
        float(curve.slope_s),
        float(curve.max_batch),
        float(max_in_flight),
        float(cache_weight),
        index,
        cost,
    )
    lost = index < 0
    roomy = (needs <= free).any(1)
    flags[lost & ~roomy] |= Flag.NO_FIT
    flags[lost] |= Flag.INFEASIBLE
    return Choice(index, cost, flags), (free, queued, batch, inbound, counters, source, kv, hits)


def _row(values: Any) -> np.ndarray:
    return np.ascontiguousarray(np.atleast_1d(values), np.float64)


def _rows(values: Any, decode: int, rank: int, name: str) -> np.ndarray:
    array = np.asarray(values, np.float64)
    array = np.broadcast_to(array, (*array.shape[:-1], decode)) if array.ndim and array.shape[-1] == 1 else array
    array = np.full(decode, array) if array.ndim == 0 else array
    array = array[None] if array.ndim < rank else array
    if array.ndim != rank or array.shape[-1] != decode:
        raise InputError(f"{name}: shape {np.shape(values)}; accepted: one number per decode instance ({decode})")
    return np.ascontiguousarray(array)
