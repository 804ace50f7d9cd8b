"""Loss by the incomplete gamma function, and quantiles of a wait and a response by SciPy's root of their own tail."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

from dmodels.models import queueing

pytestmark = pytest.mark.usefixtures("op_by_op")
EDGES = np.array([1.0, 1.5, 1.5, 2.0, 4.0])
LEVELS = np.array([0.0, 0.25, 0.5, 0.875, 1.0])


@pytest.mark.parametrize("servers", [0.0, 0.5, 1.0, 3.7, 30.0, 1000.5])
def test_loss_is_an_incomplete_gamma_function(servers):
    r"""$1/B = e^a a^{-c}\,\Gamma(c + 1, a)$, for any real number of servers."""
    load = max(servers, 1.0) * np.array([0.02, 0.3, 0.9, 1.0, 1.1, 1.5])
    log = load - servers * np.log(load) + special.gammaln(servers + 1) + np.log(special.gammaincc(servers + 1, load))
    keep = log < 690
    got = np.asarray(queueing.inverse_erlang_b(servers, load))
    np.testing.assert_allclose(np.log(got)[keep], log[keep], rtol=0, atol=3e-11)
    assert np.all((got[~keep] > 1e299) & (got[~keep] < 1e300))


def test_two_servers_for_a_million():
    """1/B(2, a) = 1 + 2/a + 2/a^2: one request in a = 10^6/2 is served."""
    got = queueing.inverse_erlang_b(2.0, np.array([1e2, 1e4, 1e6]))
    np.testing.assert_allclose(got, [1.0202, 1.00020002, 1.000002000002], rtol=1e-12)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.5), (5, 6.5), (300, 300.0), (300, 320.0)])
def test_loss_that_is_not_rare_has_thirteen_digits(servers, load):
    """1/B(c) = 1 + (c/a)/B(c - 1) in rational arithmetic."""
    inverse = Fraction(1)
    for c in range(1, servers + 1):
        inverse = 1 + c / Fraction(load) * inverse
    assert float(queueing.inverse_erlang_b(float(servers), load)) == pytest.approx(float(inverse), rel=1e-13, abs=0)


def test_a_tail_of_waits_at_its_ends():
    """Half wait 2 s in the mean; nobody waits; all wait for ever."""
    assert float(queueing.wait_tail(3.0, 0.5, 1.0)) == pytest.approx(0.5 * math.exp(-1.5))
    assert [float(queueing.wait_tail(t, 0.0, 0.0)) for t in (0.0, 3.0)] == [0.0, 0.0]
    assert [float(queueing.wait_tail(t, 0.5, 0.0)) for t in (0.0, 0.5)] == [0.5, 0.0]  # waits of no length
    assert float(queueing.wait_tail(3.0, 1.0, math.inf)) == 1.0


def tail(t, p_wait, theta, edges=EDGES, levels=LEVELS):
    """P(W + P > t), P uniform between two edges: the mean of W's tail over each interval."""
    total = 0.0
    for low, high, mass in zip(edges[:-1], edges[1:], np.diff(levels), strict=True):
        if high == low:
            total += mass * (1.0 if t < low else p_wait * math.exp(-(t - low) / theta))
            continue
        above = (high - np.clip(t, low, high)) / (high - low)  # P alone is later
        near, far = max(t - high, 0.0), max(t - low, 0.0)
        total += mass * (above + p_wait * theta * (math.exp(-near / theta) - math.exp(-far / theta)) / (high - low))
    return total


def quantile(q, *wait_and_response):
    return optimize.brentq(lambda t: tail(t, *wait_and_response) - 1 + q, 0.99, 99.0, xtol=1e-13)


@pytest.mark.parametrize("unit", [1.0, 1e-6])
@pytest.mark.parametrize(("p_wait", "theta"), [(0.3, 0.2), (0.9, 1.5), (1.0, 8.0), (0.5, 0.02)])
def test_the_quantile_of_a_sum_is_the_root_of_its_tail(p_wait, theta, unit):
    """In seconds and in microseconds."""
    q = np.array([0.05, 0.2, 0.3, 0.6, 0.8, 0.9, 0.95, 0.99, 0.999])
    many = np.broadcast_to(EDGES, (len(q), len(EDGES)))
    wait = np.full(len(q), p_wait), np.full(len(q), p_wait * theta * unit)
    got = queueing.sum_quantile_s(q, *wait, many * unit, LEVELS)
    np.testing.assert_allclose(got / unit, [quantile(x, p_wait, theta) for x in q], rtol=1e-9)


def test_a_wait_far_shorter_than_the_interval_that_holds_the_answer():
    """1 s, but one response in a thousand takes up to 5 s; half of them wait, 20 ms in the mean."""
    response = np.array([1.0, 1.0, 5.0]), np.array([0.0, 0.999, 1.0])
    got = queueing.sum_quantile_s(0.989, 0.5, 0.01, *response)
    assert float(got) == pytest.approx(quantile(0.989, 0.5, 0.02, *response), rel=1e-9)


def test_a_response_that_is_certain_leaves_the_wait():
    """P = 2 s: the sum exceeds t with P_w e^(-(t - 2)/theta). P = 0, and no wait: 0."""
    got = queueing.sum_quantile_s(0.99, 0.5, 0.5 * 3.0, jnp.full(3, 2.0), jnp.array([0.0, 0.4, 1.0]))
    none = queueing.sum_quantile_s(0.99, 0.0, 0.0, jnp.zeros(3), jnp.array([0.0, 0.4, 1.0]))
    assert float(got) == pytest.approx(2.0 + 3.0 * math.log(50.0), rel=1e-9)
    assert float(none) == 0.0


def test_without_a_wait_the_levels_are_met_exactly():
    got = [queueing.sum_quantile_s(q, 0.0, 0.0, EDGES, LEVELS) for q in LEVELS[1:-1]]
    np.testing.assert_allclose(got, EDGES[1:-1], rtol=1e-9)
