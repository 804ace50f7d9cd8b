r"""Branch and prune over load vectors: which loads can a pure Nash equilibrium have, and what can it cost?

A box lo <= n <= hi of load vectors is cut by necessary conditions of an equilibrium:

* an arc (group g, worker j) can carry requests only if $f_j(n_j) + c_{gj} \le f_k(n_k + 1) + c_{gk}$ for all k, for
  some loads in the box;
* a load is possible only if some group may sit there at that load, and if those who surely sit elsewhere do not want
  to come;
* Hall's condition on the possible arcs: the requests that can only go to a set of workers fit there, and the workers
  that only a set of groups can reach are filled by them.

Workers that are alike (`_twins`) may change places in any equilibrium, so that the only loads looked at are those that
do not rise from one to the next. What survives is bounded (what any equilibrium in the box costs) and split. A single
load vector is settled by two small transportation problems on its arcs, because equal loads can hide different costs.
What is left when the budget of boxes is spent is bounded by smoothness too (`smooth`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import copy_row, kernel

from .kernels import flow_at_loads
from .smooth import cost_ceilings, smooth_ceiling
from .tighten import largest_loads, range_max, tighten

#: The s of `smooth_ceiling` that are tried; 1 is best in most boxes, 1.2 where loads can vary by half and more.
SMOOTH = (1.0, 1.2)


class Found(NamedTuple):
    """Costs of the best and worst equilibrium found, bounds on what unexplored boxes hold (equal to them when
    complete), the flows where they improve on the given ones (else all -1), and the boxes looked at."""

    best: float
    worst: float
    floor: float
    ceiling: float
    best_flow: np.ndarray
    worst_flow: np.ndarray
    boxes: int


@kernel
def bounds(f, c, q, lo, hi, monotone, convex, arc, here, reach):
    """(least, most) that any equilibrium in a tightened box can cost."""
    groups, workers = c.shape
    total = 0
    for g in range(groups):
        total += q[g]
    # what each request pays: at least the cheapest possible place, at most what it would pay as a newcomer elsewhere
    low, high, own_low, own_high = 0.0, 0.0, 0.0, 0.0
    for g in range(groups):
        least, most, private_low, private_high = np.inf, -np.inf, np.inf, -np.inf
        for j in range(workers):
            if arc[g, j]:
                least = min(least, here[j] + c[g, j])
                dear = range_max(f[j], max(lo[j], 1), hi[j], monotone)
                most = max(most, min(dear, reach[g, j]) + c[g, j])
                private_low = min(private_low, c[g, j])
                private_high = max(private_high, c[g, j])
        low += q[g] * least
        high += q[g] * most
        own_low += q[g] * private_low
        own_high += q[g] * private_high
    for j in range(workers):
        if hi[j] > 0 and f[j, hi[j] - 1] == np.inf:
            return low, high
    # what the loads cost at least and at most, with their sum fixed
    slack = total
    base_low, base_high = 0.0, 0.0
    for j in range(workers):
        slack -= lo[j]
    room = hi - lo
    chord, excess = np.zeros(workers), np.zeros(workers)
    for j in range(workers):
        g_lo = lo[j] * f[j, lo[j] - 1] if lo[j] > 0 else 0.0
        base_low += g_lo
        base_high += g_lo
        if room[j] > 0:
            chord[j] = (hi[j] * f[j, hi[j] - 1] - g_lo) / room[j]
            if not convex:
                for n in range(lo[j] + 1, hi[j]):
                    excess[j] = max(excess[j], n * f[j, n - 1] - g_lo - chord[j] * (n - lo[j]))
        base_high += excess[j]
    left = slack
    used = np.zeros(workers, np.bool_)
    while left > 0:  # the steepest chords first: an upper bound of a convex sum
        pick = -1
        for j in range(workers):
            if not used[j] and room[j] > 0 and (pick < 0 or chord[j] > chord[pick]):
                pick = j
        if pick < 0:
            break
        used[pick] = True
        take = min(left, room[pick])
        base_high += take * chord[pick]
        left -= take
    if convex:
        n = lo.copy()
        for _ in range(slack):  # the cheapest next slots: exact for convex g
            pick, least = -1, np.inf
            for j in range(workers):
                if n[j] < hi[j]:
                    step = (n[j] + 1) * f[j, n[j]] - (n[j] * f[j, n[j] - 1] if n[j] > 0 else 0.0)
                    if step < least:
                        pick, least = j, step
            base_low += least
            if pick < 0:  # all that is left lies behind poles
                break
            n[pick] += 1
    else:
        base_low = 0.0
        for j in range(workers):
            least = np.inf
            for n_j in range(lo[j], hi[j] + 1):
                least = min(least, n_j * f[j, n_j - 1] if n_j > 0 else 0.0)
            base_low += least
    return max(low, base_low + own_low), min(high, base_high + own_high)


@kernel
def _twins(f, c):
    """The last worker before each that has the same latencies and private costs; -1: none."""
    workers = f.shape[0]
    twin = np.full(workers, -1, np.int64)
    for j in range(workers):
        for i in range(j - 1, -1, -1):
            if (f[i] == f[j]).all() and (c[:, i] == c[:, j]).all():
                twin[j] = i
                break
    return twin


@kernel
def _in_order(twin, lo, hi):
    """Cut a box to loads that do not rise from a worker to its next twin; False if none is left."""
    for j in range(twin.size):
        if twin[j] >= 0:
            hi[j] = min(hi[j], hi[twin[j]])
    for j in range(twin.size - 1, -1, -1):
        if twin[j] >= 0:
            lo[twin[j]] = max(lo[twin[j]], lo[j])
    return (lo <= hi).all()


@kernel
def enumerate_nash(f, c, q, monotone, convex, tol, best, worst, anchor, max_boxes):
    """`Found` among all pure equilibria, from costs `best`, `worst` of known ones.

    `anchor` is any placement, the cheaper the better, against which costly equilibria are bounded (`smooth`).
    `tol` is the rounding of what one request pays; social costs are compared to 1e-12 of the best.
    """
    groups, workers = c.shape
    total = 0
    for g in range(groups):
        total += q[g]
    subsets, by_group = min(groups, workers) <= 8, groups <= workers
    depth = 2 + workers * (2 + int(np.ceil(np.log2(total + 1.0))))
    stack_lo = np.zeros((depth, workers), np.int64)
    stack_hi = np.zeros((depth, workers), np.int64)
    copy_row(stack_hi[0], largest_loads(f, c, total, monotone))
    size, boxes, twin = 1, 0, _twins(f, c)
    best_x = np.full((groups, workers), -1, np.int64)
    worst_x = best_x.copy()
    best_low, worst_high = best, worst
    arc = np.zeros((groups, workers), np.bool_)
    reach = np.zeros((groups, workers))
    here, after = np.zeros(workers), np.zeros(workers)
    while size > 0:
        size -= 1
        lo, hi = stack_lo[size].copy(), stack_hi[size].copy()
        boxes += 1
        if not _in_order(twin, lo, hi):
            continue
        if not tighten(f, c, q, lo, hi, monotone, tol, subsets, by_group, arc, here, after, reach):
            continue
        low, high = bounds(f, c, q, lo, hi, monotone, convex, arc, here, reach)
        same = max(tol, 1e-12 * best) if best < np.inf else tol
        if low >= best - same and high <= worst + same:
            continue
        wide = 0
        for j in range(workers):
            if hi[j] - lo[j] > hi[wide] - lo[wide]:
                wide = j
        if hi[wide] == lo[wide]:
            load_cost = 0.0
            for j in range(workers):
                if lo[j] > 0:
                    load_cost += lo[j] * f[j, lo[j] - 1]
            feasible, private, x = flow_at_loads(c, arc, q, lo, 1.0)
            if feasible:
                if load_cost + private < best - same:
                    best, best_x = load_cost + private, x
                if high > worst + same:
                    _, private, x = flow_at_loads(c, arc, q, lo, -1.0)
                    if load_cost + private > worst + same:
                        worst, worst_x = load_cost + private, x
            continue
        if boxes >= max_boxes:
            if high > worst_high:
                ceilings = cost_ceilings(f, c, q, lo, hi, arc, reach)
                for s in SMOOTH:
                    high = min(high, smooth_ceiling(f, c, anchor, (lo, hi), ceilings, s) + total * tol)
            best_low, worst_high = min(best_low, low), max(worst_high, high)
            continue
        middle = (lo[wide] + hi[wide]) // 2
        for half in range(size, size + 2):
            copy_row(stack_lo[half], lo)
            copy_row(stack_hi[half], hi)
        stack_hi[size, wide] = middle
        stack_lo[size + 1, wide] = middle + 1
        size += 2
    return Found(best, worst, min(best_low, best), max(worst_high, worst), best_x, worst_x, boxes)
