r"""NetKV's cost, Eq. (3) to (7), once, and the compiled loops that choose by it.

A reading that is missing (NaN) makes a cost infinite: what is not known is never the least. `models.transfer` has the
same law in JAX; a property test holds the two together.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import inline, kernel
from dmodels.core.routing import RoutingPolicy

from .records import DecodePool

ROUND_ROBIN = RoutingPolicy.ROUND_ROBIN.number
LOAD = RoutingPolicy.LOAD.number
CACHE = RoutingPolicy.CACHE.number
CACHE_LOAD = RoutingPolicy.CACHE_LOAD.number
TOPO = RoutingPolicy.NETKV_TOPO.number
FULL = RoutingPolicy.NETKV_FULL.number
FREENESS = RoutingPolicy.FREENESS.number

#: Weight of the load that only breaks ties of the cache-affine policy.
_TIE = 1e-6


@inline
def at_least_zero(x):
    """max(x, 0) that keeps NaN."""
    return 0.0 if x < 0.0 else x


@inline
def at_most(x, most):
    """min(x, most) that keeps NaN."""
    return most if x > most else x


@kernel
def pace_s_per_byte(bandwidth_bytes_per_s, congestion, in_flight, max_in_flight):
    r"""Seconds per byte of one more transfer, $(n+1)/(B(1-c))$, Eq. (4) inverted; inf without bandwidth."""
    rate = bandwidth_bytes_per_s * at_least_zero(1.0 - congestion) / (at_most(in_flight, max_in_flight) + 1.0)
    return 1.0 / rate if rate > 0.0 else np.inf


@kernel
def send_s(payload_bytes, pace, latency_s):
    """Eq. (3): the latency alone without bytes, inf without bandwidth."""
    return latency_s + (0.0 if payload_bytes == 0.0 else payload_bytes * pace)


@kernel
def serve_s(queued, batch, curve):
    """Eq. (6) and (7): one iteration per request that finds no slot, then the step of the first token."""
    blocked = at_least_zero(queued - at_least_zero(curve.max_batch - batch))
    return blocked * (curve.base_s + curve.per_sequence_s * batch) + (
        curve.base_s + curve.per_sequence_s * at_most(batch + 1.0, curve.max_batch)
    )


@kernel
def post_prefill_s(payload_bytes, pace, latency_s, queued, batch, curve):
    """Eq. (5): transfer, queue and first step; inf where a reading is missing."""
    total = send_s(payload_bytes, pace, latency_s) + serve_s(queued, batch, curve)
    return np.inf if np.isnan(total) else total


@kernel
def tier_paces(scoring, oracle, in_flight, pace):
    """Seconds per byte of one more transfer on each tier, by what the policy looks at, into `pace`."""
    for t in range(pace.shape[0]):
        congestion = oracle.congestion[t] if scoring.policy == FULL else 0.0
        flying = 0.0 if scoring.policy == TOPO else in_flight[t]
        pace[t] = pace_s_per_byte(oracle.tier_bandwidth_bytes_per_s[t], congestion, flying, scoring.max_in_flight)


@kernel
def candidate_cost(scoring, payload_bytes, hit_frac, free_bytes, queued, batch, inbound, pace, latency_s):
    """What a policy minimises, for one instance. Seconds for LOAD and the NetKV family, a score for the cache ones,
    free bytes per request there, negative, for FREENESS."""
    policy = scoring.policy
    if policy == FREENESS:
        return -free_bytes / max(queued + batch, 1.0)
    if policy == CACHE or policy == CACHE_LOAD:
        weight = 1.0 - _TIE if policy == CACHE else scoring.cache_weight
        return weight * (1.0 - hit_frac) + (1.0 - weight) * (queued + batch) / scoring.curve.max_batch
    if policy == LOAD:
        return post_prefill_s(0.0, 0.0, 0.0, queued, batch, scoring.curve)
    if policy != TOPO:
        pace = max(pace, (inbound + 1.0) / scoring.destination_bytes_per_s)
    return post_prefill_s(payload_bytes, pace, latency_s, queued, batch, scoring.curve)


@kernel
def has_room(scoring, kv_bytes, hit_frac, free_bytes):
    """Whether payload and reserve fit; not where the free memory is not known."""
    return kv_bytes * (1.0 - hit_frac) + scoring.reserve_bytes <= free_bytes


@kernel
def choose_one(scoring, kv_bytes, hit_frac, pool, tier, pace, latency_s, start):
    """(index, cost) of the cheapest instance with room, the first from `start` among equals; (-1, inf) if none."""
    count = hit_frac.shape[0]
    best, least = -1, np.inf
    # arrays by themselves: numba counts references at every access to a record's
    free_bytes, queued, batch, inbound = pool.free_bytes, pool.queued, pool.batch, pool.inbound
    for step in range(count):
        j = start + step
        if j >= count:
            j -= count
        if not has_room(scoring, kv_bytes, hit_frac[j], free_bytes[j]):
            continue
        if scoring.policy == ROUND_ROBIN:
            return j, 0.0
        t, payload = tier[j], kv_bytes * (1.0 - hit_frac[j])
        load = free_bytes[j], queued[j], batch[j], inbound[j]
        cost = candidate_cost(scoring, payload, hit_frac[j], *load, pace[t], latency_s[t])
        if cost < least:
            best, least = j, cost
    return best, least


@kernel
def choose_many(scoring, oracle, requests, pools, in_flight, index, cost):
    """`choose_one` for each request on its own row of the state; a state with one row is shared by all."""
    pace = np.empty(oracle.congestion.shape[0])
    for r in range(requests.source.shape[0]):
        p = requests.source[r]
        h = r if requests.hit_frac.shape[0] > 1 else 0
        s = r if pools.queued.shape[0] > 1 else 0
        pool = DecodePool(pools.free_bytes[s], pools.queued[s], pools.batch[s], pools.inbound[s])
        hit = requests.hit_frac[h]
        tier_paces(scoring, oracle, in_flight[p], pace)
        start = r % hit.shape[0] if scoring.policy == ROUND_ROBIN else 0
        index[r], cost[r] = choose_one(
            scoring, requests.kv_bytes[r], hit, pool, oracle.tier_map[p], pace, oracle.tier_latency_s, start
        )


@kernel
def dispatch_many(scoring, oracle, requests, pools, in_flight, index, cost):
    """Algorithm 1 request after request, each seeing what the earlier ones took; the state arrays are updated."""
    pool = DecodePool(pools.free_bytes[0], pools.queued[0], pools.batch[0], pools.inbound[0])
    turn, pace = 0, np.empty(oracle.congestion.shape[0])
    for r in range(requests.source.shape[0]):
        p = requests.source[r]
        hit = requests.hit_frac[r if requests.hit_frac.shape[0] > 1 else 0]
        tier_paces(scoring, oracle, in_flight[p], pace)
        start = turn if scoring.policy == ROUND_ROBIN else 0
        index[r], cost[r] = choose_one(
            scoring, requests.kv_bytes[r], hit, pool, oracle.tier_map[p], pace, oracle.tier_latency_s, start
        )
        j = index[r]
        if j < 0:
            continue
        turn = (j + 1) % hit.shape[0]
        pool.free_bytes[j] -= requests.kv_bytes[r] * (1.0 - hit[j])
        in_flight[p, oracle.tier_map[p, j]] += 1.0
        pool.inbound[j] += 1.0
        join(pool, j, scoring.curve)


@kernel
def join(pool, j, curve):
    """One request more on instance j: in its batch while there is a slot, else in its queue."""
    if pool.batch[j] < curve.max_batch:
        pool.batch[j] += 1.0
    else:
        pool.queued[j] += 1.0


@kernel
def burst_cost(scoring, oracle, requests, pool, in_flight, index):
    """Eq. (5) summed over a burst from one instance, of which all transfers on a tier share it."""
    p, total = requests.source[0], 0.0
    count, pace = np.zeros(in_flight.shape[1]), np.empty(in_flight.shape[1])
    for r in range(index.shape[0]):
        count[oracle.tier_map[p, index[r]]] += 1.0
    others = np.maximum(count - 1.0, 0.0)  # a transfer does not wait for itself
    tier_paces(scoring, oracle, in_flight[p] + others, pace)
    for r in range(index.shape[0]):
        j = index[r]
        t, hit = oracle.tier_map[p, j], requests.hit_frac[r if requests.hit_frac.shape[0] > 1 else 0, j]
        payload = requests.kv_bytes[r] * (1.0 - hit)
        load = pool.free_bytes[j], pool.queued[j], pool.batch[j], pool.inbound[j]
        total += candidate_cost(scoring, payload, hit, *load, pace[t], oracle.tier_latency_s[t])
    return total


@kernel
def cheapest_on_tiers(scoring, oracle, requests, pool, in_flight, used, counts, cost, best):
    """For each vector of transfers per tier (`counts`), the least cost of each request on each tier, and where."""
    p = requests.source[0]
    share, pace = np.zeros(in_flight.shape[1]), np.empty(in_flight.shape[1])
    for k in range(counts.shape[0]):
        share[:] = in_flight[p]
        for column in range(used.shape[0]):
            share[used[column]] += max(counts[k, column], 1.0) - 1.0
        tier_paces(scoring, oracle, share, pace)
        for r in range(requests.kv_bytes.shape[0]):
            hit = requests.hit_frac[r if requests.hit_frac.shape[0] > 1 else 0]
            for column in range(used.shape[0]):
                t, cost[k, r, column], best[k, r, column] = used[column], np.inf, -1
                for j in range(hit.shape[0]):
                    if oracle.tier_map[p, j] != t:
                        continue
                    if not has_room(scoring, requests.kv_bytes[r], hit[j], pool.free_bytes[j]):
                        continue
                    payload = requests.kv_bytes[r] * (1.0 - hit[j])
                    load = pool.free_bytes[j], pool.queued[j], pool.batch[j], pool.inbound[j]
                    price = candidate_cost(scoring, payload, hit[j], *load, pace[t], oracle.tier_latency_s[t])
                    if price < cost[k, r, column]:
                        cost[k, r, column], best[k, r, column] = price, j
