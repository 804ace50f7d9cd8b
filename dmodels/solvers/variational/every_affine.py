r"""All variational equilibria of a small affine game with shared constraints, by enumeration of active sets.

They are the pairs (x, $\lambda$) with $M x + q + C^\top\lambda = 0$, $C x \le d$, $\lambda \ge 0$ and, for each i,
$\lambda_i = 0$ or $C_i x = d_i$ (C holds the constraints' rows and the bounds). That is a union of polyhedra, one for
each set of active rows; each is the hull of its vertices, where enough rows are active or multipliers zero to leave one
point.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers.solution import Solution

from .affine import read_games

#: Rows and finite bounds together, of which each is slack, active, or active without a multiplier: at most 3^10 sets.
MOST_ROWS = 10

#: What counts as 0, relative to the problem's scale.
_TOLERANCE = 1e-9


def all_affine_equilibria(
    matrix: Any, offset: Any, constraints: Any = None, bounds: Any = (-np.inf, np.inf)
) -> Solution:
    r"""Every vertex of the set of variational equilibria of F(x) = matrix x + offset; arguments as `affine_equilibria`.

    One game, at most `MOST_ROWS` constraints and finite bounds; the matrix need not be monotone. A degenerate game has
    segments (or more) of equilibria: their ends are listed, and `joined` says which belong together.

    value         `x` (k, n), `multipliers` (k, rows), `lower_multipliers`, `upper_multipliers` (k, n)
    certificate   `kkt_residual` (k,): the largest violation of the conditions above, from the rounded numbers listed;
                  `relative_residual` (k,): the same in units in which the problem's entries are near 1 (those in which
                  it is solved, so that costs, variables and rows may be in any); `joined` (k, k): whether all mixes of
                  the two are equilibria too
    flags         INFEASIBLE where no point satisfies the conditions, NOT_UNIQUE where several do
    steps         active sets looked at

    Two players who want all of 1 unit that they share, at equal prices (x + y <= 1, F = -1): a segment.

    >>> s = all_affine_equilibria(np.zeros((2, 2)), [-1.0, -1.0], ([[1.0, 1.0]], [1.0]), (0.0, np.inf))
    >>> s.value["x"].round(9).tolist(), s.certificate["joined"].tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[True, True], [True, True]])
    """
    games, count = read_games(matrix, offset, constraints, bounds)
    if count:
        raise InputError(f"matrix and offset are a batch of shape {count}; accepted is one game")
    m, q, a, b, low, high = (np.array(part[0]) for part in games)
    if not all(np.isfinite(part).all() for part in (m, q, a, b)):
        raise InputError("matrix, offset and constraints: some are NaN or infinite; accepted are finite numbers")
    n, rows = len(q), len(b)
    eye = np.eye(n)
    kept_low, kept_high = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    c = np.concatenate([a, -eye[kept_low], eye[kept_high]])
    d = np.concatenate([b, -low[kept_low], high[kept_high]])
    if len(d) > MOST_ROWS:
        raise InputError(f"constraints and finite bounds: {len(d)}; accepted are up to {MOST_ROWS} together")
    units, of_rows, of_costs = _units(m, q, c, d)
    scaled = (
        of_costs * units[:, None] * m * units,
        of_costs * units * q,
        of_rows[:, None] * c * units,
        of_rows * d,
    )
    points = _vertices(*scaled)
    y, prices = points[:, :n], points[:, n:]
    joined = ((prices[:, None] * (scaled[3] - y @ scaled[2].T)[None]) <= _TOLERANCE * _scale(*scaled)).all(-1)
    joined &= joined.T
    x, multipliers = units * y, of_rows * prices / of_costs
    certificate = {
        "kkt_residual": _residual(m, q, c, d, x, multipliers),
        "relative_residual": _residual(*scaled, y, prices) / _scale(*scaled),
        "joined": joined,
    }
    of_low, of_high = np.zeros((len(x), n)), np.zeros((len(x), n))
    of_low[:, kept_low] = multipliers[:, rows : rows + len(kept_low)]
    of_high[:, kept_high] = multipliers[:, rows + len(kept_low) :]
    value = {
        "x": x,
        "multipliers": multipliers[:, :rows],
        "lower_multipliers": of_low,
        "upper_multipliers": of_high,
    }
    flag = np.int32(Flag.INFEASIBLE if not len(x) else Flag.NOT_UNIQUE if len(x) > 1 else 0)
    looked_at = sum(len(actives) for actives, _ in _active_sets(n, len(d)))
    return Solution(value, certificate, flag, np.int64(looked_at))


def _units(m: np.ndarray, q: np.ndarray, c: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """(of each variable, of each row's reciprocal, of the costs' reciprocal), powers of two, in which the entries of
    the problem are as near to 1 as can be: least squares of their logarithms. So any unit gives the same answers."""
    n, rows = len(q), len(d)
    eye, of_row = np.eye(n + rows + 1), np.eye(n + rows + 1)[n : n + rows]
    own, costs = eye[:n], eye[-1]
    entries = np.concatenate([m.ravel(), q, c.ravel(), d])
    terms = np.concatenate(
        [
            (costs + own[:, None] + own).reshape(n * n, len(eye)),
            costs + own,
            (of_row[:, None] + own).reshape(rows * n, len(eye)),
            of_row,
        ]
    )
    known = entries != 0
    if not known.any():
        return np.ones(n), np.ones(rows), 1.0
    found = np.linalg.lstsq(terms[known], -np.log2(np.abs(entries[known])), rcond=None)[0]
    powers = np.exp2(np.round(found))
    return powers[:n], powers[n:-1], float(powers[-1])


def _residual(
    m: np.ndarray, q: np.ndarray, c: np.ndarray, d: np.ndarray, x: np.ndarray, prices: np.ndarray
) -> np.ndarray:
    """The largest violation of the conditions at each point."""
    slack = d - x @ c.T
    worst = [np.abs(x @ m.T + q + prices @ c), np.maximum(-slack, 0.0), np.maximum(-prices, 0.0)]
    return np.asarray(np.concatenate([*worst, np.abs(prices * slack)], axis=1).max(1, initial=0.0))


def _scale(m: np.ndarray, q: np.ndarray, c: np.ndarray, d: np.ndarray) -> float:
    return 1.0 + max(float(np.abs(part).max(initial=0.0)) for part in (m, q, c, d))


@cache
def _active_sets(n: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(active rows (k, a), those with a multiplier (k, p)) of every set that can hold a vertex, by the sizes a and p.

    At a vertex the rows with a multiplier are independent (else multipliers could move alone), and of the other rows
    that hold with equality as many as are independent of these say the rest: n at most.
    """
    sets = []
    for rows in range(min(n, count) + 1):
        for priced in range(rows + 1):
            chosen = [*combinations(range(count), rows)]
            pairs = [(active, part) for active in chosen for part in combinations(active, priced)]
            actives, parts = (np.array([pair[i] for pair in pairs], int).reshape(len(pairs), -1) for i in (0, 1))
            sets.append((actives, parts))
    return sets


