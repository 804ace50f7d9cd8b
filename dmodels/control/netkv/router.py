r"""NetKV for one request at a time in a live gateway, on telemetry that may be missing, stale or NaN.

Every decision draws two instances as power-of-two does, by the requests that this router itself has open on each, and
takes the better of them and of NetKV's choice *as far as is known*: NetKV's choice counts what is unknown at its worst
(no hit, no room, no bandwidth), the drawn one at its best (full hit, an empty queue, an idle tier). So, whatever the
unknown readings truly are, Eq. (5) of the chosen instance is at most that of the power-of-two choice. Without any
telemetry the router *is* power-of-two; with all of it, it is Algorithm 1.
"""

from __future__ import annotations

from math import inf, nan
from random import Random
from typing import Any

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.routing import CLOSED, power_of_two
from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve

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
    """(instance, cost), what is unknown at its worst; (-1, inf) if none. In blocks that stay in the nearest cache."""
    count, start, low = tier.shape[0], -1, INFINITE
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
    if start < 0:
        return -1, np.inf
    while bits[start] != low:
        start += 1
    return start, table[COST, start]


@kernel
def decide(table, tier, tiers, in_flight, hit_frac, kv_bytes, now_s, rules, draw, other_draw):
    """The instance for one request, which then counts there and on its tier; -1: none can take it."""
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
    drawn = power_of_two(table[LOAD], 0, tier.shape[0], draw, other_draw)
    if drawn < 0:
        return -1
    if best < 0 or cost > at_best(
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


class NetKVRouter:
    """Decode instances for requests that have left prefill; not for several threads at once.

    tier_map                    (P, D) tier of prefill instance p and decode instance d
    tier_bandwidth_bytes_per_s  (T,) of one whole transfer on an idle tier
    max_age_s                   telemetry older than this, at the `now_s` of a decision, is unknown

    >>> router = NetKVRouter([[2, 3]], [450e9, 6.25e9, 3.125e9, 1.5625e9])
    >>> router.observe_network([0.0, 0.0, 0.2, 0.2]); router.observe([0, 1], free_bytes=180e9, queued=0, batch=0)
    >>> router.route(0, 2.5e9), router.route(0, 2.5e9, [0.5, 0.9])        # near, then the warmer one, far away
    (0, 1)
    >>> router.landed(0, 0); router.finished(0)
    """

    def __init__(
        self,
        tier_map: Any,
        tier_bandwidth_bytes_per_s: Any,
        tier_latency_s: Any = 0.0,
        *,
        reserve_bytes: float = 0.0,
        curve: BatchingCurve = NETKV_CURVE,
        max_in_flight: float = MAX_IN_FLIGHT,
        max_age_s: float = inf,
        seed: int = 0,
    ):
        self._tier = np.ascontiguousarray(tier_map, np.int64)
        count = len(np.atleast_1d(tier_bandwidth_bytes_per_s))
        if self._tier.ndim != 2 or self._tier.size == 0:
            raise InputError(f"tier_map: shape {self._tier.shape}; accepted: (prefill, decode), at least one of each")
        if self._tier.min() < 0 or self._tier.max() >= count:
            raise InputError(f"tier_map: tier {self._tier.max()}; accepted: 0..{count - 1}")
        self._rules = np.array([*curve, reserve_bytes, max_in_flight, max_age_s], np.float64)
        self._tiers = np.full((6, count), nan)
        self._tiers[BANDWIDTH], self._tiers[LATENCY] = tier_bandwidth_bytes_per_s, tier_latency_s
        self._table = np.full((10, self._tier.shape[1]), nan)
        self._table[SEEN] = -inf
        self._table[OPEN] = 0.0
        self._in_flight = np.zeros((len(self._tier), count))
        self._rows = list(zip(self._tier.astype(np.uint32), self._in_flight, strict=True))
        self._no_hit = np.zeros(self._tier.shape[1])
        self._draw = Random(seed).random

    @property
    def open_requests(self) -> np.ndarray:
        """(D,) requests that this router has sent and that have not finished."""
        return self._table[OPEN].copy()

    def observe(self, instance: Any, free_bytes: Any, queued: Any, batch: Any, now_s: float = 0.0) -> None:
        """Telemetry of one instance, or of several by index; it takes the place of what was counted since the last."""
        table = self._table
        table[FREE, instance], table[QUEUED, instance], table[BATCH, instance] = free_bytes, queued, batch
        table[SEEN, instance] = now_s
        note_serve(table, np.atleast_1d(np.arange(table.shape[1])[instance]), self._rules)

    def observe_network(self, congestion: Any, now_s: float = 0.0) -> None:
        """The operator's reading of every tier, (T,)."""
        self._tiers[CONGESTION], self._tiers[READ] = congestion, now_s

    def route(self, source: int, kv_bytes: float, hit_frac: Any = None, now_s: float = 0.0) -> int:
        """The decode instance, which now has the request; -1 where none has room and bandwidth."""
        hit = self._no_hit if hit_frac is None else np.asarray(hit_frac, np.float64)
        if hit.shape != self._no_hit.shape:
            raise InputError(f"hit_frac: shape {hit.shape}; accepted: {self._no_hit.shape}")
        tier, in_flight = self._rows[source]
        draws = self._draw(), self._draw()
        return decide(self._table, tier, self._tiers, in_flight, hit, kv_bytes, now_s, self._rules, *draws)

    def landed(self, source: int, instance: int) -> None:
        """The transfer of one request is done."""
        tier = self._tier[source, instance]
        if self._in_flight[source, tier] <= 0:
            raise InputError(f"landed: prefill instance {source} has no transfer on tier {tier}")
        self._in_flight[source, tier] -= 1.0

    def finished(self, instance: int) -> None:
        """One request has left the instance."""
        if self._table[OPEN, instance] <= 0:
            raise InputError(f"finished: no open request on instance {instance}")
        self._table[OPEN, instance] -= 1.0
