"""Loops that cores share: every index once, and at the end little that one core alone is still at."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dmodels.core import threads


@pytest.mark.parametrize("cores", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 15, 148, 10_001])
def test_every_index_is_taken_once_and_the_last_parts_are_small(cores, count, monkeypatch):
    monkeypatch.setattr(threads, "CORES", cores)
    lock, taken = threading.Lock(), []

    def loop(first, last):
        with lock:
            taken.append((first, last))

    threads.share(loop, count, 1.0)
    taken.sort()
    seen = [k for first, last in taken for k in range(first, last)]
    assert seen == list(range(count))
    if cores > 1 and count > 1:
        sizes = np.array([last - first for first, last in taken])
        assert sizes.max() <= max(count / (2 * cores), 1)  # or one core would have it while the others are done
        assert sizes[-1] <= max(count / (32 * cores), 1) and len(sizes) < 100 * cores


def test_little_work_wakes_no_thread(monkeypatch):
    monkeypatch.setattr(threads, "CORES", 2)
    taken = []
    threads.share(lambda first, last: taken.append((first, last, threading.get_ident())), 1000, 1e-6)
    assert taken == [(0, 1000, threading.get_ident())]
