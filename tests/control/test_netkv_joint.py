"""The joint optimum of a burst equals brute force, and the greedy never beats it."""

import re
from itertools import product

import numpy as np
import pytest

from dmodels.control.netkv import DecodePool, Oracle, burst_cost_s, dispatch, joint_assignment
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.routing import RoutingPolicy
from dmodels.models.latency import BatchingCurve

RATES = np.array([450e9, 6.25e9, 3.125e9, 1.5625e9])


def case(seed, requests=4, decode=4):
    rng = np.random.default_rng(seed)
    oracle = Oracle(rng.integers(1, 4, (2, decode)), RATES, np.full(4, 1e-5), rng.uniform(0, 0.8, 4))
    queued, batch = rng.integers(0, 3, decode), rng.integers(50, 65, decode)
    pool = DecodePool(np.full(decode, 1e12), queued.astype(float), batch.astype(float))
    hits = np.where(rng.random((requests, decode)) < 0.4, rng.uniform(0, 1, (requests, decode)), 0.0)
    return oracle, 1, rng.uniform(1e8, 1e10, requests), hits, pool, rng.integers(0, 4, (2, 4)).astype(float)


@pytest.mark.parametrize("seed", range(12))
def test_joint_assignment_is_the_brute_force_optimum(seed):
    oracle, source, kv, hits, pool, flying = case(seed)
    solution = joint_assignment(oracle, source, kv, hits, pool, in_flight=flying)
    every = [burst_cost_s(oracle, source, kv, hits, pool, i, in_flight=flying) for i in product(range(4), repeat=4)]
    assert solution.value.cost_s == pytest.approx(min(every), rel=1e-9)
    own = burst_cost_s(oracle, source, kv, hits, pool, solution.value.index, in_flight=flying)
    assert own == pytest.approx(min(every), rel=1e-9)
    assert solution.flags == 0 and abs(solution.certificate["gap"]) <= 1e-9 * own
    assert solution.certificate["bounds"].min() == pytest.approx(own)


def test_the_greedy_never_beats_it_and_sometimes_loses():
    excess = []
    for seed in range(20):
        oracle, source, kv, hits, pool, flying = case(seed, requests=8, decode=6)
        best = joint_assignment(oracle, source, kv, hits, pool, in_flight=flying).value.cost_s
        greedy, *_ = dispatch(RoutingPolicy.NETKV_FULL, oracle, np.full(8, source), kv, hits, pool, in_flight=flying)
        cost = burst_cost_s(oracle, source, kv, hits, pool, greedy.index, in_flight=flying)
        excess.append(cost / best - 1)
    assert min(excess) >= -1e-9 and max(excess) > 0.01


def test_no_bandwidth_or_no_room_is_infeasible_and_an_overfull_instance_is_flagged():
    oracle, source, kv, hits, pool, _ = case(0)
    dead = oracle._replace(tier_bandwidth_bytes_per_s=np.zeros(4))
    assert joint_assignment(dead, source, kv, hits, pool).flags & Flag.INFEASIBLE
    tight = pool._replace(free_bytes=np.zeros(4))
    none = joint_assignment(oracle, source, kv, 0.0, tight)
    assert none.flags & Flag.INFEASIBLE and none.certificate["gap"] == np.inf
    assert none.certificate["bounds"].ndim == 1 and np.isinf(none.certificate["bounds"]).all()  # of every way to share
    one = Oracle(np.array([[2]]), RATES, np.zeros(4), np.zeros(4))
    small = DecodePool(np.full(1, 1.5e9), np.zeros(1), np.zeros(1))
    assert joint_assignment(one, 0, np.full(2, 1e9), 0.0, small).flags & Flag.OVERLOAD


def test_a_burst_of_one_is_a_choice_and_one_of_none_is_refused():
    oracle, source, kv, hits, pool, flying = case(3, requests=1)
    joint = joint_assignment(oracle, source, kv, hits, pool, in_flight=flying).value
    alone, *_ = dispatch(RoutingPolicy.NETKV_FULL, oracle, np.full(1, source), kv, hits, pool, in_flight=flying)
    assert joint.index == alone.index
    with pytest.raises(InputError, match="at least one"):
        joint_assignment(oracle, source, kv[:0], hits[:0], pool)


def test_what_is_not_said_of_a_burst_is_as_if_it_were_written_out():
    """Nothing on its way, nothing kept free, NetKV's curve, and of twenty transfers on a tier sixteen that count."""
    oracle, source, kv, hits, pool, _ = case(0)
    busy, written = 20.0 * np.ones((2, 4)), {"curve": BatchingCurve(0.01248, 0.000115, 64.0), "max_in_flight": 16.0}
    asked, told = (oracle, source, kv, hits, pool), [0, 1, 2, 3]
    for more in ({}, {"in_flight": busy}):
        said = {"in_flight": np.zeros((2, 4))} | written | more
        assert burst_cost_s(*asked, told, **more) == burst_cost_s(*asked, told, **said)
        one, other = joint_assignment(*asked, **more), joint_assignment(*asked, reserve_bytes=0.0, **said)
        assert one.value.cost_s == other.value.cost_s and one.flags == other.flags


@pytest.mark.parametrize("index", [[0, 1, 2, -1], [4, 0, 0, 0], [0, 1, 4, 2], [0, 1, 2]])
def test_an_instance_that_is_not_there_is_refused(index):
    oracle, source, kv, hits, pool, _ = case(0)
    said = rf"index: {re.escape(str(np.array(index)))}; accepted: a decode instance from 0 for each of 4$"
    with pytest.raises(InputError, match=said):
        burst_cost_s(oracle, source, kv, hits, pool, index)
