"""The birth-death chain of one batching instance: Erlang C as a special case, and the simulator as the judge."""

from __future__ import annotations

import math
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.models.latency import StepLaw
from dmodels.models.queueing import occupancy, ttft_quantile_s
from dmodels.sim import arrivals, batching, estimate


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (2, 1.0), (5, 4.0), (16, 15.0)])
def test_a_constant_pace_is_erlang_c(servers, load):
    last = load**servers / factorial(servers) * servers / (servers - load)
    expected = last / (sum(load**k / factorial(k) for k in range(servers)) + last)
    found = occupancy(load, 100.0, jnp.full(servers, 0.01))
    np.testing.assert_allclose(found.wait_probability, expected, rtol=1e-12)
    np.testing.assert_allclose(found.wait_mean_s, expected / (servers - load), rtol=1e-12)
    np.testing.assert_allclose([found.in_flight_count, found.tpot_mean_s], [load, 0.01], rtol=1e-12)


def test_unlimited_slots_at_a_constant_pace_are_poisson():
    np.testing.assert_allclose(occupancy(5.0, 100.0, jnp.full(400, 0.01)).in_flight_count, 5.0, rtol=1e-12)


@pytest.mark.parametrize(("slots", "load"), [(16, 0.7), (16, 0.9), (64, 0.8)])
def test_geometric_lengths_are_exact_within_the_simulations_interval(slots, load):
    mean, law = 300.0, StepLaw(8e-3, 0.65e-3)
    times = law.iteration_s(np.arange(1.0, slots + 1))
    rate = load * slots / (mean * times[-1])
    output = np.random.default_rng(slots).geometric(1 / mean, 300_000)
    arrival = arrivals.poisson(jax.random.key(1), rate, output.size)
    served = batching.simulate(arrival, 1, output, law, slots, emits=True)
    found = occupancy(rate, output.mean(), jnp.asarray(times))
    late = slice(30_000, None)
    tpot = (served.end_s - served.admitted_s)[late].sum() / output[late].sum()
    np.testing.assert_allclose(found.tpot_mean_s, tpot, rtol=0.012)
    waits = estimate.batch_means(served.wait_s[late], 30, 0.999)
    assert waits.holds(float(found.wait_mean_s), 1.5 * times[-1])  # up to an iteration goes by before any admission


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_ttft_percentiles_against_the_simulation(load):
    mean, slots, law = 300.0, 32, StepLaw(8e-3, 0.65e-3)
    times = law.iteration_s(np.arange(1.0, slots + 1))
    rate = load * slots / (mean * times[-1])
    output = np.random.default_rng(3).geometric(1 / mean, 300_000)
    served = batching.simulate(arrivals.poisson(jax.random.key(2), rate, output.size), 1, output, law, slots)
    for q in (0.5, 0.9, 0.99):
        measured = estimate.batch_quantile(served.ttft_s[30_000:], q, 20, 0.999)
        found = float(ttft_quantile_s(q, rate, output.mean() + 1, jnp.asarray(times)))
        assert measured.holds(found, 0.06 * measured.value)


def test_overload_is_flagged_and_waits_for_ever():
    found = occupancy(jnp.array([1.0, 30.0]), 100.0, jnp.full((2, 4), 0.02))
    assert found.flags.tolist() == [0, int(Flag.OVERLOAD)] and jnp.isinf(found.wait_mean_s[1])
    tail = ttft_quantile_s(0.99, jnp.array([1.0, 30.0]), 100.0, jnp.full((2, 4), 0.02))
    assert jnp.isfinite(tail[0]) and jnp.isinf(tail[1])


def test_gradients_match_finite_differences():
    times = 8e-3 + 0.65e-3 * jnp.arange(1.0, 17.0)
    wait = lambda x: occupancy(x, 300.0, times).wait_mean_s
    tail = lambda x: ttft_quantile_s(0.99, x, 300.0, times)
    for f in (wait, tail):
        np.testing.assert_allclose(jax.grad(f)(2.4), (f(2.4 + 1e-6) - f(2.4 - 1e-6)) / 2e-6, rtol=1e-4)


WORK, SCV = 40.0, 0.5
TIMES = np.array([0.02, 0.05, 0.03])


def test_at_and_above_capacity_everyone_waits_for_ever():
    """Three slots of 0.03 s an iteration: 100 iterations, 2.5 requests a second."""
    for arrival_rps in (2.5, 4.0):
        found = occupancy(arrival_rps, WORK, TIMES, SCV)
        assert [float(v) for v in found] == [1.0, math.inf, 3.0, 0.03, Flag.OVERLOAD]
        assert float(ttft_quantile_s(0.9, arrival_rps, WORK, TIMES, SCV)) == math.inf


def test_seven_hundred_of_a_thousand_slots_are_busy():
    """States of weights up to e^700: Poisson about the load."""
    found = occupancy(700.0, 100.0, np.full(1000, 0.01))
    assert float(found.in_flight_count) == pytest.approx(700.0) and 0 < float(found.wait_probability) < 1e-20


def test_lengths_are_geometric_and_a_prompt_takes_an_iteration_unless_said():
    assert [float(v) for v in occupancy(1.5, WORK, TIMES)] == [float(v) for v in occupancy(1.5, WORK, TIMES, 1.0)]
    plain = float(ttft_quantile_s(0.9, 1.5, WORK, TIMES))
    assert plain == float(ttft_quantile_s(0.9, 1.5, WORK, TIMES, 1.0, 2.0))
