"""A caller's functions that are not what is accepted: each is named by its argument, whichever solver is given it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.games.resource import Game, equilibrium, integer_split, social_optimum
from dmodels.solvers import elastic_wardrop, marginal_cost_tolls, network_wardrop, variational_equilibria
from dmodels.solvers.wardrop import marginal, wardrop

ROOM = np.full(2, np.inf)
AWAY = lambda r: 1.0 - r
FALLS = lambda d, p: jnp.exp(-d)

WRONG = {
    "NumPy": lambda y: np.asarray(y) * 2.0,
    "branch": lambda y: y if jnp.all(y > 0) else 0.5 * y,
    "fewer numbers": lambda y: jnp.ones((*jnp.shape(y), 3)).sum(),
    "no function": 3.0,
    "text": lambda y: "slow",
}
SOLVERS = {
    "latency, in a network": lambda f: network_wardrop(f, [[[1, 0], [0, 1]]], [1.0]),
    "latency": lambda f: wardrop(f, 1.0, ROOM),
    "latency, elastic": lambda f: elastic_wardrop(f, AWAY, 1.0, ROOM),
    "latency, tolls": lambda f: marginal_cost_tolls(f, 1.0, ROOM),
}
RATES = {
    "prefill": lambda f: equilibrium(Game(f, FALLS, 8.0)),
    "prefill, optimum": lambda f: social_optimum(Game(f, FALLS, 8.0)),
    "prefill, whole": lambda f: integer_split(Game(f, FALLS, 8.0)),
    "decode": lambda f: equilibrium(Game(lambda x: jnp.exp(-x), lambda d, p: f(d), 8.0)),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("wrong", WRONG)
def test_mistakes_in_latencies_are_named(solver, wrong):
    with pytest.raises(InputError, match=r"latency: .*accepted"):
        SOLVERS[solver](WRONG[wrong])


@pytest.mark.parametrize("solver", RATES)
def test_mistakes_in_violation_rates_are_named(solver):
    for wrong in (lambda x: np.exp(-np.asarray(x)), lambda x: jnp.exp(-x) * jnp.ones(2), lambda x: float(x)):
        with pytest.raises(InputError, match=f"{solver.split(',')[0]}: .*accepted"):
            RATES[solver](wrong)


def test_a_willingness_that_is_no_price_is_named():
    for wrong in (lambda r: np.exp(-np.asarray(r)), lambda r: jnp.ones(3), None):
        with pytest.raises(InputError, match=r"willingness: .*accepted"):
            elastic_wardrop(lambda x: x, wrong, 1.0, ROOM)


def test_lists_and_numbers_are_taken_as_arrays():
    @jax.jit
    def each():
        wide = marginal(lambda x: jnp.array([1.0, 0.0]) * x + jnp.array([0.0, 1.0]))
        paid = elastic_wardrop(lambda x: x, lambda r: 0.25, 1.0, ROOM)
        return wardrop(lambda x: [x[0], 1.0], 1.0, ROOM), wardrop(wide, 1.0, np.inf), paid

    listed, wide, paid = each()
    assert listed.value["loads"].tolist() == pytest.approx([1.0, 0.0])  # Pigou
    assert wide.value["loads"].tolist() == pytest.approx([0.5, 0.5])
    assert float(paid.value["served"]) == pytest.approx(0.5)


def test_params_are_numbers():
    with pytest.raises(InputError, match=r"params: .*accepted"):
        variational_equilibria(lambda x, p: x - p, None, (0.0, 9.0), params=np.array(["many"]))
