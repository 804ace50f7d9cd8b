"""All equilibria of small games, against the pivoting solver, closed forms, and conditions checked apart."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers import affine_equilibria, all_affine_equilibria


def test_a_strictly_monotone_game_has_the_one_that_pivoting_finds():
    rng = np.random.default_rng(0)
    for _ in range(5):
        m, q = rng.normal(size=(3, 3)) * 0.5 + 3.0 * np.eye(3), -9.0 * rng.random(3)
        game = m, q, (rng.random((2, 3)), rng.random(2) + 0.5), (0.0, [1.0, 2.0, np.inf])
        s, one = all_affine_equilibria(*game), affine_equilibria(*game)
        assert len(s.value["x"]) == 1 and int(s.flags) == 0 and s.certificate["kkt_residual"][0] < 1e-9
        np.testing.assert_allclose(s.value["x"][0], np.asarray(one.value.x), atol=1e-9)


def test_a_game_that_is_not_monotone_has_three():
    # F = (1 - 2y, 1 - 2x) on the unit square: both at 0, both at 1, and the unstable point between.
    s = all_affine_equilibria([[0.0, -2.0], [-2.0, 0.0]], [1.0, 1.0], None, (0.0, 1.0))
    np.testing.assert_allclose(s.value["x"], [[0, 0], [0.5, 0.5], [1, 1]], atol=1e-12)
    assert (s.certificate["joined"] == np.eye(3, dtype=bool)).all() and int(s.flags) == Flag.NOT_UNIQUE


def test_every_point_of_a_joined_segment_is_an_equilibrium():
    # Three players share 2 units; two of them value the unit alike, the third less.
    q, a, b = np.array([-3.0, -3.0, -1.0]), np.ones((1, 3)), np.array([2.0])
    s = all_affine_equilibria(np.diag([0.0, 0.0, 1.0]), q, (a, b), (0.0, 1.5))
    ends = s.value["x"]
    np.testing.assert_allclose(sorted(map(tuple, ends)), [(0.5, 1.5, 0.0), (1.5, 0.5, 0.0)], atol=1e-12)
    assert s.certificate["joined"].all()
    for share in (0.3, 0.5):
        x = share * ends[0] + (1 - share) * ends[1]
        mapped = np.diag([0.0, 0.0, 1.0]) @ x + q
        corners = [v for v in np.ndindex(31, 31, 31) if sum(v) <= 40]  # of the feasible set, in steps of 0.05
        assert min(mapped @ (np.array(v) * 0.05 - x) for v in corners) > -1e-9  # the variational inequality itself


def test_what_is_refused_and_what_has_none():
    with pytest.raises(InputError, match="up to"):
        all_affine_equilibria(np.eye(6), np.ones(6), None, (0.0, 1.0))
    nothing = all_affine_equilibria(
        [[0.0]], [-1.0], None, (0.0, np.inf)
    )  # more is always better, and nothing bounds it
    assert not len(nothing.value["x"]) and int(nothing.flags) == Flag.INFEASIBLE


def test_without_constraints_and_bounds_the_equilibrium_is_where_no_cost_changes():
    s = all_affine_equilibria([[2.0, 1.0], [0.0, 4.0]], [-3.0, -4.0])
    assert s.value["x"].round(12).tolist() == [[1.0, 1.0]] and int(s.flags) == 0


@pytest.mark.parametrize("offset, rows", [([np.nan, 1.0], None), ([1.0, 1.0], ([[1.0, 1.0]], [np.inf]))])
def test_numbers_that_are_not_finite_are_refused(offset, rows):
    with pytest.raises(InputError, match="finite numbers"):
        all_affine_equilibria(np.eye(2), offset, rows, (0.0, 1.0))


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_list_is_the_same_in_any_unit(count):
    """Costs, each variable and each row in units from 1e-15 to 1e15: as many equilibria, at the same places."""
    rng = np.random.default_rng(3)
    for k in range(count):
        m, q = rng.normal(size=(2, 2)), rng.normal(size=2)
        if k % 3 == 0:
            m = m @ m.T + 0.2 * np.eye(2)
        elif k % 3 == 1:
            m, q = np.zeros((2, 2)), -np.ones(2)
        a, b, upper = rng.random((1, 2)) + 0.1, np.array([-1.0 if k % 10 == 9 else 1.0]), np.array([2.0, 1.5])
        plain = all_affine_equilibria(m, q, (a, b), (0.0, upper))
        unit, (cost, row) = 10.0 ** rng.uniform(-15, 15, 2), 10.0 ** rng.uniform(-15, 15, 2)
        own = cost * m / unit[:, None] / unit, cost * q / unit, (row * a / unit, row * b)
        moved = all_affine_equilibria(*own, (0.0, upper * unit))
        assert int(moved.flags) == int(plain.flags) and len(moved.value["x"]) == len(plain.value["x"])
        assert (moved.certificate["joined"] == plain.certificate["joined"]).all()
        np.testing.assert_allclose(moved.value["x"] / unit, plain.value["x"], atol=1e-8)
        assert moved.certificate["relative_residual"].max(initial=0.0) <= 1e-9
