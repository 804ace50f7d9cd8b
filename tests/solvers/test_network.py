"""Wardrop's equilibrium on networks: Braess, two pairs against a general optimiser, and tolls that mend it."""

from __future__ import annotations

import jax
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


def test_few_users_take_their_fastest_path_beside_many():
    s = network_wardrop(lambda y: y + jnp.array([0.0, 1.0, 2.0]), [[[1, 0, 0]], [[0, 1, 0], [0, 0, 1]]], [1.0, 1e-15])
    assert int(s.flags) == 0 and np.asarray(s.value["flows"]).tolist() == [1.0, 1e-15, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_100_000_networks_by_wardrops_condition(seed):
    """Random paths of two pairs, latencies of zeros, ties and cubes, seconds and users in units from 1e-15 to 1e15,
    nobody on the way, and few users beside many: whoever travels takes a path that is as fast as any."""
    rng, count = np.random.default_rng(seed), 20_000
    paths = [rng.integers(0, 2, (rng.integers(2, 5), 6)) for _ in range(2)]
    for table in paths:
        table[:, 0] |= table.sum(1) == 0
    a, b, c = (rng.choice(among, (count, 6)) for among in ([0.0, 0.37, 1, 5], [0.0, 0.5, 1, 2], [0.0, 0.0, 0.1, 3]))
    demand, (unit, user) = 10.0 ** rng.uniform(-1, 1, (count, 2)), 10.0 ** rng.uniform(-15, 15, (2, count))
    demand[rng.random(demand.shape) < 0.05] = 0.0
    demand[: count // 4, 1] *= 1e-15

    def one(a, b, c, demand, unit, user):
        latency = lambda y: unit * (a * y / user + b + c * (y / user) ** 3)
        return network_wardrop(latency, paths, user * demand, most_steps=500)

    with jax.enable_x64(True):
        s = jax.jit(jax.vmap(one))(a, b, c, demand, unit, user)
    flows, certified = np.asarray(s.value["flows"]) / user[:, None], np.asarray(s.flags) == 0
    every, loads = np.concatenate(paths).astype(float), flows @ np.concatenate(paths)
    slow = (a * loads + b + c * loads**3) @ every.T
    assert certified.mean() > 0.98
    for mine, amount in zip(np.split(np.arange(len(every)), [len(paths[0])]), demand.T, strict=True):
        h, least = flows[:, mine], slow[:, mine].min(1)
        np.testing.assert_allclose(h.sum(1), amount, rtol=1e-12)
        late = np.where(h > 1e-9 * amount[:, None], slow[:, mine] - least[:, None], 0.0).max(1)
        assert (late <= 1e-9 * least)[certified].all()


def test_what_is_refused():
    for paths, demand, named in (([[[2]]], [1.0], "paths"), ([], [], "paths"), ([BRAESS], [-1.0], "demand")):
        with pytest.raises(InputError, match=named):
            network_wardrop(roads, paths, demand)
