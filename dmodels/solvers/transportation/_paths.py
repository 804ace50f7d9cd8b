"""Shortest paths of the semi-assignment problem: rows of one unit moved between columns until none is too full.

Costs lie column by column, so that all passes over rows are vector code. The cheapest row to move from column j to k
is found again by a sweep over j's rows, which beats a heap while they stay in the cache. So few rows are given to the
sweeps: at prices that are nearly right only about sqrt(n) rows are misplaced, and only rows whose second choice is
nearly as cheap as their first can take part in putting that right. These rows are the *core*; the others keep their
choice, the problem of the core is solved, and one pass over all rows shows whether the others still agree with the new
prices. If not, the core was too small.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import copy_row, kernel

#: Row visits per row and column in sweeps, after which a problem is left to the general loop: good starting prices need
#: a few, and no costs can make this loop quadratic.
_SWEEPS = 30

#: Rows in the core per row that is misplaced, and per column.
_CORE_PER_MISPLACED, _CORE_PER_COLUMN = 8, 64


@kernel
def cheapest(ct, lam, choice, least):
    """Every row's cheapest column at these prices, and what it costs there."""
    m, n = ct.shape
    for i in range(n):
        least[i] = ct[0, i] + lam[0]
        choice[i] = 0
    for j in range(1, m):
        price = lam[j]
        row = ct[j]
        for i in range(n):
            r = row[i] + price
            less = r < least[i]
            least[i] = r if less else least[i]
            choice[i] = j if less else choice[i]


@kernel
def least_of(ct, lam, least):
    """What every row's cheapest column costs at these prices."""
    m, n = ct.shape
    for i in range(n):
        least[i] = ct[0, i] + lam[0]
    for j in range(1, m):
        price = lam[j]
        row = ct[j]
        for i in range(n):
            r = row[i] + price
            least[i] = r if r < least[i] else least[i]


@kernel
def tally(choice, count):
    """How many rows choose each column."""
    count[:] = 0
    for i in range(choice.size):
        count[choice[i]] += 1


@kernel
def _sweep(ct, rows, count, j, k):
    """(least cost of a move from j to k, which row) over rows[:count]; (inf, -1) if none may move."""
    here, there = ct[j], ct[k]
    least, who = np.inf, -1
    for t in range(count):
        i = rows[t]
        d = there[i] - here[i]
        if d < least:
            least, who = d, i
    return least, who


@kernel
def _enrol(choice, members, count, place):
    """Lists of the rows of each column."""
    count[:] = 0
    for i in range(choice.size):
        j = choice[i]
        members[j, count[j]] = i
        place[i] = count[j]
        count[j] += 1


@kernel
def _settle(ct, cap, lam, choice, members, count, place, spare, best, who):
    """Move units along shortest paths until no column holds more than its capacity: (paths, whether it worked)."""
    _enrol(choice, members, count, place)
    m = lam.size
    visits = _SWEEPS * m * choice.size
    over = np.empty(m, np.int64)
    built = np.zeros(m, np.bool_)
    done = np.empty(m, np.bool_)
    dist = np.empty(m)
    pred = np.empty(m, np.int64)
    for j in range(m):
        over[j] = count[j] + spare[j] - cap[j]
    paths = 0
    while True:
        begins = False
        for j in range(m):
            begins |= over[j] > 0
            dist[j] = 0.0 if over[j] > 0 else np.inf
            done[j] = False
            pred[j] = -1
        if not begins or visits < 0:
            return paths, not begins
        goal = -1
        while goal < 0:
            at = -1
            for j in range(m):
                if not done[j] and (at < 0 or dist[j] < dist[at]):
                    at = j
            if at < 0 or dist[at] == np.inf:
                return paths, False
            if over[at] < 0:
                goal = at
                break
            done[at] = True
            if not built[at]:
                built[at] = True
                for k in range(m):
                    if k != at:
                        best[at, k], who[at, k] = _sweep(ct, members[at], count[at], at, k)
                        visits -= count[at]
            for k in range(m):
                if not done[k]:
                    edge = best[at, k]
                    if spare[at] > 0:
                        edge = min(edge, 0.0)
                    r = dist[at] + max(edge + lam[k] - lam[at], 0.0)
                    if r < dist[k]:
                        dist[k] = r
                        pred[k] = at
        reach = dist[goal]
        for j in range(m):
            if done[j]:
                lam[j] += reach - dist[j]

        amount = -over[goal]
        k = goal
        while pred[k] >= 0:
            j = pred[k]
            amount = min(amount, spare[j] if spare[j] > 0 and best[j, k] >= 0.0 else 1)
            k = j
        amount = min(amount, over[k])
        over[k] -= amount
        over[goal] += amount
        paths += 1
        k = goal
        while pred[k] >= 0:
            j = pred[k]
            if spare[j] > 0 and best[j, k] >= 0.0:
                spare[j] -= amount
                spare[k] += amount
            else:
                i = who[j, k]
                count[j] -= 1
                members[j, place[i]] = members[j, count[j]]
                place[members[j, count[j]]] = place[i]
                members[k, count[k]] = i
                place[i] = count[k]
                count[k] += 1
                choice[i] = k
                for other in range(m):
                    if other != j and who[j, other] == i:
                        best[j, other], who[j, other] = _sweep(ct, members[j], count[j], j, other)
                        visits -= count[j]
                    if other != k and built[k] and ct[other, i] - ct[k, i] < best[k, other]:
                        best[k, other], who[k, other] = ct[other, i] - ct[k, i], i
            k = j


