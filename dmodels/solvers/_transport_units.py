"""Compiled loop of the semi-assignment problem: rows of one unit, columns of limited capacity.

The same successive shortest paths as in `_transport_kernels`, for the case that occurs most and in less time: costs lie
column by column, so that all passes over rows are vector code, and the cheapest row to move from column j to k is
found again by a sweep over j's rows, which beats a heap while they stay in the cache. Spare capacity is filled with
rows that cost nothing anywhere: then every column is exactly full at the end, and prices are lowest where spare rows
sit. What is not solved here (bad entries, no feasible placement, misleading prices) is left to the general loop.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_FAST = {"nogil": True, "cache": True}

#: Where more than 1/8 of at least so many rows find no place, prices are first found on samples of the rows.
_SAMPLE_FROM = 64

#: Row visits per row and column in sweeps, after which a problem is left to the general loop: good starting prices need
#: a few, and no costs can make this loop quadratic.
_SWEEPS = 30


@njit(**_FAST)
def _turn(c, ct):
    """ct = c's transpose; returns how many entries are NaN or -inf."""
    bad = 0
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            entry = c[i, j]
            bad += 0 if entry > -np.inf else 1
            ct[j, i] = entry
    return bad


@njit(**_FAST)
def _cheapest(ct, lam, choice, least):
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


@njit(**_FAST)
def _least(ct, lam, least):
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


@njit(**_FAST)
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


@njit(**_FAST)
def _settle(ct, cap, lam, choice, members, count, place, spare, best, who):
    """Move units along shortest paths until no column holds more than its capacity: (paths, whether it worked)."""
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


@njit(**_FAST)
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


@njit(**_FAST)
def _enrol(choice, members, count, place):
    """Lists of the rows of each column."""
    count[:] = 0
    for i in range(choice.size):
        j = choice[i]
        members[j, count[j]] = i
        place[i] = count[j]
        count[j] += 1


@njit(**_FAST)
def _sampled_prices(ct, cap, lam, choice, least, members, count, place, spare, best, who):
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
        _cheapest(few, lam, choice[:rows], least[:rows])
        _enrol(choice[:rows], members, count, place)
        _spread_spare(lam, part, count, spare, room)
        more, worked = _settle(few, part, lam, choice, members, count, place, spare, best, who)
        paths += more
        if not worked:
            lam[:] = 0.0
        stride //= 4
    return paths


@njit(**_FAST)
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


@njit(**_FAST)
def place_many(c, capacity, first, last, columns, u, v, load, cost, gap, balance, solved, steps):
    """Solve problems first..last of c (B, n, m) with capacities (B, m); arrays of leading size 1 are shared."""
    n, m = c.shape[1:]
    ct = np.empty((m, n))
    cap, count, spare, lam = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m)
    place, members = np.empty(0, np.int64), np.empty((0, 0), np.int64)  # made when some capacity binds
    best, who = np.empty((m, m)), np.full((m, m), -1)
    for b in range(first, last):
        cb = c[b] if c.shape[0] > 1 else c[0]
        wb = capacity[b] if capacity.shape[0] > 1 else capacity[0]
        if not wb.min() >= 0 or _turn(cb, ct) > 0:
            continue
        room = -n
        for j in range(m):
            cap[j] = int(min(wb[j], n + 1.0))
            room += cap[j]
            lam[j] = 0.0
        choice, least = columns[b], u[b]
        _cheapest(ct, lam, choice, least)
        nowhere, crowd = 0, 0
        count[:] = 0
        for i in range(n):
            count[choice[i]] += 1
            nowhere += 0 if least[i] < np.inf else 1
        if room < 0 or nowhere > 0:
            continue
        for j in range(m):
            crowd += max(count[j] - cap[j], 0)
        steps[b] = 0
        if crowd > 0:
            if place.size == 0:
                place, members = np.empty(n, np.int64), np.empty((m, n), np.int64)
            if n >= _SAMPLE_FROM and 8 * crowd > n:
                steps[b] = _sampled_prices(ct, cap, lam, choice, least, members, count, place, spare, best, who)
                _cheapest(ct, lam, choice, least)
            elif 2 * crowd > _SWEEPS * m * m:  # about two sweeps of n / m rows each: more than is allowed
                continue
            _enrol(choice, members, count, place)
            _spread_spare(lam, cap, count, spare, room)
            more, worked = _settle(ct, cap, lam, choice, members, count, place, spare, best, who)
            if not worked:
                continue
            steps[b] += more
            floor = lam.min()
            for j in range(m):
                lam[j] = lam[j] - floor if spare[j] == 0 else 0.0
            _least(ct, lam, least)
        cost[b], gap[b], balance[b] = _bill(ct, cap, lam, choice, count, least, v[b], load[b])
        solved[b] = True
