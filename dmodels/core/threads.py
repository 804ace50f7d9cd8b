"""Compiled loops over a batch, run on every core the process may use, outside the interpreter lock."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

#: Below this much work (seconds, a rough estimate) waking a second thread costs more than it brings.
WORTH_A_THREAD_S = 100e-6


class _Sharing(threading.local):
    active = False


#: Whether this thread works on a part of a loop whose other parts write to the same arrays.
sharing = _Sharing()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, CORES - 1), thread_name_prefix="dmodels")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork has the pool but not its threads


def share(loop: Callable[[int, int], None], count: int, work_s: float) -> None:
    """Call `loop(first, last)` over chunks of range(count), on all cores if the whole is worth it.

    `loop` must leave the interpreter lock (numba `nogil`). The caller works too; chunks are taken in turn, each a share
    of what is left (Polychronopoulos and Kuck, 1987), so that hard problems in one do not leave the other cores idle.
    """
    if count <= 1 or CORES == 1 or work_s < WORTH_A_THREAD_S:
        loop(0, count)
        return
    ends, least = [0], max(1, count // (64 * CORES))
    while ends[-1] < count:
        ends.append(min(ends[-1] + max(least, (count - ends[-1]) // (4 * CORES)), count))
    turn = itertools.count(1)  # next() on it is atomic, so each chunk is taken once

    def work() -> None:
        outside, sharing.active = sharing.active, True
        try:
            while (at := next(turn)) < len(ends):
                loop(ends[at - 1], ends[at])
        finally:
            sharing.active = outside

    others = [_pool().submit(work) for _ in range(min(CORES - 1, len(ends) - 2))]
    work()
    for other in others:
        if not other.cancel():  # one that waits for a thread has nothing left to do: a loop inside of another's ends
            other.result()


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view. Arrays from JAX are read-only and others are not: one kind spares a second compilation."""
    view = array.view()
    view.flags.writeable = False
    return view
