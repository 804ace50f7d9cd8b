"""The TPOT of stalled answers against drawn busy periods."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dmodels.models.queueing import capped_mean_s, gamma_quantiles, stalled_tpot_s


def test_quantile_of_a_gamma_mixture_agrees_with_drawn_samples():
    rng = np.random.default_rng(3)
    gaps, weights = np.array([5.0, 40.0, 300.0]), np.array([0.1, 0.5, 0.4])
    mean, shape = 0.002 * gaps, np.array([0.7, 3.0, 20.0])
    kind = rng.choice(3, 400_000, p=weights)
    drawn = 0.02 + rng.gamma(shape[kind], mean[kind] / shape[kind]) / gaps[kind]
    for q in (0.5, 0.9, 0.99):
        got = float(stalled_tpot_s(q, 0.02, mean, mean**2 / shape, gaps, weights))
        assert got - 0.02 == pytest.approx(np.quantile(drawn, q) - 0.02, rel=0.05)


@given(q=st.floats(0.5, 0.999), stall=st.floats(0.0, 10.0), spread=st.floats(0.0, 10.0))
def test_stalls_never_speed_up_and_more_of_them_never_help(q, stall, spread):
    gaps, weights = np.array([1.0, 10.0, 1e9]), np.array([0.3, 0.3, 0.4])
    one = float(stalled_tpot_s(q, 0.02, np.full(3, stall), np.full(3, spread), gaps, weights))
    assert np.isfinite(one) and one >= 0.02


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e6])
def test_without_stalls_a_token_takes_its_step_in_any_unit(unit):
    got = stalled_tpot_s(0.99, 0.02 * unit, jnp.zeros(1), jnp.zeros(1), jnp.array([100.0]), jnp.ones(1))
    assert float(got) / unit == pytest.approx(0.02, rel=1e-8)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("shape", [2.0, 8.0])
def test_one_class_of_answers_is_a_gamma(q, shape):
    """Stalls of 1 s in the mean over 10 gaps: 20 ms and a tenth of the gamma's quantile."""
    got = stalled_tpot_s(q, 0.02, jnp.array([1.0]), jnp.array([1.0 / shape]), jnp.array([10.0]), jnp.array([1.0]))
    assert float(got) == pytest.approx(0.02 + stats.gamma(shape, scale=1 / shape).ppf(q) / 10, rel=0.02)


def test_capped_means_and_quantiles_are_those_of_a_gamma_distribution():
    for mean, variance, cap in ((1.0, 1.0, 0.5), (2.0, 0.5, 2.5), (0.3, 0.05, 10.0)):
        law = stats.gamma(mean**2 / variance, scale=variance / mean)
        expected = law.expect(lambda s, cap=cap: min(s, cap))
        assert float(capped_mean_s(mean, variance, cap)) == pytest.approx(expected, rel=0.03)
        off = gamma_quantiles(mean, variance)(stats.norm.ppf([0.25, 0.5, 0.9, 0.99]))
        assert np.asarray(off) == pytest.approx(law.ppf([0.25, 0.5, 0.9, 0.99]) - mean, abs=0.03 * mean)
