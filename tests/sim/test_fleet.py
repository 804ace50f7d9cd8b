"""Fleets: against one instance at a time, against a literal router, and through failures and drains."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw
from dmodels.sim import batching, fleet
from dmodels.sim.fleet import POLICIES, Change, Event, Pool, Prefixes, RoutingPolicy
from dmodels.sim.requests import Prefill

LAW = StepLaw(8e-3, 0.65e-3)
KEY = jax.random.key(5)
POOL = Pool(5, 4, LAW)


def traffic(n, rate_rps, seed=0, most=120):
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.exponential(1 / rate_rps, n)), rng.integers(1, 3000, n), rng.integers(1, most, n)


def same(a, b):
    for name in ("admitted_s", "first_token_s", "end_s"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize("prefill", list(Prefill), ids=lambda p: p.name)
def test_a_fleet_of_one_is_an_instance(policy, prefill):
    requests = traffic(600, 9.0)
    whole = fleet.simulate(*requests, Pool(1, 8, LAW, prefill=prefill, emits=True), policy, key=KEY)
    same(whole, batching.simulate(*requests, LAW, 8, prefill=prefill, emits=True))


def test_power_of_two_waits_between_random_and_shortest_queue():
    requests = traffic(20_000, 31.0)
    wait = {p: fleet.simulate(*requests, POOL, p, key=KEY).wait_s.mean() for p in POLICIES}
    assert wait[RoutingPolicy.SHORTEST_QUEUE] < wait[RoutingPolicy.POWER_OF_TWO] < wait[RoutingPolicy.RANDOM]
    assert wait[RoutingPolicy.SHORTEST_QUEUE] < wait[RoutingPolicy.ROUND_ROBIN] < wait[RoutingPolicy.RANDOM]


@pytest.mark.parametrize("drained", [0, 1])
def test_what_happens_at_the_instant_of_an_arrival_comes_before_it(drained):
    events = [Event(10.0, Change.DRAIN, drained)]
    served = fleet.simulate([10.0, 10.0], 100, 10, Pool(2, 4, LAW), RoutingPolicy.ROUND_ROBIN, events=events)
    assert served.instance.tolist() == [1 - drained] * 2


def test_same_key_same_bits():
    requests = traffic(500, 30.0)
    runs = [fleet.simulate(*requests, POOL, RoutingPolicy.POWER_OF_TWO, key=KEY).end_s for _ in range(2)]
    np.testing.assert_array_equal(*runs)


def test_pools_split_by_tokens_and_refuse_what_no_pool_holds():
    arrival, prompt, output = traffic(2000, 20.0)
    pools = [Pool(2, 16, LAW, max_tokens=1000), Pool(4, 4, LAW, max_tokens=2500)]
    served = fleet.simulate(arrival, prompt, output, pools)
    total = prompt + output
    np.testing.assert_array_equal(served.instance < 0, total > 2500)
    np.testing.assert_array_equal(np.isnan(served.end_s), total > 2500)
    np.testing.assert_array_equal((served.instance >= 0) & (served.instance < 2), total <= 1000)


def test_a_wrong_estimate_is_refused_by_the_short_pool_only():
    pools = [Pool(1, 16, LAW, max_tokens=1000), Pool(1, 16, LAW, max_tokens=5000)]
    served = fleet.simulate([0.0, 1.0], [2000, 500], [10, 10], pools, route_tokens=[900.0, 4000.0])
    assert served.instance.tolist() == [-1, 1] and np.isnan(served.end_s[0])


def test_spillover_relieves_the_short_pool():
    arrival, prompt, output = traffic(3000, 30.0)
    pools = [Pool(1, 8, LAW, max_tokens=2000), Pool(6, 4, LAW, max_tokens=4000)]
    rigid = fleet.simulate(arrival, prompt, output, pools)
    spilled = fleet.simulate(arrival, prompt, output, pools, spill_queue=4)
    assert spilled.wait_s.max() < 0.2 * rigid.wait_s.max()
    moved = (rigid.instance == 0) & (spilled.instance > 0)
    assert 0 < moved.sum() < 3000


def test_of_idle_instances_each_is_taken_in_turn():
    served = fleet.simulate(100.0 * np.arange(6), 100, 10, Pool(3, 4, LAW), RoutingPolicy.SHORTEST_QUEUE)
    assert served.instance.tolist() == [0, 1, 2, 0, 1, 2]


def test_a_failed_instance_loses_its_work_and_others_do_it_again():
    arrival, prompt, output = traffic(1500, 20.0)
    events = [Event(20.0, Change.DOWN, 2), Event(40.0, Change.UP, 2)]
    served = fleet.simulate(arrival, prompt, output, POOL, events=events)
    assert np.isfinite(served.end_s).all()
    mine = served.instance == 2
    assert not (mine & (served.end_s > 20.0) & (served.admitted_s < 40.0)).any()
    assert (mine & (served.arrival_s > 40.0)).any()
    again = served.restarts > 0
    assert 0 < again.sum() <= 4 + 40 and (served.admitted_s[again] >= 20.0).all()
    assert (served.instance[again] != 2).any()


def test_when_all_are_down_requests_wait_for_the_first_to_come_back():
    events = [Event(0.0, Change.DOWN, 0), Event(50.0, Change.UP, 0)]
    served = fleet.simulate(np.arange(1.0, 11.0), 100, 10, Pool(1, 4, LAW), events=events)
    assert (served.admitted_s >= 50.0).all() and (np.diff(served.admitted_s) >= 0).all()
    never = fleet.simulate([1.0], 100, 10, Pool(1, 4, LAW), events=events[:1])
    assert np.isnan(never.end_s[0]) and never.instance[0] == -1


def test_a_drained_instance_finishes_what_it_has():
    arrival, prompt, output = traffic(1500, 20.0)
    served = fleet.simulate(arrival, prompt, output, POOL, events=[Event(15.0, Change.DRAIN, 1)])
    mine = served.instance == 1
    assert mine.any() and (served.arrival_s[mine] <= 15.0).all() and (served.restarts == 0).all()
    assert np.isfinite(served.end_s).all()


def test_a_slow_instance_takes_proportionally_longer():
    plain = fleet.simulate([1.0], 100, 100, Pool(1, 4, LAW))
    slow = fleet.simulate([1.0], 100, 100, Pool(1, 4, LAW), events=[Event(0.5, Change.SLOW, 0, 3.0)])
    np.testing.assert_allclose(slow.e2e_s, 3 * plain.e2e_s, rtol=1e-9)
    half = fleet.simulate([0.0], 100, 100, Pool(1, 4, LAW), events=[Event(50.5 * 8.65e-3, Change.SLOW, 0, 3.0)])
    np.testing.assert_allclose(half.e2e_s, (51 + 3 * 50) * 8.65e-3, rtol=1e-9)  # from the next iteration on


def test_cache_aware_routing_finds_more_prefixes_than_a_blind_one():
    rng = np.random.default_rng(1)
    arrival = np.cumsum(rng.exponential(1 / 14.0, 6000))
    ids, output = rng.integers(0, 60, 6000), rng.integers(20, 80, 6000)
    prefixes = Prefixes(ids, 6000, remembered=20)
    args = (arrival, 8192, output, POOL)
    blind = fleet.simulate(*args, RoutingPolicy.SHORTEST_QUEUE, prefixes=prefixes)
    aware = fleet.simulate(*args, RoutingPolicy.DYNAMO, prefixes=prefixes, cache_weight=6.0)
    none = fleet.simulate(*args, RoutingPolicy.SHORTEST_QUEUE)
    assert aware.e2e_s.mean() < blind.e2e_s.mean() < none.e2e_s.mean()
    one = fleet.simulate([0.0, 10.0], 1024, 5, POOL._replace(instances=1), prefixes=Prefixes([7, 7], 1000, 4))
    np.testing.assert_allclose(one.ttft_s, [3 * 8.65e-3, 2 * 8.65e-3], rtol=1e-9)


PREFILL_POOL = Pool(4, 1, [0.01] * 2, emits=True)  # one prompt at a time, 10 ms for each 512 tokens


def test_least_own_ttft_needs_no_weight_but_a_tuned_one_beats_it():
    """Greedy in its own TTFT, a request fills caches that others need; too much weight of the cache is worse."""
    rng = np.random.default_rng(2)
    arrival, ids = np.cumsum(rng.exponential(1 / 70.0, 8000)), rng.integers(0, 12, 8000)
    requests = arrival, rng.integers(1100, 4000, 8000), 1, PREFILL_POOL
    mean = lambda policy, weight=1.0: fleet.simulate(
        *requests, policy, prefixes=Prefixes(ids, 1024, remembered=6), cache_weight=weight
    ).ttft_s.mean()
    conductor = mean(RoutingPolicy.PROMPTS)
    assert conductor < 0.8 * mean(RoutingPolicy.SHORTEST_QUEUE)
    assert mean(RoutingPolicy.DYNAMO, 5.0) < 0.95 * conductor < 0.7 * mean(RoutingPolicy.DYNAMO, 50.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pools": []}, "pools"),
        ({"pools": Pool(0, 4, LAW)}, "instances"),
        ({"pools": [Pool(1, 4, LAW, 100), Pool(1, 4, LAW, 50)]}, "max_tokens"),
        ({"policy": RoutingPolicy.RANDOM}, "key"),
        ({"events": [Event(1.0, Change.DOWN, 9)]}, "events"),
        ({"events": [Event(1.0, Change.SLOW, 0, 0.0)]}, "factor"),
        ({"prefixes": Prefixes([0, 0], 500, 4)}, "prefixes"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {"arrival_s": [0.0, 1.0], "input_tokens": 100, "output_tokens": 5, "pools": POOL}
    with pytest.raises(InputError, match=message):
        fleet.simulate(**(good | change))


def test_a_restart_leaves_nothing_of_the_iteration_that_the_failure_cut_short():
    """Iterations of 1 s: the second request would enter at 1 s; the instance fails at 0.3 s and is back at 0.4 s."""
    events = [Event(0.3, Change.DOWN, 0), Event(0.4, Change.UP, 0)]
    served = fleet.simulate([0.0, 0.2], [1, 1], [3, 2], Pool(1, 4, [1.0] * 5, emits=True), events=events)
    np.testing.assert_allclose(served.admitted_s, [0.4, 0.4])
    np.testing.assert_allclose(served.first_token_s, [1.4, 1.4])
    np.testing.assert_allclose(served.end_s, [3.4, 2.4])
