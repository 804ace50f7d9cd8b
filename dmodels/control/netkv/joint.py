r"""The best assignment of a whole burst at once, which NetKV's greedy leaves open: the most it could still gain.

Under Eq. (4) a burst from one source costs $\sum_r s_{r}(n_t + k_t)/B_t + D$, $k_t$ its requests on tier t:
every transfer pays for all that share its tier. For fixed counts $k$ this is a transportation problem of requests to
tiers with capacities $k_t$; the optimum is the best over all counts, solved as one batch.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve
from dmodels.solvers.solution import Solution
from dmodels.solvers.transportation import transport

from . import kernels
from .policy import pool_of, requests_of, rows_used, scoring_of
from .records import DecodePool, Oracle


class Burst(NamedTuple):
    """Where each request of a burst goes, and what the burst costs in total (post-prefill seconds, summed)."""

    index: Any  # (n,) decode instance
    tier_counts: Any  # (tiers,)
    cost_s: Any


def joint_assignment(
    oracle: Oracle,
    source: int,
    kv_bytes: Any,
    hit_frac: Any,
    pool: DecodePool,
    *,
    in_flight: Any = None,
    reserve_bytes: float = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
    max_in_flight: float = MAX_IN_FLIGHT,
) -> Solution:
    """Least total post-prefill latency of n requests (n,) that leave one prefill instance together.

    Candidates without room for a request are excluded one by one; what requests of the same burst take from each
    other (memory, the slope of the batching curve) is not modelled, and OVERLOAD marks a burst that overfills an
    instance. The certificate is that of `transport` at the best counts: its `gap` bounds the distance from the
    optimum at those counts, and `bounds` (one per count vector) shows that no other count can do better.
    """
    scoring = scoring_of(RoutingPolicy.NETKV_FULL, curve, reserve_bytes, max_in_flight=max_in_flight)
    requests, near, flying, state = _one_source(oracle, source, kv_bytes, hit_frac, pool, in_flight)
    count, tier, tiers = len(requests.kv_bytes), near.tier_map[0], len(near.congestion)
    used = np.unique(tier)
    counts = _compositions(count, len(used))
    cost, best = np.empty((len(counts), count, len(used))), np.empty((len(counts), count, len(used)), np.int64)
    kernels.cheapest_on_tiers(scoring, near, requests, state, flying, used=used, counts=counts, cost=cost, best=best)
    solved = transport(cost, counts)
    total = np.where(np.asarray(solved.flags) & Flag.INFEASIBLE, np.inf, np.asarray(solved.value.cost))
    row = int(total.argmin())
    if not np.isfinite(total[row]):
        nothing = Burst(np.full(count, -1), np.zeros(tiers), np.inf)
        return Solution(nothing, {"gap": np.inf, "bounds": total}, np.int32(Flag.INFEASIBLE), solved.steps.sum())
    column = np.asarray(solved.value.columns)[row].astype(int)
    index = best[row, np.arange(count), column]
    payload = requests.kv_bytes * (
        1.0 - np.broadcast_to(requests.hit_frac, (count, len(tier)))[np.arange(count), index]
    )
    taken = np.bincount(index, payload, len(tier))
    overfull = bool((taken + reserve_bytes * (taken > 0) > state.free_bytes).any())
    flags = np.int32(Flag.OVERLOAD if overfull else 0) | np.asarray(solved.flags)[row]
    certificate = {name: np.asarray(value)[row] for name, value in solved.certificate.items()} | {"bounds": total}
    value = Burst(index, np.bincount(tier[index], minlength=tiers).astype(float), float(total[row]))
    return Solution(value, certificate, flags, np.asarray(solved.steps).sum())


def burst_cost_s(
    oracle: Oracle,
    source: int,
    kv_bytes: Any,
    hit_frac: Any,
    pool: DecodePool,
    index: Any,
    *,
    in_flight: Any = None,
    curve: BatchingCurve = NETKV_CURVE,
    max_in_flight: float = MAX_IN_FLIGHT,
) -> float:
    """What any assignment of a burst costs under the same law; for comparing the greedy with the optimum."""
    scoring = scoring_of(RoutingPolicy.NETKV_FULL, curve, max_in_flight=max_in_flight)
    requests, near, flying, state = _one_source(oracle, source, kv_bytes, hit_frac, pool, in_flight)
    where = np.asarray(index, np.int64)
    if where.shape != requests.kv_bytes.shape or where.min() < 0 or where.max() >= near.tier_map.shape[1]:
        raise InputError(f"index: {where}; accepted: a decode instance from 0 for each of {len(requests.kv_bytes)}")
    return float(kernels.burst_cost(scoring, near, requests, state, flying, where))


def _one_source(
    oracle: Oracle, source: Any, kv_bytes: Any, hit_frac: Any, pool: DecodePool, in_flight: Any
) -> tuple[Any, ...]:
    """(requests, oracle, counters, pool) of one prefill instance."""
    requests = requests_of(oracle, source, kv_bytes, hit_frac)
    if len(requests.kv_bytes) == 0:
        raise InputError("kv_bytes: 0 requests; accepted: at least one")
    rows, near, flying, _ = rows_used(oracle, requests, in_flight)
    return (
        rows,
        near,
        flying,
        DecodePool(*(np.asarray(column)[0] for column in pool_of(pool, near.tier_map.shape[1], 1))),
    )


def _compositions(total: int, parts: int) -> np.ndarray:
    """All ways to write `total` as an ordered sum of `parts` counts, (K, parts)."""
    ways = list(combinations_with_replacement(range(total + 1), parts - 1))
    bars = np.array(ways, float).reshape(len(ways), parts - 1)
    edges = np.concatenate([np.zeros((len(bars), 1)), bars, np.full((len(bars), 1), float(total))], 1)
    return np.diff(edges, axis=1)
