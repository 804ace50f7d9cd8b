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
from dmodels.models.latency import NETKV_CURVE, BatchingCurve
from dmodels.solvers.solution import Solution
from dmodels.solvers.transportation import transport

from .policy import Oracle, Pool


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
    pool: Pool,
    *,
    in_flight: Any = None,
    reserve_bytes: float = 0.0,
    curve: BatchingCurve = NETKV_CURVE,
) -> Solution:
    """Least total post-prefill latency of n requests (n,) that leave one prefill instance together.

    Candidates without room for a request are excluded one by one; what requests of the same burst take from each
    other (memory, the slope of the batching curve) is not modelled, and OVERLOAD marks a burst that overfills an
    instance. The certificate is that of `transport` at the best counts: its `gap` bounds the distance from the
    optimum at those counts, and `bounds` (one per count vector) shows that no other count can do better.
    """
    kv = np.atleast_1d(np.asarray(kv_bytes, np.float64))
    tier = np.asarray(oracle.tier_map)[source]
    count, tiers = len(kv), len(oracle.tier_bandwidth_bytes_per_s)
    if count == 0 or tier.size == 0:
        raise InputError(f"kv_bytes, tier_map: {count} requests, {tier.size} candidates; accepted: at least one each")
    hits = np.broadcast_to(np.asarray(hit_frac, np.float64), (count, len(tier)))
    flying = np.zeros(tiers) if in_flight is None else np.asarray(in_flight, np.float64)[source]
    payload = kv[:, None] * (1.0 - hits)
    room = payload + reserve_bytes <= pool.free_bytes
    blocked = np.maximum(pool.queued - np.maximum(curve.max_batch - pool.batch, 0.0), 0.0)
    fixed = blocked * curve.iteration_s(pool.batch) + curve.iteration_s(np.minimum(pool.batch + 1.0, curve.max_batch))
    fixed = fixed + np.asarray(oracle.tier_latency_s)[tier]
    rate = np.asarray(oracle.tier_bandwidth_bytes_per_s) * np.maximum(1.0 - np.asarray(oracle.congestion), 0.0)
    used = [t for t in np.unique(tier) if rate[t] > 0]
    if not used:
        nothing = Burst(np.full(count, -1), np.zeros(tiers), np.inf)
        return Solution(nothing, {"gap": np.inf, "bounds": np.zeros(0)}, np.int32(Flag.INFEASIBLE), np.int64(0))
    counts = _compositions(count, len(used))
    cost, best = np.empty((len(counts), count, len(used))), np.empty((len(counts), count, len(used)), int)
    for column, t in enumerate(used):  # the cheapest candidate of a tier, at each level of sharing
        here = np.flatnonzero(tier == t)
        share = (flying[t] + np.maximum(counts[:, column], 1.0)) / rate[t]
        price = share[:, None, None] * payload[None][:, :, here] + fixed[here]
        price = np.where(room[None][:, :, here], price, np.inf)
        pick = price.argmin(-1)
        best[:, :, column] = here[pick]
        cost[:, :, column] = np.take_along_axis(price, pick[..., None], -1)[..., 0]
    solved = transport(cost, counts)
    total = np.where(np.asarray(solved.flags) & Flag.INFEASIBLE, np.inf, np.asarray(solved.value.cost))
    row = int(total.argmin())
    if not np.isfinite(total[row]):
        nothing = Burst(np.full(count, -1), np.zeros(tiers), np.inf)
        return Solution(nothing, {"gap": np.inf, "bounds": total}, np.int32(Flag.INFEASIBLE), solved.steps.sum())
    column = np.asarray(solved.value.columns)[row].astype(int)
    index = best[row, np.arange(count), column]
    taken = np.zeros(len(tier))
    np.add.at(taken, index, payload[np.arange(count), index])
    overfull = bool((taken + reserve_bytes * (taken > 0) > pool.free_bytes).any())
    flags = np.int32(Flag.OVERLOAD if overfull else 0) | np.asarray(solved.flags)[row]
    certificate = {name: np.asarray(value)[row] for name, value in solved.certificate.items()} | {"bounds": total}
    value = Burst(index, np.bincount(tier[index], minlength=tiers).astype(float), float(total[row]))
    return Solution(value, certificate, flags, np.asarray(solved.steps).sum())


def burst_cost_s(
    oracle: Oracle,
    source: int,
    kv_bytes: Any,
    hit_frac: Any,
    pool: Pool,
    index: Any,
    *,
    in_flight: Any = None,
    curve: BatchingCurve = NETKV_CURVE,
) -> float:
    """What any assignment of a burst costs under the same law; for comparing the greedy with the optimum."""
    index, tier = np.asarray(index), np.asarray(oracle.tier_map)[source]
    kv, tiers = np.atleast_1d(np.asarray(kv_bytes, np.float64)), len(oracle.tier_bandwidth_bytes_per_s)
    hits = np.broadcast_to(np.asarray(hit_frac, np.float64), (len(kv), len(tier)))
    flying = np.zeros(tiers) if in_flight is None else np.asarray(in_flight, np.float64)[source]
    share = flying + np.bincount(tier[index], minlength=tiers)
    rate = np.asarray(oracle.tier_bandwidth_bytes_per_s) * (1.0 - np.asarray(oracle.congestion))
    blocked = np.maximum(pool.queued - np.maximum(curve.max_batch - pool.batch, 0.0), 0.0)
    fixed = blocked * curve.iteration_s(pool.batch) + curve.iteration_s(np.minimum(pool.batch + 1.0, curve.max_batch))
    t = tier[index]
    send = kv * (1.0 - hits[np.arange(len(kv)), index]) * share[t] / rate[t]
    return float((send + fixed[index] + np.asarray(oracle.tier_latency_s)[t]).sum())


def _compositions(total: int, parts: int) -> np.ndarray:
    """All ways to write `total` as an ordered sum of `parts` counts, (K, parts)."""
    ways = list(combinations_with_replacement(range(total + 1), parts - 1))
    bars = np.array(ways, float).reshape(len(ways), parts - 1)
    edges = np.concatenate([np.zeros((len(bars), 1)), bars, np.full((len(bars), 1), float(total))], 1)
    return np.diff(edges, axis=1)
