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


def test_a_loop_inside_of_a_loop_ends(monkeypatch):
    """The threads that would take a part of the inner one are all in the outer one."""
    monkeypatch.setattr(threads, "CORES", 2)
    both, seen = threading.Barrier(2, timeout=20), np.zeros((2, 50))

    def outer(first, last):
        both.wait()  # each core has one of them
        for row in seen[first:last]:
            threads.share(lambda start, end, row=row: row[start:end].__iadd__(1.0), 50, 1.0)
            assert threads.sharing.active

    done = threading.Thread(target=threads.share, args=(outer, 2, 1.0), daemon=True)
    done.start()
    done.join(20)
    assert not done.is_alive() and not threads.sharing.active and np.all(seen == 1.0)


def test_little_work_wakes_no_thread(monkeypatch):
    monkeypatch.setattr(threads, "CORES", 2)
    taken = []
    threads.share(lambda first, last: taken.append((first, last, threading.get_ident())), 1000, 1e-6)
    assert taken == [(0, 1000, threading.get_ident())]
