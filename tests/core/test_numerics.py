"""Sums over entries: in turn, as on a CPU, and at once, as on a device; quantiles as the standard library has them."""

from __future__ import annotations

from statistics import NormalDist

import jax
import numpy as np
import pytest
from scipy.special import erfcx

from dmodels.core.numerics import (
    cube_root,
    exp,
    expm1,
    log,
    log1p,
    normal_loss,
    normal_quantile,
    one_by_one,
    summed,
)

SHIFT, TIMES = np.array([0.5, 2.0]), np.arange(6.0).reshape(2, 3)


def _both():
    each = lambda shift, times: ({"sum": times * SHIFT}, shift + times)
    sums, found = summed(each, np.array([1.0, 2.0, 3.0]), TIMES)
    return [sums["sum"], found, one_by_one(lambda times: times**2 + SHIFT, TIMES)]


def test_entries_in_turn_and_at_once_have_the_same_sums(monkeypatch):
    with jax.enable_x64(True):
        in_turn = _both()
        monkeypatch.setattr(jax.lax, "platform_dependent", lambda *given, cpu, default: default(*given))
        at_once = _both()
    by_hand = [TIMES.sum(1) * SHIFT, np.array([1.0, 2.0, 3.0]) + TIMES, TIMES**2 + SHIFT[:, None]]
    for ours, other, expected in zip(in_turn, at_once, by_hand, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-14)
        np.testing.assert_allclose(other, expected, rtol=1e-14)


def test_normal_quantiles_are_those_of_the_standard_library():
    levels = np.concatenate([np.linspace(1e-4, 1.0 - 1e-4, 101), np.geomspace(1e-10, 0.5, 20)])
    with jax.enable_x64(True):
        found = normal_quantile(levels)
    np.testing.assert_allclose(found, [*map(NormalDist().inv_cdf, levels)], rtol=0, atol=1e-14)


def test_logarithms_and_their_slopes_are_those_of_numpy():
    x = np.concatenate([np.geomspace(1e-300, 1e300, 999), 1.0 + np.linspace(-1e-3, 1e-3, 99), [np.inf]])
    with jax.enable_x64(True):
        found, slopes = log(x), jax.vmap(jax.grad(log))(x)
    np.testing.assert_allclose(found, np.log(x), rtol=4e-15)
    np.testing.assert_allclose(slopes, 1.0 / x, rtol=1e-15)


NEAR_0 = np.concatenate([-np.geomspace(0.5, 1e-300, 400), np.geomspace(1e-300, 0.5, 400)])


@pytest.mark.parametrize(
    ("ours", "stranger", "slope", "x"),
    [
        (log1p, np.log1p, lambda x: 1.0 / (1.0 + x), np.concatenate([NEAR_0, np.geomspace(0.5, 1e300, 999)])),
        (exp, np.exp, np.exp, np.concatenate([NEAR_0, np.linspace(-708.0, 708.9, 9999)])),
        (expm1, np.expm1, np.exp, np.concatenate([NEAR_0, np.linspace(-708.0, 708.9, 9999)])),
        (cube_root, np.cbrt, lambda x: np.cbrt(x) / (3.0 * x), np.geomspace(1e-290, 1e300, 9999)),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_functions_by_bits_and_their_slopes_are_those_of_numpy(ours, stranger, slope, x):
    with jax.enable_x64(True):
        found, slopes = ours(x), jax.vmap(jax.grad(ours))(x)
        held = jax.jit(lambda x: 1.0 / (2.0 + ours(x)))(x)  # among what XLA computes in one go
    np.testing.assert_allclose(found, stranger(x), rtol=4e-15)
    np.testing.assert_allclose(slopes, slope(x), rtol=4e-15)
    np.testing.assert_allclose(held, 1.0 / (2.0 + stranger(x)), rtol=4e-14, atol=1e-300)


def test_functions_by_bits_at_the_ends():
    with jax.enable_x64(True):
        ends = exp(np.array([-np.inf, -800.0, 800.0, np.inf]))
        roots, infinite = cube_root(np.array([0.0, 8.0, np.inf])), log1p(np.inf)
        unknown = [float(one(np.nan)) for one in (exp, expm1, log, log1p, cube_root)]
    np.testing.assert_allclose(ends, np.exp([-708.0, -708.0, 709.0, 709.0]), rtol=1e-15)
    np.testing.assert_array_equal(roots, [0.0, 2.0, np.inf])
    assert np.isinf(infinite) and np.isnan(unknown).all()


def test_normal_loss_is_that_of_the_scaled_complementary_error_function():
    u = np.linspace(0.0, 37.0, 4001)
    mills = np.sqrt(np.pi / 2.0) * erfcx(u / np.sqrt(2.0))
    density = np.exp(-0.5 * u**2) / np.sqrt(2.0 * np.pi)
    with jax.enable_x64(True):
        above, below = normal_loss(u), normal_loss(-u)
    np.testing.assert_allclose(above, density * (1.0 - u * mills), rtol=2e-12)
    np.testing.assert_allclose(below, u + density * (1.0 - u * mills), rtol=2e-12)
