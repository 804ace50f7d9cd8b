"""Players whose costs are one formula with other numbers have the equilibrium of the game as a map.

The map is worked out player by player here.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.solvers import variational_equilibrium
from dmodels.solvers.variational.alike import alike
from dmodels.solvers.variational.problem import read, with_matrices

RNG = np.random.default_rng(5)
SLOPES, TOGETHER = RNG.uniform(1.0, 2.0, 20), RNG.uniform(0.1, 0.3, (20, 20))


def _seller(own, slope):
    """Of a market: its own variables at `own`, the price falls with what all sell."""
    place = np.array(own)
    return lambda x: jnp.sum(jnp.exp(0.3 * x[place]) * slope) - jnp.sum(x[place]) * (10.0 - jnp.sqrt(1.0 + jnp.sum(x)))


def _neighbour(own, row):
    return lambda x: jnp.cosh(x[own[0]]) - x[own[0]] * (row @ x) - 2.0 * x[own[0]]


GAMES = {
    "single variables": ([(i,) for i in range(6)], [_seller] * 6, SLOPES),
    "two formulas": ([(i,) for i in range(6)], [_seller, _neighbour] * 3, [*zip(SLOPES, TOGETHER[:, :6], strict=True)]),
    "pairs": ([(2 * i, 2 * i + 1) for i in range(4)], [_seller] * 4, SLOPES),
    "five each, in another order": ([(0, 3, 6, 9, 12), (1, 4, 7, 10, 13), (2, 5, 8, 11, 14)], [_seller] * 3, SLOPES),
}


def _game(name):
    blocks, makers, numbers = GAMES[name]
    if name == "two formulas":
        numbers = [pair[k % 2] for k, pair in enumerate(numbers)]
    costs = [make(block, number) for make, block, number in zip(makers, blocks, numbers, strict=False)]
    return blocks, costs


def _map(blocks, costs):
    """F, by one gradient per player."""

    def pseudogradient(x):
        out = jnp.zeros(len(x))
        for block, cost in zip(blocks, costs, strict=True):
            out = out.at[np.array(block)].set(jax.grad(cost)(x)[np.array(block)])
        return out

    return pseudogradient


#: Each game has a program of its own; these are what is left out of the default tests.
MORE = ("pairs", "five each, in another order", "two formulas")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in MORE)) for n in GAMES])
def test_costs_of_one_formula_have_the_equilibrium_of_their_map(name):
    blocks, costs = _game(name)
    n = sum(map(len, blocks))
    shared = (np.ones((1, n)), [0.3 * n])
    with jax.enable_x64(True):
        groups = alike(costs, blocks, np.zeros(n))
    assert len(groups) == len({id(make) for make in GAMES[name][1]})
    found = variational_equilibrium(costs, shared, (0.0, 3.0), blocks=blocks)
    theirs = variational_equilibrium(_map(blocks, costs), shared, (0.0, 3.0), blocks=blocks)
    np.testing.assert_allclose(found.value.x, theirs.value.x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.value.multipliers, theirs.value.multipliers, rtol=1e-8)
    np.testing.assert_allclose(found.certificate.least_eigenvalue, theirs.certificate.least_eigenvalue, rtol=1e-9)
    assert found.flags == theirs.flags and found.certificate.kkt_residual < 1e-10


@pytest.mark.parametrize("name", GAMES)
def test_every_player_is_told_its_own_cost(name):
    """At one point for all, and where each moves alone."""
    blocks, costs = _game(name)
    n = sum(map(len, blocks))
    x, other = np.linspace(0.5, 1.5, n), np.linspace(1.2, 0.2, n)
    with jax.enable_x64(True):
        made = read(
            costs, None, (0.0, 3.0), None, blocks=blocks, equalities=None, private=None, weights=None, params=None
        )
        problem = with_matrices(made)
        assert problem.alike
        moved = [np.where(np.isin(np.arange(n), block), other, x) for block in blocks]
        told, wanted = jax.jit(
            lambda: (
                [problem.cost_values(x), problem.cost_values(x, other)],
                [[cost(x) for cost in costs], [cost(at) for cost, at in zip(costs, moved, strict=True)]],
            )
        )()
        np.testing.assert_allclose(told, wanted, rtol=1e-14)


def test_costs_that_differ_in_an_operation_stay_apart():
    with jax.enable_x64(True):
        assert alike([lambda x: x[0] ** 2, lambda x: x[1] ** 3], [(0,), (1,)], np.zeros(2)) == ()
        assert alike([lambda x: x[0] * x[1], lambda x: x[:1] @ x[1:]], [(0,), (1,)], np.zeros(2)) == ()


def test_derivatives_pass_through_what_costs_close_over():
    """Of the equilibrium by a number in every cost, beside differences."""

    def shares(theta):
        costs = [_seller((i,), theta * SLOPES[i]) for i in range(4)]
        return variational_equilibrium(costs, (np.ones((1, 4)), [1.2]), (0.0, 3.0), samples=0).value.x

    with jax.enable_x64(True):
        both = jax.jit(lambda theta: jax.jvp(shares, (theta,), (1.0,)))
        slope = both(1.5)[1]
        differences = np.subtract(both(1.5 + 1e-5)[0], both(1.5 - 1e-5)[0]) / 2e-5
        np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-9)


def test_twenty_players_with_parameters_are_solved_as_one_by_one():
    costs = [lambda x, p, i=i: p[i] * jnp.exp(x[i]) - x[i] * (6.0 - 0.1 * jnp.sum(x)) for i in range(20)]
    found = variational_equilibrium(costs, None, (0.0, 5.0), params=SLOPES, samples=0)
    # without constraints that bind: p exp(x) + 0.1 (sum x + x) = 6, by bisection in the sum and in each x
    x = np.asarray(found.value.x)
    np.testing.assert_allclose(SLOPES * np.exp(x) + 0.1 * (x.sum() + x), 6.0, rtol=1e-10)
