"""Choosing among evaluated points: Pareto fronts."""

from __future__ import annotations

import numpy as np


def pareto_mask(costs: np.ndarray) -> np.ndarray:
    """True for each row of `costs` (points, 2), smaller is better, that no other row weakly dominates.

    Of equal rows the first stays. Rows that hold inf or NaN are never on the front. O(n log n).
    """
    costs = np.asarray(costs, np.float64)
    keep = np.zeros(len(costs), bool)
    rows = np.flatnonzero(np.isfinite(costs).all(axis=1))
    order = rows[np.lexsort((costs[rows, 1], costs[rows, 0]))]
    second = costs[order, 1]
    before = np.minimum.accumulate(np.concatenate([[np.inf], second[:-1]])) if len(order) else second
    keep[order[second < before]] = True
    return keep
