"""Compiled loop of transportation between many rows and many columns: checked, solved and certified.

Rows are grouped where they are equal; single units on columns of one place are matched (`assignment`), everything else
is shipped by the network simplex (`_simplex`). What is not solved here (bad entries, nothing feasible, costs beyond
1e300, no supply at all) is left to the general loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dmodels.core.compiled import copy_row, kernel, of_batch
from dmodels.solvers.assignment.paths import match, row_least

from ._simplex import ship
from .records import LEFT, NO_WAY, PROVED

#: Costs beyond this are left to the general loop: here sums of them stand for "forbidden".
_LARGEST = 1e300

#: Supplies and capacities may miss each other by this share of all that is shipped: their sums are rounded.
ROUNDED_SHARE = 1e-14


@kernel
def _sizes(c: Any) -> Any:
    """(largest size of a finite cost, whether any is forbidden, whether all can be dealt with)."""
    size, forbidden, good = 0.0, False, True
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            entry = c[i, j]
            good &= entry > -np.inf
            if entry == np.inf:
                forbidden = True
            else:
                size = max(size, abs(entry))
    return size, forbidden, good and size < _LARGEST


@kernel
def _allowed(c: Any, size: Any) -> Any:
    """Costs with a number in place of inf that no cycle of allowed costs of this size makes up for."""
    n, m = c.shape
    dear = 2.0 * (min(n, m) + 2.0) * size if size > 0 else 1.0
    out = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            out[i, j] = c[i, j] if c[i, j] < np.inf else dear
    return out


@kernel
def _groups(c: Any, group: Any) -> Any:
    """Number the different rows in order of appearance, group[i] for row i; returns how many there are."""
    n, m = c.shape
    slots = 1
    while slots < 2 * n:
        slots *= 2
    table, first = np.full(slots, -1, np.int64), np.empty(n, np.int64)
    bits = c.view(np.int64)
    count = 0
    for i in range(n):
        key = np.int64(0)
        for j in range(0, m, max(1, m // 8)):
            key = (key ^ bits[i, j]) * np.int64(-7046029254386353131)
            key ^= key >> np.int64(29)
        at = key & (slots - 1)
        while table[at] >= 0:
            like = first[table[at]]
            same = True
            for j in range(m):
                same &= c[like, j] == c[i, j]
                if not same:
                    break
            if same:
                break
            at = (at + 1) & (slots - 1)
        if table[at] < 0:
            table[at] = count
            first[count] = i
            count += 1
        group[i] = table[at]
    return count


@kernel
def _grouped(c: Any, supply: Any, group: Any, count: Any) -> Any:
    """Costs and supplies of the groups."""
    few, amount = np.empty((count, c.shape[1])), np.zeros(count)
    for i in range(c.shape[0]):
        copy_row(few[group[i]], c[i])
        amount[group[i]] += supply[i]
    return few, amount


@kernel
def _shares(group: Any, count: Any, supply: Any, parent: Any, flow: Any, columns: Any, amounts: Any) -> Any:
    """Hand a group's shipments to its rows, one row after the other: amounts[i, j], or columns[i] for whole rows."""
    n = group.size
    start, order, first = np.zeros(count + 1, np.int64), np.empty(flow.size, np.int64), np.zeros(count, np.int64)
    for x in range(flow.size):
        i = x if x <= count else parent[x]
        if parent[x] >= 0 and flow[x] > 0 and i < count:
            start[i + 1] += 1
    for g in range(count):
        start[g + 1] += start[g]
        first[g] = start[g]
    for x in range(flow.size):
        i = x if x <= count else parent[x]
        if parent[x] >= 0 and flow[x] > 0 and i < count:
            order[first[i]] = x
            first[i] += 1
    for g in range(count):
        first[g] = start[g]
    for i in range(n):
        g, left = group[i], supply[i]
        while left > 0 and first[g] < start[g + 1]:
            x = order[first[g]]
            j = (parent[x] if x <= count else x) - count - 1
            final = first[g] + 1 == start[g + 1]
            amount = left if final else min(left, flow[x])  # rounding stays with the last
            flow[x] -= amount
            left -= amount
            if flow[x] <= 0 and not final:
                first[g] += 1
            if columns.size > 0:
                columns[i] = j
            else:
                amounts[i, j] += amount


@kernel
def _shipped(c: Any, supply: Any, capacity: Any, columns: Any, amounts: Any, v: Any) -> Any:
    """Ship by groups; fills columns or amounts and column duals v <= 0: (pivots, whether it is solved)."""
    n, m = c.shape
    group = np.empty(n, np.int64)
    count = _groups(c, group)
    few, amount = (c, supply) if count == n else _grouped(c, supply, group, count)
    tree, flow = np.empty((5, count + m + 1), np.int32), np.empty(count + m + 1)
    pivots, solved = ship(few, amount, capacity, tree, flow, v)
    if not solved:
        return pivots, False
    ground = 0.0 if tree[1, count] >= 0 else v.max()  # columns with spare room hang from the spare row at price 0
    for j in range(m):
        v[j] = min(v[j] - ground, 0.0)
    _shares(group, count, supply, tree[0], flow, columns, amounts)
    return pivots, True


