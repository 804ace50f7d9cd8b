"""Parallel queues: the square-root rule, Haviv and Roughgarden's bound, stations of several servers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dmodels.games.anarchy import mm1_equilibrium, mm1_optimum, mm1_price, mmc_split, pole_limit

rates = st.lists(st.floats(0.1, 20), min_size=2, max_size=5)


@given(rates, st.floats(0.01, 0.999))
def test_splits_obey_their_principles_and_the_price_its_bound(mu, load):
    mu = np.array(mu)
    x, y = mm1_equilibrium(mu, load * mu.sum()), mm1_optimum(mu, load * mu.sum())
    for split, tolled in ((x, 1 / (mu - x)), (y, mu / (mu - y) ** 2)):
        assert split.sum() == pytest.approx(load * mu.sum()) and (split >= 0).all() and (split < mu).all()
        used = split > 1e-9
        assert tolled[used].max() <= tolled.min() * (1 + 1e-6)
    assert 1 - 1e-9 <= mm1_price(mu, load * mu.sum()) <= len(mu)


def test_near_saturation_the_price_is_the_limit():
    mu = np.array([1.0, 4.0, 2.0])
    assert mm1_price(mu, mu.sum() * (1 - 1e-7)) == pytest.approx(float(pole_limit(mu, np.ones(3), 1.0)), rel=1e-4)


def test_a_batch_and_an_overload():
    price = mm1_price(np.array([[1.0, 1.0], [9.0, 1.0]]), np.array([1.0, 20.0]))
    assert price[0] == pytest.approx(1.0) and np.isnan(price[1])


def response_s(load_rps, service_s, servers):
    """Of M/M/c with a whole c: Erlang's C by its sum."""
    a = load_rps * service_s
    terms = np.cumprod([1.0, *(a / np.arange(1, servers + 1))])
    last = terms[-1] * servers / (servers - a)
    return service_s + last / (terms[:-1].sum() + last) * service_s / (servers - a)


def test_two_stations_of_several_servers_against_a_search():
    service, servers, total = (1.0, 0.5), (4, 1), 3.5
    stations = jnp.array(service), jnp.array([4.0, 1.0])
    both = jax.jit(lambda: [mmc_split(*stations, total, *optimal).value["loads"] for optimal in ((), (True,))])
    x, y = map(np.asarray, both())
    each = lambda loads: [response_s(*station) for station in zip(loads, service, servers, strict=True)]
    at = each(x)
    assert at[0] == pytest.approx(at[1]) and x.sum() == pytest.approx(total)
    mean = lambda a: float(np.dot(each((a, total - a)), (a, total - a)))
    best = minimize_scalar(mean, bounds=(1.6, 3.49), method="bounded", options={"xatol": 1e-10})
    assert mean(y[0]) == pytest.approx(best.fun, rel=1e-9) and y[0] == pytest.approx(best.x, abs=1e-4)


def test_full_queues_have_no_equilibrium():
    assert np.isnan(mm1_equilibrium([1.0, 1.0], 2.0)).all() and np.isnan(mm1_price([1.0, 1.0], 2.0))
    np.testing.assert_allclose(mm1_equilibrium([1.0, 1.0], 1.999), [0.9995, 0.9995])


def test_a_queue_that_is_just_as_slow_idle_gets_nothing():
    """mu = (3, 1) at load 2: the fast queue answers in 1/(3 - 2) = 1, the slow one idle in 1."""
    np.testing.assert_allclose(mm1_equilibrium([3.0, 1.0], 2.0), [2.0, 0.0], atol=1e-12)
