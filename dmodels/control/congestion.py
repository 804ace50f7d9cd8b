r"""Forecasts of tier congestion from past readings: smoothing, and a first-order autoregression that fits itself.

Each is a triple of pure functions over a NamedTuple (init, update, forecast), so it runs in a scan over telemetry and
in a live router alike. Forecasts are clipped to [0, 0.999]: a forecast must not declare a tier dead.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real

_HIGHEST = 0.999


class Smoothed(NamedTuple):
    """Exponentially smoothed congestion."""

    level: Real


def smoothing_init(reading: Real) -> Smoothed:
    return Smoothed(reading)


def smoothing_update(state: Smoothed, reading: Real, gain: Real = 0.3) -> Smoothed:
    r"""$\ell \leftarrow \ell + g (x - \ell)$; the variance of white noise falls to $g/(2-g)$ of its own."""
    return Smoothed(state.level + gain * (reading - state.level))


def smoothing_forecast(state: Smoothed, steps: Real = 1.0) -> Real:
    """The level, at any horizon."""
    return jnp.clip(state.level, 0.0, _HIGHEST) + 0.0 * steps


class Autoregression(NamedTuple):
    """Discounted sums from which mean and lag-one autocorrelation follow."""

    last: Real
    mean: Real
    power: Real  # discounted mean of squared deviations
    product: Real  # discounted mean of products of neighbouring deviations


def ar1_init(reading: Real) -> Autoregression:
    zero = jnp.zeros_like(jnp.asarray(reading))
    return Autoregression(reading, reading, zero, zero)


def ar1_update(state: Autoregression, reading: Real, gain: Real = 0.05) -> Autoregression:
    """One reading: mean, variance and lag-one product move by `gain` towards what it says."""
    mean = state.mean + gain * (reading - state.mean)
    now, before = reading - mean, state.last - mean
    power = state.power + gain * (now**2 - state.power)
    product = state.product + gain * (now * before - state.product)
    return Autoregression(reading, mean, power, product)


def ar1_coefficient(state: Autoregression) -> Real:
    """The fitted autoregressive coefficient, within [0, 1]; 1 (keep the last reading) before anything has moved."""
    return jnp.clip(safe_divide(state.product, state.power, 1.0), 0.0, 1.0)


def ar1_forecast(state: Autoregression, steps: Real = 1.0) -> Real:
    r"""$\mu + \phi^h (x - \mu)$: the least-squares forecast h steps ahead of a first-order autoregression."""
    return jnp.clip(state.mean + ar1_coefficient(state) ** steps * (state.last - state.mean), 0.0, _HIGHEST)
