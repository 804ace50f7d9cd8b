"""Compiled loops of the assignment solver over problems: each is checked, matched (`paths`) and certified.

Arithmetic is float64 for floating costs (float32 costs are widened as they are read) and int64 for integers.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dmodels.core.compiled import inline, kernel

from .limits import GAP_RTOL, doubtful
from .paths import FAST, augment, match, row_least


@kernel
def bad_entries(c, lowest):
    """How many entries are NaN, or not above `lowest` (-inf)."""
    count = 0
    n, m = c.shape
    for i in range(n):
        for j in range(m):
            count += 0 if c[i, j] > lowest else 1
    return count


@kernel(fastmath=FAST)
def row_duals(c, v, u, big):
    """u_i = min_j c_ij - v_j: the largest row duals that are feasible with v."""
    for i in range(c.shape[0]):
        u[i] = row_least(c[i], v, big)


@kernel
def _certify(c, x, u, v, y, big, rtol, exact, whole):
    """Row duals, and what they prove of a matching: (cost, gap, least slack, state as in `match_many`)."""
    n, m = c.shape
    row_duals(c, v, u, big)
    cost, gap, reduced = c.dtype.type(0), c.dtype.type(0), c.dtype.type(0)
    balance, peak = 0.0, 0.0
    for i in range(n):
        chosen = c[i, x[i]]
        cost += chosen
        gap += (chosen - v[x[i]]) - u[i]
        balance += abs(float(chosen)) + abs(float(u[i]))
        peak = max(peak, abs(float(u[i])))
    for j in range(m):
        if n < m and -v[j] < reduced:
            reduced = -v[j]
        if y[j] < 0:
            gap -= v[j]
        balance += abs(float(v[j]))
        peak = max(peak, abs(float(v[j])))
    state = 0
    if abs(float(gap)) > rtol * balance:
        state = 3
    elif exact <= peak < whole:
        state = 4
    elif not (abs(float(cost)) < np.inf and abs(float(gap)) < np.inf):
        state = 6
    return cost, gap, reduced, state


@kernel
def _solve(c, lowest, big, limit, rtol, exact, whole, x, u, v, marks, reals):
    """Solve and certify one problem: (cost, gap, slack, state, steps). Scratch: `marks` (5, m), `reals` (3, m)."""
    nil = c.dtype.type(0)
    if bad_entries(c, lowest) > 0:
        x[:], u[:], v[:] = -1, 0, 0
        return nil, nil, nil, 2, 0
    y = marks[0]
    prio, free, pred, closed = marks[1], marks[2], marks[3], marks[4]
    steps, feasible = match(c, x, u, v, y, prio, free, reals[0], reals[1], pred, closed, reals[2], big, limit)
    if not feasible:
        return nil, nil, nil, 1, steps
    cost, gap, reduced, state = _certify(c, x, u, v, y, big, rtol, exact, whole)
    return cost, gap, reduced, state, steps


@kernel(tiered=True)
def match_many(c, first, last, lowest, big, limit, rtol, exact, whole, x, u, v, cost, gap, reduced, state, steps):
    """Solve problems first..last of c (B, n, m), 0 < n <= m, and certify them.

    state: 0 solved, 1 infeasible, 2 bad entries, 3 solved, but the gap is above `rtol` of the terms it is the balance
    of, 4 solved, but some dual is so large (from `exact` on, below `whole`) that sums of whole costs may have been
    rounded, 6 the sum is above the largest float64.
    """
    m = c.shape[2]
    marks, reals = np.empty((5, m), np.int64), np.zeros((3, m), c.dtype)
    for b in range(first, last):
        found = _solve(c[b], lowest, big, limit, rtol, exact, whole, x[b], u[b], v[b], marks, reals)
        cost[b], gap[b], reduced[b], state[b], steps[b] = found


_COSTS, _SEVERAL = (types.Array(types.float64, axes, "C", readonly=True) for axes in (2, 3))
_doubtful = inline(doubtful)


@kernel
def _solve_into(c, x, found, marks, reals):
    """`_solve` in float64, for callers to whom each argument and each array that they make cost as much as a row of a
    small problem: steps and columns go to x (1 + n,), cost, gap, least slack, row and column duals to `found`
    (3 + n + m,). Returns the state."""
    n = c.shape[0]
    u, v = found[3 : 3 + n], found[3 + n :]
    exact, whole = _doubtful(n + c.shape[1])
    answer = _solve(c, -np.inf, np.inf, np.inf, GAP_RTOL, exact, whole, x[1:], u, v, marks, reals)
    found[0], found[1], found[2], state, x[0] = answer
    return state


@kernel(tiered=True, signature=(_COSTS, types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C")))
def match_one(c, x, found):
    """`_solve_into` of one problem."""
    m = c.shape[1]
    return _solve_into(c, x, found, np.empty((5, m), np.int64), np.zeros((3, m)))


@kernel(tiered=True, signature=(_SEVERAL, types.Array(types.int64, 2, "C"), types.Array(types.float64, 2, "C")))
def match_few(c, x, found):
    """`_solve_into` of each problem; returns the largest state."""
    m = c.shape[2]
    marks, reals = np.empty((5, m), np.int64), np.zeros((3, m))
    worst = 0
    for b in range(c.shape[0]):
        worst = max(worst, _solve_into(c[b], x[b], found[b], marks, reals))
    return worst


#: Of the terms of a reduced cost, what may be rounding.
_ROUNDING = 64 * 2.0**-52


@kernel
def _broken(c, x, u, v):
    """Rows whose pair is forbidden, or not (or no longer) as cheap as their row's dual."""
    n = c.shape[0]
    rows, count = np.empty(n, np.int64), 0
    for i in range(n):
        j = x[i]
        chosen = c[i, j] - v[j] if j >= 0 else np.inf
        # a forbidden pair is broken even in a row of nothing else (u is inf): no path may lead through it
        if not chosen < np.inf or chosen > u[i] + _ROUNDING * (abs(c[i, j]) + abs(v[j]) + abs(u[i])):
            rows[count] = i
            count += 1
    return rows[:count]


