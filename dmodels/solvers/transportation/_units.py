"""Compiled loop of the semi-assignment problem: rows of one unit, columns of limited capacity.

The same successive shortest paths as in `_flow`, for the case that occurs most and in less time: costs lie
column by column, and few rows take part in the paths (`_paths`). Spare capacity is filled with rows that
cost nothing anywhere: then every column is exactly full at the end, and prices are lowest where spare rows sit. What is
not solved here (bad entries, no feasible placement, misleading prices) is left to the general loop.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dmodels.core.compiled import kernel, of_batch

from ._paths import balance, cheapest, least_of, tally

#: Where more than 1/8 of at least so many rows find no place, prices are first found on samples of the rows.
_SAMPLE_FROM = 64


@kernel
def _turn(c, ct):
    """ct = c's transpose; returns how many entries are NaN or -inf."""
    bad = 0
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            entry = c[i, j]
            bad += 0 if entry > -np.inf else 1
            ct[j, i] = entry
    return bad


@kernel
def _sampled_prices(ct, cap, lam, choice, least, count, spare):
    """Starting prices from ever larger samples of the rows: most paths are then found in small problems."""
    m, n = ct.shape
    part = np.empty(m, np.int64)
    stride, paths = 4, 0
    while n // (4 * stride) >= 8:
        stride *= 4
    while stride > 1:
        few = ct[:, ::stride].copy()
        rows = few.shape[1]
        room = -rows
        for j in range(m):
            part[j] = -(-cap[j] * rows // n)
            room += part[j]
        cheapest(few, lam, choice[:rows], least[:rows])
        tally(choice[:rows], count)
        more, worked = balance(few, part, room, lam, choice[:rows], least[:rows], count, spare)
        paths += more
        if not worked:
            lam[:] = 0.0
        stride //= 4
    return paths


@kernel
def _bill(ct, cap, lam, choice, count, u, v, load):
    """(cost, gap, sum of the magnitudes in that balance) of a placement; the cost by compensated summation."""
    total, lost, slack, size = 0.0, 0.0, 0.0, 0.0
    for i in range(choice.size):
        j = choice[i]
        term = ct[j, i]
        more = total + term
        part = more - total
        lost += (total - (more - part)) + (term - part)
        total = more
        slack += term + lam[j] - u[i]
        size += abs(u[i])
    for j in range(lam.size):
        v[j] = 0.0 - lam[j]
        load[j] = count[j]
        slack += lam[j] * (cap[j] - count[j])
        size += count[j] * lam[j]
    return total + lost, slack, size + abs(total)


@kernel
def _bind(ct, cap, room, crowd, lam, choice, least, count, spare):
    """Prices and choices where `crowd` rows find no place at price 0: (paths, whether it worked)."""
    n = choice.size
    paths = 0
    if n >= _SAMPLE_FROM and 8 * crowd > n:
        paths = _sampled_prices(ct, cap, lam, choice, least, count, spare)
        cheapest(ct, lam, choice, least)
        tally(choice, count)
    more, worked = balance(ct, cap, room, lam, choice, least, count, spare)
    if worked:
        floor = lam.min()
        for j in range(lam.size):
            lam[j] = lam[j] - floor if spare[j] == 0 else 0.0
        least_of(ct, lam, least)
    return paths + more, worked


@kernel
def _place(c, capacity, ct, columns, u, v, load):
    """Solve and certify one problem: (cost, gap, sum of magnitudes in that balance, paths, whether it is solved)."""
    n, m = c.shape
    if not capacity.min() >= 0 or _turn(c, ct) > 0:
        return 0.0, 0.0, 0.0, 0, False
    whole = np.empty((3, m), np.int64)
    cap, count, spare = whole[0], whole[1], whole[2]
    lam = np.zeros(m)
    cheapest(ct, lam, columns, u)
    room, crowd, paths, solved = -n, 0, 0, True
    tally(columns, count)
    for i in range(n):
        solved &= u[i] < np.inf
    for j in range(m):
        cap[j] = int(min(capacity[j], n + 1.0))
        room += cap[j]
        crowd += max(count[j] - cap[j], 0)
    solved &= room >= 0
    if solved and crowd > 0:
        paths, solved = _bind(ct, cap, room, crowd, lam, columns, u, count, spare)
    cost, gap, balance = _bill(ct, cap, lam, columns, count, u, v, load)
    return cost, gap, balance, paths, solved


@kernel(tiered=True)
def place_many(c, capacity, first, last, columns, u, v, load, cost, gap, balance, solved, steps):
    """Solve problems first..last of c (B, n, m) with capacities (B, m); arrays of leading size 1 are shared."""
    n, m = c.shape[1:]
    ct = np.empty((m, n))
    for b in range(first, last):
        found = _place(of_batch(c, b), of_batch(capacity, b), ct, columns[b], u[b], v[b], load[b])
        cost[b], gap[b], balance[b], steps[b], solved[b] = found


_COSTS = types.Array(types.float64, 2, "C", readonly=True)
_CAPACITY = types.Array(types.float64, 1, "C", readonly=True)
_WHOLE, _REALS = types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C")


@kernel(tiered=True, signature=(_COSTS, _CAPACITY, _WHOLE, _REALS, _REALS, _REALS))
def place_one(c, capacity, columns, u, v, load):
    """cost, gap, magnitudes in that balance, paths, whether it is solved."""
    return _place(c, capacity, np.empty((c.shape[1], c.shape[0])), columns, u, v, load)
