"""Phasor's routing: freeness as waiting time, the central queue that it equals, and where it ends."""

from __future__ import annotations

import heapq
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control import phasor
from dmodels.control.phasor import PhasorRouter

ROUTE, UPDATE = jax.jit(phasor.route, static_argnames="before"), jax.jit(phasor.update)
wild = st.one_of(st.floats(), st.floats(0, 10), st.sampled_from([math.inf, math.nan, -1.0]))


def waits(arrivals, sizes, servers):
    """Waits under the rule with exact remaining work: each worker is first come first served."""
    free = np.zeros(servers)
    out = []
    for a, s in zip(arrivals, sizes, strict=True):
        state = phasor.WorkerLoads(jnp.maximum(free - a, 0.0), jnp.ones(servers))
        _, worker = ROUTE(state, s, phasor.workers(servers, 1.0, 1.0))
        start = max(free[int(worker)], a)
        out.append(start - a)
        free[int(worker)] = start + s
    return np.array(out)


def central(arrivals, sizes, servers):
    """One queue, first come first served, any free server."""
    free, out = [0.0] * servers, []
    for a, s in zip(arrivals, sizes, strict=True):
        start = max(heapq.heappop(free), a)
        out.append(start - a)
        heapq.heappush(free, start + s)
    return np.array(out)


@settings(max_examples=25)
@given(jobs=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), min_size=12, max_size=12))
def test_exact_remaining_work_is_a_central_queue(jobs):
    gaps, sizes = (np.array(x, float) for x in zip(*jobs, strict=True))
    np.testing.assert_array_equal(waits(np.cumsum(gaps), sizes, 3), central(np.cumsum(gaps), sizes, 3))


def test_full_costs_of_requests_in_service_are_not():
    """Arrivals (0, 10), (7, 9), (9, 1) on two workers: as written the third waits 7, behind 3 s of work it waits 1."""
    pool, state = phasor.workers(2, 1.0, 1.0), phasor.init(2)
    for size in (10.0, 9.0):
        state, _ = ROUTE(state, size, pool)
    _, printed = ROUTE(state, 1.0, pool)  # loads 10 and 9, whatever has been done
    assert int(printed) == 1 and 16 - 9 == 7  # worker 1 is busy from 7 to 16
    state = UPDATE(state, 0, 9.0)
    state = UPDATE(state, 1, 2.0)
    _, exact = ROUTE(state, 1.0, pool)
    assert int(exact) == 0 and 10 - 9 == 1


def test_freeness_after_a_dispatch_is_the_slo():
    """Phi >= 0 after the dispatch iff queue + prefill <= T_SLO; 121 TFLOP/s and 0.4 s hold 48.4 TFLOP."""
    pool, state = phasor.workers(1, 121e12, 0.4), phasor.init(1)
    state, _ = ROUTE(state, 48.4e12, pool)
    assert abs(float(phasor.freeness(state, pool)[0])) < 1e-12
    state, _ = ROUTE(state, 1e12, pool)
    assert float(phasor.freeness(state, pool)[0]) < 0


def test_unequal_workers_need_freeness_after_the_dispatch():
    """Speeds 1 and 10, the fast one with 1 unit queued, a request of 5: as printed it ends at 5 s, else at 0.6 s."""
    pool = phasor.workers(2, jnp.array([1.0, 10.0]), 1.0)
    state = phasor.WorkerLoads(jnp.array([0.0, 1.0]), jnp.ones(2))
    ends = [5.0 / 1.0, (1.0 + 5.0) / 10.0]
    _, printed = ROUTE(state, 5.0, pool, before=True)
    _, ours = ROUTE(state, 5.0, pool)
    assert (ends[int(printed)], ends[int(ours)]) == (5.0, 0.6)


def test_overload_is_shared_but_not_with_the_least_violation():
    """Jobs 1, 1, 2 and budget 2 on two workers: greedy exceeds it by 1, the best split by 0; load within 3/2."""
    pool, state = phasor.workers(2, 1.0, 2.0), phasor.init(2)
    for job in (1.0, 1.0, 2.0):
        state, _ = ROUTE(state, job, pool)
    load = np.asarray(state.queued_flop)
    assert np.maximum(load - 2.0, 0.0).sum() == 1.0 and load.max() <= 1.5 * 2.0


