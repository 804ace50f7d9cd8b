"""Compiled loops of the live NetKV router: one request, on what is known and what is not."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.routing import CLOSED, power_of_two
from dmodels.models.latency import BatchingCurve

from .kernels import pace_s_per_byte, post_prefill_s, send_s, serve_s

# rows of the table of instances, and of the table of tiers
FREE, QUEUED, BATCH, SERVE, SEEN, OPEN, LOAD, COST, PACE, DELAY = range(10)
BANDWIDTH, LATENCY, CONGESTION, READ, SEND, SEND_AT_BEST = range(6)
#: Instances that are scored together.
BLOCK = 512
#: numbers that all decisions share
BASE, SLOPE, MOST_BATCH, RESERVE, MOST_IN_FLIGHT, MAX_AGE = range(6)
INFINITE = np.array(np.inf).view(np.int64).item()


@kernel(error_model="numpy")
def by_tier(tier, send, latency, pace, delay):
    """What each tier says, for each instance. A loop of its own: look-ups would keep `score` from being vector code."""
    for j in range(tier.shape[0]):
        pace[j], delay[j] = send[tier[j]], latency[tier[j]]


@kernel(error_model="numpy")
def score(table, a, b, hit_frac, kv_bytes, oldest_s, reserve_bytes):
    """COST of a..b-1, what is unknown at its worst, and LOAD, CLOSED where it is known that an instance lacks room."""
    free, serve, seen, requests = table[FREE, a:b], table[SERVE, a:b], table[SEEN, a:b], table[OPEN, a:b]
    load, cost, send, latency = table[LOAD, a:b], table[COST, a:b], table[PACE, a:b], table[DELAY, a:b]
    for j in range(b - a):
        payload = kv_bytes * (1.0 - hit_frac[j])
        is_known = seen[j] >= oldest_s
        total = send_s(payload, send[j], latency[j]) + serve[j]
        cost[j] = total if is_known & (payload + reserve_bytes <= free[j]) & (total == total) else np.inf
        load[j] = CLOSED if is_known & (payload + reserve_bytes > free[j]) else requests[j]


@kernel
def cheapest(table, tier, tiers, hit_frac, kv_bytes, oldest_s, reserve_bytes):
    """(instance, cost), what is unknown at its worst; inf if none can. In blocks that stay in the nearest cache."""
    count, start, low = tier.shape[0], 0, INFINITE
    bits = table[COST].view(np.int64)  # floats from 0 order as their bits do, whose least is found by vector code
    for a in range(0, count, BLOCK):
        b = min(a + BLOCK, count)
        by_tier(tier[a:b], tiers[SEND], tiers[LATENCY], table[PACE, a:b], table[DELAY, a:b])
        score(table, a, b, hit_frac[a:b], kv_bytes, oldest_s, reserve_bytes)
        here = INFINITE
        for j in range(a, b):
            here = min(here, bits[j])
        if here < low:
            start, low = a, here
    while bits[start] != low:
        start += 1
    return start, table[COST, start]


@kernel
def decide(state, source, hit_frac, kv_bytes, now_s, draws):
    """The instance for one request, which then counts there and on its tier; -1: none can take it."""
    (table, tiers, rules), (tier, in_flight) = state, source
    oldest_s, reserve_bytes, most = now_s - rules[MAX_AGE], rules[RESERVE], rules[MOST_IN_FLIGHT]
    curve = BatchingCurve(rules[BASE], rules[SLOPE], rules[MOST_BATCH])
    for t in range(tiers.shape[1]):
        congestion = tiers[CONGESTION, t] if tiers[READ, t] >= oldest_s else np.nan
        bandwidth, flying = tiers[BANDWIDTH, t], in_flight[t]
        tiers[SEND, t] = pace_s_per_byte(bandwidth, congestion, flying, most)
        congestion = 0.0 if np.isnan(congestion) else congestion
        tiers[SEND_AT_BEST, t] = pace_s_per_byte(bandwidth, congestion, flying, most)
    best, cost = cheapest(table, tier, tiers, hit_frac, kv_bytes, oldest_s, reserve_bytes)
    for t in range(tiers.shape[1]):
        if tiers[SEND_AT_BEST, t] == np.inf:
            for j in range(tier.shape[0]):
                if tier[j] == t and kv_bytes * (1.0 - hit_frac[j]) > 0.0:
                    table[LOAD, j] = CLOSED
    drawn = power_of_two(table[LOAD], 0, tier.shape[0], draws[0], draws[1])
    if drawn < 0:
        return -1
    if cost == np.inf or cost > at_best(
        table, drawn, tiers, tier[drawn], kv_bytes * (1.0 - hit_frac[drawn]), oldest_s, curve
    ):
        best = drawn
    payload = kv_bytes * (1.0 - hit_frac[best])
    table[FREE, best] -= payload if np.isfinite(payload) else 0.0
    table[QUEUED if table[BATCH, best] >= curve.max_batch else BATCH, best] += 1.0
    table[SERVE, best] = serve_s(table[QUEUED, best], table[BATCH, best], curve)
    table[OPEN, best] += 1.0
    in_flight[tier[best]] += 1.0
    return best


@kernel
def at_best(table, j, tiers, t, payload_bytes, oldest_s, curve):
    """Eq. (5) of instance j with all that is unknown at its best."""
    payload = 0.0 if np.isnan(payload_bytes) else payload_bytes
    is_known = table[SEEN, j] >= oldest_s
    queued = table[QUEUED, j] if is_known and not np.isnan(table[QUEUED, j]) else 0.0
    batch = table[BATCH, j] if is_known and not np.isnan(table[BATCH, j]) else 0.0
    return post_prefill_s(payload, tiers[SEND_AT_BEST, t], tiers[LATENCY, t], queued, batch, curve)


@kernel
def note_serve(table, instances, rules):
    """SERVE of instances whose queue or batch has been read."""
    curve = BatchingCurve(rules[BASE], rules[SLOPE], rules[MOST_BATCH])
    for j in instances:
        table[SERVE, j] = serve_s(table[QUEUED, j], table[BATCH, j], curve)
