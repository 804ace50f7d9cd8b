"""Sums over entries: in turn, as on a CPU, and at once, as on a device; quantiles as the standard library has them."""

from __future__ import annotations

from statistics import NormalDist

import jax
import numpy as np

from dmodels.core.numerics import log, normal_quantile, one_by_one, summed

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
