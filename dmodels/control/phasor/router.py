"""Phasor's dispatch for one request at a time: what a live prefill router calls.

The arithmetic is that of `phasor.route` and `phasor.update`; a dispatch looks once at every worker, in compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import cast

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError

# rows of the table of workers
_FLOP, _COUNT, _CAPACITY, _OPEN, _FREENESS = range(5)


@kernel
def _dispatch(table: np.ndarray, request_flop: float) -> int:
    """The open worker with the most freeness after the request, the first of equals, which then has it; -1: none."""
    load, capacity, takes, phi = table[_FLOP], table[_CAPACITY], table[_OPEN], table[_FREENESS]
    for w in range(load.shape[0]):  # a loop of its own: the search below would keep it from being vector code
        free = 1.0 - (load[w] + request_flop) / capacity[w]
        phi[w] = free if takes[w] > 0.0 else -np.inf
    best, most = -1, -np.inf
    for w in range(load.shape[0]):
        if phi[w] > most:
            best, most = w, phi[w]
    if best >= 0:
        load[best] += request_flop
        table[_COUNT, best] += 1.0
    return best


class PhasorRouter:
    """Loads of the prefill workers, and the request to the one with the most freeness after it.

    `open` is 1 for each worker that takes requests; set it to 0 for one that does not.

    >>> router = PhasorRouter([121e12, 121e12], slo_s=0.4)
    >>> router.route(14e12), router.route(7e12), router.route(7e12)
    (0, 1, 1)
    >>> [round(phi, 3) for phi in router.freeness()]
    [0.711, 0.711]
    """

    def __init__(self, flop_per_s: Sequence[float], slo_s: float | Sequence[float]):
        each = hasattr(slo_s, "__len__")
        budgets = cast(Sequence[float], slo_s) if each else [cast(float, slo_s)] * len(flop_per_s)
        capacity = [float(peak) * float(slo) for peak, slo in zip(flop_per_s, budgets, strict=True)]
        for room in capacity:
            if not 0.0 < room < inf:
                raise InputError(f"flop_per_s x slo_s = {room:g}: accepted are finite numbers above 0")
        self._known_flop, self._known_count = 0.0, 0
        self._table = np.zeros((5, len(capacity)))
        self._table[_CAPACITY], self._table[_OPEN] = capacity, 1.0

    @property
    def open(self) -> np.ndarray:
        """(w,) 1 where a worker takes requests; to be written to."""
        opened: np.ndarray = self._table[_OPEN]
        return opened

    @property
    def queued_flop(self) -> list[float]:
        """Costs of the requests of each worker that are not finished, less progress."""
        loads: list[float] = self._table[_FLOP].tolist()
        return loads

    @property
    def queued_count(self) -> list[int]:
        """Requests of each worker that are not finished."""
        return [int(count) for count in self._table[_COUNT]]

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
        return int(_dispatch(self._table, float(request_flop)))

    def update(self, worker: int, done_flop: float, done_count: int = 0) -> None:
        """Progress of a worker; values that are not finite count as none."""
        if not (isfinite(done_flop) and isfinite(done_count)):
            done_flop, done_count = 0.0, 0
        flop, count = self._table[_FLOP], self._table[_COUNT]
        left = count[worker] = max(count[worker] - max(done_count, 0), 0.0)
        load = max(flop[worker] - max(done_flop, 0.0), 0.0)
        flop[worker] = load if left > 0 else 0.0

    def freeness(self) -> list[float]:
        """Phi_T of each worker."""
        free: list[float] = (1.0 - self._table[_FLOP] / self._table[_CAPACITY]).tolist()
        return free