@kernel
def _bill(c: Any, supply: Any, room: Any, columns: Any, amounts: Any, u: Any, v: Any, load: Any) -> Any:
    """(cost, gap, sum of the magnitudes in that balance, whether nothing forbidden is used); the cost by compensated
    summation."""
    n, m = c.shape
    total, lost, slack, size, clean = 0.0, 0.0, 0.0, 0.0, True
    crumb = ROUNDED_SHARE * supply.sum()
    for j in range(m):
        load[j] = 0.0
    for i in range(n):
        u[i] = row_least(c[i], v, np.inf)
        only = columns[i] if columns.size > 0 else -1
        for j in range(m if only < 0 else 1):
            k = j if only < 0 else only
            amount = supply[i] if only >= 0 else amounts[i, k]
            if only < 0 and amount <= crumb and c[i, k] == np.inf:
                amounts[i, k] = 0.0
            elif amount > 0:
                clean &= c[i, k] < np.inf
                load[k] += amount
                term = c[i, k] * amount
                more = total + term
                part = more - total
                lost += (total - (more - part)) + (term - part)
                total = more
                slack += (c[i, k] - v[k] - u[i]) * amount
        if u[i] == np.inf:
            u[i] = 0.0  # a row without supply may have nowhere to go
        size += supply[i] * abs(u[i])
    for j in range(m):
        if v[j] == -np.inf:  # no room, hence no price: any that is low enough will do
            for i in range(n):
                v[j] = min(0.0, c[i, j] - u[i]) if i == 0 else min(v[j], c[i, j] - u[i])
        slack -= v[j] * (room[j] - load[j]) if v[j] < 0 else 0.0
        size -= load[j] * v[j]
    return total + lost, slack, size + abs(total), clean


@kernel
def _ray(c: Any, supply: Any, room: Any, total: Any, places: Any, u: Any, v: Any) -> Any:
    """Whether nothing is feasible: then u and v are a Farkas ray. Either the columns have too little room in all, or
    even where only what is forbidden costs anything, the least cost is not 0."""
    n, m = c.shape
    if places < total * (1.0 - ROUNDED_SHARE):
        u[:], v[:] = 1.0, -1.0
        return True
    price = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            price[i, j] = 0.0 if c[i, j] < np.inf else 1.0
    amounts, load = np.zeros((n, m)), np.empty(m)
    none = np.empty(0, np.int64)
    _, solved = _shipped(price, supply, room, none, amounts, v)
    _bill(price, supply, room, none, amounts, u, v, load)
    bound = 0.0
    for i in range(n):
        bound += supply[i] * u[i]
    for j in range(m):
        bound += room[j] * v[j]
    return solved and bound > 100 * ROUNDED_SHARE * total


@kernel
def _is_matching(c: Any, capacity: Any) -> Any:
    """Whether there is one place in each column, and all costs can be dealt with."""
    n, m = c.shape
    bad = 0
    for j in range(m):
        bad += 0 if 1.0 <= capacity[j] < 2.0 else 1
    if n > m or bad > 0:
        return False
    for i in range(n):
        for j in range(m):
            bad += 0 if (c[i, j] > -_LARGEST) & ((c[i, j] < _LARGEST) | (c[i, j] == np.inf)) else 1
    return bad == 0


@kernel
def _matched(c: Any, columns: Any, u: Any, v: Any, load: Any) -> Any:
    """`_solve` for units on columns of one place, by `assignment`; what is not feasible is left."""
    n, m = c.shape
    marks, reals = np.empty((5, m), np.int64), np.zeros((3, m))
    y, prio, free, pred, closed = marks[0], marks[1], marks[2], marks[3], marks[4]
    w, key, dist = reals[0], reals[1], reals[2]
    steps, solved = match(c, columns, u, v, y, prio, free, w, key, pred, closed, dist, np.inf, np.inf)
    if not solved:
        return 0.0, 0.0, 0.0, steps, LEFT
    ground, total, lost, slack, size = v.max() if n == m else 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(m):
        v[j] -= ground
        load[j] = 1.0 if y[j] >= 0 else 0.0
        slack -= v[j] * (1.0 - load[j])
        size -= v[j] * load[j]
    for i in range(n):
        j = columns[i]
        u[i] = row_least(c[i], v, np.inf)
        more = total + c[i, j]
        part = more - total
        lost += (total - (more - part)) + (c[i, j] - part)
        total = more
        slack += c[i, j] - v[j] - u[i]
        size += abs(u[i])
    return total + lost, slack, size + abs(total), steps, PROVED


