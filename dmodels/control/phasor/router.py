"""Phasor's dispatch for one request at a time, in plain Python: what a live prefill router calls.

The arithmetic is that of `phasor.route` and `phasor.update`; a dispatch looks once at every worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import cast

from dmodels.core.errors import InputError


class PhasorRouter:
    """Loads of the prefill workers, and the request to the one with the most freeness after it.

    >>> router = PhasorRouter([121e12, 121e12], slo_s=0.4)
    >>> router.route(14e12), router.route(7e12), router.route(7e12)
    (0, 1, 1)
    >>> [round(phi, 3) for phi in router.freeness()]
    [0.711, 0.711]
    """

    def __init__(self, flop_per_s: Sequence[float], slo_s: float | Sequence[float]):
        each = hasattr(slo_s, "__len__")
        budgets = cast(Sequence[float], slo_s) if each else [cast(float, slo_s)] * len(flop_per_s)
        self.capacity = [float(peak) * float(slo) for peak, slo in zip(flop_per_s, budgets, strict=True)]
        for room in self.capacity:
            if not 0.0 < room < inf:
                raise InputError(f"flop_per_s x slo_s = {room:g}: accepted are finite numbers above 0")
        self._known_flop, self._known_count = 0.0, 0
        self.open = [True] * len(self.capacity)
        self.queued_flop = [0.0] * len(self.capacity)
        self.queued_count = [0] * len(self.capacity)

    def route(self, request_flop: float) -> int:
        """The worker, which now has the request; -1 if none is open.

        A cost that is not finite is not known, and counts as the mean of those that were (1 FLOP before the first), so
        that requests of unknown cost spread as others do.
        """
        if isfinite(request_flop):
            request_flop = max(request_flop, 0.0)
            self._known_flop, self._known_count = self._known_flop + request_flop, self._known_count + 1
        else:
            request_flop = max(self._known_flop / max(self._known_count, 1), 1.0)
        best, most = -1, -inf
        loads, capacity, takes = self.queued_flop, self.capacity, self.open
        for w in range(len(loads)):
            if takes[w]:
                phi = 1.0 - (loads[w] + request_flop) / capacity[w]
                if phi > most:
                    best, most = w, phi
        if best >= 0:
            loads[best] += request_flop
            self.queued_count[best] += 1
        return best

    def update(self, worker: int, done_flop: float, done_count: int = 0) -> None:
        """Progress of a worker; values that are not finite count as none."""
        if not (isfinite(done_flop) and isfinite(done_count)):
            done_flop, done_count = 0.0, 0
        left = self.queued_count[worker] = max(self.queued_count[worker] - max(done_count, 0), 0)
        load = max(self.queued_flop[worker] - max(done_flop, 0.0), 0.0)
        self.queued_flop[worker] = load if left > 0 else 0.0

    def freeness(self) -> list[float]:
        """Phi_T of each worker."""
        return [1.0 - load / room for load, room in zip(self.queued_flop, self.capacity, strict=True)]
