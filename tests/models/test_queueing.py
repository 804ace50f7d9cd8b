"""Waiting lines against exact recursions, textbook values, and a simulation of random variables."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dmodels.models import queueing


def inverse_erlang_b_by_recursion(servers: int, load: float) -> float:
    """1/B(c) = 1 + (c / a) / B(c - 1), 1/B(0) = 1: the textbook recursion, all terms positive."""
    inverse = np.float64(1.0)
    for c in range(1, servers + 1):
        inverse = 1.0 + c / load * inverse if inverse < 1e300 else inverse
    return inverse


@pytest.mark.parametrize("servers", [0, 1, 2, 7, 40, 300, 5000])
def test_erlang_b_equals_its_recursion(servers):
    load = max(servers, 1) * np.array([0.01, 0.3, 0.7, 0.95, 1.0, 1.2, 10.0])
    expected = np.array([inverse_erlang_b_by_recursion(servers, a) for a in load])
    keep = expected < 1e290
    got = np.asarray(queueing.inverse_erlang_b(float(servers), load))
    np.testing.assert_allclose(got[keep], expected[keep], rtol=2e-10)
    assert np.all(got[~keep] > 1e280)


def test_one_hundred_thousand_servers():
    """C from the recursion for B, and its limit 1/(1 + b Phi(b)/phi(b)) at c = a + b sqrt(a) (Halfin and Whitt)."""
    from scipy.stats import norm

    load, b = 1e5, 0.5
    servers = round(load + b * load**0.5)
    loss = 1.0
    for c in range(1, servers + 1):
        loss = load * loss / (c + load * loss)
    expected = servers * loss / (servers - load * (1 - loss))
    assert float(queueing.erlang_c(float(servers), load)) == pytest.approx(expected, rel=1e-9)
    assert expected == pytest.approx(1 / (1 + b * norm.cdf(b) / norm.pdf(b)), rel=0.01)


@given(servers=st.floats(1.0, 1e5), utilisation=st.floats(0.0, 1.5))
def test_erlang_c_is_a_probability_and_grows_with_load(servers, utilisation):
    load = servers * utilisation
    c, more = queueing.erlang_c(servers, jnp.array([load, load + 1e-3 * servers]))
    assert 0.0 <= c <= more <= 1.0
    assert c == 1.0 or utilisation < 1.0


def test_erlang_c_gradient_is_that_of_finite_differences():
    slope = jax.grad(queueing.erlang_c, 1)(100.0, 95.0)
    steps = (queueing.erlang_c(100.0, 95.001) - queueing.erlang_c(100.0, 94.999)) / 0.002
    assert float(slope) == pytest.approx(float(steps), rel=1e-6)


def test_known_waits():
    assert float(queueing.wait_mean_s(0.5, 1.0)) == pytest.approx(1.0)  # M/M/1: rho/(mu - lambda)
    assert float(queueing.wait_mean_s(0.5, 1.0, service_scv=0.0)) == pytest.approx(0.5)  # M/D/1: half of it
    assert float(queueing.wait_mean_s(1.0, 1.0, servers=2.0)) == pytest.approx(1 / 3)  # M/M/2 at rho = 1/2
    assert float(queueing.wait_mean_s(0.0, 1.0)) == 0.0
    assert np.isinf(queueing.wait_mean_s(1.0, 1.0))
    assert np.isinf(queueing.wait_mean_s(3.0, 1.0))


@pytest.mark.parametrize("servers", [1, 4, 16])
@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_equal_services_wait_as_the_recursion_of_each_server_says(servers, load):
    """M/D/c serves in turn, so that W(n + c) = max(0, W(n) + S - (A(n + c) - A(n)))."""
    when = np.cumsum(np.random.default_rng(3).exponential(1.0 / (load * servers), 400_000)).reshape(-1, servers)
    work = np.cumsum(np.vstack([np.zeros(servers), 1.0 - np.diff(when, axis=0)]), axis=0)
    waits = work - np.minimum.accumulate(np.minimum(work, 0.0), axis=0)
    said = queueing.service_factor(float(servers), load * servers, 0.0) * queueing.wait_mean_s(
        load * servers, 1.0, float(servers)
    )
    assert float(said) == pytest.approx(waits.mean(), rel=0.1, abs=0.01)


def test_the_spread_of_services_matters_less_where_servers_are_seldom_all_busy():
    """One server: Pollaczek and Khinchine; exponential services: 1; many servers far from saturation: nearly 1."""
    assert float(queueing.service_factor(1.0, 0.7, 3.0)) == pytest.approx(2.0)
    assert float(queueing.service_factor(50.0, 40.0, 1.0)) == pytest.approx(1.0)
    far, near = (float(queueing.service_factor(300.0, load, 5.0)) for load in (150.0, 299.0))
    assert far == pytest.approx(1.0) and 2.5 < near <= 3.0


wait_and_slope = jax.jit(jax.value_and_grad(queueing.wait_mean_s))


@given(arrival=st.floats(0.0, 2.0), service=st.floats(0.0, 2.0), servers=st.integers(1, 64))
def test_waits_are_never_nan_or_negative(arrival, service, servers):
    wait, slope = wait_and_slope(arrival, service, float(servers))
    assert float(wait) >= 0.0
    assert not np.isnan(slope)


def test_quantile_of_wait_plus_prefill_agrees_with_drawn_samples():
    rng = np.random.default_rng(5)
    levels = np.array([0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0])
    n = 400_000
    cases = [(0.01, 0.9, 1.0, 0.99), (1.0, 0.3, 0.01, 0.95), (0.5, 0.5, 0.5, 0.5), (5.0, 1.0, 1.0, 0.999)]
    for theta, p_wait, spread, q in cases:
        edges = np.sort(rng.exponential(spread, len(levels)))
        got = float(queueing.sum_quantile_s(q, p_wait, p_wait * theta, edges, levels))
        part = np.interp(rng.uniform(size=n), levels, edges)
        wait = rng.exponential(theta, n) * (rng.uniform(size=n) < p_wait)
        assert abs(np.mean(part + wait > got) - (1 - q)) < 4.5 * np.sqrt(q * (1 - q) / n)


@given(q=st.floats(0.01, 0.9999), p_wait=st.floats(0, 1), theta=st.floats(0, 100), equal=st.booleans())
def test_the_quantile_lies_between_its_parts(q, p_wait, theta, equal):
    edges = np.full(5, 0.3) if equal else np.array([0.0, 0.1, 0.1, 0.4, 2.0])
    levels = np.array([0.0, 0.3, 0.5, 0.9, 1.0])
    got = float(queueing.sum_quantile_s(q, p_wait, p_wait * theta, edges, levels))
    alone = np.interp(q, levels, edges)
    assert got >= alone - 1e-6
    assert got <= edges[-1] + theta * max(0.0, np.log(max(p_wait, 1e-300) / (1 - q))) + 1e-6


@pytest.mark.parametrize("p_wait", [0.0, 1e-12])
def test_without_waiting_the_quantile_is_read_from_the_table(p_wait):
    """Also exactly at its levels, where two intervals meet."""
    levels = np.array([0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0])
    edges = np.linspace(1.0, 2.0, len(levels)) ** 2
    q = np.concatenate([levels[1:-1], [0.1, 0.6, 0.97, 0.9999]])
    many = np.broadcast_to(edges, (len(q), len(edges)))
    got = queueing.sum_quantile_s(q, np.full(len(q), p_wait), np.full(len(q), 0.1 * p_wait), many, levels)
    np.testing.assert_allclose(got, np.interp(q, levels, edges), rtol=1e-9)


def test_an_unstable_queue_has_an_infinite_quantile():
    assert np.isinf(queueing.sum_quantile_s(0.99, 1.0, jnp.inf, np.array([0.0, 1.0]), np.array([0.0, 1.0])))


@pytest.mark.parametrize(
    ("clients", "think", "service"), [(1, 1.0, 1.0), (2, 1.0, 1.0), (30, 33.0, 0.33), (200, 33.0, 0.33)]
)
def test_closed_loop_equals_mean_value_analysis(clients, think, service):
    queue = 0.0
    for n in range(1, clients + 1):
        response = service * (1 + queue)
        rate = n / (think + response)
        queue = rate * response
    assert float(queueing.closed_loop_rps(float(clients), think, service)) == pytest.approx(rate, rel=1e-9)


@given(x=st.floats(0.0, 1600.0))
def test_fluid_occupancy_solves_its_fixed_point(x):
    n = float(queueing.fluid_occupancy(x, 1.0, 0.008, 0.00065))
    assert np.isinf(n) if x * 0.00065 >= 1 else n == pytest.approx(x * (0.008 + 0.00065 * n), rel=1e-9)


def test_one_formula_serves_both_precisions_in_one_process():
    """Compiled in double precision first, then called by a program in single precision: each in its own."""
    double = jax.jit(lambda c, a: queueing.erlang_c(c, a))
    with jax.enable_x64(True):
        assert abs(float(double(2.0, 1.0)) - 1 / 3) < 1e-12
    with jax.enable_x64(False):
        assert abs(float(queueing.erlang_c(2.0, 1.0)) - 1 / 3) < 1e-6


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
    # of so large a load, a (e^v - 1) keeps ten digits
    np.testing.assert_allclose(got, [1.0202, 1.00020002, 1.000002000002], rtol=1e-10)


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


def test_a_response_that_is_certain_leaves_the_wait():
    """P = 2 s: the sum exceeds t with P_w e^(-(t - 2)/theta). P = 0, and no wait: 0."""
    got = queueing.sum_quantile_s(0.99, 0.5, 0.5 * 3.0, jnp.full(3, 2.0), jnp.array([0.0, 0.4, 1.0]))
    none = queueing.sum_quantile_s(0.99, 0.0, 0.0, jnp.zeros(3), jnp.array([0.0, 0.4, 1.0]))
    assert float(got) == pytest.approx(2.0 + 3.0 * math.log(50.0), rel=1e-9)
    assert float(none) == 0.0


def test_without_a_wait_the_levels_are_met_exactly():
    got = [queueing.sum_quantile_s(q, 0.0, 0.0, EDGES, LEVELS) for q in LEVELS[1:-1]]
    np.testing.assert_allclose(got, EDGES[1:-1], rtol=1e-9)
