"""Compiled loops of the routing game on groups of alike requests: best response, and flows at given loads.

A profile is a flow x (P, m): how many requests of group g sit on worker j. `f` (m, K) holds f_j(1..K), `c` (P, m)
the private cost of each group on each worker, `q` (P,) the sizes of the groups, all finite but for `f`, which is
infinite past a pole.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel


@kernel
def loads_of(x):
    """Requests on each worker."""
    n = np.zeros(x.shape[1], np.int64)
    for g in range(x.shape[0]):
        for j in range(x.shape[1]):
            n[j] += x[g, j]
    return n


@kernel(tiered=True)
def social_cost(f, c, x):
    """Sum of all requests' costs; a worker without requests costs nothing even where f is infinite."""
    total = 0.0
    n = loads_of(x)
    for j in range(n.size):
        if n[j] > 0:
            total += n[j] * f[j, n[j] - 1]
        for g in range(x.shape[0]):
            if x[g, j] > 0:
                total += x[g, j] * c[g, j]
    return total


@kernel
def best_move(f, c, x, n, tol):
    """The move with the largest gain above `tol`: (gain, group, from, to); the first of equals; gain 0 if none."""
    best, where, whence, to = 0.0, -1, -1, -1
    groups, workers = x.shape
    if workers < 2:
        return best, where, whence, to
    newcomer, here = np.empty(workers), np.empty(workers)
    for k in range(workers):
        newcomer[k] = f[k, min(n[k], f.shape[1] - 1)]
        here[k] = f[k, max(n[k], 1) - 1]
    for g in range(groups):
        least, at = np.inf, 0
        for k in range(workers):
            there = newcomer[k] + c[g, k]
            less = there < least
            least = there if less else least
            at = k if less else at
        for j in range(workers):
            if x[g, j] == 0:
                continue
            there, k = least, at
            if at == j:  # the cheapest place for all others is where it sits: look at the others
                there, k = np.inf, -1
                for other in range(workers):
                    if other != j and newcomer[other] + c[g, other] < there:
                        there, k = newcomer[other] + c[g, other], other
            gain = here[j] + c[g, j] - there
            if gain > best and here[j] + c[g, j] > there + tol:
                best, where, whence, to = gain, g, j, k
    return best, where, whence, to


@kernel(tiered=True)
def respond(f, c, x, tol, max_steps):
    """Single requests move, the one with the most to gain first, until nobody gains more than tol. Changes x."""
    n = loads_of(x)
    steps = 0
    while steps < max_steps:
        _, g, j, k = best_move(f, c, x, n, tol)
        if g < 0:
            return steps, True
        x[g, j] -= 1
        x[g, k] += 1
        n[j] -= 1
        n[k] += 1
        steps += 1
    return steps, best_move(f, c, x, n, tol)[1] < 0


@kernel(tiered=True)
def greedy(f, c, q):
    """Groups arrive one after another; each request takes the worker that is cheapest now (the first of equals)."""
    groups, workers = c.shape
    x = np.zeros((groups, workers), np.int64)
    n = np.zeros(workers, np.int64)
    for g in range(groups):
        for _ in range(q[g]):
            pick, least = 0, np.inf
            for j in range(workers):
                cost = f[j, n[j]] + c[g, j]
                if cost < least:
                    pick, least = j, cost
            x[g, pick] += 1
            n[pick] += 1
    return x


@kernel
def flow_at_loads(cost, allowed, q, loads, sign):
    """Least (sign 1) or greatest (sign -1) sum of x * cost with rows q, columns `loads`, on allowed arcs only.

    Successive shortest paths over groups and workers with Bellman-Ford; returns (feasible, sum, x).
    """
    groups, workers = cost.shape
    x = np.zeros((groups, workers), np.int64)
    row, column = q.copy(), loads.copy()
    eps = 1e-13 * np.abs(cost).max()  # rounding must not look like a shorter way round
    left = 0
    for g in range(groups):
        left += row[g]
    dist_g, dist_j = np.empty(groups), np.empty(workers)
    from_g, from_j = np.empty(groups, np.int64), np.empty(workers, np.int64)
    while left > 0:
        for g in range(groups):
            dist_g[g] = 0.0 if row[g] > 0 else np.inf
            from_g[g] = -1
        for j in range(workers):
            dist_j[j] = np.inf
        for _ in range(groups + workers):
            changed = False
            for g in range(groups):
                if dist_g[g] == np.inf:
                    continue
                for j in range(workers):
                    if allowed[g, j]:
                        d = dist_g[g] + sign * cost[g, j]
                        if d < dist_j[j] - eps:
                            dist_j[j], from_j[j] = d, g
                            changed = True
            for j in range(workers):
                if dist_j[j] == np.inf:
                    continue
                for g in range(groups):
                    if x[g, j] > 0:
                        d = dist_j[j] - sign * cost[g, j]
                        if d < dist_g[g] - eps:
                            dist_g[g], from_g[g] = d, j
                            changed = True
            if not changed:
                break
        end = -1
        for j in range(workers):
            if column[j] > 0 and (end < 0 or dist_j[j] < dist_j[end]):
                end = j
        if end < 0 or dist_j[end] == np.inf:
            return False, 0.0, x
        amount, j = column[end], end
        while True:
            g = from_j[j]
            if from_g[g] < 0:
                amount = min(amount, row[g])
                break
            j = from_g[g]
            amount = min(amount, x[g, j])
        column[end] -= amount
        j = end
        while True:
            g = from_j[j]
            x[g, j] += amount
            if from_g[g] < 0:
                row[g] -= amount
                break
            j = from_g[g]
            x[g, j] -= amount
        left -= amount
    total = 0.0
    for g in range(groups):
        for j in range(workers):
            if x[g, j] > 0:
                total += x[g, j] * cost[g, j]
    return True, total, x
