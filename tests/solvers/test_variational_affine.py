"""Batches of linear-quadratic games: the compiled solver against linear programming, closed forms, and its fallback."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

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
    skew = affine_equilibria([[0, 1], [-1, 0]], [[0.5, 0.25]], None, (-1, 1))  # matching pennies, shifted
    np.testing.assert_allclose(skew.value.x, [[0.25, -0.5]], atol=1e-12)
    assert skew.flags[0] == Flag.NOT_UNIQUE
    empty = affine_equilibria(np.eye(2), [[-2.0, -1.0]], ([[1, 1], [-1, -1]], [1, -2]))
    assert empty.flags[0] & Flag.INFEASIBLE
    assert affine_equilibria(np.eye(2), [-2.0, 5.0], None, (0, [1, 1])).value.x.tolist() == [1.0, 0.0]
