"""Decode-instance selection that sees the network: faults of an oracle, Algorithm 1 of NetKV, and its baselines.

Everything here works on whole batches of decisions, from pure state to pure choice. For one request at a time in a
live router see `router`; for the optimum over a batch, `joint`; for forecasts, `control.congestion`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve
from dmodels.models.transfer import PostPrefill, effective_bandwidth_bytes_per_s, post_prefill_latency

from . import kernels
from .records import Choice, DecodePool, Oracle, Requests, Scoring, TransferIntent, stray

#: What `choose` and `dispatch` can do. The last four form the paper's ablation ladder.
POLICIES = (
    RoutingPolicy.ROUND_ROBIN,
    RoutingPolicy.LOAD,
    RoutingPolicy.FREENESS,
    RoutingPolicy.CACHE,
    RoutingPolicy.CACHE_LOAD,
    RoutingPolicy.NETKV_TOPO,
    RoutingPolicy.NETKV_STATIC,
    RoutingPolicy.NETKV_FULL,
)


def oracle_problems(oracle: Oracle) -> list[str]:
    """What is wrong with an oracle's answer, one sentence per fault; empty if nothing is."""
    found = []
    tiers = len(oracle.tier_bandwidth_bytes_per_s)
    used = np.unique(oracle.tier_map)
    if oracle.tier_map.size == 0:
        found.append(f"tier_map is {oracle.tier_map.shape}; there is no pair of a prefill and a decode instance")
    if used.size and (used.min() < 0 or used.max() >= tiers):
        found.append(f"tier_map holds tier {stray(used, tiers)}; accepted: 0..{tiers - 1}")
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
    pool: DecodePool,
    in_flight: Any = 0.0,
    reserve_bytes: float = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
    destination_bytes_per_s: Any = np.inf,
) -> PostPrefill:
    """Post-prefill latency of every candidate, Eq. (5), in JAX: composes under jit, vmap and grad.

    `payload_bytes` (D,) is the effective size at each candidate, `in_flight` (4,) the transfers of this source by tier.
    The same law as `kernels.post_prefill_s`.
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
    policy: RoutingPolicy,
    oracle: Oracle,
    source: Any,
    kv_bytes: Any,
    hit_frac: Any,
    pool: DecodePool,
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
    An instance without room for payload and reserve, or whose free memory is not known (NaN), is never chosen, nor is
    one of unknown cost.
    """
    scoring = scoring_of(policy, curve, reserve_bytes, cache_weight, max_in_flight, destination_bytes_per_s)
    requests = requests_of(oracle, source, kv_bytes, hit_frac)
    rows, near, counters, _ = rows_used(oracle, requests, in_flight)
    pools = pool_of(pool, near.tier_map.shape[1], len(rows.kv_bytes))
    index, cost = np.empty(len(rows.kv_bytes), np.int64), np.empty(len(rows.kv_bytes))
    kernels.choose_many(scoring, near, rows, pools, counters, index=index, cost=cost)
    return Choice(index, cost, _flags(scoring, near, rows, pools.free_bytes, index))


def dispatch(
    policy: RoutingPolicy,
    oracle: Oracle,
    source: Any,
    kv_bytes: Any,
    hit_frac: Any,
    pool: DecodePool,
    *,
    in_flight: Any = None,
    reserve_bytes: float = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
    cache_weight: float = 0.5,
    max_in_flight: float = MAX_IN_FLIGHT,
    destination_bytes_per_s: float = np.inf,
) -> tuple[Choice, DecodePool, np.ndarray]:
    """Algorithm 1 over a burst: each request sees memory, batches and transfers in flight that the earlier ones took.

    Returns the choices (with their `TransferIntent`s), the pool and the counters afterwards; inputs stay as they are.
    """
    scoring = scoring_of(policy, curve, reserve_bytes, cache_weight, max_in_flight, destination_bytes_per_s)
    requests = requests_of(oracle, source, kv_bytes, hit_frac)
    rows, near, counters, used = rows_used(oracle, requests, in_flight)
    pools = pool_of(pool, near.tier_map.shape[1], 1)
    index, cost = np.empty(len(rows.kv_bytes), np.int64), np.empty(len(rows.kv_bytes))
    free = pools.free_bytes.copy()
    kernels.dispatch_many(scoring, near, rows, pools, counters, index=index, cost=cost)
    hit = np.broadcast_to(rows.hit_frac, (len(index), near.tier_map.shape[1]))
    taken = np.where(np.arange(hit.shape[1]) == index[:, None], rows.kv_bytes[:, None] * (1.0 - hit), 0.0)
    free = np.subtract.accumulate(np.concatenate([free, taken[:-1]]))  # as each request found it
    flags = _flags(scoring, near, rows, free, index)
    intents = [
        TransferIntent(int(p), int(j), float(kv * (1.0 - hit[r, j])))
        for r, (p, j, kv) in enumerate(zip(requests.source, index, rows.kv_bytes, strict=True))
        if j >= 0
    ]
    after = np.zeros((len(oracle.tier_map), counters.shape[1])) if in_flight is None else np.array(in_flight, float)
    after[used] = counters
    return Choice(index, cost, flags, intents), DecodePool(*(np.asarray(column)[0] for column in pools)), after


