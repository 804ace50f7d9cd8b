"""Quantiles of stalled answers beside SciPy's, and the derivative of a hit rate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import expit

from dmodels.models.cache import characteristic_time, eviction_externality, shuffled_hit_frac
from dmodels.models.queueing import stalled_tpot_s


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("shape", [2.0, 8.0])
def test_one_class_of_answers_is_a_gamma(q, shape):
    """Stalls of 1 s in the mean over 10 gaps: 20 ms and a tenth of the gamma's quantile."""
    got = stalled_tpot_s(q, 0.02, jnp.array([1.0]), jnp.array([1.0 / shape]), jnp.array([10.0]), jnp.array([1.0]))
    assert float(got) == pytest.approx(0.02 + stats.gamma(shape, scale=1 / shape).ppf(q) / 10, rel=0.02)


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize("q", [0.6, 0.9, 0.98])
def test_two_classes_are_solved_for(q):
    """Wilson and Hilferty's normals, with the normal distribution itself."""
    mean, shape, gaps, weight = np.array([0.5, 2.0]), np.array([3.0, 9.0]), np.array([2.0, 20.0]), np.array([0.3, 0.7])
    tail = lambda u: (
        weight @ stats.norm.sf(3 * np.sqrt(shape) * (u * np.cbrt(gaps / mean) - 1 + 1 / (9 * shape))) - 1 + q
    )
    expected = 0.02 + optimize.brentq(tail, 1e-3, 3.0) ** 3
    got = stalled_tpot_s(q, 0.02, *(jnp.array(x) for x in (mean, mean**2 / shape, gaps, weight)))
    assert float(got) == pytest.approx(expected, rel=0.01)


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize("q", [0.02, 0.6, 0.9, 0.98])
def test_the_mixture_of_logistic_tails_is_solved_to_seven_digits(q):
    mean, shape, gaps, weight = np.array([0.5, 2.0]), np.array([3.0, 9.0]), np.array([2.0, 20.0]), np.array([0.3, 0.7])
    z = lambda u: 3 * np.sqrt(shape) * (u * np.cbrt(gaps / mean) - 1 + 1 / (9 * shape))
    tail = lambda u: weight @ expit(-1.5976 * z(u) - 0.07056 * z(u) ** 3) - 1 + q
    got = stalled_tpot_s(q, 0.02, *(jnp.array(x) for x in (mean, mean**2 / shape, gaps, weight)))
    assert float(got) == pytest.approx(0.02 + optimize.brentq(tail, 1e-3, 3.0, xtol=1e-12) ** 3, rel=1e-7)


def test_the_derivative_of_a_shuffled_trace_by_its_capacity():
    uses, count = jnp.array([2.0, 5.0]), jnp.array([30.0, 10.0])
    hit = lambda c: shuffled_hit_frac(c[None], uses, count)[0]
    expected = (hit(jnp.asarray(15.01)) - hit(jnp.asarray(14.99))) / 0.02
    assert float(jax.grad(hit)(jnp.asarray(15.0))) == pytest.approx(float(expected), rel=1e-4)


def test_one_block_in_one_place_is_never_let_go():
    assert np.isinf(characteristic_time(jnp.array([1.0]), jnp.array([2.0]), jnp.array([1.0]))).all()
    assert float(characteristic_time(jnp.array([0.0]), jnp.array([2.0]), jnp.array([1.0]))[0]) == 0.0


def test_where_nearly_everything_fits_the_rarest_blocks_pay():
    """After 2,000 seconds only blocks used once a second are ever missed: lambda T."""
    harm = eviction_externality(jnp.array([2000.0]), jnp.array([1.0, 2.0]), jnp.array([5.0, 5.0]))
    assert float(harm[0]) == pytest.approx(2000.0)


def test_one_rare_block_keeps_the_cache_from_holding_all():
    """50 blocks used five times and one used once: half a place short, they hit 1 - (1 - T)^5 of four of five uses."""
    short = optimize.brentq(lambda t: 50 * (1 - t) ** 5 + (1 - t) - 0.5, 0.0, 1.0)
    got = shuffled_hit_frac(jnp.array([50.5]), jnp.array([1.0, 5.0]), jnp.array([1.0, 50.0]))
    assert float(got[0]) == pytest.approx(200 * (1 - (1 - short) ** 5) / 251)
