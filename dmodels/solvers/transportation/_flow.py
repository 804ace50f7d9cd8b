"""Compiled loop of the transportation solver: rows contracted, shortest paths on the graph of the m columns.

Rows ship their whole supply to columns; column j takes it in segments k of width a_jk at a price p_jk per unit,
nondecreasing in k (one segment of price 0 and the capacity's width; or one unit per congestion slot). With column
prices lambda given, every row ships to argmin_j c_ij + lambda_j and every column opens what is cheaper than lambda_j.
That pair is dual feasible but unbalanced; successive shortest paths (Ahuja, Magnanti, Orlin, *Network Flows*, 1993,
section 9.7) move the imbalance at least cost. A path visits columns only: the edge j -> k costs the least c_ik - c_ij
over rows i that ship to j, held in a heap per ordered pair, and the market (node m) opens or closes segments. So one
path costs O(m^2), and a row that moves costs O(m log n): the matrix with a column per slot is never made.

The heaps of a column are built when a path first leaves it.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel

from ._heaps import build, enter, rows_of, settle
from ._prices import last_segment, open_segment

#: Paths per row and column before a problem is given up: supplies whose rounding leaves crumbs, a path for each.
PATHS_PER_NODE = 1000


@kernel
def solve(c, supply, price, width, lam, choice, x, u, keys, rows, tol):
    """Least-cost shipment. `lam` (m + 1; the last entry is the market's) holds starting prices and returns the final
    ones; `choice` is every row's cheapest column at the start.

    Fills x (n, m) and the row duals u. Returns (paths, feasible, keys, rows); the last two are the arena, to be used
    again; after `PATHS_PER_NODE` paths a row and column nothing is shown. Where nothing is feasible, u and -lam[:m]
    are a Farkas ray: u = 1 on rows that can only use columns with lam = 1, and these columns have less room than the
    rows' supply.
    """
    n, m = c.shape
    off = np.zeros(m, np.int64)
    room = np.zeros(m, np.int64)
    size = np.zeros((m, m), np.int64)
    best = np.empty((m, m))
    who = np.empty((m, m), np.int32)
    built = np.zeros(m, np.bool_)
    seg = np.zeros(m, np.int64)
    used = np.zeros(m)
    over = np.zeros(m + 1)  # what a node has too much of (> 0) or too little (< 0)
    dist = np.empty(m + 1)
    done = np.empty(m + 1, np.bool_)
    pred = np.empty(m + 1, np.int64)
    members = np.empty(n, np.int32)
    end = 0

    x[:] = 0
    for i in range(n):
        if supply[i] <= 0:
            continue
        j = choice[i]
        if j < 0:
            u[:] = 0
            lam[:] = 0
            u[i] = 1
            return 0, False, keys, rows
        x[i, j] = supply[i]
        over[j] += supply[i]
    for j in range(m):
        load = over[j]
        while True:
            p, more = open_segment(price, width, seg, used, j)
            if more <= 0 or p > lam[j] or (p == lam[j] and over[j] <= 0):
                break
            if p == lam[j] and more > over[j]:
                more = over[j]
            if more == np.inf:
                more = max(over[j], 0.0)
                if more == 0:
                    break
            used[j] += more
            over[j] -= more
        over[m] += load - over[j]
    over[m] -= supply.sum()

    paths = 0
    while paths < PATHS_PER_NODE * (n + m):
        for j in range(m + 1):
            dist[j] = 0.0 if over[j] > tol else np.inf
            done[j] = False
            pred[j] = -1
        goal = -1
        while True:
            at = -1
            for j in range(m + 1):
                if not done[j] and (at < 0 or dist[j] < dist[at]):
                    at = j
            if at < 0 or dist[at] == np.inf:
                break
            if over[at] < -tol:
                goal = at
                break
            done[at] = True
            d = dist[at]
            if at == m:
                for k in range(m):
                    if not done[k]:
                        s, p, amount = last_segment(price, width, seg, used, k)
                        r = d + max(lam[k] - p - lam[m], 0.0)
                        if s >= 0 and r < dist[k]:
                            dist[k] = r
                            pred[k] = m
                continue
            if not built[at]:
                count = rows_of(x, at, members)
                keys, rows, end = build(c, keys, rows, off, room, size, best, who, at, members, count, end)
                built[at] = True
            for k in range(m):
                if not done[k]:
                    r = d + max(best[at, k] + lam[k] - lam[at], 0.0)
                    if r < dist[k]:
                        dist[k] = r
                        pred[k] = at
            if not done[m]:
                p, more = open_segment(price, width, seg, used, at)
                r = d + max(p + lam[m] - lam[at], 0.0)
                if more > 0 and r < dist[m]:
                    dist[m] = r
                    pred[m] = at
        if goal < 0:
            break
        reach = dist[goal]
        for j in range(m + 1):
            if done[j]:
                lam[j] += reach - dist[j]

        amount = -over[goal]
        k = goal
        while pred[k] >= 0:
            j = pred[k]
            if j == m:
                amount = min(amount, last_segment(price, width, seg, used, k)[2])
            elif k == m:
                amount = min(amount, open_segment(price, width, seg, used, j)[1])
            else:
                amount = min(amount, x[who[j, k], j])
            k = j
        amount = min(amount, over[k])
        over[k] -= amount
        over[goal] += amount
        paths += 1

        k = goal
        while pred[k] >= 0:
            j = pred[k]
            if j == m:
                s, p, had = last_segment(price, width, seg, used, k)
                seg[k] = s
                used[k] = had - amount
            elif k == m:
                open_segment(price, width, seg, used, j)
                used[j] += amount
            else:
                i = who[j, k]
                fresh = x[i, k] <= 0
                x[i, j] -= amount
                x[i, k] += amount
                if x[i, j] <= 0:
                    x[i, j] = 0
                    for other in range(m):
                        if who[j, other] == i:
                            settle(x, keys, rows, off, room, size, best, who, j, other)
                if fresh and built[k]:
                    keys, rows, end = enter(c, x, keys, rows, off, room, size, best, who, k, i, members, end)
            k = j

    stuck = False
    for j in range(m):
        stuck = stuck or over[j] > tol
    if stuck and paths < PATHS_PER_NODE * (n + m):
        u[:] = 0
        lam[:] = 0
        for j in range(m):
            if done[j]:
                lam[j] = 1
                for i in range(n):
                    if x[i, j] > 0:
                        u[i] = 1
        return paths, False, keys, rows

    for j in range(m):
        lam[j] -= lam[m]
        last = last_segment(price, width, seg, used, j)
        if last[0] >= 0:
            lam[j] = max(lam[j], last[1])
        lam[j] = min(lam[j], open_segment(price, width, seg, used, j)[0])
    lam[m] = 0
    for i in range(n):
        least = np.inf
        for j in range(m):
            least = min(least, c[i, j] + lam[j])
        u[i] = least if least < np.inf else 0.0  # a row without supply may have nowhere to go
    return paths, True, keys, rows