def scoring_of(
    policy: RoutingPolicy,
    curve: BatchingCurve,
    reserve_bytes: float = 0.0,
    cache_weight: float = 0.5,
    max_in_flight: float = MAX_IN_FLIGHT,
    destination_bytes_per_s: float = np.inf,
) -> Scoring:
    """The numbers of a decision as kernels want them."""
    if policy not in POLICIES:
        raise InputError(f"policy: {policy}; accepted: {', '.join(POLICIES)}")
    plain = BatchingCurve(*(float(x) for x in curve))
    limits = (float(x) for x in (reserve_bytes, cache_weight, max_in_flight, destination_bytes_per_s))
    return Scoring(policy.number, plain, *limits)


def requests_of(oracle: Oracle, source: Any, kv_bytes: Any, hit_frac: Any) -> Requests:
    """Requests as arrays of one length, checked against the map of tiers."""
    shape = np.shape(oracle.tier_map)
    if len(shape) != 2 or shape[1] == 0:
        raise InputError(f"tier_map: shape {shape}; accepted: (prefill, at least one decode instance)")
    kv = np.atleast_1d(np.ascontiguousarray(kv_bytes, np.float64))
    source = np.ascontiguousarray(np.broadcast_to(source, kv.shape), np.int64)
    if source.min(initial=0) < 0 or source.max(initial=0) >= shape[0]:
        raise InputError(f"source: instance {stray(source, shape[0])}; accepted: 0..{shape[0] - 1}")
    hits = _rows(hit_frac, shape[1], "hit_frac")
    if len(hits) not in (1, len(kv)):
        raise InputError(f"hit_frac: {len(hits)} rows; accepted: 1 or one per request ({len(kv)})")
    return Requests(source, kv, hits)


def rows_used(oracle: Oracle, requests: Requests, in_flight: Any) -> tuple[Requests, Oracle, np.ndarray, np.ndarray]:
    """Requests, oracle and counters reduced to the prefill instances that send: all that a decision must look at."""
    used, local = np.unique(requests.source, return_inverse=True)
    near = np.ascontiguousarray(np.asarray(oracle.tier_map)[used], np.int64)
    bandwidth, latency, congestion = (np.ascontiguousarray(np.atleast_1d(x), np.float64) for x in oracle[1:])
    if near.min(initial=0) < 0 or near.max(initial=0) >= len(bandwidth):
        raise InputError(f"tier_map: tier {stray(near, len(bandwidth))}; accepted: 0..{len(bandwidth) - 1}")
    shape = (len(oracle.tier_map), len(bandwidth))
    if in_flight is not None and np.shape(in_flight) != shape:
        raise InputError(f"in_flight: shape {np.shape(in_flight)}; accepted: {shape}")
    counters = np.zeros((len(used), len(bandwidth)))
    if in_flight is not None:
        counters += np.asarray(in_flight, np.float64)[used]
    return requests._replace(source=local.reshape(-1)), Oracle(near, bandwidth, latency, congestion), counters, used


def pool_of(pool: DecodePool, decode: int, requests: int) -> DecodePool:
    """A pool of (1, D), or of (N, D) where any of its columns has one row per request; always copies."""
    columns = [_rows(values, decode, name) for name, values in pool._asdict().items()]
    rows = max(len(column) for column in columns)
    if rows not in (1, requests) or any(len(column) not in (1, rows) for column in columns):
        raise InputError(f"pool: {rows} rows; accepted: 1 or one per request ({requests})")
    return DecodePool(*(np.array(np.broadcast_to(column, (rows, decode))) for column in columns))


def _rows(values: Any, decode: int, name: str) -> np.ndarray:
    """`values` as (rows, decode)."""
    array = np.atleast_1d(np.asarray(values, np.float64))
    if array.ndim > 2 or array.shape[-1] not in (1, decode):
        raise InputError(f"{name}: shape {np.shape(values)}; accepted: one number per decode instance ({decode})")
    array = np.broadcast_to(array, (*array.shape[:-1], decode))
    return np.ascontiguousarray(array[None] if array.ndim == 1 else array)


def _flags(scoring: Scoring, near: Oracle, requests: Requests, free_bytes: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Why requests were rejected, and which inputs lie outside the domain."""
    kv, hits, lost = requests.kv_bytes, requests.hit_frac, index < 0
    flags = np.zeros(len(kv), np.int32)
    flags[~(np.isfinite(kv) & (kv >= 0)) | ~((hits.min(1) >= 0) & (hits.max(1) <= 1))] |= Flag.OUT_OF_DOMAIN
    used = np.zeros(len(near.congestion), bool)
    used[near.tier_map] = True
    if not ((near.congestion[used] >= 0) & (near.congestion[used] < 1)).all():
        flags |= np.int32(Flag.OUT_OF_DOMAIN)
    roomy = (kv[:, None] * (1.0 - hits) + scoring.reserve_bytes <= free_bytes).any(1)
    flags[lost & ~roomy] |= Flag.NO_FIT
    flags[lost] |= Flag.INFEASIBLE
    return flags
