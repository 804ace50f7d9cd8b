"""Mixed equilibria against known games, a search of supports in floating point, and one of corners in rationals."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.solvers import mixed_equilibria


def supports(a, b):
    """Equilibria of a nondegenerate game with equal supports, by NumPy."""
    n, m = a.shape
    found = []
    for k in range(1, min(n, m) + 1):
        for rows, columns in product(combinations(range(n), k), combinations(range(m), k)):
            y, x = _even(a[np.ix_(rows, columns)]), _even(b[np.ix_(rows, columns)].T)
            if x is None or y is None:
                continue
            full_x, full_y = np.zeros(n), np.zeros(m)
            full_x[list(rows)], full_y[list(columns)] = x, y
            if (x > 0).all() and (y > 0).all() and _regret(a, b, full_x, full_y) < 1e-9:
                found.append(np.concatenate([full_x, full_y]))
    return np.array(found)


def _even(payoff):
    """Shares that make all rows pay alike."""
    k = len(payoff)
    system = np.block([[payoff, -np.ones((k, 1))], [np.ones((1, k)), np.zeros((1, 1))]])
    if np.linalg.cond(system) > 1e10:
        return None
    return np.linalg.solve(system, np.r_[np.zeros(k), 1.0])[:-1]


def _regret(a, b, x, y):
    return max((a @ y).max() - x @ a @ y, (x @ b).max() - x @ b @ y)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 3), (3, 3), (4, 3)])
def test_all_equilibria_of_random_games_by_two_methods(shape):
    rng = np.random.default_rng(sum(shape))
    for _ in range(4):
        a, b = rng.normal(size=(2, *shape))
        s = mixed_equilibria(a, b)
        ours = np.hstack([s.value["row_strategies"], s.value["column_strategies"]])
        theirs = supports(a, b)
        assert len(ours) == len(theirs) and len(ours) % 2 == 1  # Wilson's odd number
        distance = np.abs(ours[:, None] - theirs[None]).max(-1)
        assert (distance.min(0) < 1e-9).all() and (distance.min(1) < 1e-9).all()
        assert not s.certificate["row_regret"].any() and not s.certificate["column_regret"].any()


def corners(payoff):
    """Mixes (n,) that are corners of where columns are best replies to them: `payoff` (n, m) is the column player's.
    Square systems in rational numbers: as many rows with weight as columns that pay alike, and most."""
    n, m = len(payoff), len(payoff[0])
    found = set()
    for k in range(1, min(n, m) + 1):
        for rows, columns in product(combinations(range(n), k), combinations(range(m), k)):
            system = [[payoff[i][j] for i in rows] + [-1, 0] for j in columns] + [[1] * k + [0, 1]]
            solved = _eliminated([[*map(Fraction, row)] for row in system])
            if solved is None or min(solved[:k]) < 0:
                continue
            x = [solved[rows.index(i)] if i in rows else Fraction(0) for i in range(n)]
            if all(sum(x[i] * payoff[i][j] for i in range(n)) <= solved[k] for j in range(m)):
                found.add(tuple(x))
    return found


def _eliminated(rows):
    """The solution of a square system with its right side in the last column; None where it is singular."""
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [v / rows[k][k] for v in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [v - rows[i][k] * w for v, w in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 3)])
def test_games_full_of_ties_in_rational_numbers(shape):
    rng = np.random.default_rng(sum(shape))
    for _ in range(12):
        a, b = rng.integers(0, 3, (2, *shape)).tolist()
        n, m = shape

        def plays(x, y, a=a, b=b, n=n, m=m):
            rows = [sum(a[i][j] * y[j] for j in range(m)) for i in range(n)]
            columns = [sum(b[i][j] * x[i] for i in range(n)) for j in range(m)]
            return all(not x[i] or rows[i] == max(rows) for i in range(n)) and all(
                not y[j] or columns[j] == max(columns) for j in range(m)
            )

        exact = {(*x, *y) for x in corners(b) for y in corners([*zip(*a, strict=True)]) if plays(x, y)}
        s = mixed_equilibria(a, b).value
        ours = np.hstack([s["row_strategies"], s["column_strategies"]])
        assert sorted(ours.tolist()) == sorted([*map(float, z)] for z in exact)


def test_games_of_the_textbooks():
    sexes = mixed_equilibria([[2, 0], [0, 1]], [[1, 0], [0, 2]]).value
    assert {tuple(x) for x in sexes["row_strategies"].round(12)} == {(1, 0), (0, 1), (0.666666666667, 0.333333333333)}
    paper = mixed_equilibria([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    np.testing.assert_allclose(paper.value["row_strategies"], [[1 / 3] * 3], rtol=1e-15)
    assert paper.value["row_payoffs"] == 0.0


def test_a_degenerate_game_has_a_segment_of_equilibria():
    # The row player is indifferent when the column player plays left: every row strategy up to a limit will do.
    a, b = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([[2.0, 1.0], [0.0, 1.0]])
    s = mixed_equilibria(a, b)
    i, j = next((i, j) for i, j in zip(*np.nonzero(s.certificate["joined"]), strict=True) if i < j)
    for share in (0.25, 0.5):
        x, y = (share * v[i] + (1 - share) * v[j] for v in (s.value["row_strategies"], s.value["column_strategies"]))
        assert _regret(a, b, x, y) < 1e-15


def test_what_is_refused():
    with pytest.raises(InputError, match="row_payoff"):
        mixed_equilibria([[np.nan]])
    with pytest.raises(InputError, match="column_payoff"):
        mixed_equilibria(np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(InputError, match="candidates"):
        mixed_equilibria(np.ones((9, 9)))
