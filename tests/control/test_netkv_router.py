"""The live router: Algorithm 1 with all telemetry, power-of-two without any, and never worse than that in between."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.control.netkv import DecodePool, NetKVRouter, Oracle, dispatch, live_kernels
from dmodels.control.netkv.kernels import pace_s_per_byte, post_prefill_s
from dmodels.core.errors import InputError
from dmodels.core.routing import RoutingPolicy
from dmodels.core.tiered import interpreted
from dmodels.models.latency import NETKV_CURVE

RATES = np.array([450e9, 6.25e9, 3.125e9, 1.5625e9])
LATENCY = np.array([1e-6, 5e-6, 1e-5, 2e-5])


def truth(seed, count=9):
    """(tiers, congestion, free, queued, batch, hits) of a pool, all known."""
    rng = np.random.default_rng(seed)
    state = rng.choice([2e9, 1e10, 1e12], count), rng.integers(0, 4, count), rng.integers(55, 66, count)
    hits = np.where(rng.random(count) < 0.5, rng.random(count), 0.0)
    return rng.integers(0, 4, count), rng.uniform(0, 0.99, 4), *(x.astype(float) for x in state), hits


def router(tier, **options):
    return NetKVRouter(tier[None], RATES, LATENCY, **options)


@given(seed=st.integers(0, 10_000))
def test_with_all_telemetry_it_is_algorithm_1(seed):
    tier, congestion, free, queued, batch, hits = truth(seed)
    live = router(tier, seed=seed)
    live.observe_network(congestion)
    live.observe(np.arange(len(tier)), free, queued, batch)
    sizes = np.random.default_rng(seed).uniform(1e8, 2e10, 6)
    expected, *_ = dispatch(
        RoutingPolicy.NETKV_FULL,
        Oracle(tier[None], RATES, LATENCY, congestion),
        np.zeros(6, int),
        sizes,
        hits,
        DecodePool(free, queued, batch),
    )
    assert [live.route(0, kv, hits) for kv in sizes] == expected.index.tolist()


@pytest.mark.parametrize("idle", [0, 511, 512, 1023, 1024, 1199])
def test_of_twelve_hundred_instances_the_idle_one_is_found_wherever_it_stands(idle):
    live = router(np.full(1200, 2))
    live.observe_network(np.zeros(4))
    live.observe(np.arange(1200), np.full(1200, 1e12), np.zeros(1200), np.where(np.arange(1200) == idle, 0.0, 40.0))
    assert live.route(0, 1e9) == idle


def test_without_telemetry_it_is_power_of_two():
    """The fullest of n stays within log log n of the mean; one random choice leaves it several deviations above."""
    counts, trials = np.zeros(64), 4000
    live = NetKVRouter(np.full((1, 64), 2), RATES, seed=1)
    for _ in range(trials):
        chosen = live.route(0, 1e9)
        counts[chosen] += 1
        live.landed(0, chosen)
    assert counts.max() <= trials / 64 + 3  # at random: 62 +- 8
    assert counts.sum() == trials


@settings(max_examples=300)
@given(seed=st.integers(0, 10_000), hidden_frac=st.sampled_from([0.1, 0.5, 0.9]), age_s=st.sampled_from([0.0, 5.0]))
def test_whatever_the_unknown_is_the_choice_is_never_worse_than_power_of_two(seed, hidden_frac, age_s):
    """The draws of a blind twin are the power-of-two choice; the true cost of ours is at most that of its."""
    check_choice(seed, hidden_frac, age_s)


def test_choices_as_python_takes_them(patience, monkeypatch):
    """The loops interpreted: nothing is compiled for a handful of decisions."""
    for name in ("decide", "note_serve"):
        monkeypatch.setattr(f"dmodels.control.netkv.router.{name}", interpreted(getattr(live_kernels, name)))
    for seed in range(60):
        check_choice(seed, (0.1, 0.5, 0.9)[seed % 3], (0.0, 5.0)[seed % 2])
    test_old_readings_are_unknown_and_a_request_without_a_size_is_not_dropped()
    test_no_room_and_no_bandwidth_are_refused_and_counters_cannot_fall_below_zero()
    test_where_no_instance_would_ever_answer_requests_spread_as_by_power_of_two()
    test_an_instance_of_unknown_queue_counts_with_the_little_that_it_lacks()
    test_of_twelve_hundred_instances_the_idle_one_is_found_wherever_it_stands(1023)
    test_readings_and_requests_without_a_time_are_of_the_same_moment()


def check_choice(seed, hidden_frac, age_s):
    tier, congestion, free, queued, batch, hits = truth(seed)
    free[:] = 1e15
    rng = np.random.default_rng(seed + 1)
    blur = lambda x: np.where(rng.random(x.shape) < hidden_frac, np.nan, x)
    live, blind = router(tier, seed=seed, max_age_s=1.0), router(tier, seed=seed)
    live.observe_network(blur(congestion), rng.choice([0.0, age_s]))
    for j in range(len(tier)):
        live.observe(j, *(float(blur(x[j])) for x in (free, queued, batch)), now_s=rng.choice([0.0, age_s]))
    kv = 5e9
    ours, theirs = live.route(0, kv, blur(hits), now_s=age_s), blind.route(0, kv)
    cost = lambda j: post_prefill_s(
        kv * (1 - hits[j]),
        pace_s_per_byte(RATES[tier[j]], congestion[tier[j]], 0.0, 16.0),
        LATENCY[tier[j]],
        queued[j],
        batch[j],
        NETKV_CURVE,
    )
    assert cost(ours) <= cost(theirs) * (1 + 1e-12)


@pytest.mark.parametrize("broken", [0, 7])
def test_an_instance_without_telemetry_does_not_take_the_traffic(broken):
    live = NetKVRouter(np.full((1, 8), 2), RATES)
    live.observe_network([0.0, 0.0, 0.1, 0.1])
    live.observe(np.arange(8), 1e15, 0.0, 4.0)
    live.observe(broken, np.nan, np.nan, np.nan)
    counts = np.zeros(8)
    for k in range(800):
        chosen = live.route(0, 1e9)
        counts[chosen] += 1
        live.landed(0, chosen)
        if k >= 80:  # everything finishes in time
            live.finished(int(np.argmax(live.open_requests)))
    assert 0 < counts[broken] < 2.5 * 800 / 8


def test_old_readings_are_unknown_and_a_request_without_a_size_is_not_dropped():
    live = NetKVRouter([[1, 1]], RATES, max_age_s=10.0)
    live.observe_network(np.zeros(4), now_s=0.0)
    live.observe([0, 1], [0.0, 1e12], 0.0, 0.0, now_s=0.0)
    assert {live.route(0, 1e9, now_s=now_s) for now_s in (5.0, 10.0, 10.0, 10.0)} == {1}  # 0 is full
    assert {live.route(0, 1e9, now_s=50.0) for _ in range(8)} == {0, 1}  # or was, 50 s ago
    assert live.route(0, np.nan, now_s=5.0) >= 0


def test_no_room_and_no_bandwidth_are_refused_and_counters_cannot_fall_below_zero():
    live = NetKVRouter([[1, 2]], [1e9, 1e9, 0.0])
    live.observe_network(np.zeros(3))
    live.observe([0, 1], [1e6, 1e12], 0, 0)
    assert live.route(0, 1e9) == -1 and live.open_requests.sum() == 0
    assert live.route(0, 1e9, [0.0, 1.0]) == 1  # nothing to send
    live.landed(0, 1)
    for wrong, said in (
        (lambda: live.landed(0, 1), "landed: prefill instance 0 has no transfer on tier 2$"),
        (lambda: live.finished(0), "finished: no open request on instance 0$"),
        (lambda: live.route(0, 1e9, [0.0]), r"hit_frac: shape \(1,\); accepted: \(2,\)"),
        (lambda: NetKVRouter([1, 2], RATES), r"tier_map: shape \(2,\); accepted"),
    ):
        with pytest.raises(InputError, match=said):
            wrong()
    with pytest.raises(InputError, match="tier 3"):
        NetKVRouter([[3]], [1e9])


def test_readings_and_requests_without_a_time_are_of_the_same_moment():
    live = NetKVRouter([[1, 1]], RATES, max_age_s=0.5)
    live.observe_network(np.zeros(4))
    live.observe([0, 1], [0.0, 1e12], 0.0, 0.0)  # 0 is full
    assert {live.route(0, 1e9) for _ in range(4)} == {live.route(0, 1e9, now_s=0.5) for _ in range(4)} == {1}
    assert live.route(0, 1e9, now_s=0.75) == 0  # or was, a quarter of a second before that; and has no request yet
    live = NetKVRouter([[0, 1, 3]], RATES, max_age_s=0.5)
    live.observe_network([0.999, 0.0, 0.0, 0.999])  # of which nothing is known a second later
    live.observe([0, 1, 2], 1e12, 0.0, 0.0, now_s=1.0)
    assert len({live.route(0, 1e9, now_s=1.0) for _ in range(12)}) > 1


def test_where_no_instance_would_ever_answer_requests_spread_as_by_power_of_two():
    live = NetKVRouter([[1, 1, 1]], RATES)
    live.observe_network(np.zeros(4))
    live.observe([0, 1, 2], 1e12, np.inf, 0.0)
    assert all(live.route(0, 1e6) >= 0 for _ in range(60))
    assert np.ptp(live.open_requests) <= 3 and live.open_requests.sum() == 60
    alone = NetKVRouter([[1]], RATES)
    alone.observe_network(np.zeros(4))
    alone.observe(0, 1e12, np.inf, 0.0)
    assert alone.route(0, 1e6) == 0


def test_an_instance_of_unknown_queue_counts_with_the_little_that_it_lacks():
    """10 GB take 1.6 s to the one that is known, and 20 requests wait there; 1 GB to the other, where none may wait: it
    has what power-of-two would send it."""
    live = NetKVRouter([[1, 1]], RATES)
    live.observe_network(np.zeros(4))
    live.observe([0, 1], 1e12, [20.0, np.nan], [64.0, np.nan])
    for _ in range(12):
        live.landed(0, live.route(0, 1e10, [0.0, 0.9]))
    assert live.open_requests.tolist() == [6.0, 6.0]


def test_an_old_reading_of_the_network_is_as_good_as_none():
    chosen = []
    for congestion in ([0.99, 0.0, 0.0, 0.0], [0.0, 0.99, 0.0, 0.99], None):
        live = NetKVRouter([[0, 1, 3]], RATES, seed=3, max_age_s=10.0)
        if congestion:
            live.observe_network(congestion, now_s=0.0)
        live.observe([0, 1, 2], 1e12, 0.0, 0.0, now_s=50.0)
        chosen.append([live.route(0, 1e9, now_s=50.0) for _ in range(12)])
    assert chosen[0] == chosen[1] == chosen[2]
    live = NetKVRouter([[0, 1, 3]], RATES, seed=3, max_age_s=10.0)  # one of ten seconds ago is not
    live.observe_network([0.999, 0.0, 0.0, 0.999], now_s=40.0)
    live.observe([0, 1, 2], 1e12, 0.0, 0.0, now_s=50.0)
    assert live.route(0, 1e12, now_s=50.0) == 1


@pytest.mark.parametrize(("running", "first"), [(0.0, {0}), (1.0, {0, 1})])
def test_who_is_unknown_may_be_idle_and_is_tried_against_who_is_not(running, first):
    chosen = set()
    for seed in range(8):
        live = NetKVRouter([[1, 1]], RATES, seed=seed)
        live.observe_network(np.zeros(4))
        live.observe(0, 1e12, 0.0, running)
        chosen.add(live.route(0, 1e9))
    assert chosen == first


def test_a_long_queue_read_just_in_time_is_known_to_be_long():
    """The near instance is full, the far one idle; a moment later nobody knows, and the near one is drawn by some."""
    chosen = {50.0: set(), 50.1: set()}
    for now_s, seed in product(chosen, range(8)):
        live = NetKVRouter([[1, 2]], RATES, seed=seed, max_age_s=10.0)
        live.observe_network(np.zeros(4), now_s=40.0)
        live.observe([0, 1], 1e12, [50.0, 0.0], [64.0, 0.0], now_s=40.0)
        chosen[now_s].add(live.route(0, 1e8, now_s=now_s))
    assert chosen == {50.0: {1}, 50.1: {0, 1}}
