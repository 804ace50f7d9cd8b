"""Staleness tolerances are attained: an adversary with a little more error inverts the order, with less it cannot."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dmodels.models import transfer as tr
from dmodels.models.transfer import correlation_time_s, staleness


def test_proposition_2_is_42_points():
    assert float(tr.tier_staleness_tolerance(4.0, 0.3, 0.3)) == pytest.approx(0.42, abs=1e-15)


def test_on_the_papers_own_topology_it_is_23_points():
    assert float(tr.tier_staleness_tolerance(2.0, 0.3, 0.3)) == pytest.approx(0.7 / 3)


def test_a_saturated_fast_tier_leaves_a_tolerance_for_the_other_order():
    assert float(tr.tier_staleness_tolerance(4.0, 0.95, 0.3)) == pytest.approx(0.1)


def test_composite_cost_tolerates_a_hundredth_of_what_bandwidth_does():
    tol = float(tr.cost_staleness_tolerance(1.0, 0.5, 0.5, 0.5, 0.0, 1.01))
    assert tol < 0.01 < float(tr.tier_staleness_tolerance(2.0, 0.5, 0.5)) == pytest.approx(1 / 6)
    # the inversion at 1/100, exactly as on the proof page: 1/.49 against .5/.51 + 1.01
    assert 1 / 0.49 > 0.5 / 0.51 + 1.01 and 1 / 0.5 < 0.5 / 0.5 + 1.01


free = arrays(float, (64,), elements=st.floats(0.05, 1.0))
size = arrays(float, (64,), elements=st.floats(1e-3, 10.0))
fixed = arrays(float, (64,), elements=st.floats(-5.0, 5.0))


def cost(a, u, d):
    with np.errstate(divide="ignore"):
        return np.where(u > 0, a / u, np.inf) + d


@given(a_i=size, a_j=size, u=free, v=free, d=fixed)
def test_cost_tolerance_is_sufficient_and_tight(a_i, a_j, u, v, d):
    tol = np.asarray(tr.cost_staleness_tolerance(a_i, a_j, 1 - u, 1 - v, 0.0, d))
    sign = np.sign(cost(a_j, v, d) - cost(a_i, u, 0.0))
    clear = (np.abs(cost(a_j, v, d) - cost(a_i, u, 0.0)) > 1e-6) & (tol > 1e-6)
    assert (tol >= 0).all()
    for factor, keeps in ((0.999, True), (1.001, False)):
        shift = np.where(sign > 0, 1.0, -1.0) * factor * tol  # worst case: the better tier looks fuller
        gap = cost(a_j, v + shift, d) - cost(a_i, u - shift, 0.0)
        assert (np.sign(gap[clear]) == (sign if keeps else -sign)[clear]).all()


@given(r=arrays(float, (64,), elements=st.floats(0.1, 20)), u=free, v=free)
def test_equal_payloads_and_no_queues_give_proposition_2(r, u, v):
    tier = np.asarray(tr.tier_staleness_tolerance(r, 1 - u, 1 - v))
    composite = np.asarray(tr.cost_staleness_tolerance(1 / r, np.ones(64), 1 - u, 1 - v))
    np.testing.assert_allclose(composite, tier, rtol=1e-9, atol=1e-12)


def test_candidates_without_payload_cannot_be_inverted_by_congestion_alone():
    tol = tr.cost_staleness_tolerance(np.zeros(2), np.zeros(2), 0.3, 0.3, 0.0, np.array([1.0, -1.0]))
    assert np.isinf(tol).all()
    # i sends nothing but queues 1 s longer; j wins once its transfer reads below 1 s: v + delta = 2
    assert float(tr.cost_staleness_tolerance(0.0, 2.0, 0.3, 0.3, 1.0, 0.0)) == pytest.approx(2.0 - 0.7)


def test_gradients_of_the_tolerance_are_finite():
    slope = jax.grad(lambda c: tr.cost_staleness_tolerance(1.0, 0.5, c, 0.5, 0.0, 1.5))
    eps = 1e-6
    value = lambda c: float(tr.cost_staleness_tolerance(1.0, 0.5, c, 0.5, 0.0, 1.5))
    assert float(slope(0.3)) == pytest.approx((value(0.3 + eps) - value(0.3 - eps)) / (2 * eps), rel=1e-5)


def test_two_candidates_on_one_tier_tie_where_predicted():
    tol = float(tr.same_tier_tolerance(1.0, 0.4, 0.2, 0.0, 1.0))
    assert cost(1.0, 0.8 - 0.999 * tol, 0.0) < cost(0.4, 0.8 - 0.999 * tol, 1.0)
    assert cost(1.0, 0.8 - 1.001 * tol, 0.0) > cost(0.4, 0.8 - 1.001 * tol, 1.0)
    assert np.isinf(tr.same_tier_tolerance(1.0, 2.0, 0.2, 0.0, 1.0))  # dominated: no congestion helps


def four(low, high):
    return arrays(float, (16, 4), elements=st.floats(low, high))


@given(a=four(0.01, 5), u=four(0.1, 1), d=four(0, 3), error=st.floats(0, 0.5), seed=st.integers(0, 99))
def test_no_reading_within_the_error_costs_more_than_the_worst_regret(a, u, d, error, seed):
    worst = np.asarray(tr.worst_stale_regret_s(a, 1 - u, d, error))
    true = cost(a, u, d)
    read = u + np.random.default_rng(seed).uniform(-error, error, (200, 16, 4))
    chosen = cost(a, read, d).argmin(-1)
    regret = np.take_along_axis(true[None], chosen[..., None], -1)[..., 0] - true.min(-1)
    assert (regret <= worst + 1e-9).all()
    best = true.argmin(-1)
    rows = np.arange(16)
    bound = np.stack(
        [
            np.asarray(tr.stale_regret_bound_s(a[rows, best], a[:, k], 1 - u[rows, best], 1 - u[:, k], error))
            for k in range(4)
        ]
    )
    assert (worst <= bound.max(0) + 1e-9).all()


def test_refresh_interval_keeps_the_drift_of_an_ar1_signal_inside_the_tolerance():
    std, tau, tol = 0.05, 30.0, 0.08
    interval = float(tr.refresh_interval_s(tol, std, tau))
    rng = np.random.default_rng(1)
    phi = np.exp(-interval / tau)
    start = rng.normal(0, std, 200_000)
    later = phi * start + np.sqrt(1 - phi**2) * rng.normal(0, std, 200_000)
    missed = (np.abs(later - start) > tol).mean()
    assert abs(missed - 0.01) < 0.001
    assert np.isinf(tr.refresh_interval_s(0.5, 0.05, 30.0))


def test_correlation_time_is_found_from_telemetry():
    rng = np.random.default_rng(2)
    phi, x = np.exp(-1.0 / 20), np.zeros((32, 5000))
    noise = rng.normal(size=x.shape)
    for t in range(1, x.shape[1]):
        x[:, t] = phi * x[:, t - 1] + noise[:, t]
    assert np.asarray(correlation_time_s(x, 1.0)).mean() == pytest.approx(20, rel=0.05)
    assert np.isinf(correlation_time_s(np.ones(5), 1.0))
    assert float(correlation_time_s(np.array([1.0, -1.0] * 9), 1.0)) == 0


def test_who_sends_nothing_errs_with_the_other_alone():
    """A hit of everything and a delay of 2 s against 1 s of transfer at half congestion, 2 s: a tie already."""
    tolerance = lambda delay: float(staleness.cost_staleness_tolerance(0.0, 1.0, 0.5, 0.5, delay, 0.0))
    assert tolerance(2.0) == pytest.approx(0.0)
    assert tolerance(1.0) == math.inf or tolerance(1.0) == pytest.approx(0.5)  # 1/(1 - c) = 1 at c = 0
    assert tolerance(0.0) == math.inf  # nothing to send, nothing to wait for: always first


def test_readings_that_never_drift_too_far_need_no_refresh():
    """Unrelated readings differ by sqrt(2) std; with k deviations a tolerance above k sqrt(2) std holds for ever."""
    edge = math.sqrt(2) * 2.0
    assert math.isinf(float(staleness.refresh_interval_s(edge * 1.001, 1.0, 60.0, 2.0)))
    assert math.isfinite(float(staleness.refresh_interval_s(edge * 0.999, 1.0, 60.0, 2.0)))


def test_who_sends_nothing_and_starts_ahead_is_first_whatever_is_read():
    """No payload, half a second ahead of one second of transfer."""
    assert math.isinf(float(staleness.cost_staleness_tolerance(0.0, 1.0, 0.5, 0.5, 0.0, 0.5)))


def test_one_congestion_turns_two_costs_round():
    """1/(1 - c) + 3 s against 0.4/(1 - c) + 4 s tie at c = 0.4, whoever is named first; equal ones never do."""
    at = lambda *asked: float(staleness.same_tier_tolerance(*asked))
    assert [at(1.0, 0.4, 0.2, 3.0, 4.0), at(0.4, 1.0, 0.2, 4.0, 3.0)] == pytest.approx([0.2, 0.2])
    assert [at(1.0, 1.0, 0.2, 3.0, 4.0), at(1.0, 0.4, 0.2, 3.0, 3.0)] == [math.inf, math.inf]


def test_what_readings_can_cost_on_a_full_link():
    """Nothing to send is not slandered: 0.6/(0.5 x 1.1) of flattery. Without an error nothing is lost, link or none."""
    bound = lambda *asked: float(staleness.stale_regret_bound_s(*asked))
    assert bound(0.0, 1.0, 0.5, 0.5, 0.6) == pytest.approx(0.6 / 0.55)
    assert bound(1.0, 1.0, 1.0, 0.5, 0.0) == 0.0 == bound(1.0, 1.0, 0.5, 0.5, 0.0)


def test_a_full_link_does_not_slander_who_sends_nothing():
    """0.5 s to wait, whatever is read, keeps 1/1.3 s at best out."""
    regret = staleness.worst_stale_regret_s(np.array([1.0, 0.0]), np.array([0.0, 0.8]), np.array([0.0, 0.5]), 0.3)
    assert float(regret) == 0.0


def test_a_constant_signal_stays_for_ever():
    assert float(staleness.correlation_time_s(np.ones(5), 1.0)) == math.inf
