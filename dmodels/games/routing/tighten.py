r"""Boxes of load vectors, cut to what a pure Nash equilibrium can have: necessary conditions, tried until none cuts.

See `boxes` for the conditions and for what is done with the boxes.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel


@kernel
def _range_min(row, first, last, monotone):
    """Least f over loads first..last (at least one load)."""
    if monotone:
        return row[first - 1]
    least = np.inf
    for n in range(first, last + 1):
        least = min(least, row[n - 1])
    return least


@kernel
def range_max(row, first, last, monotone):
    if monotone:
        return row[last - 1]
    most = -np.inf
    for n in range(first, last + 1):
        most = max(most, row[n - 1])
    return most


@kernel
def _arcs(f, c, lo, hi, monotone, tol, arc, here, after, reach):
    """Possible arcs of the box. here[j]: least f_j in it; after[k]: most a newcomer pays; reach[g, j]: cap on f_j."""
    groups, workers = c.shape
    total = f.shape[1]
    for j in range(workers):
        here[j] = _range_min(f[j], max(lo[j], 1), max(hi[j], 1), monotone)
        after[j] = range_max(f[j], min(lo[j] + 1, total), min(hi[j] + 1, total), monotone)
    for g in range(groups):
        first, second, at = np.inf, np.inf, -1
        for k in range(workers):
            v = after[k] + c[g, k]
            if at < 0 or v < first:
                first, second, at = v, first, k
            else:
                second = min(second, v)
        for j in range(workers):
            reach[g, j] = (second if j == at else first) - c[g, j]
            arc[g, j] = hi[j] > 0 and here[j] <= reach[g, j] + tol


@kernel
def _least_paid(c, arc, here, first, second, cheapest):
    """What each group pays at least on its possible arcs, where that is, and what it pays at least elsewhere."""
    for g in range(c.shape[0]):
        first[g], second[g], cheapest[g] = np.inf, np.inf, -1
        for j in range(c.shape[1]):
            if arc[g, j]:
                v = here[j] + c[g, j]
                if v < first[g]:
                    first[g], second[g], cheapest[g] = v, first[g], j
                else:
                    second[g] = min(second[g], v)


@kernel
def _hall(q, lo, hi, arc, by_group):
    """Tighten lo and hi by Hall's condition over all subsets of the shorter side; False if nothing is left."""
    groups, workers = arc.shape
    side = groups if by_group else workers
    reached = np.zeros(max(groups, workers), np.int64)  # of each of the longer side, those of the shorter, as bits
    for g in range(groups):
        for j in range(workers):
            if arc[g, j]:
                if by_group:
                    reached[j] |= 1 << g
                else:
                    reached[g] |= 1 << j
    inner = np.empty(workers, np.bool_)  # workers that the supply of `need` can go to
    outer = np.empty(workers, np.bool_)  # workers that only the supply of `have` can fill
    for mask in range(1, 1 << side):
        need, room, fill, have = 0, 0, 0, 0
        for g in range(groups):
            if by_group:
                if mask >> g & 1:
                    need += q[g]
                    have += q[g]
            else:
                if reached[g] & ~mask == 0:
                    need += q[g]
                if reached[g] & mask:
                    have += q[g]
        for j in range(workers):
            inner[j] = reached[j] & mask != 0 if by_group else mask >> j & 1 != 0
            outer[j] = reached[j] & ~mask == 0 if by_group else inner[j]
            if inner[j]:
                room += hi[j]
            if outer[j]:
                fill += lo[j]
        if need > room or fill > have:
            return False
        for j in range(workers):
            if inner[j]:
                lo[j] = max(lo[j], need - (room - hi[j]))
            if outer[j]:
                hi[j] = min(hi[j], have - (fill - lo[j]))
            if lo[j] > hi[j]:
                return False
    return True


