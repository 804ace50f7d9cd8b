"""Wardrop's equilibrium on networks: Braess, two pairs against a general optimiser, and tolls that mend it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from dmodels.core.errors import InputError
from dmodels.solvers import network_wardrop
from dmodels.solvers.wardrop import marginal

BRAESS = [[1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [1, 0, 1, 0, 1]]


def roads(y):
    return jnp.array([1.0, 0.0, 0.0, 0.0, 1.0]) * y + jnp.array([0.0, 1.0, 0.0, 1.0, 0.0])


def test_tolls_at_the_optimum_make_it_the_equilibrium_of_braess():
    best = network_wardrop(marginal(roads), [BRAESS], [1.0])
    loads = np.asarray(best.value["loads"])
    np.testing.assert_allclose(loads, [0.5, 0.5, 0.0, 0.5, 0.5], atol=1e-9)  # nobody takes the shortcut
    tolls = np.asarray(marginal(roads)(best.value["loads"]) - roads(best.value["loads"]))
    tolled = network_wardrop(lambda y: roads(y) + tolls, [BRAESS], [1.0])
    np.testing.assert_allclose(np.asarray(roads(tolled.value["loads"]) @ tolled.value["loads"]), 1.5, atol=1e-9)
    selfish = network_wardrop(roads, [BRAESS], [1.0])
    assert float(roads(selfish.value["loads"]) @ selfish.value["loads"]) == pytest.approx(2.0)  # ratio 4/3


def test_two_pairs_that_share_edges_against_a_general_optimiser():
    rng = np.random.default_rng(0)
    paths = [rng.integers(0, 2, (3, 5)), rng.integers(0, 2, (3, 5))]
    for table in paths:
        table[:, 0] |= table.sum(1) == 0
    slope, base, demand = rng.random(5) + 0.2, rng.random(5), np.array([2.0, 3.0])
    s = network_wardrop(lambda y: slope * y + base + 0.1 * y**3, paths, demand)
    every = np.concatenate(paths).astype(float)

    def potential(h):
        y = h @ every
        return (slope * y**2 / 2 + base * y + 0.1 * y**4 / 4).sum()

    sums = LinearConstraint(np.kron(np.eye(2), np.ones(3)), demand, demand)
    options = {"ftol": 1e-14, "maxiter": 1000}
    theirs = minimize(potential, np.repeat(demand / 3, 3), bounds=[(0, None)] * 6, constraints=sums, options=options)
    assert int(s.flags) == 0 and potential(np.asarray(s.value["flows"])) <= theirs.fun + 1e-9
    np.testing.assert_allclose(np.asarray(s.value["loads"]), theirs.x @ every, atol=1e-4)


def test_what_is_refused():
    for paths, demand, named in (([[[2]]], [1.0], "paths"), ([], [], "paths"), ([BRAESS], [-1.0], "demand")):
        with pytest.raises(InputError, match=named):
            network_wardrop(roads, paths, demand)
