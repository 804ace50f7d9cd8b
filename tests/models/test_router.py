"""The KV router's choice: probabilities, draws and weights."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.models.router import choice_probabilities, choose, paper_omega_s


def test_draws_follow_the_levels_of_the_probabilities():
    costs = jnp.array([0.0, math.log(2.0), math.log(4.0)])  # 4/7, 2/7, 1/7 at tau = 1
    np.testing.assert_allclose(choice_probabilities(costs, 1.0), [4 / 7, 2 / 7, 1 / 7])
    for u, worker in ((0.0, 0), (0.57, 0), (0.58, 1), (0.85, 1), (0.86, 2), (0.999999, 2)):
        assert int(choose(costs, 1.0, u)) == worker
    spread = choice_probabilities(costs, 1.0, normalized=True)  # 0, 1/2, 1 of the range
    np.testing.assert_allclose(spread[0] / spread[1], math.exp(0.5))


def test_dynamos_weight_in_seconds():
    """Two blocks of load per missing block, ten blocks, 10 ms each: a whole miss weighs 0.2 s."""
    assert paper_omega_s(2.0, 10.0, 0.01) == pytest.approx(0.2)


def test_what_all_workers_cost_alike_does_not_matter():
    for normalized in (False, True):
        for base in (0.0, 5.0, 1e4):
            got = choice_probabilities(base + jnp.array([0.0, 0.5]), 1.0, normalized)
            assert float(got[0] / got[1]) == pytest.approx(math.exp(1.0 if normalized else 0.5))


def test_the_greedy_choice_does_not_feel_small_changes():
    slopes = jax.jacobian(lambda costs: choice_probabilities(costs, 0.0))(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(slopes, np.zeros((2, 2)))


def test_no_draw_picks_a_worker_of_probability_nought_or_none_at_all():
    costs = jnp.array([1.0, 0.0, 2.0])
    assert [int(choose(costs, 0.0, u)) for u in (0.0, 0.5)] == [1, 1]
    assert int(choose(costs, 1.0, 1.0)) == 2  # a generator that gives 1 after rounding
