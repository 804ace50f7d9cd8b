r"""Predictors of demand for planners: the four that Dynamo's planner can be set to, as pure functions.

A `Predictor` is a triple: `init(reading) -> state`, `update(state, reading) -> state`, `forecast(state, steps)`, the
reading expected `steps` intervals ahead, never negative. Readings are rates in any unit, one per planning interval.

    constant   the last reading
    arima      ARIMA(p, 1, 0): differences regressed on the p before them
    kalman     a local linear trend: level and slope wander, readings are noisy
    seasonal   level, trend and Fourier terms of a period, as Prophet without change points and holidays

ARIMA and the seasonal predictor are discounted least squares, solved anew at each reading (recursive least squares,
[1]): they minimise $\sum_s \lambda^{t-s} (y_s - x_s^\top w)^2 + \lambda^t \lVert w \rVert^2 / P_0$ exactly.

[1] Ljung, System Identification, 1999, section 11.2. Dynamo names ARIMA, Prophet and a Kalman filter; what it fits them
    with is not reproduced here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.errors import InputError
from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real

#: P_0: variance of the weights before any reading, in units of the first reading.
PRIOR = 1e4


class Predictor(NamedTuple):
    """init(reading) -> state; update(state, reading) -> state; forecast(state, steps) -> reading."""

    init: Callable[[Real], Any]
    update: Callable[[Any, Real], Any]
    forecast: Callable[[Any, int], Real]


class Regression(NamedTuple):
    """Discounted least squares of readings in units of the first one."""

    weights: Real  # (k,)
    covariance: Real  # (k, k)
    unit: Real  # the first reading
    seen: Real  # readings so far
    recent: Real  # the last readings, oldest first, in that unit


class Trend(NamedTuple):
    """Level and slope, and their covariance in units of the variance of a reading."""

    mean: Real  # (2,)
    covariance: Real  # (2, 2)


def constant() -> Predictor:
    """The last reading, at any horizon."""
    return Predictor(
        lambda reading: jnp.asarray(reading, float), lambda state, reading: reading, lambda state, steps: state
    )


def arima(order: int = 3, discount: float = 0.998) -> Predictor:
    r"""$\Delta y_t = \sum_{i=1}^{p} \phi_i \Delta y_{t-i}$, forecast by iterating it; p = `order`."""
    _check(order, discount)

    def init(reading: Real) -> Regression:
        return _regression(reading, order, order + 1)

    def update(state: Regression, reading: Real) -> Regression:
        y = reading / state.unit
        learned = _learn(state, jnp.diff(state.recent), y - state.recent[-1], discount)
        ready = state.seen > order  # before that differences are of readings that were not made
        weights, covariance = (jnp.where(ready, new, old) for new, old in zip(learned, state[:2], strict=True))
        return Regression(weights, covariance, state.unit, state.seen + 1, jnp.append(state.recent[1:], y))

    def forecast(state: Regression, steps: int) -> Real:
        recent = state.recent
        for _ in range(steps):
            recent = jnp.append(recent[1:], recent[-1] + jnp.diff(recent) @ state.weights)
        return jnp.maximum(recent[-1], 0.0) * state.unit

    return Predictor(init, update, forecast)


def kalman(level: float = 0.1, slope: float = 1e-3) -> Predictor:
    r"""$y = \ell + \epsilon$, $\ell' = \ell + b + \eta$, $b' = b + \zeta$; `level` and `slope` are the variances of
    $\eta$ and $\zeta$ over that of $\epsilon$, which are all that the forecasts depend on.
    """
    if not (level >= 0 and slope >= 0 and level + slope > 0):
        raise InputError(f"level {level}, slope {slope}; accepted: variances from 0, not both 0")
    move, noise = jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.diag(jnp.array([level, slope]))

    def init(reading: Real) -> Trend:
        return Trend(jnp.array([1.0, 0.0]) * reading, jnp.eye(2))

    def update(state: Trend, reading: Real) -> Trend:
        mean, spread = move @ state.mean, move @ state.covariance @ move.T + noise
        gain = spread[:, 0] / (spread[0, 0] + 1.0)
        return Trend(mean + gain * (reading - mean[0]), spread - jnp.outer(gain, spread[0]))

    return Predictor(init, update, lambda state, steps: jnp.maximum(state.mean[0] + steps * state.mean[1], 0.0))


def seasonal(period: float, harmonics: int = 3, discount: float = 0.998) -> Predictor:
    r"""$y_t = a + b t + \sum_{k=1}^{K} c_k \cos(2 \pi k t / T) + d_k \sin(2 \pi k t / T)$, `period` T in intervals;
    the last residual is carried over in the share that discounted residuals were found to persist.
    """
    _check(harmonics, discount)
    if not period > 2 * harmonics:
        raise InputError(f"period {period}, harmonics {harmonics}; accepted: a period above 2 harmonics")

    def features(t: Real) -> Real:
        turn = 2 * jnp.pi * jnp.arange(1.0, harmonics + 1.0) * t / period
        return jnp.concatenate([jnp.array([1.0, t / period]), jnp.cos(turn), jnp.sin(turn)])

    def init(reading: Real) -> Regression:
        start = _regression(reading, 2 + 2 * harmonics, 3)  # recent: last residual, its power, product of neighbours
        weights, covariance = _learn(start, features(jnp.zeros(())), jnp.ones(()), discount)
        return Regression(weights, covariance, start.unit, start.seen, jnp.zeros(3))

    def update(state: Regression, reading: Real) -> Regression:
        x, y = features(state.seen), reading / state.unit
        left = y - x @ state.weights
        before, power, product = state.recent
        gain = 1.0 - discount
        tracked = jnp.stack([left, power + gain * (left**2 - power), product + gain * (left * before - product)])
        return Regression(*_learn(state, x, y, discount), state.unit, state.seen + 1, tracked)

    def forecast(state: Regression, steps: int) -> Real:
        left, power, product = state.recent
        persists = jnp.clip(safe_divide(product, power, 0.0), 0.0, 1.0)
        ahead = features(state.seen + steps - 1) @ state.weights + persists**steps * left
        return jnp.maximum(ahead, 0.0) * state.unit

    return Predictor(init, update, forecast)


def forecasts(predictor: Predictor, reading: Real, steps: int) -> Real:
    """(t,): at the end of each interval, the reading expected `steps` intervals later; `reading` is (t,)."""
    if steps < 1:
        raise InputError(f"steps {steps}; accepted: whole numbers from 1")
    reading = jnp.asarray(reading, float)

    def step(state: Any, value: Real) -> tuple[Any, Real]:
        state = predictor.update(state, value)
        return state, predictor.forecast(state, steps)

    first = predictor.init(reading[0])
    _, rest = jax.lax.scan(step, first, reading[1:])
    return jnp.concatenate([jnp.atleast_1d(predictor.forecast(first, steps)), rest])


def _check(count: int, discount: float) -> None:
    if not (count >= 1 and 0 < discount <= 1):
        raise InputError(f"order or harmonics {count}, discount {discount}; accepted: from 1, and 0 < discount <= 1")


def _regression(reading: Real, terms: int, kept: int) -> Regression:
    unit = jnp.where(jnp.asarray(reading, float) > 0, reading, 1.0)
    return Regression(jnp.zeros(terms), PRIOR * jnp.eye(terms), unit, jnp.ones(()), jnp.full(kept, reading / unit))


def _learn(state: Regression, x: Real, y: Real, discount: float) -> tuple[Real, Real]:
    """(weights, covariance) after one more pair."""
    towards = state.covariance @ x
    gain = towards / (discount + x @ towards)
    covariance = (state.covariance - jnp.outer(gain, towards)) / discount
    return state.weights + gain * (y - x @ state.weights), (covariance + covariance.T) / 2
