"""Compiled loops of the placement game: reads from others, costs, and social costs of one worker's choices.

`tier` (n, m) int8 is a placement (-1: not kept), `a` the game's `PlacementArrays`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.threads import share


class Nearest(NamedTuple):
    """The cheapest read of each (worker, block), the cheapest without its server, and who serves it (-1: a prefill)."""

    first: np.ndarray  # (n, m)
    second: np.ndarray
    server: np.ndarray


@kernel
def outside(tier, a):
    """(m, n): the least that each worker pays for each block that it does not keep itself."""
    access, distance = a.access, a.distance
    n, m = tier.shape
    out = np.empty((m, n))
    for b in range(m):
        out[b] = a.recompute[b]
        for j in range(n):
            t = tier[j, b]
            if t >= 0:
                for i in range(n):
                    if i != j:
                        out[b, i] = min(out[b, i], distance[i, j] + access[j, t])
    return out


@kernel
def renew_outside(before, j, tier, a, out):
    """`outside` again after worker j changed from `before` (m,) to tier[j]; only reads that this concerns."""
    access, distance = a.access, a.distance
    n, m = tier.shape
    for b in range(m):
        if tier[j, b] == before[b]:
            continue
        old = np.inf if before[b] < 0 else access[j, before[b]]
        new = np.inf if tier[j, b] < 0 else access[j, tier[j, b]]
        for i in range(n):
            if i == j:
                continue
            if new <= old:
                out[b, i] = min(out[b, i], distance[i, j] + new)
            elif distance[i, j] + old <= out[b, i]:  # it read from j
                least = a.recompute[b]
                for k in range(n):
                    t = tier[k, b]
                    if t >= 0 and k != i:
                        least = min(least, distance[i, k] + access[k, t])
                out[b, i] = least


@kernel
def stays(row, i, a, out, prices):
    """(what worker i pays, at most what a best response saves), by weak duality at `prices` (T,) of a place."""
    demand, access, slots = a.demand[i], a.access[i], a.slots[i]
    paid, best = 0.0, 0.0
    for t in range(slots.size):
        best -= prices[t] * slots[t]
    for b in range(row.size):
        w, away = demand[b], out[b, i]
        now = w * (away if row[b] < 0 else min(away, access[row[b]]))
        paid += now
        least = w * away
        for t in range(slots.size):
            if slots[t] > 0:
                least = min(least, w * min(access[t], away) + prices[t])
        best += least
    return paid, paid - best


@kernel
def costs(tier, a):
    """(n,): what each worker pays."""
    demand, access = a.demand, a.access
    n, m = tier.shape
    out = outside(tier, a)
    total = np.zeros(n)
    for i in range(n):
        for b in range(m):
            v = out[b, i]
            if tier[i, b] >= 0:
                v = min(v, access[i, tier[i, b]])
            total[i] += demand[i, b] * v
    return total


@kernel
def nearest_two(tier, a):
    """`Nearest` of a placement."""
    near = Nearest(np.empty(tier.shape), np.empty(tier.shape), np.empty(tier.shape, np.int16))
    renew(tier, a, np.arange(tier.shape[1]), near)
    return near


@kernel
def renew(tier, a, blocks, near):
    """`nearest_two` again for the blocks listed."""
    access, distance, recompute = a.access, a.distance, a.recompute
    first, second, server = near
    n = tier.shape[0]
    for b in blocks:
        for i in range(n):
            first[i, b], second[i, b], server[i, b] = recompute[b], recompute[b], -1
        for j in range(n):
            t = tier[j, b]
            if t < 0:
                continue
            for i in range(n):
                v = distance[i, j] + access[j, t]
                if v < first[i, b]:
                    second[i, b] = first[i, b]
                    first[i, b] = v
                    server[i, b] = j
                else:
                    second[i, b] = min(second[i, b], v)


def social_costs(a, near, i) -> np.ndarray:
    """(m, T + 1): what all workers pay for each block if i keeps it in tier t; the last column: if i keeps it not."""
    n, m = a.demand.shape
    out = np.zeros((m, a.access.shape[1] + 1))
    loop = lambda start, stop: _social_costs(start, stop, a, near, i, out)
    share(loop, m, 5e-9 * n * m)
    return out


@kernel
def _social_costs(start, stop, a, near, i, out):
    demand, access, distance = a.demand, a.access, a.distance
    first, second, server = near
    n, tiers = access.shape
    for k in range(n):
        d = distance[k, i]
        for b in range(start, stop):
            w = demand[k, b]
            if w == 0.0:
                continue
            rest = second[k, b] if server[k, b] == i else first[k, b]
            out[b, tiers] += w * rest
            for t in range(tiers):
                out[b, t] += w * min(d + access[i, t], rest)


@kernel
def gains(a, best, b, out):
    """out (n, T): what all workers save if one more copy of block b is put there; best (n,): what each pays now."""
    demand, access, distance = a.demand, a.access, a.distance
    n, tiers = access.shape
    for j in range(n):
        for t in range(tiers):
            s = 0.0
            for k in range(n):
                s += demand[k, b] * max(best[k] - (distance[k, j] + access[j, t]), 0.0)
            out[j, t] = s


@kernel
def savings(start, stop, tier, a, access, out):
    """Blocks start..stop-1 of out (T, m, n): what all workers save if i keeps the block in tier t, against not at all.

    `access` is (T, n) here, so that the innermost loop is one of vectors.
    """
    demand, distance, recompute = a.demand, a.distance, a.recompute
    tiers, n = access.shape
    first, second = np.empty(n), np.empty(n)
    server = np.empty(n, np.int64)
    for b in range(start, stop):
        first[:], second[:], server[:] = recompute[b], recompute[b], -1
        for j in range(n):
            if tier[j, b] >= 0:
                for k in range(n):
                    v = distance[k, j] + access[tier[j, b], j]
                    if v < first[k]:
                        second[k], first[k], server[k] = first[k], v, j
                    else:
                        second[k] = min(second[k], v)
        for t in range(tiers):
            saved, own = out[t, b], access[t]
            saved[:] = 0.0
            for k in range(n):
                w, least, hop = demand[k, b], first[k], distance[k]
                if w == 0.0:
                    continue
                for i in range(n):
                    saved[i] += w * max(least - (hop[i] + own[i]), 0.0)
                i = server[k]
                if i >= 0:  # without its own copy k would read from the second
                    v = hop[i] + own[i]
                    saved[i] += w * (max(second[k] - v, 0.0) - max(least - v, 0.0))
