"""Loops behind `pareto`: two-dimensional sweeps and small all-pairs comparisons, compiled by numba on first use."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel


@kernel
def covered_by_all_pairs(points, front, first):
    """True for each point that some row of `front` is at most equal to in all columns from `first` on."""
    n, m, d = points.shape[0], front.shape[0], points.shape[1]
    out = np.zeros(n, np.bool_)
    for i in range(n):
        for j in range(m):
            below = True
            for k in range(first, d):
                if front[j, k] > points[i, k]:
                    below = False
                    break
            if below:
                out[i] = True
                break
    return out


@kernel
def covered_in_plane(x, y, order, front_x, front_y, front_order):
    """The same for two columns: points and front are visited by increasing x, keeping the front's least y so far."""
    n, m = len(x), len(front_x)
    out = np.zeros(n, np.bool_)
    least = np.inf
    j = 0
    for place in range(n):
        i = order[place]
        while j < m and front_x[front_order[j]] <= x[i]:
            least = min(least, front_y[front_order[j]])
            j += 1
        out[i] = least <= y[i]
    return out


@kernel
def front_of_sorted(points):
    """True for each row of lexicographically sorted distinct `points` that no earlier row covers (all pairs)."""
    n, d = points.shape
    keep = np.zeros(n, np.bool_)
    held = np.empty(n, np.int64)
    count = 0
    for i in range(n):
        covered = False
        for place in range(count):
            j = held[place]
            below = True
            for k in range(1, d):
                if points[j, k] > points[i, k]:
                    below = False
                    break
            if below:
                covered = True
                break
        if not covered:
            held[count] = i
            count += 1
            keep[i] = True
    return keep
