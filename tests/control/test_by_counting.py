"""Scores, bursts and thresholds of controllers, counted out on small cases."""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.control import congestion
from dmodels.control import token_budget as tb
from dmodels.control.netkv import DecodePool, Oracle, joint_assignment
from dmodels.control.planner import Observation, TandemPools, planner, run, scale, score
from dmodels.control.planner.loop import Course, late_frac
from dmodels.control.planner.planners import Planner, PlannerState
from dmodels.control.token_budget import TokenBudgetRouter
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag


def test_a_score_counts_requests_moves_and_the_time_from_the_first_late_interval_to_the_last():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n = 8
        late = [np.where(rng.random(n) < 0.4, rng.uniform(0, 1, n), 0.0) for _ in range(2)]
        waits, workers, rates = rng.exponential(2.0, (2, n)), rng.integers(1, 9, n), rng.uniform(1, 20, n)
        told = score(Course(workers * 1.0, *map(jnp.asarray, (*waits, *late))), jnp.asarray(rates), 45.0)
        either = [min(a + b, 1.0) for a, b in zip(*late, strict=True)]
        share = sum(x * r for x, r in zip(either, rates, strict=True)) / sum(rates)
        assert float(told.violation_frac) == pytest.approx(share)
        assert float(told.moves_count) == sum(abs(int(b) - int(a)) for a, b in itertools.pairwise(workers))
        assert float(told.worst_wait_s) == pytest.approx(max(waits[0].max(), waits[1].max()))
        bad = [k for k, x in enumerate(either) if x > 0]
        assert float(told.recovery_s) == (45.0 * (bad[-1] - bad[0] + 1) if bad else 0.0)


@pytest.mark.parametrize("before, after", [(0.0, 4.0), (4.0, 0.0), (1.0, 1.0), (3.0, 3.0), (2.5, 3.5), (2.0, 2.0)])
def test_late_is_the_share_of_moments_above_the_slo(before, after):
    moments = np.linspace(before, after, 100_001)
    assert float(late_frac(before, after, 2.0)) == pytest.approx((moments > 2.0).mean(), abs=1e-4)


