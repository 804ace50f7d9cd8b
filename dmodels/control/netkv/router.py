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

from dmodels.core.errors import InputError
from dmodels.models.latency import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve

from .live_kernels import (
    BANDWIDTH,
    BATCH,
    CONGESTION,
    FREE,
    LATENCY,
    OPEN,
    QUEUED,
    READ,
    SEEN,
    decide,
    note_serve,
)
from .records import stray


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
            raise InputError(f"tier_map: tier {stray(self._tier, count)}; accepted: 0..{count - 1}")
        self._rules = np.array([*curve, reserve_bytes, max_in_flight, max_age_s], np.float64)
        self._tiers = np.full((6, count), nan)
        self._tiers[BANDWIDTH], self._tiers[LATENCY] = tier_bandwidth_bytes_per_s, tier_latency_s
        self._table = np.full((10, self._tier.shape[1]), nan)
        self._table[SEEN] = -inf
        self._table[OPEN] = 0.0
        self._in_flight = np.zeros((len(self._tier), count))
        self._rows = list(zip(self._tier.astype(np.uint32), self._in_flight, strict=True))
        self._state = self._table, self._tiers, self._rules
        self._no_hit = np.zeros(self._tier.shape[1])
        self._draw = Random(seed).random

    @property
    def open_requests(self) -> np.ndarray:
        """(D,) requests that this router has sent and that have not finished."""
        return np.array(self._table[OPEN])

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
        draws = self._draw(), self._draw()
        return int(decide(self._state, self._rows[source], hit, kv_bytes, now_s, draws))

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
