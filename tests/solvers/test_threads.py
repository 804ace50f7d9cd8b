"""The compiled loops share a batch among threads: every problem once, no failure lost, no caller in another's way."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dmodels.core import threads
from dmodels.solvers import assign, transport


@pytest.mark.parametrize("count", [0, 1, 2, 3, 17, 1000])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_every_problem_is_taken_once(monkeypatch, count, cores):
    monkeypatch.setattr(threads, "CORES", cores)
    taken = np.zeros(count, int)

    def loop(first, last):
        taken[first:last] += 1

    threads.share(loop, count, work_s=1.0)
    assert (taken == 1).all()


def test_a_failure_in_any_thread_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(threads, "CORES", 2)

    def loop(first, last):
        if first <= 50 < last:
            raise RuntimeError("problem 50")

    with pytest.raises(RuntimeError, match="problem 50"):
        threads.share(loop, 100, work_s=1.0)


def test_large_batches_equal_their_problems_one_by_one():
    cost = np.random.default_rng(0).random((3000, 8, 8))
    together = assign(cost)
    for b in range(0, 3000, 101):
        alone = assign(cost[b])
        np.testing.assert_array_equal(alone.value.columns, together.value.columns[b])
        assert alone.value.cost == together.value.cost[b]


def test_callers_in_several_threads():
    cost = np.random.default_rng(1).random((8, 300, 10, 10))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda c: (assign(c).value.cost, transport(c, 1).value.cost), cost))
    for (one, other), c in zip(found, cost, strict=True):
        np.testing.assert_array_equal(one, assign(c).value.cost)
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_gets_threads_of_its_own(monkeypatch):
    """A fork inherits the pool's memory but not its threads; waiting for these would never end."""
    monkeypatch.setattr(threads, "CORES", 2)
    cost = np.random.default_rng(2).random((2000, 8, 8))
    expected = assign(cost).value.cost
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if np.array_equal(assign(cost).value.cost, expected) else 2
        finally:
            os._exit(code)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child did not finish")
