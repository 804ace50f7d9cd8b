"""Pareto fronts of many points in a few objectives, by divide and conquer.

H. T. Kung, F. Luccio, F. P. Preparata, "On finding the maxima of a set of vectors", J. ACM 22(4), 1975: sort by the
first objective, halve, take each half's front, and drop of the worse half what the better half's front covers; that
filter halves in the next objective. $O(n \\log^{k-2} n)$ for k > 2 objectives, $O(n \\log n)$ for k = 2, however many
points are on the front.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.errors import InputError

#: Sizes below which all pairs are compared.
_FRONT, _PAIRS = 256, 2**15


def pareto_mask(costs: np.ndarray, equals: bool = False) -> np.ndarray:
    """True for each row of `costs` (points, objectives), smaller is better, that no other row dominates.

    A row dominates another if it is nowhere worse and somewhere better. Of equal rows the first stays, or all with
    `equals`. Rows that hold inf or NaN are never on the front.

    >>> pareto_mask(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 3.0], [2.0, 2.0]])).tolist()
    [True, True, False, False]
    """
    costs = np.asarray(costs, np.float64)
    if costs.ndim != 2 or costs.shape[1] == 0:
        raise InputError(f"costs of shape {costs.shape}; accepted is (points, objectives) with an objective or more")
    keep = np.zeros(len(costs), bool)
    rows = np.flatnonzero(np.isfinite(costs).all(axis=1))
    if not rows.size:
        return keep
    order = rows[np.lexsort(costs[rows].T[::-1])]  # stable: of equal rows the first comes first
    points = np.ascontiguousarray(costs[order])
    new = np.concatenate([[True], (points[1:] != points[:-1]).any(axis=1)])
    distinct = points[new]
    best = np.zeros(len(distinct), bool)
    if costs.shape[1] == 1:
        best[0] = True
    elif costs.shape[1] == 2:
        earlier = np.minimum.accumulate(np.concatenate([[np.inf], distinct[:-1, 1]]))
        best = distinct[:, 1] < earlier
    else:
        best[_front(distinct)] = True
    if equals:
        keep[order] = best[np.cumsum(new) - 1]
    else:
        keep[order[new]] = best
    return keep


def _front(points: np.ndarray) -> np.ndarray:
    """Places of the front of lexicographically sorted distinct points; a row is covered by earlier rows only."""
    from ._pareto_kernels import front_of_sorted  # here, because numba takes half a second and two objectives need none

    if len(points) <= _FRONT:
        return np.flatnonzero(front_of_sorted(points))
    half = len(points) // 2
    better = _front(points[:half])
    worse = half + _front(points[half:])
    covered = _covered(points[worse], points[better], 1)
    return np.concatenate([better, worse[~covered]])


def _covered(points: np.ndarray, front: np.ndarray, first: int) -> np.ndarray:
    """True for each point that a row of `front` is at most equal to in all columns from `first` on."""
    from ._pareto_kernels import covered_by_all_pairs, covered_in_plane

    if first == points.shape[1] - 2:
        x, y, front_x, front_y = (np.ascontiguousarray(a[:, c]) for a in (points, front) for c in (first, first + 1))
        return np.asarray(covered_in_plane(x, y, np.argsort(x), front_x, front_y, np.argsort(front_x)))
    if len(points) * len(front) <= _PAIRS:
        return np.asarray(covered_by_all_pairs(points, front, first))
    middle = np.median(front[:, first])
    low, above = front[:, first] <= middle, points[:, first] >= middle
    covered = np.zeros(len(points), bool)
    if low.all():  # ties at the median: the column no longer tells them apart from what is at least as large
        top = front[:, first].max()
        beyond = points[:, first] >= top
        covered[beyond] = _covered(points[beyond], front, first + 1)
        under = front[:, first] < top
        rest = ~beyond
        covered[rest] = _covered(points[rest], front[under], first)
        return covered
    covered[above] = _covered(points[above], front[low], first + 1)
    left = above & ~covered
    covered[left] = _covered(points[left], front[~low], first)
    covered[~above] = _covered(points[~above], front[low], first)
    return covered
