"""Entropic transport against a plain Sinkhorn, the exact problem, and finite differences."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers import entropic_transport, transport


def plain(c, a, b, eps, rounds=20_000):
    """Sinkhorn's scaling as in his paper."""
    kernel, v = np.exp(-c / eps), np.ones(c.shape[1])
    for _ in range(rounds):
        u = a / (kernel @ v)
        v = b / (kernel.T @ u)
    return u[:, None] * kernel * v


def problem(n, m, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.random(n) + 0.1, rng.random(m) + 0.1
    return rng.random((n, m)), a, b * a.sum() / b.sum()


def test_the_plan_and_its_cost_are_those_of_a_plain_sinkhorn():
    c, a, b = problem(4, 6)
    s = entropic_transport(c, a, b, 0.05)
    plan = plain(c, a, b, 0.05)
    np.testing.assert_allclose(s.value["plan"], plan, atol=1e-8)
    expected = (plan * (c + 0.05 * np.log(plan / (a[:, None] * b)))).sum()
    assert s.value["cost"] == pytest.approx(expected, abs=1e-8) and int(s.flags) == 0


def test_bounds_hold_the_exact_optimum_and_close_as_it_cools():
    c, a, b = problem(5, 5, seed=1)
    exact = float(transport(c, b, a).value.cost)
    gaps = []
    for eps in (0.3, 0.03, 0.003):
        s = entropic_transport(c, a, b, eps)
        assert s.certificate["lower"] - 1e-9 <= exact <= s.certificate["upper"] + 1e-9
        gaps.append(float(s.certificate["gap"]))
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 0.02


def test_gradients_are_those_of_finite_differences():
    c, a, b = problem(3, 4, seed=2)
    with jax.enable_x64(True):
        value = lambda *given: entropic_transport(*given, tolerance=1e-13).value["cost"]
        slopes = jax.jit(jax.grad(value, (0, 1, 2, 3)))(c, a, b, 0.1)
    turn = np.zeros((3, 4))
    turn[1, 2] = 1.0
    # amounts move from one place to another: the sums must stay equal
    moves = [turn, np.array([1.0, -1.0, 0.0]), np.array([0.0, 1.0, -1.0, 0.0]), 1.0]
    for which, (slope, move) in enumerate(zip(slopes, moves, strict=True)):
        ends = []
        for h in (1e-5, -1e-5):
            given = [c, a, b, 0.1]
            given[which] = given[which] + h * move
            ends.append(float(value(*given)))
        assert float((slope * move).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


def test_batches_forbidden_pairs_and_rows_without_mass():
    c, a, b = problem(3, 3, seed=3)
    c[0, 1], a[2], b = np.inf, 0.0, np.full(3, (a[0] + a[1]) / 3)
    s = entropic_transport(np.stack([c, 2 * c]), a, b, [0.1, 0.2])
    assert (s.value["plan"][:, 0, 1] == 0).all() and not s.value["plan"][:, 2].any() and not np.asarray(s.flags).any()
    np.testing.assert_allclose(s.value["plan"][0], s.value["plan"][1], atol=1e-8)  # the same in other units


def test_what_is_refused_and_flagged():
    with pytest.raises(InputError, match="temperature"):
        entropic_transport(np.eye(2), np.ones(2), np.ones(2), 0.0)
    with pytest.raises(InputError, match="do not fit"):
        entropic_transport(np.eye(2), np.ones(3), np.ones(2), 1.0)
    assert int(entropic_transport(np.eye(2), np.ones(2), 2 * np.ones(2), 1.0, most_steps=5).flags) & Flag.OUT_OF_DOMAIN
