"""The batching simulator against textbook queues, within the confidence intervals that the simulator itself states.

With a constant law and short iterations an instance is a plain queue: c slots are c servers, a request's iterations are
its service time. The formulas here are the textbooks', written out; the package's closed forms are checked elsewhere.
"""

from __future__ import annotations

from math import exp, factorial

import jax
import numpy as np
import pytest

from dmodels.sim import arrivals, batching, estimate

TICK_S = 2e-4  # one iteration; services last 1 s on average, so times are on a grid of 0.02 %


def erlang_c(servers: int, load: float) -> float:
    last = load**servers / factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / factorial(k) for k in range(servers)) + last)


def waits(key, rho: float, servers: int, service, count: int = 400_000) -> np.ndarray:
    """Waits in a queue with mean service 1 s; `service(key, count)` gives seconds."""
    key_arrivals, key_service = jax.random.split(key)
    arrival = arrivals.poisson(key_arrivals, rho * servers, count)
    with jax.enable_x64(True):
        seconds = np.asarray(service(key_service, (count,)))
    ticks = np.maximum(2, np.rint(seconds / TICK_S))  # one iteration is the prompt's
    served = batching.simulate(arrival, 1, ticks - 1, np.full(servers, TICK_S), servers)
    return served.wait_s[count // 10 :]


def exponential(key, shape):
    return jax.random.exponential(key, shape, float)


def lognormal(key, shape):  # squared coefficient of variation 2
    s = np.sqrt(np.log(3.0))
    return np.exp(s * np.asarray(jax.random.normal(key, shape, float)) - s * s / 2)


def constant(key, shape):
    return np.ones(shape)


@pytest.mark.parametrize(("rho", "servers"), [(0.7, 1), (0.9, 4), (0.85, 16), (0.8, 64)])
def test_erlang_c_probability_mean_and_tail_of_waiting(rho, servers):
    w = waits(jax.random.key(servers), rho, servers, exponential)
    chance = erlang_c(servers, rho * servers)
    rate = servers * (1 - rho)
    assert estimate.batch_means(w > 1.5 * TICK_S, 30, 0.999).holds(chance, 2e-3)
    assert estimate.batch_means(w, 30, 0.999).holds(chance / rate, TICK_S)
    assert estimate.batch_means(w > 1 / rate, 30, 0.999).holds(chance * exp(-1.0), 1e-3)


@pytest.mark.parametrize(("service", "scv"), [(constant, 0.0), (exponential, 1.0), (lognormal, 2.0)])
def test_pollaczek_khinchine(service, scv):
    rho = 0.7
    w = waits(jax.random.key(5), rho, 1, service)
    assert estimate.batch_means(w, 30, 0.999).holds(rho / (1 - rho) * (1 + scv) / 2, TICK_S)


def test_md1_distribution_of_waiting():
    """Erlang's formula for M/D/1: P(W <= t) = (1 - rho) sum_k (rho (k - t))^k e^{-rho (k - t)} / k!, k <= t."""
    rho = 0.6
    w = waits(jax.random.key(8), rho, 1, constant)
    for t in (0.5, 1.5, 3.25):
        chance = (1 - rho) * sum((rho * (k - t)) ** k * exp(-rho * (k - t)) / factorial(k) for k in range(int(t) + 1))
        assert estimate.batch_means(w <= t, 30, 0.999).holds(chance, 1e-3)


def test_littles_law_holds_on_the_path():
    """Requests in system, integrated over time, equal the sum of their times: an identity, not an estimate."""
    arrival = arrivals.poisson(jax.random.key(2), 9.0, 5000)
    output = np.random.default_rng(0).integers(1, 200, 5000)
    served = batching.simulate(arrival, 700, output, np.linspace(9e-3, 20e-3, 16), 16)
    times = np.concatenate([served.arrival_s, served.end_s])
    change = np.repeat([1, -1], arrival.size)
    order = np.argsort(times, kind="stable")
    in_system = np.cumsum(change[order])[:-1]
    np.testing.assert_allclose(in_system @ np.diff(times[order]), served.e2e_s.sum(), rtol=1e-9)


def test_tpot_is_the_iteration_time_at_the_occupancy_that_work_conservation_demands():
    """Long outputs, never full: in-flight n obeys n = rate x iterations x t(n) on average."""
    arrival = arrivals.poisson(jax.random.key(4), 1.0, 60_000)
    served = batching.simulate(arrival, 512, 400, 8e-3 + 0.65e-3 * np.arange(129), 128)
    late = slice(6000, None)
    seconds = estimate.batch_means(served.e2e_s[late], 30, 0.999)
    residence = 1.0 * seconds.value  # Little: requests in flight
    assert served.wait_s.max() < 0.1
    tpot = estimate.batch_means(served.tpot_s[late], 30, 0.999)
    # Requests see more company than the time average (they are there themselves), never less
    assert tpot.high > 8e-3 + 0.65e-3 * residence
    np.testing.assert_allclose(tpot.value * 401, seconds.value, rtol=0.02)