@settings(max_examples=40)
@given(jobs=st.lists(st.integers(1, 20), min_size=7, max_size=7))
def test_largest_load_is_within_two_minus_one_over_w(jobs):
    pool, state = phasor.workers(3, 1.0, 1.0), phasor.init(3)
    for job in jobs:
        state, _ = ROUTE(state, float(job), pool)
    splits = np.array(np.meshgrid(*[range(3)] * 7)).reshape(7, -1)
    best = min(np.bincount(s, jobs, 3).max() for s in splits.T)
    assert float(state.queued_flop.max()) <= (2 - 1 / 3) * best + 1e-9


@settings(max_examples=60)
@given(events=st.lists(st.tuples(st.booleans(), wild, wild, st.integers(0, 2)), min_size=15, max_size=15))
def test_state_is_finite_and_the_live_router_agrees(events):
    pool, state = phasor.workers(3, jnp.array([1.0, 2.0, 1.0]), 0.5), phasor.init(3)
    live = PhasorRouter([1.0, 2.0, 1.0], 0.5)
    for arrives, flop, count, worker in events:
        if arrives:
            flop = flop if np.isfinite(flop) else 0.0  # a live router guesses what it does not know
            state, chosen = ROUTE(state, flop, pool)
            assert int(chosen) == live.route(flop) >= 0
        else:
            state = UPDATE(state, worker, flop, count)
            live.update(worker, flop, count)
        assert all(np.isfinite(leaf).all() and (leaf >= 0).all() for leaf in map(np.asarray, state))
        np.testing.assert_allclose(live.queued_flop, state.queued_flop, rtol=1e-12, atol=1e-12)


def test_closed_workers_get_nothing():
    pool = phasor.workers(2, 1.0, 1.0)._replace(open=jnp.array([0.0, 1.0]))
    state, worker = ROUTE(phasor.init(2), 1.0, pool)
    assert int(worker) == 1
    state, worker = ROUTE(state, 1.0, pool._replace(open=jnp.zeros(2)))
    assert int(worker) == -1 and float(state.queued_count.sum()) == 1


@pytest.mark.parametrize("key", [0])
def test_routing_scans(key):
    """A hundred thousand dispatches in one scan, loads kept even within one job."""
    cost = jax.random.uniform(jax.random.key(key), (100_000,), minval=0.5, maxval=1.5)
    pool = phasor.workers(8, 1.0, 1.0)
    state, chosen = jax.jit(lambda c: jax.lax.scan(lambda s, u: phasor.route(s, u, pool), phasor.init(8), c))(cost)
    assert float(jnp.ptp(state.queued_flop)) <= 1.5 and float(state.queued_count.sum()) == 1e5
    assert set(np.unique(chosen)) == set(range(8))


def test_progress_is_never_negative_and_nobody_leaves_twice():
    """Nor does a cost take load away; by the functions and by the live router."""
    pool, state = phasor.workers(1, 10.0, 1.0), phasor.init(1)
    router = PhasorRouter([10.0], slo_s=1.0)

    def told():
        assert (state.queued_flop.tolist(), state.queued_count.tolist()) == (router.queued_flop, router.queued_count)
        return router.queued_flop[0], router.queued_count[0]

    for cost, held in ((4.0, (4.0, 1)), (-3.0, (4.0, 2))):
        state, _ = ROUTE(state, cost, pool)
        router.route(cost)
        assert told() == held
    nothing = (math.nan, 1), (1.0, math.nan), (math.inf, 1)  # are no numbers to be counted
    for done, held in (
        *((one, (4.0, 2)) for one in nothing),
        ((-1.0, -1), (4.0, 2)),
        ((0.5, 0), (3.5, 2)),
        ((9.0, 1), (0.0, 1)),
        ((0.0, 5), (0.0, 0)),
    ):
        state = UPDATE(state, 0, *done)
        router.update(0, *done)
        assert told() == held
    for flop in (4.0, 2.0):
        state, _ = ROUTE(state, flop, pool)
        router.route(flop)
    state = UPDATE(state, 0, 1.0)  # progress alone: nobody has left
    router.update(0, 1.0)
    assert told() == (5.0, 2)