@pytest.mark.parametrize("startup", [0, 1, 3])
def test_a_pool_has_what_was_ordered_so_many_intervals_ago(startup):
    """Workers of 10 for 1.2 times the forecast, one at least; what is left over waits, interval by interval."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        demand, forecast = rng.uniform(0, 60, 14), rng.uniform(0, 60, 14)
        told = scale(demand, forecast, 10.0, headroom=1.2, startup=startup, wait_slo_s=30.0, interval_s=60.0)
        backlog = 0.0
        for k in range(14):
            known = demand[k] if k <= startup else forecast[k - startup - 1]
            have = max(math.ceil(1.2 * known / 10.0 - 1e-9), 1)
            left = max(backlog + (demand[k] - 10.0 * have) * 60.0, 0.0)
            ends = backlog / (10.0 * have), left / (10.0 * have)
            assert float(told.instances[k]) == have and float(told.wait_s[k]) == pytest.approx(ends[1])
            moments = np.linspace(*ends, 10_001)
            assert float(told.violation_frac[k]) == pytest.approx((moments > 30.0).mean(), abs=2e-4)
            backlog = left


@pytest.mark.parametrize("demand, workers", [(50.0, 5), (110.0, 11), (200.0, 20), (200.1, 21)])
def test_what_workers_serve_to_the_last_digit_takes_no_further_one(demand, workers):
    """A tenth more than 10 a worker serves 11, though 1.1 x 50 / 11 is a little more than 5 to a computer."""
    told = scale(np.full(14, demand), np.full(14, demand), 11.0, headroom=1.1)
    assert told.instances.tolist() == [workers] * 14


def test_a_planner_sees_the_last_rate_times_its_forecast():
    """A pressure that asks for as many workers as it is told that requests come."""
    pools = TandemPools(2.0, 1.0, interval_s=10.0)
    rates = np.array([30.0, 10.0, 50.0, 20.0])
    told = lambda p, total, seen: jnp.round(seen.arrival_rps) - p
    wishes = planner(told, step=1e9, grace=0.0, least=0.0)
    assert run(wishes, pools, rates, 3.0, 1e6, 1.5).prefill_instances.tolist() == [3.0, 45.0, 15.0, 75.0]
    assert run(wishes, pools, rates, 3.0, 1e6).prefill_instances.tolist() == [3.0, 30.0, 10.0, 50.0]
    assert [float(x) for x in TandemPools(2.0, 1.0).__dict__.values()] == [2.0, 1.0, 1.0, 1.0, 30.0]
    state = planner(lambda p, total, seen: 0.0 * p).init(3.0, 9.0)
    seen = Observation(1.0, 2.0, 3.0)
    assert [float(leaf[-1]) for leaf in planner(lambda p, t, s: 0.0 * p).update(state, seen).seen] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("reserve, full", [(0.0, False), (0.25e9, False), (0.3e9, True), (0.45e9, True)])
def test_a_burst_overfills_an_instance_with_what_is_kept_free(reserve, full):
    """Two requests of 1 GB for 2.25 GB; each alone fits. Another instance is as good as full, and gets none."""
    one = Oracle(np.array([[1, 1]]), np.array([4e11, 6e9]), np.zeros(2), np.zeros(2))
    room = DecodePool(np.array([2.25e9, 0.1e9]), np.zeros(2), np.zeros(2))
    told = joint_assignment(one, 0, np.full(2, 1e9), 0.0, room, reserve_bytes=reserve)
    assert bool(told.flags & Flag.OVERLOAD) == full and told.value.index.tolist() == [0, 0]
    assert told.value.tier_counts.tolist() == [0.0, 2.0]


def test_forecasts_of_congestion_begin_with_the_first_reading():
    for first in (0.0, 0.4, 1.0):
        state, level = congestion.ar1_init(first), congestion.smoothing_init(first)
        expected = min(first, 0.999)
        assert float(congestion.ar1_forecast(state, 3.0)) == float(congestion.smoothing_forecast(level)) == expected
        assert float(congestion.ar1_coefficient(state)) == 1.0  # nothing has moved yet


def test_limits_of_thresholds_and_pools():
    """What is accepted at its very ends, and refused just beyond."""
    tb.threshold_settings(5.0, 5.0), tb.pools([8192.0, 65536.0], [8192, 65536], 0.0), tb.pools([5.0, 5.0], [5, 20])
    assert tb.pools([5.0], [20]).contexts_tokens.tolist() == [20.0] == tb.pools([], [20]).thresholds_tokens.tolist()
    TokenBudgetRouter(tb.pools([5.0], [5.0, 20.0]), adaptive=[tb.threshold_settings(5.0, 5.0)])
    for wrong in ((0.0, 5.0), (6.0, 5.0), (1.0, 5.0, 0.0), (1.0, 5.0, 1.0), (1.0, 5.0, 0.1, 1.0), (1.0, 5.0, 0.1, 0.0)):
        with pytest.raises(InputError, match="target_frac"):
            tb.threshold_settings(*wrong)
    for thresholds, contexts, spill in (
        ([0.0], [10, 20], 1.0),
        ([11.0], [10, 20], 1.0),
        ([5.0, 4.0], [10, 20], 1.0),
        ([5.0], [10, 10], 1.0),
        ([5.0], [20, 10], 1.0),
        ([5.0], [10, 20], -1.0),
        ([5.0], [10, 20], [1.0]),
        ([], [], 1.0),
    ):
        with pytest.raises(InputError, match="thresholds_tokens"):
            tb.pools(thresholds, contexts, spill)
    own = [tb.threshold_settings(100.0, 8192.0), tb.threshold_settings(9000.0, 30_000.0)]
    where = tb.pools([8192, 20_000], [8192, 32_768, 65_536])
    router = TokenBudgetRouter(where, adaptive=own)
    for _ in range(400):
        router.on_outcome(0, True), router.on_outcome(1, False), router.on_outcome(2, True)
    assert router.thresholds == pytest.approx([100.0, 20_000 * math.exp(400 * 0.05 * 0.01), 65_536])
    assert float(tb.failure_bound(400.0, 8192.0, own[0])) == pytest.approx(0.01 + math.log(81.92) / 20.0)


def test_the_live_router_counts_as_it_is_told_and_spills_to_the_least_loaded_for_its_limit():
    router = TokenBudgetRouter(tb.pools([100, 200, 300], [100, 200, 300], [2.0, 4.0, 8.0]), tb.settings(cold_ratio=1.0))
    assert router.route("a", 90.0, 10).pool == 0 and router.route("a", 91.0, 10).pool == 1
    for queued, pool in (
        ([2, 9, 9], 0),  # as many as may wait
        ([3, 4, 8], 1),  # both full to the brim: the first of equals
        ([3, 4, 7], 2),
        ([3, 1, 3], 1),
        ([3, 5, 9], 0),  # nobody can help
    ):
        assert router.route("a", 90.0, 10, queued).pool == pool
    assert router.route("a", 150.0, 10, [0, 9, 0]).pool == 2 and router.route("a", 250.0, 10, [0, 0, 99]).pool == 2
    assert router.route("a", 0.0, 10).total_tokens == 10  # of an empty prompt: what may be written
    big = router.route("a", 900.0, 10)
    assert (big.pool, big.total_tokens, big.fits) == (2, 910, False)
    assert router.route("a", math.inf, 10).fits is False
    none = TokenBudgetRouter(tb.pools([100, 200, 300], [100, 200, 300], [0.0, 0.0, 2.0]), tb.settings(cold_ratio=1.0))
    assert none.route("a", 90.0, 10, [1, 0, 1]).pool == 1  # where none may wait, an idle pool is taken before others
    half = TokenBudgetRouter(tb.pools([100, 200, 300], [100, 200, 300], [1.0, 4.0, 1.2]), tb.settings(cold_ratio=1.0))
    assert half.route("a", 90.0, 10, [2, 3, 1]).pool == 1  # 3 of 4 is less than 1 of 1.2
    edge = TokenBudgetRouter(tb.pools([100, 300], [150, 300], [2.0, 4.0]), tb.settings(cold_ratio=1.0))
    sent = [edge.route("a", size, 10, [2, 5]).pool for size in (90.0, 140.0, 141.0)]
    assert edge.route("a", 140.0, 10, [2, 5]).fits and not edge.route("a", 291.0, 10).fits
    brim = tb.dispatch(300.0, jnp.zeros(2), tb.pools([100, 300], [150, 300], [2.0, 4.0]))
    assert edge.route("a", 290.0, 10) == (1, 300.0, True) == tuple(np.asarray(x).item() for x in brim)
    assert sent == [0, 0, 1]  # 150 tokens fill the short pool's context to the brim, 151 do not fit


def test_two_pools_in_tandem_interval_by_interval():
    """A planner that follows what it observes: workers that change pools serve in neither for an interval."""
    wish = lambda seen: 6 + 0.2 * seen[1] - 0.1 * seen[2] + 0.02 * seen[0]
    follow = Planner(
        lambda prefill, total: PlannerState(
            jnp.asarray(prefill, float), jnp.asarray(total, float), jnp.zeros(()), None
        ),
        lambda state, seen: state._replace(prefill=jnp.clip(jnp.round(wish(seen)), 2.0, 14.0)),
    )
    pools = TandemPools(2.0, 1.5, 3.0, 5.0, 20.0)
    rates = np.random.default_rng(6).uniform(2, 25, 30)
    told = run(follow, pools, jnp.asarray(rates), 8.0, 16.0, 1.2)
    now = before = 8.0
    prompts = answers = 0.0
    for k, rate in enumerate(rates):
        serve_p, serve_d = 2.0 * min(now, before), 1.5 * (16 - max(now, before))
        left = max(prompts + 20 * (rate - serve_p), 0.0)
        waiting = max(answers + prompts + 20 * rate - left - 20 * serve_d, 0.0)
        waits = [(prompts / serve_p, left / serve_p), (answers / serve_d, waiting / serve_d)]
        late = [float(np.mean(np.linspace(*wait, 20_001) > slo)) for wait, slo in zip(waits, (3.0, 5.0), strict=True)]
        wanted = (now, waits[0][1], waits[1][1], *late)
        assert [float(column[k]) for column in told] == pytest.approx(wanted, rel=1e-4, abs=2e-4)
        before, now = now, min(max(round(wish((1.2 * rate, waits[0][1], waits[1][1]))), 2), 14)
        prompts, answers = left, waiting
    assert len(set(told.prefill_instances.tolist())) > 4