@kernel
def _spread_spare(lam, cap, count, spare, total):
    """Spare rows sit where the price is least (made 0): first where there is room."""
    floor = lam.min()
    keeps = -1
    for j in range(lam.size):
        lam[j] -= floor
        spare[j] = 0
        if lam[j] == 0:
            keeps = j
            spare[j] = min(total, max(cap[j] - count[j], 0))
            total -= spare[j]
    spare[keeps] += total


@kernel
def _regret(ct, lam, least, regret):
    """How much dearer than its cheapest column every row's second cheapest is."""
    m, n = ct.shape
    for i in range(n):
        least[i] = ct[0, i] + lam[0]
        regret[i] = np.inf
    for j in range(1, m):
        price = lam[j]
        row = ct[j]
        for i in range(n):
            r = row[i] + price
            old = least[i]
            dearer = r if r > old else old
            least[i] = r if r < old else old
            regret[i] = dearer if dearer < regret[i] else regret[i]
    for i in range(n):
        regret[i] -= least[i]


@kernel
def _balance_core(ct, cap, room, lam, choice, least, count, limit, regret, spare, best, who):
    """Balance by rows of regret up to `limit`: (paths, whether all other rows agree with the prices)."""
    m, n = ct.shape
    core = np.flatnonzero(regret <= limit)
    few, first, choices = np.empty((m, core.size)), count.copy(), np.empty(core.size, np.int64)
    for j in range(m):
        for t in range(core.size):
            few[j, t] = ct[j, core[t]]
    for t in range(core.size):
        choices[t] = choice[core[t]]
        first[choices[t]] -= 1
    _spread_spare(lam, cap, count, spare, room)
    place, members = np.empty(core.size, np.int64), np.empty((m, core.size), np.int64)
    left = count.copy()
    paths, worked = _settle(few, cap - first, lam, choices, members, left, place, spare, best, who)
    if not worked:
        return paths, False
    least_of(ct, lam, least)
    for t in range(core.size):
        choice[core[t]] = choices[t]
    away = 0
    for i in range(n):
        away += 1 if ct[choice[i], i] + lam[choice[i]] > least[i] and regret[i] > limit else 0
    count[:] = first + left
    return paths, away == 0


@kernel
def balance(ct, cap, room, lam, choice, least, count, spare):
    """From every row's cheapest column at prices lam to optimal prices and choices that keep the capacities.

    `room`: how much capacity is spare. Returns (paths, whether it worked).
    """
    m, n = ct.shape
    best, who = np.empty((m, m)), np.full((m, m), -1)
    paths, crowd = 0, 0
    for j in range(m):
        crowd += max(count[j] - cap[j], 0)
    size = _CORE_PER_MISPLACED * crowd + _CORE_PER_COLUMN * m
    if 4 * size < n:
        regret = np.empty(n)
        _regret(ct, lam, least, regret)
        part = np.sort(regret[:: max(1, size // 64)])
        start = lam.copy()
        while 4 * size < n:
            limit = part[size * part.size // n]
            chosen, counted = choice.copy(), count.copy()
            copy_row(lam, start)
            more, worked = _balance_core(ct, cap, room, lam, chosen, least, counted, limit, regret, spare, best, who)
            paths += more
            if worked:
                copy_row(choice, chosen)
                copy_row(count, counted)
                return paths, True
            size *= 4
        copy_row(lam, start)
    _spread_spare(lam, cap, count, spare, room)
    place, members = np.empty(n, np.int64), np.empty((m, n), np.int64)
    more, worked = _settle(ct, cap, lam, choice, members, count, place, spare, best, who)
    return paths + more, worked
