"""Values of the controllers' laws at their edges, each known without them."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.control import congestion, planner, regime, token_budget
from dmodels.control.phasor import baselines as phasor_baselines
from dmodels.control.phasor import flow as phasor_flow
from dmodels.control.planner import stability as planner_stability
from dmodels.control.token_budget import bounds, threshold
from dmodels.core.errors import InputError

pytestmark = pytest.mark.usefixtures("op_by_op")


def test_a_right_cold_start_needs_no_responses():
    assert float(bounds.responses_to(0.035, 2.0, 2.0)) == 0.0
    assert float(bounds.responses_to(0.5, 2.5, 2.0)) == 0.0  # off by a quarter, and half is allowed


def test_quantile_slack_of_ratios_from_one_to_six():
    assert float(bounds.quantile_slack(10_000.0, 1.0, 6.0)) == pytest.approx((math.log(6) + 0.1) / 500, rel=1e-12)
    assert float(bounds.quantile_slack(10_000.0, 2.0, 6.0)) == pytest.approx((math.log(3) + 0.1) / 500, rel=1e-12)


def test_a_step_that_ends_on_the_threshold_is_never_seen():
    assert math.isinf(float(regime.detection_samples(0.0, 1.0, 1.0)))
    assert float(regime.detection_samples(0.0, 100.0, 1.0)) == 1.0  # the first sample reads 30
    assert float(regime.detection_samples(0.0, 100.0, 1.0, 0.3, 3.0)) == 3.0


def test_a_smoothed_level_is_forecast_at_every_horizon():
    state = congestion.smoothing_init(0.3)
    assert [float(congestion.smoothing_forecast(state, h)) for h in (0.0, 1.0, 9.0)] == [0.3] * 3


def test_an_autoregression_halves_its_distance_to_the_mean_every_step():
    state = congestion.Autoregression(last=0.6, mean=0.2, power=1.0, product=0.5)
    assert [float(congestion.ar1_forecast(state, h)) for h in (0.0, 1.0, 2.0)] == pytest.approx([0.6, 0.4, 0.3])
    assert float(congestion.ar1_coefficient(state._replace(product=1.5))) == 1.0


SEEN = phasor_baselines.Telemetry(
    *(
        np.array(x)
        for x in (
            [2.0, 1.0, 1.0, 5.0],
            [10.0, 20.0, 30.0, 5.0],
            [50.0, 90.0, 60.0, 40.0],
            [100.0, 200.0, 50.0, 100.0],
            [4.0, 9.0, 6.0, 5.0],
            [8.0, 9.0, 3.0, 20.0],
        )
    )
)


def test_each_rule_reads_its_own_proxy():
    shares = ([0.5, 0.45, 1.2, 0.4], [0.5, 1.0, 2.0, 0.25])
    for rule, expected in zip((phasor_baselines.memory_only, phasor_baselines.virtual_freeness), shares, strict=True):
        assert rule(SEEN).tolist() == pytest.approx(expected)
    assert [
        int(phasor_baselines.least(rule(SEEN)))
        for rule in (phasor_baselines.queue_length, phasor_baselines.token_backlog)
    ] == [1, 3]


def test_turns_go_round():
    turn, order = jnp.int32(0), []
    for _ in range(5):
        turn, worker = phasor_baselines.round_robin(turn, 3)
        order.append(int(worker))
    assert order == [0, 1, 2, 0, 1]


def test_two_draws_are_two_workers_and_the_shorter_queue_wins():
    """Four workers: the first of two, the second one of the three others, each for a third of the second draw."""
    pair = lambda a, b: int(phasor_baselines.power_of_two(SEEN, jnp.array([a, b])))
    assert [pair(0.0, b) for b in (0.0, 0.34, 0.99)] == [1, 2, 0]  # against 1, 2, 3 from worker 0
    assert [pair(0.99, b) for b in (0.0, 0.34, 0.99)] == [0, 1, 2]  # against 0, 1, 2 from worker 3
    assert pair(0.25, 0.0) == 1 and pair(0.5, 0.99) == 2  # 1 against 2, 2 against 1: of equals, the first drawn
    assert [int(phasor_baselines.power_of_two(SEEN, jnp.array(d))) for d in ([1.0, 1.0], [1.0, 0.0])] == [2, 0]
    two = phasor_baselines.Telemetry(*(x[2:] for x in SEEN))
    assert [int(phasor_baselines.power_of_two(two, jnp.array(d))) for d in ([0.0, 1.0], [0.9, 1.0])] == [0, 0]
    alone = phasor_baselines.Telemetry(*(x[:1] for x in SEEN))
    assert int(phasor_baselines.power_of_two(alone, jnp.array([0.5, 0.5]))) == 0


def test_a_static_split_is_in_proportion_with_one_worker_each():
    split = lambda p, d: float(phasor_baselines.static_split(p, d, 8))
    assert [split(3.0, 1.0), split(0.1, 0.3), split(0.0, 0.0), split(0.0, 5.0), split(5.0, 0.0)] == [6, 2, 4, 1, 7]


def test_a_mixed_worker_follows_the_queue_that_exceeds_the_limit():
    role = lambda p, d: int(phasor_baselines.reactive_role(p, d, 4.0))
    assert [role(5.0, 9.0), role(4.0, 5.0), role(4.0, 4.0), role(5.0, 0.0)] == [1, -1, 0, 1]


def test_a_threshold_moves_with_the_share_of_failures_of_a_window():
    rule = threshold.settings(0.5, 1e5, target_frac=0.01, step=0.5)
    after = lambda failed, served: threshold.update(threshold.init(100.0), failed, served, rule)
    for failed, served, share in ((0.0, 1.0, 0.0), (1.0, 4.0, 0.25), (3.0, 2.0, 1.0)):
        assert float(after(failed, served).threshold_tokens) == pytest.approx(100 * math.exp(0.5 * (0.01 - share)))
        assert float(after(failed, served).windows) == 1.0
    silent = after(1.0, 0.0)
    assert (float(silent.threshold_tokens), float(silent.windows)) == (100.0, 0.0)
    assert float(threshold.rate_slack(10.0, threshold.settings(1.0, 2.0))) == pytest.approx(math.log(2) / 5)
    for wrong in ((0.0, 1.0, 0.5, 0.5), (1.0, 2.0, 1.5, 0.5), (1.0, 2.0, 0.5, 0.0)):
        with pytest.raises(InputError):
            threshold.settings(*wrong)


def test_a_planner_acts_on_what_it_saw_so_many_intervals_ago():
    for delay in (0, 1, 2):
        rule = planner.planner(lambda prefill, total, seen: seen.prefill_wait_s, delay=delay)
        state, course = rule.init(4.0, 8.0), []
        for wait_s in (1.0, 0.0, 0.0, 0.0):
            state = rule.update(state, planner.Observation(0.0, wait_s, 0.0))
            course.append(float(state.prefill))
        assert course == [4.0] * delay + [5.0] * (4 - delay)


def test_a_planner_rests_after_it_gave_decode_a_worker_and_keeps_one_in_each_pool():
    rule = planner.planner(lambda prefill, total, seen: seen.prefill_wait_s, grace=2.0)
    at = rule.init(2.0, 4.0)
    course = []
    for push in (0.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0):
        at = rule.update(at, planner.Observation(0.0, push, 0.0))
        course.append((float(at.prefill), float(at.grace)))
    assert course == [(2, 0), (3, 0), (3, 0), (2, 2), (2, 1), (2, 0), (3, 0), (3, 0)]


def test_the_reactive_planner_in_and_out_of_its_dead_band():
    wait = lambda prefill_s, decode_s: planner.Observation(0.0, prefill_s, decode_s)
    plain, steep = planner.reactive(dead_band_s=0.5), planner.reactive(gain=2.0)
    assert [float(plain(1.0, 2.0, wait(p, d))) for p, d in ((0.5, 0.0), (0.6, 0.0), (0.0, 0.6), (0.2, 0.2))] == [
        0.0,
        1.0,
        -1.0,
        0.0,
    ]
    assert [float(steep(1.0, 2.0, wait(p, d))) for p, d in ((3.0, 1.0), (0.0, 1.5))] == [4.0, -3.0]


def test_the_second_difference_of_a_square_is_two_at_any_spacing():
    for x in ([0.0, 1.0, 3.0], [1.0, 3.0, 4.0], [2.0, 5.0, 9.0]):
        assert float(regime.curvature(jnp.array(x), jnp.array(x) ** 2)) == pytest.approx(2.0)


def test_whole_samples_are_not_rounded_up():
    assert [float(regime.least_dwell_samples(m, 1.0, a)) for m, a in ((0.3, 0.3), (0.6, 0.2), (0.61, 0.2))] == [1, 3, 4]


def test_cantelli_at_one_deviation_and_at_the_mean():
    assert [float(bounds.miss_bound(n, 4.0, 2.0)) for n in (2.0, 4.0, 5.0)] == [0.5, 1.0, 1.0]
    assert float(bounds.miss_bound(4.0, 4.0, 0.0)) == 1.0


def test_no_margin_is_wider_than_the_context():
    assert float(bounds.threshold_frac(0.5, 4.0, 1.0, 2.0)) == 1.0
    assert float(bounds.threshold_frac(0.5, 4.0, 1.0, 6.0)) == 0.5


def test_a_course_follows_its_recurrence_to_the_end():
    for gain, delay in ((0.2, 0), (0.1, 2), (None, 1)):
        x, s = planner_stability.simulate(gain, 0.5, 0.5, delay, steps=20, start=3.0)
        for t in range(19):
            seen = s[t - delay] if t >= delay else 0.0
            assert s[t + 1] == pytest.approx(0.5 * s[t] - 0.5 * x[t])
            assert x[t + 1] == pytest.approx(x[t] + (np.sign(seen) if gain is None else gain * seen))
    assert x[0] == 3.0


def test_responses_without_a_count_and_a_quantile_that_is_off_change_nothing():
    rule = token_budget.settings()
    start = token_budget.init(1, rule)
    for tokens in (0.0, -1.0, math.inf, math.nan):
        assert all(
            (new == old).all()
            for new, old in zip(token_budget.update(start, 0, 40.0, tokens, rule), start, strict=True)
        )
    for tokens in (5.0, 30.0, 1e-6):  # 8 and 1.3 bytes a token, and more than there can be
        assert float(token_budget.update(start, 0, 40.0, tokens, rule).quantile[0]) == float(start.quantile[0])


def test_a_pool_that_is_just_free_enough_is_not_helped():
    """theta = 1/2: freeness 1/2 beside 1 is no trigger, and the freer pool can spare a worker."""
    change = lambda p, d: int(phasor_flow.promote(phasor_flow.init(2.0, 2.0, 1.0), p, d, phasor_flow.settings(0.5))[1])
    assert [change(1.0, 0.5), change(0.5, 1.0), change(1.0, 0.49), change(0.49, 1.0)] == [2, -2, -1, 1]


def test_the_repaired_planner_goes_where_it_is_cheaper_by_one():
    here = planner.Observation(4.0, 0.0, 0.0)
    go = lambda cost, at: float(planner.best_response(lambda p, total, rate: cost(p))(at, 8.0, here))
    valley = lambda p: (p - 3.0) ** 2
    assert [go(valley, at) for at in (1.0, 3.0, 6.0)] == [1.0, 0.0, -1.0]
    assert go(lambda p: -((p - 3.0) ** 2), 3.0) == 1.0  # as good both ways: prefill


def test_the_anarchy_driven_planner_goes_all_the_way_or_nowhere():
    here = planner.Observation(4.0, 0.0, 0.0)
    push = planner.anarchy_driven(lambda p, total, rate: abs(p - 3.0), lambda total, rate: 3.0)
    assert [float(push(at, 8.0, here)) for at in (1.0, 3.0, 5.0)] == [2.0, 0.0, -2.0]


def test_replicas_in_proportion_to_what_the_forecast_needs():
    """Four requests a second: two prefill workers of 2/s, eight decoders of 1/2: of ten workers two, of twenty four."""
    push = planner.sla_target(2.0, 0.5)
    assert [float(push(1.0, total, planner.Observation(4.0, 0.0, 0.0))) for total in (10.0, 20.0)] == [1.0, 3.0]


def test_twice_the_step_needs_a_sixteenth_of_the_readings():
    assert float(regime.curvature_samples(1.0, 2.0, 1.0, 4.0)) == pytest.approx(6.0)


def test_nine_hits_make_up_for_one_miss_in_ten():
    rule = token_budget.settings(miss_frac=0.1, step=0.05)
    state = start = token_budget.init(1, rule)
    for tokens in [20.0, *[1.0] * 9]:  # 1 byte a token, below the quantile of 4; then 20 of them above
        state = token_budget.update(state, 0, 20.0, tokens, rule)
    assert float(state.quantile[0]) == pytest.approx(float(start.quantile[0]), rel=1e-12)


def test_a_level_on_a_threshold_is_not_above_it_nor_on_its_margin_below():
    """Thresholds of 1 and 2 s with margins of a quarter, and no memory: 1 s is still below, 0.75 s still above."""
    rule = regime.detector(0.5, 2.0, 4.0, 0.25, 1.0, 1)
    start, at_first = regime.update(regime.init(), 1.0, rule)
    assert (int(at_first), float(start.seen)) == (0, 1.0)
    higher, up = regime.update(start, 1.5, rule)
    assert [int(up), *(int(regime.update(higher, s, rule)[1]) for s in (2.0, 0.75, 0.7, 2.1))] == [1, 1, 1, 0, 2]


def test_a_sample_that_lands_on_the_threshold_does_not_count():
    """Halves of what is left: 1/2, then 3/4 and 7/8."""
    assert [float(regime.detection_samples(0.0, 1.0, t, 0.5)) for t in (0.5, 0.75, 0.8)] == [2.0, 3.0, 3.0]


def test_a_response_of_no_bytes_or_endless_ones_teaches_nothing():
    rule = token_budget.settings()
    start = token_budget.init(1, rule)
    for size in (0.0, math.inf):
        after = token_budget.update(start, 0, size, 10.0, rule)
        assert [np.asarray(a).tolist() for a in after] == [np.asarray(b).tolist() for b in start]


def test_a_ratio_on_the_quantile_raises_it():
    rule = token_budget.settings(miss_frac=0.1, step=0.05)
    start = token_budget.init(1, rule)._replace(quantile=np.array([4.0]))
    start = type(start)(*map(jnp.asarray, start))
    on, below = (float(token_budget.update(start, 0, size, 16.0, rule).quantile[0]) for size in (64.0, 63.0))
    assert below < 4.0 < on


def test_a_request_spills_to_the_pool_with_the_least_waiting_for_its_limit():
    """One waiting of one allowed is worse than three of four."""
    where = token_budget.pools([10.0, 20.0, 30.0], [100.0, 200.0, 300.0], [2.0, 1.0, 4.0])
    assert int(token_budget.dispatch(5.0, jnp.array([9.0, 1.0, 3.0]), where).pool) == 2
    assert int(token_budget.dispatch(5.0, jnp.array([9.0, 0.0, 3.0]), where).pool) == 1


def test_a_planner_of_a_full_system_is_never_stable():
    for leak in (1.0, 1.5):
        assert tuple(planner_stability.limit(leak)) == (0.0, math.inf)


def test_the_relay_swings_by_its_describing_function():
    """4 kappa/(pi A) = 1/2."""
    assert float(planner_stability.relay_cycle(0.3, 0.5)[2]) == pytest.approx(2.4 / math.pi)


def test_a_cycle_is_counted_between_upward_crossings_of_its_mean():
    """The second half: 0, 2 and 5 are the last below; twice; once."""
    measured = lambda *x: planner_stability.measured_cycle(np.array([9.0] * len(x) + [*x]), np.zeros(2 * len(x)), 1.0)
    assert measured(0.0, 1.0, 0.5, 1.0, 0.0, 0.5, 1.0, 0.0)[:2] == (2.5, 0.5)
    assert measured(0.0, 1.0, 0.0, 1.0)[0] == 2.0 and measured(0.0, 0.0, 1.0, 1.0)[0] == math.inf
