"""The scoring loops of decode-instance selection, compiled: one request against one pool, and many against many.

They repeat `models.transfer` number for number (a test holds them together), because a router and a flow simulator
need the answer in fractions of a microsecond, one request at a time.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel

ROUND_ROBIN, LOAD, CACHE, CACHE_LOAD, TOPO, STATIC, FULL = range(7)

#: Weight of the load that only breaks ties of the cache-aware policy.
_TIE = 1e-6


@kernel
def tier_pace(policy, bandwidth, congestion, in_flight, max_in_flight, pace):
    """Seconds per byte of one more transfer on each tier, by what the policy looks at, into `pace`."""
    for t in range(bandwidth.shape[0]):
        rate = bandwidth[t]
        if policy == FULL:
            rate *= max(1.0 - congestion[t], 0.0)
        if policy != TOPO:
            rate /= min(in_flight[t], max_in_flight) + 1.0
        pace[t] = 1.0 / rate if rate > 0.0 else np.inf


@kernel
def candidate_cost(
    policy, kv_bytes, hit_frac, queued, batch, pace, latency, to_pace, base_s, slope_s, max_batch, cache_weight
):
    """What a policy minimises, for one candidate. Seconds for LOAD and the NetKV family, a score for the cache ones."""
    iteration = base_s + slope_s * batch
    if policy == CACHE or policy == CACHE_LOAD:
        weight = 1.0 - _TIE if policy == CACHE else cache_weight
        return weight * (1.0 - hit_frac) + (1.0 - weight) * (queued + batch) / max_batch
    blocked = max(queued - max(max_batch - batch, 0.0), 0.0)
    serve = blocked * iteration + base_s + slope_s * min(batch + 1.0, max_batch)
    if policy == LOAD:
        return serve
    payload = kv_bytes * (1.0 - hit_frac)
    if payload == 0.0:
        return serve + latency
    return serve + latency + payload * (pace if policy == TOPO else max(pace, to_pace))


@kernel
def choose_one(
    policy,
    kv_bytes,
    hit_frac,
    free_bytes,
    reserve_bytes,
    queued,
    batch,
    tier,
    pace,
    latency,
    to_rate,
    to_count,
    base_s,
    slope_s,
    max_batch,
    cache_weight,
    start,
):
    """(index, cost) of the cheapest candidate with room, the first from `start` among equals; (-1, inf) if none."""
    count = hit_frac.shape[0]
    best, least, to_pace = -1, np.inf, 1.0 / to_rate
    for step in range(count):
        j = start + step
        if j >= count:
            j -= count
        if kv_bytes * (1.0 - hit_frac[j]) + reserve_bytes > free_bytes[j]:
            continue
        if policy == ROUND_ROBIN:
            return j, 0.0
        t = tier[j]
        cost = candidate_cost(
            policy,
            kv_bytes,
            hit_frac[j],
            queued[j],
            batch[j],
            pace[t],
            latency[t],
            (to_count[j] + 1.0) * to_pace,
            base_s,
            slope_s,
            max_batch,
            cache_weight,
        )
        if cost < least:
            best, least = j, cost
    return best, least


@kernel
def choose_many(
    policy,
    source,
    kv_bytes,
    hit_frac,
    free_bytes,
    reserve_bytes,
    queued,
    batch,
    tier_map,
    bandwidth,
    latency,
    congestion,
    in_flight,
    to_rate,
    to_count,
    base_s,
    slope_s,
    max_batch,
    max_in_flight,
    cache_weight,
    index,
    cost,
):
    """`choose_one` for each request on its own row of the state; a state with one row is shared by all."""
    pace = np.empty(tier_map.shape[:1] + bandwidth.shape)
    for p in range(pace.shape[0]):
        tier_pace(policy, bandwidth, congestion, in_flight[p], max_in_flight, pace[p])
    for r in range(source.shape[0]):
        h = r if hit_frac.shape[0] > 1 else 0
        s = r if queued.shape[0] > 1 else 0
        start = r % hit_frac.shape[1] if policy == ROUND_ROBIN else 0
        index[r], cost[r] = choose_one(
            policy,
            kv_bytes[r],
            hit_frac[h],
            free_bytes[s],
            reserve_bytes,
            queued[s],
            batch[s],
            tier_map[source[r]],
            pace[source[r]],
            latency,
            to_rate,
            to_count[s],
            base_s,
            slope_s,
            max_batch,
            cache_weight,
            start,
        )


@kernel
def dispatch_many(
    policy,
    source,
    kv_bytes,
    hit_frac,
    free_bytes,
    reserve_bytes,
    queued,
    batch,
    tier_map,
    bandwidth,
    latency,
    congestion,
    in_flight,
    to_rate,
    to_count,
    base_s,
    slope_s,
    max_batch,
    max_in_flight,
    cache_weight,
    index,
    cost,
):
    """Algorithm 1 request after request, each seeing what the earlier ones took; the state arrays are updated."""
    count = hit_frac.shape[1]
    turn, pace = 0, np.empty_like(bandwidth)
    for r in range(source.shape[0]):
        p = source[r]
        h = r if hit_frac.shape[0] > 1 else 0
        tier_pace(policy, bandwidth, congestion, in_flight[p], max_in_flight, pace)
        index[r], cost[r] = choose_one(
            policy,
            kv_bytes[r],
            hit_frac[h],
            free_bytes,
            reserve_bytes,
            queued,
            batch,
            tier_map[p],
            pace,
            latency,
            to_rate,
            to_count,
            base_s,
            slope_s,
            max_batch,
            cache_weight,
            turn if policy == ROUND_ROBIN else 0,
        )
        j = index[r]
        if j < 0:
            continue
        turn = (j + 1) % count
        free_bytes[j] -= kv_bytes[r] * (1.0 - hit_frac[h, j])
        in_flight[p, tier_map[p, j]] += 1.0
        to_count[j] += 1.0
        if batch[j] < max_batch:
            batch[j] += 1.0
        else:
            queued[j] += 1.0