@kernel(tiered=True)
def rematch(c, square, rtol, exact, whole, x, u, v):
    """`match_one` from the matching x and the duals v of similar costs: (cost, gap, least slack, state, steps). One
    path for each pair that no longer is its row's cheapest; `square` is c with rows that cost nothing for the columns
    left over."""
    n, m = c.shape
    if bad_entries(c, -np.inf) > 0:
        return 0.0, 0.0, 0.0, 2, 0
    columns, rows_u = np.full(m, -1), np.empty(m)
    marks, reals = np.empty((4, m), np.int64), np.zeros((3, m))
    y, prio, pred, closed = marks[0], marks[1], marks[2], marks[3]
    y[:] = -1
    for i in range(n):
        columns[i] = x[i]
        y[x[i]] = i
    spare = n
    for j in range(m):
        if y[j] < 0:
            columns[spare], y[j] = j, spare
            spare += 1
    row_duals(square, v, rows_u, np.inf)
    broken = _broken(square, columns, rows_u, v)
    for j in range(m):
        prio[j] = j + m
    for i in broken:
        prio[columns[i]], y[columns[i]] = columns[i], -1
        columns[i] = -1
    steps = 0
    for i in broken:
        more, stuck = augment(
            square, i, columns, y, v, prio, reals[0], reals[1], pred, closed, reals[2], np.inf, np.inf
        )
        steps += more
        if stuck >= 0:
            return 0.0, 0.0, 0.0, 1, steps
    if n < m:  # so that a column that is left over has the dual 0
        top = v.max()
        for j in range(m):
            v[j] -= top
            y[j] = y[j] if y[j] < n else -1
    for i in range(n):
        x[i] = columns[i]
    cost, gap, reduced, state = _certify(c, x, u, v, y, np.inf, rtol, exact, whole)
    return cost, gap, reduced, state, steps
