"""Closed loops against mean value analysis, Little's law, and queues that cannot grow."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.sim import estimate
from dmodels.sim.fleet import Pool, closed_loop

TICK_S = 2e-4


def mva(clients: int, think: float, demands: list[float]) -> float:
    """Throughput by exact mean value analysis (Reiser and Lavenberg 1980) of queueing stations and a thinking delay."""
    queue = np.zeros(len(demands))
    for n in range(1, clients + 1):
        response = np.asarray(demands) * (1 + queue)
        rate = n / (think + response.sum())
        queue = rate * response
    return rate


def exponential(key, mean, shape):
    with jax.enable_x64(True):
        return mean * np.asarray(jax.random.exponential(key, shape, float))


def throughput(end, start_s: float, stop_s: float, pieces: int = 20) -> estimate.Estimate:
    edges = np.linspace(start_s, stop_s, pieces + 1)
    return estimate.mean_of(np.histogram(end[np.isfinite(end)], edges)[0] / np.diff(edges), 0.999)


@pytest.mark.parametrize("clients", [1, 4, 12, 40])
def test_one_serial_server_has_the_throughput_of_mean_value_analysis(clients):
    key_think, key_service = jax.random.split(jax.random.key(clients))
    think = exponential(key_think, 10.0, (clients, 6000))
    _, _, done = closed_loop.serial(think, exponential(key_service, 1.0, think.shape), until_s=20_000.0)
    assert throughput(done, 500.0, 20_000.0).holds(mva(clients, 10.0, [1.0]))


@pytest.mark.parametrize("clients", [2, 15, 30])
def test_a_batching_instance_with_one_slot_does_too(clients):
    key_think, key_service = jax.random.split(jax.random.key(clients))
    think = exponential(key_think, 10.0, (clients, 4000))
    ticks = np.maximum(1, np.rint(exponential(key_service, 1.0, think.shape) / TICK_S))
    served = closed_loop.simulate(think, 1, ticks, Pool(1, 1, [TICK_S], emits=True), until_s=15_000.0)
    assert throughput(served.end_s, 500.0, 15_000.0).holds(mva(clients, 10.0, [1.0]), 5e-4)


def test_clients_ask_again_only_after_their_last_answer():
    think = np.full((7, 50), 0.5)
    served = closed_loop.simulate(think, 700, 30, Pool(2, 2, [0.01, 0.015]))
    arrival, end = served.arrival_s.reshape(7, 50), served.end_s.reshape(7, 50)
    np.testing.assert_allclose(arrival[:, 1:] - end[:, :-1], 0.5, rtol=1e-9)
    np.testing.assert_allclose(arrival[:, 0], 0.5)
    assert (served.wait_s >= -1e-9).all()


def test_order_of_service_changes_the_tail_of_waiting_but_not_the_throughput():
    """At saturation first-come-first-served makes all waits alike; last-come-first-served makes a few endless."""
    think = exponential(jax.random.key(1), 5.5, (256, 200))
    runs = [closed_loop.serial(think, 0.0526, lifo=lifo, until_s=400.0) for lifo in (False, True)]
    waits = [(begun - asked)[(asked > 50) & np.isfinite(begun)] for asked, begun, _ in runs]
    rates = [np.isfinite(done).sum() / 400.0 for *_, done in runs]
    np.testing.assert_allclose(rates[0], rates[1], rtol=0.01)
    tails = [np.quantile(w, 0.99) / w.mean() for w in waits]
    assert tails[0] < 1.5 and tails[1] > 5


@pytest.mark.parametrize("think", [np.ones(3), np.full((2, 2), -1.0), np.full((2, 2), np.nan)])
def test_bad_thinking_is_refused(think):
    with pytest.raises(InputError, match="think_s"):
        closed_loop.serial(think, 1.0)
    with pytest.raises(InputError, match="think_s"):
        closed_loop.simulate(think, 1, 1, Pool(1, 1, [1.0]))
