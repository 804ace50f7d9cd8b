"""A quick screen: each request's rate frozen at what it finds when it is admitted.

Kiefer and Wolfowitz's recursion for multi-server queues, with a service time of iterations x t(n in flight after
admission). It forgets that later arrivals slow a request down and departures speed it up; `tools/make_agreement.py`
maps where that may be forgotten. Used for checking and screening; `batching` is exact and nearly as fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError

from . import step_times as laws


def simulate(arrival_s: Any, iterations: Any, law: Any, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """(admitted, end) seconds of each request, first come first served, given its iterations (n,)."""
    arrival = np.ascontiguousarray(arrival_s, np.float64)
    work = np.ascontiguousarray(np.broadcast_to(np.asarray(iterations, np.float64), arrival.shape))
    if arrival.ndim != 1 or (np.diff(arrival) < 0).any() or not (work > 0).all():
        raise InputError("arrival_s, iterations: accepted are times in order and iterations above 0")
    return _run(arrival, work, laws.table(law, slots))


@kernel
def _run(arrival, work, times):
    slots = times.size - 1
    admitted, end = np.empty(arrival.size), np.empty(arrival.size)
    ends = np.empty(slots)  # of the requests in flight, falling
    n = 0
    for i in range(arrival.size):
        now = arrival[i]
        while n > 0 and ends[n - 1] <= now:
            n -= 1
        if n == slots:
            now = ends[n - 1]
            n -= 1
        admitted[i] = now
        done = now + work[i] * times[n + 1]
        end[i] = done
        k = n
        while k > 0 and ends[k - 1] < done:
            ends[k] = ends[k - 1]
            k -= 1
        ends[k] = done
        n += 1
    return admitted, end