@kernel
def _solve(c: Any, supply: Any, capacity: Any, columns: Any, amounts: Any, u: Any, v: Any, load: Any) -> Any:
    """Solve and certify one problem: (cost, gap, sum of magnitudes in that balance, steps, how it ended)."""
    n, m = c.shape
    size, forbidden, good = _sizes(c)
    total, places = 0.0, 0.0
    for i in range(n):
        good &= 0 <= supply[i] < np.inf
        total += supply[i]
    room = np.empty(m)
    for j in range(m):
        good &= capacity[j] >= 0
        width = np.floor(capacity[j]) if columns.size > 0 else capacity[j]
        room[j] = min(width, 2.0 * total)  # above the total, so that the spare row keeps its price at 0
        places += room[j]
    if not good or not 0 < total < np.inf:
        return 0.0, 0.0, 0.0, 0, LEFT
    steps, solved, clean = 0, places >= total * (1.0 - ROUNDED_SHARE), False
    if solved:
        whole = _allowed(c, size) if forbidden else c
        steps, solved = _shipped(whole, supply, room, columns, amounts, v)
    if solved:
        cost, gap, balance, clean = _bill(c, supply, room, columns, amounts, u, v, load)
        if clean:
            return cost, gap, balance, steps, PROVED
    if _ray(c, supply, room, total, places, u, v):
        columns[:], amounts[:], load[:] = -1, np.nan, np.nan
        return np.inf, np.inf, np.inf, steps, NO_WAY
    columns[:], amounts[:] = -1, 0.0
    return 0.0, 0.0, 0.0, steps, LEFT


@kernel
def _many(
    c: Any,
    supply: Any,
    capacity: Any,
    first: Any,
    last: Any,
    columns: Any,
    amounts: Any,
    u: Any,
    v: Any,
    load: Any,
    cost: Any,
    gap: Any,
    balance: Any,
    ended: Any,
    steps: Any,
) -> Any:
    """Solve problems first..last; of columns and amounts one is filled, the other has no entries. Arrays of leading
    size 1 are shared."""
    for b in range(first, last):
        table, rows, places = of_batch(c, b), of_batch(supply, b), of_batch(capacity, b)
        whole, ended[b] = of_batch(columns, b), LEFT
        if whole.size > 0 and _is_matching(table, places):
            cost[b], gap[b], balance[b], steps[b], ended[b] = _matched(table, whole, u[b], v[b], load[b])
        if ended[b] == LEFT:
            found = _solve(table.copy(), rows.copy(), places.copy(), whole, of_batch(amounts, b), u[b], v[b], load[b])
            cost[b], gap[b], balance[b], steps[b], ended[b] = found


@kernel(tiered=True)
def place_many(
    c: Any,
    capacity: Any,
    first: Any,
    last: Any,
    columns: Any,
    u: Any,
    v: Any,
    load: Any,
    cost: Any,
    gap: Any,
    balance: Any,
    ended: Any,
    steps: Any,
) -> Any:
    """Solve problems first..last of c (B, n, m) with capacities (B, m), rows of one unit; arrays of leading size 1 are
    shared."""
    supply, amounts = np.ones((1, c.shape[1])), np.empty((1, 0, 0))
    _many(c, supply, capacity, first, last, columns, amounts, u, v, load, cost, gap, balance, ended, steps)


@kernel(tiered=True)
def ship_many(
    c: Any,
    capacity: Any,
    supply: Any,
    first: Any,
    last: Any,
    flow: Any,
    u: Any,
    v: Any,
    load: Any,
    cost: Any,
    gap: Any,
    balance: Any,
    ended: Any,
    steps: Any,
) -> Any:
    """As `place_many`, with supplies (B, n) and zeros for `flow` (B, n, m)."""
    columns = np.empty((1, 0), np.int64)
    _many(c, supply, capacity, first, last, columns, flow, u, v, load, cost, gap, balance, ended, steps)


_TABLE = types.Array(types.float64, 2, "C", readonly=True)
_LIST = types.Array(types.float64, 1, "C", readonly=True)


_WHOLE, _FLOWS = types.Array(types.int64, 1, "C"), types.Array(types.float64, 2, "C")
_REALS = types.Array(types.float64, 1, "C")


@kernel(tiered=True, signature=(_TABLE, _LIST, _WHOLE, _REALS, _REALS, _REALS))
def place_one(c: Any, capacity: Any, columns: Any, u: Any, v: Any, load: Any) -> Any:
    """cost, gap, magnitudes in that balance, steps, how it ended: rows of one unit."""
    if _is_matching(c, capacity):
        found = _matched(c, columns, u, v, load)
        if found[4] == PROVED:
            return found
    return _solve(c.copy(), np.ones(c.shape[0]), capacity.copy(), columns, np.empty((0, 0)), u, v, load)


@kernel(tiered=True, signature=(_TABLE, _LIST, _LIST, _FLOWS, _REALS, _REALS, _REALS))
def ship_one(c: Any, capacity: Any, supply: Any, flow: Any, u: Any, v: Any, load: Any) -> Any:
    """cost, gap, magnitudes in that balance, steps, how it ended; `flow` is given as zeros."""
    return _solve(c.copy(), supply.copy(), capacity.copy(), np.empty(0, np.int64), flow, u, v, load)