def _vertices(m: np.ndarray, q: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """(x, multipliers) of each vertex, (k, n + rows): all systems of one shape are solved together."""
    n, count = len(q), len(d)
    tolerance = _TOLERANCE * _scale(m, q, c, d)
    found = []
    for actives, priced in _active_sets(n, count):
        sets, rows, prices = len(actives), actives.shape[1], priced.shape[1]
        system, right = np.zeros((sets, n + rows, n + prices)), np.empty((sets, n + rows))
        system[:, :n, :n], system[:, :n, n:], system[:, n:, :n] = m, c[priced].swapaxes(1, 2), c[actives]
        right[:, :n], right[:, n:] = -q, d[actives]
        left, sizes, across = np.linalg.svd(system, full_matrices=False)
        unique = sizes[:, -1] > 1e-11 * sizes[:, 0]
        left, sizes, across, right = left[unique], sizes[unique], across[unique], right[unique]
        parts = (left.swapaxes(1, 2) @ right[..., None]) / sizes[..., None]
        solved = (across.swapaxes(1, 2) @ parts)[..., 0]
        point = np.zeros((len(solved), n + count))
        point[:, :n] = solved[:, :n]
        np.put_along_axis(point, n + priced[unique], solved[:, n:], axis=1)
        met = np.abs((system[unique] @ solved[..., None])[..., 0] - right).max(1, initial=0.0) <= tolerance
        met &= (c @ point[:, :n].T <= d[:, None] + tolerance).all(0) & (point[:, n:] >= -tolerance).all(1)
        found.append(point[met])
    return _distinct(np.concatenate(found), tolerance)


def _distinct(points: np.ndarray, tolerance: float) -> np.ndarray:
    """One of each, in the order of their numbers."""
    kept: list[np.ndarray] = []
    for point in points[np.lexsort(points.round(9).T[::-1])]:
        if not any(np.abs(point - other).max() <= 10.0 * tolerance for other in kept):
            kept.append(np.where(np.abs(point) <= 1e-6 * tolerance, 0.0, point))
    return np.array(kept).reshape(-1, points.shape[1])
