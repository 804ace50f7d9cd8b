"""Marginal-cost tolls and elastic demand: closed forms, and selfish users who are charged."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.games.anarchy import mm1_optimum
from dmodels.solvers import elastic_wardrop, marginal_cost_tolls
from dmodels.solvers.wardrop import wardrop

MU = np.array([10.0, 5.0, 4.0])
QUEUES = lambda x: 1.0 / jnp.where(x < MU, MU - x, jnp.nan)


def test_selfish_users_who_are_charged_split_as_the_optimum_does():
    found = jax.jit(lambda r: marginal_cost_tolls(QUEUES, r, MU))(12.0)
    best = mm1_optimum(MU, 12.0)
    np.testing.assert_allclose(found.value["loads"], best, rtol=1e-8)
    np.testing.assert_allclose(found.value["tolls"], best / (MU - best) ** 2, rtol=1e-7)
    assert found.value["income"] == pytest.approx((best**2 / (MU - best) ** 2).sum(), rel=1e-7)
    tolls = np.asarray(found.value["tolls"])
    charged = jax.jit(lambda r: wardrop(lambda x: QUEUES(x) + tolls, r, MU))(12.0)
    np.testing.assert_allclose(charged.value["loads"], best, rtol=1e-6)
    assert int(found.flags) == 0 and float(found.certificate["spread"]) < 1e-9


def test_demand_that_answers_to_the_price():
    """f = x and willingness 1 - r: equilibrium x = 1/2; optimum 2x = 1 - x, so toll 1/3 and income 1/9."""
    free = elastic_wardrop(lambda x: x, lambda r: 1.0 - r, 1.0, np.array([np.inf]))
    assert float(free.value["served"]) == pytest.approx(0.5) == pytest.approx(float(free.value["level"]))
    priced = marginal_cost_tolls(lambda x: x, 1.0, np.array([np.inf]), lambda r: 1.0 - r)
    assert float(priced.value["served"]) == pytest.approx(1 / 3) == pytest.approx(float(priced.value["tolls"][0]))
    assert float(priced.value["income"]) == pytest.approx(1 / 9) and float(priced.value["level"]) == pytest.approx(
        2 / 3
    )


def test_nobody_stays_away_from_what_is_worth_more():
    served = elastic_wardrop(lambda x: x, lambda r: 9.0 - r, 2.0, np.array([np.inf, np.inf])).value
    np.testing.assert_allclose(served["loads"], [1.0, 1.0], atol=1e-9)
