"""Predictors against strangers: least squares at once, the Riccati equation, and series whose future is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

from dmodels.control.planner import arima, constant, forecasts, kalman, scale, seasonal
from dmodels.core.errors import InputError

RNG = np.random.default_rng(3)
DISCOUNT = 0.97
PRIOR = 1e4  # variance of a weight before any reading, in units of the first


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def last_state(predictor, series):
    state, _ = jax.lax.scan(lambda s, y: (predictor.update(s, y), None), predictor.init(series[0]), series[1:])
    return state


def least_squares(x, y, discount, prior_left):
    """Weights of discounted ridge regression, by one solve."""
    w = discount ** np.arange(len(y))[::-1]
    return np.linalg.solve((x.T * w) @ x + prior_left * np.eye(x.shape[1]) / PRIOR, (x.T * w) @ y)


def test_arima_solves_its_least_squares():
    series = 5 + np.cumsum(RNG.normal(size=60)) * 0.1
    state, y = last_state(arima(2, DISCOUNT), jnp.asarray(series)), series / series[0]
    d = np.diff(y)
    expected = least_squares(np.stack([d[:-2], d[1:-1]], 1), d[2:], DISCOUNT, DISCOUNT ** (len(d) - 2))
    np.testing.assert_allclose(state.weights, expected, rtol=1e-6)
    tomorrow = y[-1] + expected @ d[-2:]
    after = tomorrow + expected @ [d[-1], tomorrow - y[-1]]
    assert float(arima(2, DISCOUNT).forecast(state, 2)) == pytest.approx(after * series[0], rel=1e-6)


def test_the_seasonal_predictor_solves_its_least_squares():
    t = np.arange(90.0)
    series = 4 + np.sin(t / 3) + RNG.normal(size=90) * 0.2
    state = last_state(seasonal(24.0, 2, DISCOUNT), jnp.asarray(series))
    turn = 2 * np.pi * np.outer(t, [1, 2]) / 24
    x = np.concatenate([np.ones((90, 1)), t[:, None] / 24, np.cos(turn), np.sin(turn)], 1)
    np.testing.assert_allclose(
        state.weights, least_squares(x, series / series[0], DISCOUNT, DISCOUNT**90), rtol=1e-5, atol=1e-9
    )
    # what is left of each reading by the weights before it, its power and its product with the one before
    left, power, product, y = 0.0, 0.0, 0.0, series / series[0]
    for k in range(1, 90):
        before = left
        left = y[k] - x[k] @ least_squares(x[:k], y[:k], DISCOUNT, DISCOUNT**k)
        power += (1 - DISCOUNT) * (left**2 - power)
        product += (1 - DISCOUNT) * (left * before - product)
    np.testing.assert_allclose(state.recent, [left, power, product], rtol=1e-4, atol=1e-7)
    for steps in (1, 5):
        turn = 2 * np.pi * np.array([1, 2]) * (89 + steps) / 24
        ahead = np.concatenate([[1.0, (89 + steps) / 24], np.cos(turn), np.sin(turn)]) @ np.asarray(state.weights)
        expected = series[0] * max(ahead + left * min(max(product / power, 0.0), 1.0) ** steps, 0.0)
        assert float(seasonal(24.0, 2, DISCOUNT).forecast(state, steps)) == pytest.approx(expected, rel=1e-4)


def test_the_kalman_gain_settles_where_riccati_says():
    state = last_state(kalman(0.3, 0.02), jnp.ones(200))
    f, h, q = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0], [0.0]]), np.diag([0.3, 0.02])
    before = solve_discrete_are(f.T, h, q, np.eye(1))
    np.testing.assert_allclose(state.covariance, before - before @ h @ h.T @ before / (before[0, 0] + 1), rtol=1e-9)


@pytest.mark.parametrize("steps", [1, 3])
def test_futures_that_are_known(steps):
    t = np.arange(400.0)
    line, day = 10 + 0.5 * t, 10 + 3 * np.sin(2 * np.pi * t / 48) + 0.01 * t
    off = lambda predictor, series: abs(float(forecasts(predictor, series, steps)[-steps - 1]) - series[-1])
    assert off(constant(), line) == pytest.approx(0.5 * steps)
    assert max(off(arima(), line), off(kalman(), line), off(seasonal(48.0), line)) < 1e-3
    assert off(kalman(level=0.0, slope=0.1), line) < 1e-3  # a level that only its slope moves
    assert off(seasonal(48.0), day) < 1e-3 < off(constant(), day)
    assert float(forecasts(kalman(), np.array([9.0, 3.0, 0.0, 0.0]), 5).min()) == 0.0  # never negative


def test_a_pool_that_knows_its_demand_never_waits_and_one_that_does_not_pays_for_the_lag():
    demand = np.array([5.0, 5.0, 5.0, 9.0, 5.0, 5.0, 5.0])
    known = scale(demand, np.append(demand[2:], [5.0, 5.0]), 1.0)
    assert known.instances.tolist() == demand.tolist() and float(known.wait_s.max()) == 0.0
    late = scale(demand, forecasts(constant(), demand, 2), 1.0)
    assert late.instances.tolist() == [5, 5, 5, 5, 5, 9, 5]
    assert float(late.wait_s[3]) == 600 * 4 / 5  # four a second too many for an interval
    assert float(late.violation_frac[3]) == pytest.approx(479 / 480)  # all of it but the first second
    idle = scale(np.zeros(5), np.zeros(5), 1.0)
    assert idle.instances.tolist() == [1.0] * 5 and float(idle.wait_s.max()) == 0.0
    assert float(scale(demand, forecasts(constant(), demand, 2), 1.0, headroom=1.8).wait_s.max()) == 0.0


@pytest.mark.parametrize(
    "bad, said",
    [
        (lambda: arima(0), "order or harmonics 0, discount 0.998; accepted"),
        (lambda: arima(2, 1.1), "order or harmonics 2, discount 1.1"),
        (lambda: arima(2, 0.0), "order or harmonics 2, discount 0.0"),
        (lambda: seasonal(24.0, 0), "order or harmonics 0, discount 0.998"),
        (lambda: seasonal(24.0, 1, 1.1), "order or harmonics 1, discount 1.1"),
        (lambda: seasonal(4.0, 2), "period 4.0, harmonics 2; accepted"),
        (lambda: seasonal(6.0), "period 6.0, harmonics 3; accepted"),
        (lambda: kalman(0.0, 0.0), "level 0.0, slope 0.0; accepted"),
        (lambda: kalman(-1.0, 2.0), "level -1.0, slope 2.0"),
        (lambda: kalman(2.0, -1.0), "level 2.0, slope -1.0"),
        (lambda: forecasts(constant(), np.ones(3), 0), "steps 0; accepted"),
    ],
)
def test_bad_settings_are_refused(bad, said):
    with pytest.raises(InputError, match=said):
        bad()
    arima(1, 1.0), seasonal(6.1, 3, 1.0), kalman(0.0, 1e-9), kalman(1e-9, 0.0)  # the last that mean something


def test_predictors_as_they_come_are_those_with_their_settings_written_out():
    """A predictor without memory of its own has none to show: what the others expect after a course."""
    course = 5.0 + np.sin(np.arange(30.0)) + 0.1 * RNG.normal(size=30)
    for own, told in (
        (arima(), arima(3, 0.998)),
        (kalman(), kalman(0.1, 1e-3)),
        (seasonal(12.0), seasonal(12.0, 3, 0.998)),
    ):
        assert forecasts(own, course, 2).tolist() == forecasts(told, course, 2).tolist()


@pytest.mark.parametrize("make", [lambda: arima(1), kalman, lambda: seasonal(40.0, 1)])
def test_no_predictor_expects_less_than_nothing(make):
    """Of a course that falls to nothing, and of one that begins with it."""
    told = np.asarray(forecasts(make(), np.maximum(20.0 - np.arange(21.0), 0.0), 30))
    assert told[-1] == 0.0 and told.min() == 0.0
    rising = np.asarray(forecasts(make(), np.arange(40.0), 1))
    assert np.isfinite(rising).all() and rising[-1] == pytest.approx(40.0, abs=0.1)


def test_a_seasonal_surprise_fades_by_the_same_factor_every_step():
    rule = seasonal(12.0, harmonics=1)
    state = rule.init(10.0)
    for k in range(1, 40):
        state = rule.update(state, 10.0 + 3.0 * np.sin(2 * np.pi * k / 12.0))
    shocked = state._replace(recent=jnp.array([0.4, 2.0, 1.0]))  # neighbours keep half of it
    calm = state._replace(recent=jnp.array([0.0, 2.0, 1.0]))
    more = [float(rule.forecast(shocked, h) - rule.forecast(calm, h)) for h in (1, 2, 3)]
    assert more == pytest.approx([2.0, 1.0, 0.5], rel=1e-6)  # of 4 readings, in units of the first, 10
    for product, kept in ((5.0, 1.0), (-1.0, 0.0)):  # never more than all of it, and never its opposite
        other = shocked._replace(recent=jnp.array([0.4, 2.0, product]))
        assert float(rule.forecast(other, 2) - rule.forecast(calm, 2)) == pytest.approx(4.0 * kept, abs=1e-9)
    unknown = shocked._replace(recent=jnp.array([0.4, 0.0, 0.0]))  # nothing is known of what is kept
    assert float(rule.forecast(unknown, 1)) == float(rule.forecast(calm, 1))


def test_a_filter_knows_its_first_reading_as_well_as_any_other():
    """Level 10 and no slope, each with the variance of a reading, and 0.1 more in between: 20 moves it by 2.1/3.1."""
    rule = kalman(level=0.1, slope=0.0)
    state = rule.update(rule.init(10.0), 20.0)
    assert float(state.mean[0]) == pytest.approx(10.0 + 10.0 * 2.1 / 3.1)


def test_unless_told_otherwise_noise_is_smoothed_and_a_trend_is_followed():
    """Forecasts four intervals ahead scatter less than the readings; forty intervals into a climb they are there."""
    noisy = np.random.default_rng(0).normal(100.0, 1.0, 400)
    assert np.std(forecasts(kalman(), noisy, 4)[50:]) < 0.8
    climb = np.maximum(np.arange(60.0) - 20.0, 0.0)
    told = np.asarray(forecasts(kalman(), climb, 1))
    assert abs(told[-2] - climb[-1]) < 0.2
