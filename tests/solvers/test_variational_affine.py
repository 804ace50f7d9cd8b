"""Batches of linear-quadratic games: the compiled solver against linear programming, closed forms, and its fallback."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.optimize import linprog

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers import affine_equilibria


def games(count, n, m, seed):
    """Strongly monotone, not symmetric; 0 strictly inside the constraints."""
    rng = np.random.default_rng(seed)
    root, skew = rng.normal(size=(2, count, n, n))
    matrix = root @ root.transpose(0, 2, 1) / n + 0.1 * np.eye(n) + (skew - skew.transpose(0, 2, 1))
    return matrix, 3 * rng.normal(size=(count, n)), rng.normal(size=(count, m, n)), rng.uniform(0.1, 1, (count, m))


def test_each_answer_minimises_its_own_map():
    m, q, a, b = games(2000, 6, 3, 0)
    found = affine_equilibria(m, q, (a, b), (-1, 2))
    assert not found.flags.any() and found.certificate["kkt_residual"].max() < 1e-9
    x, lam = found.value.x, found.value.multipliers
    assert x.min() >= -1 and x.max() <= 2 and (np.einsum("kij,kj->ki", a, x) <= b + 1e-9).all() and lam.min() >= 0
    assert (lam > 0).any() and ((x == -1) | (x == 2)).any()
    f = np.einsum("kij,kj->ki", m, x) + q
    for k in range(0, 2000, 50):
        best = linprog(f[k], A_ub=a[k], b_ub=b[k], bounds=(-1, 2))
        assert f[k] @ x[k] <= best.fun + 1e-8 * (1 + abs(best.fun))


def test_cournot_with_shared_capacity_in_closed_form():
    # N firms, price p - sum(x), cost c_i x_i, sum(x) <= cap: x_i = p - c_i - s - lam, s = sum(x) (all firms active)
    rng = np.random.default_rng(1)
    n, k = 5, 500
    c, cap = rng.uniform(1, 2, (k, n)), rng.uniform(3, 12, k)
    found = affine_equilibria(np.eye(n) + 1, c - 10.0, (np.ones((1, n)), cap[:, None]), (0, np.inf))
    free = (10 * n - c.sum(axis=1)) / (n + 1)
    s = np.minimum(free, cap)
    lam = (10 * n - c.sum(axis=1) - (n + 1) * s) / n
    np.testing.assert_allclose(found.value.x, 10 - c - s[:, None] - lam[:, None], atol=1e-10)
    np.testing.assert_allclose(found.value.multipliers[:, 0], lam, atol=1e-10)
    assert (lam > 0).any() and (lam == 0).any() and not found.flags.any()


def test_trouble_is_flagged():
    band = [[1, 1], [-1, -1]]
    skew = affine_equilibria([[0, 1], [-1, 0]], [[0.5, 0.25]], (band, [9, 9]), (-1, 1))  # matching pennies, shifted
    np.testing.assert_allclose(skew.value.x, [[0.25, -0.5]], atol=1e-12)
    assert skew.flags[0] == Flag.NOT_UNIQUE
    empty = affine_equilibria(np.eye(2), [[-2.0, -1.0]], (band, [1, -2]), (-9, 9))
    assert empty.flags[0] & Flag.INFEASIBLE
    assert affine_equilibria(np.eye(2), [-2.0, 5.0], None, (0, [1, 1])).value.x.tolist() == [1.0, 0.0]


def test_many_rows_that_depend_on_each_other():
    """Ten rows for three variables, some twice: no fallback is needed, and each answer minimises its own map."""
    m, q, a, b = games(300, 3, 5, 3)
    a, b = np.concatenate([a, a], axis=1), np.concatenate([b, 2 * b], axis=1)
    found = affine_equilibria(m, q, (a, b), (0, np.inf))
    assert not found.flags.any()
    x = found.value.x
    f = np.einsum("kij,kj->ki", m, x) + q
    assert (x >= 0).all() and (np.einsum("kij,kj->ki", a, x) <= b + 1e-9).all()
    for k in range(0, 300, 10):
        best = linprog(f[k], A_ub=a[k], b_ub=b[k], bounds=(0, None))
        assert best.status == 0 and f[k] @ x[k] <= best.fun + 1e-8 * (1 + abs(best.fun))


def test_a_corner_from_which_an_owner_gains_is_no_equilibrium():
    """Cost -(x - 1/4)^2 on [0, 1]: 1/4 is stationary, 0 a local minimum, and the best answer is 1."""
    low = affine_equilibria([[-2.0]], [0.5], None, (0, 1))
    x = float(low.value.x[0])
    better = max((x - 0.25) ** 2, 0.75**2) - (x - 0.25) ** 2
    assert low.certificate["profitable_deviation"] == pytest.approx(0.75**2 - (x - 0.25) ** 2) and better >= 0
    assert bool(low.flags & Flag.OUT_OF_DOMAIN) == (better > 0)
    limited = affine_equilibria([[-2.0, 0], [0, 2]], [0.5, -1], ([[1, 1]], [0.75]), (0, 1))  # x + 1/2 <= 3/4
    a, b = limited.value.x
    assert b == pytest.approx(0.5)
    assert limited.certificate["profitable_deviation"] == pytest.approx((0.25) ** 2 - (a - 0.25) ** 2, abs=1e-12)


def test_no_games_are_no_answers():
    for found in (
        affine_equilibria(np.zeros((0, 2, 2)), np.zeros((0, 2)), None, (0, 1)),
        affine_equilibria(np.eye(2), np.zeros((0, 2)), ([[1, 1]], [1])),
    ):
        assert found.value.x.shape == (0, 2) and found.flags.shape == (0,)


@pytest.mark.parametrize(
    "arguments, name",
    [
        (("x", [0, 0]), "matrix"),
        ((np.eye(2), [0, 0], None, (np.nan, 1)), "bounds"),
        ((np.eye(2), [0, 0], None, (0, [1, 1, 1])), "bounds"),
        ((np.eye(2), [0, 0], None, 1.0), "bounds"),
        ((np.eye(2), [0, 0], [[1, 1]]), "constraints"),
        ((np.eye(2), [0, 0], ([[1, 1, 1]], [1])), "constraints"),
        ((np.zeros((3, 2, 2)), np.zeros((4, 2))), "batches"),
    ],
)
def test_mistakes_name_their_argument(arguments, name):
    with pytest.raises(InputError, match=name):
        affine_equilibria(*arguments)


@pytest.mark.filterwarnings("ignore:os.fork")  # no JAX program runs in the child
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_solves_games_too():
    m, q, a, b = games(2000, 6, 3, 4)
    ours = affine_equilibria(m, q, (a, b), (-1, 2)).value.x  # starts threads
    child = os.fork()
    if not child:
        theirs = affine_equilibria(m, q, (a, b), (-1, 2)).value.x
        os._exit(0 if np.array_equal(ours, theirs) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