@kernel
def tighten(f, c, q, lo, hi, monotone, tol, subsets, by_group, arc, here, after, reach):
    """Shrink the box to a fixed point of the necessary conditions; False if it holds no equilibrium."""
    groups, workers = c.shape
    first, second, cheapest = np.empty(groups), np.empty(groups), np.empty(groups, np.int64)
    total = 0
    for g in range(groups):
        total += q[g]
    while True:
        before = 0
        low, high = 0, 0
        for j in range(workers):
            before += hi[j] - lo[j]
            low += lo[j]
            high += hi[j]
        if low > total or high < total:
            return False
        for j in range(workers):
            lo[j] = max(lo[j], total - (high - hi[j]))
            hi[j] = min(hi[j], total - (low - lo[j]))
            if lo[j] > hi[j]:
                return False
        _arcs(f, c, lo, hi, monotone, tol, arc, here, after, reach)
        for g in range(groups):
            some = False
            for j in range(workers):
                some |= arc[g, j]
            if not some:
                return False
        for j in range(workers):
            # somebody must be willing to sit at load hi (or lo)
            cap, reachable = -np.inf, 0
            for g in range(groups):
                if arc[g, j]:
                    cap = max(cap, reach[g, j])
                    reachable += q[g]
            hi[j] = min(hi[j], reachable)
            while hi[j] >= max(lo[j], 1) and f[j, hi[j] - 1] > cap + tol:
                hi[j] -= 1
            if lo[j] >= 1:
                while lo[j] <= hi[j] and f[j, lo[j] - 1] > cap + tol:
                    lo[j] += 1
            if lo[j] > hi[j]:
                return False
        _least_paid(c, arc, here, first, second, cheapest)
        for k in range(workers):
            # those who surely sit elsewhere must not want to come
            floor = -np.inf
            for j in range(workers):
                if j != k and lo[j] >= 1:
                    least = np.inf
                    for g in range(groups):
                        if arc[g, j]:
                            least = min(least, here[j] + c[g, j] - c[g, k])
                    floor = max(floor, least)
            for g in range(groups):
                if not arc[g, k] or q[g] > hi[k]:
                    floor = max(floor, (second[g] if cheapest[g] == k else first[g]) - c[g, k])
            while lo[k] <= hi[k] and lo[k] < total and f[k, lo[k]] < floor - tol:
                lo[k] += 1
            while hi[k] >= lo[k] and hi[k] < total and f[k, hi[k]] < floor - tol:
                hi[k] -= 1
            if lo[k] > hi[k]:
                return False
        if subsets and not _hall(q, lo, hi, arc, by_group):
            return False
        now = 0
        for j in range(workers):
            now += hi[j] - lo[j]
        if now == before:
            return True


@kernel
def ceilings(f, c, total):
    """Greatest load of each worker in any equilibrium, for nondecreasing f.

    Fill the total + 1 cheapest slots, the last at latency L. In any profile some worker k has fewer requests than slots
    filled there, so a newcomer pays at most L on it, and f_j(n_j) <= L + max over g of c_gk - c_gj elsewhere.
    """
    groups, workers = c.shape
    n = np.zeros(workers, np.int64)
    level = 0.0
    for _ in range(total + 1):
        pick = 0
        for j in range(workers):
            if n[j] < total and (n[pick] == total or f[j, n[j]] < f[pick, n[pick]]):
                pick = j
        if n[pick] == total:
            break
        level = max(level, f[pick, n[pick]])
        n[pick] += 1
    hi = np.empty(workers, np.int64)
    for j in range(workers):
        spread = 0.0
        for g in range(groups):
            for k in range(workers):
                spread = max(spread, c[g, k] - c[g, j])
        room = 0
        while room < total and f[j, room] < np.inf and f[j, room] <= (level + spread) * (1.0 + 1e-9):
            room += 1
        hi[j] = room
    return hi


@kernel
def largest_loads(f, c, total, monotone):
    """A box to begin with: no load of an equilibrium is above these."""
    if monotone:
        top = ceilings(f, c, total)
        if top.sum() >= total:  # with room for all, nobody stays at an infinite latency
            return top
    return np.full(f.shape[0], total)


@kernel(tiered=True)
def root_box(f, c, q, monotone, tol):
    """(lo, hi, arc, reach) of the tightened box of all equilibria."""
    groups, workers = c.shape
    lo, hi = np.zeros(workers, np.int64), largest_loads(f, c, q.sum(), monotone)
    arc, reach = np.zeros((groups, workers), np.bool_), np.zeros((groups, workers))
    here, after = np.zeros(workers), np.zeros(workers)
    subsets, by_group = min(groups, workers) <= 8, groups <= workers
    tighten(f, c, q, lo, hi, monotone, tol, subsets, by_group, arc, here, after, reach)
    return lo, hi, arc, reach
