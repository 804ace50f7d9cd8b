"""Compiled loops of the assignment solver: one problem matched along shortest augmenting paths over rows.

A problem has n <= m: rows are matched, columns may stay free. The method is Jonker and Volgenant's (Computing 38,
1987): column reduction where n = m, augmenting row reduction, then one shortest augmenting path per row that is left.
It departs from their code in how a path grows. Instead of a list of open columns, which needs gathers, every step
sweeps the whole contiguous row twice (relax and take the least, then find where it is): both sweeps compile to vector
code. A column that is closed has its dual set to -big in a working copy, so its distance is +big without a branch.

Column reduction serves square problems worst whose costs are like products of what a row asks and what a column takes
for it (permuted Monge matrices; R. E. Burkard, B. Klinz and R. Rudolf, Discrete Applied Mathematics 70, 1996). They
are paired in sorted order.

`big` stands for "forbidden": inf, or 2**61; what reaches `limit` counts as forbidden. The kernels allow the compiler
to assume that no NaN occurs, so `bad_entries` of `_kernels` must have cleared a problem before.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from dmodels.core.compiled import kernel

FAST = {"nnan", "nsz", "contract"}


@intrinsic
def lesser(typing, a, b):
    """The lesser of two numbers of one type. LLVM makes vector code of a loop that reduces by this (a select that may
    ignore NaN and the sign of 0), but not of one that reduces by numba's `min` or by a conditional expression."""

    def generate(context, builder, signature, arguments):
        x, y = arguments
        if isinstance(signature.return_type, types.Float):
            less = builder.fcmp_ordered("<", x, y, flags=("nnan", "nsz"))
            return builder.select(less, x, y, flags=("nnan", "nsz"))
        return builder.select(builder.icmp_signed("<", x, y), x, y)

    return (a(a, b), generate) if a == b else None


lesser.interpreted = min


@kernel(forceinline=True, fastmath=FAST)
def row_least(row, v, big):
    """min_j row_j - v_j, `big` at most."""
    least = big
    for j in range(v.size):
        least = lesser(row[j] - v[j], least)
    return least


@kernel(forceinline=True, fastmath=FAST)
def _least(c, i, v, m, big, prio):
    """Least of c[i] - v, the column where it is (a free one if there is a tie), and the second least."""
    least = row_least(c[i], v, big)
    where = 2 * m
    for j in range(m):
        where = lesser(prio[j] if c[i, j] - v[j] == least else 2 * m, where)
    j1 = where if where < m else where - m
    second = big
    for j in range(m):
        second = lesser(big if j == j1 else c[i, j] - v[j], second)
    return least, j1, second


@kernel(fastmath=FAST)
def _column_reduction(c, x, y, v, prio, limit):
    """Square problems: each dual is its column's least cost; a row takes the last column whose least it holds."""
    n, m = c.shape
    for j in range(m):
        v[j] = c[0, j]
        y[j] = 0
    for i in range(1, n):
        for j in range(m):
            r, old = c[i, j], v[j]
            v[j] = lesser(r, old)
            y[j] = i if r < old else y[j]
    for j in range(m - 1, -1, -1):
        i = y[j]
        y[j] = -1
        if v[j] >= limit:
            v[j] = 0
        elif x[i] < 0:
            x[i] = j
            y[j] = i
            prio[j] = j + m


@kernel
def _like_products(c, limit):
    """Whether the rows that gain most from one column over a second gain most (or least) from that over a third."""
    n, m = c.shape
    a, b, last, way = c.dtype.type(0), c.dtype.type(0), m - 1, 0
    for i in range(n):
        x, y, z = c[i, 0], c[i, m // 2], c[i, last]
        if x >= limit or y >= limit or z >= limit:
            return False
        if i > 0:
            turn = 1 if (x - y > a) == (y - z > b) else -1
            if x - y == a or y - z == b or turn == -way:
                return False
            way = turn
        a, b = x - y, y - z
    return True


@kernel
def _sorted(keys):
    """Places of the keys in increasing order, by insertion: of few keys NumPy's sort costs more to call than to do, and
    of many this one takes no longer than reading the costs."""
    order = np.arange(keys.size)
    for k in range(1, keys.size):
        at, key = k, keys[k]
        while at > 0 and keys[order[at - 1]] > key:
            order[at] = order[at - 1]
            at -= 1
        order[at] = k
    return order


@kernel
def _sorted_pairs(c, x, y, v, prio, limit):
    """Pair rows and columns in sorted order where costs are like products, with duals between those at which a row
    would change with the next; whole for whole costs. Returns whether that is the optimum: every row's column is its
    cheapest."""
    n = c.shape[0]
    keys = np.empty(n, c.dtype)
    for i in range(n):
        keys[i] = c[i, 0] - c[i, n - 1]
    rows = _sorted(keys)
    for j in range(n):
        keys[j] = c[rows[0], j] - c[rows[n - 1], j]
    columns = _sorted(keys)
    for k in range(n - 1):
        i, j, below, right = rows[k], columns[k], rows[k + 1], columns[k + 1]
        upper, lower = c[i, right] - c[i, j], c[below, right] - c[below, j]
        if c[i, right] >= limit or c[below, j] >= limit or not lower < upper < limit:
            return False
        if upper - lower >= 1:
            v[right] = v[j] + upper // 1
        else:
            v[right] = v[j] + lower + (upper - lower) / 2
    for k in range(n):
        i, j = rows[k], columns[k]
        if c[i, j] - v[j] > row_least(c[i], v, limit):
            return False
    for k in range(n):
        i, j = rows[k], columns[k]
        x[i], y[j], prio[j] = j, i, j + n
    return True


@kernel(fastmath=FAST)
def _row_reduction(c, x, y, v, prio, free, n_free, big, limit):
    """Augmenting row reduction: free rows outbid owners, a bounded number of times; returns how many stay free."""
    m = v.shape[0]
    budget = n_free  # rows that outbid each other and take no free column do so for long: paths are cheaper
    k = 0
    left = 0
    while k < n_free:
        i = free[k]
        k += 1
        least, j, second = _least(c, i, v, m, big, prio)
        if least >= limit or second >= limit or budget == 0:
            free[left] = i
            left += 1
            continue
        budget -= 1
        lowered = v[j] - (second - least)
        lowers = lowered < v[j]
        owner = y[j]
        if owner >= 0 and not lowers:  # a tie between taken columns: a path has to settle it
            free[left] = i
            left += 1
            continue
        v[j] = lowered
        x[i] = j
        y[j] = i
        prio[j] = j + m
        if owner >= 0:
            x[owner] = -1
            k -= 1
            free[k] = owner
        else:
            budget += 4
    return left


@kernel(forceinline=True, fastmath=FAST)
def _relax(c, i, w, key, pred, m, h, floor, big):
    """Distances through row i: key = min(key, c[i] - w - h), but never below `floor`; returns the least key."""
    least = big
    for j in range(m):
        r = c[i, j] - w[j] - h
        r = r if r > floor else floor
        old = key[j]
        now = lesser(r, old)
        key[j] = now
        pred[j] = i if r < old else pred[j]
        least = lesser(now, least)
    return least


@kernel(forceinline=True, fastmath=FAST)
def _find(key, prio, m, least):
    """The column whose key is the least; among equals a free one, then the lowest. Taken columns come back + m."""
    where = 2 * m
    for j in range(m):
        where = lesser(prio[j] if key[j] == least else 2 * m, where)
    return where


@kernel(fastmath=FAST)
def augment(c, start, x, y, v, prio, w, key, pred, closed, dist, big, limit):
    """Match row `start` along a shortest path. Returns (path steps, -1), or (steps, size of the stuck tree)."""
    m = v.shape[0]
    least = big
    for j in range(m):
        r = c[start, j] - v[j]
        key[j] = r
        w[j] = v[j]
        pred[j] = start
        least = lesser(r, least)
    size = 0
    while True:
        if least >= limit:
            return size, size
        j = _find(key, prio, m, least)
        if j < m:
            break
        j -= m
        closed[size] = j
        dist[size] = least
        size += 1
        key[j] = big
        w[j] = -2 * big  # so that no distance through a forbidden or a closed column falls below big
        i = y[j]
        least = _relax(c, i, w, key, pred, m, c[i, j] - v[j] - least, least, big)
    for s in range(size):
        v[closed[s]] += dist[s] - least
    prio[j] = j + m
    i = -1
    while i != start:
        i = pred[j]
        y[j] = i
        j, x[i] = x[i], j
    return size + 1, -1


@kernel(fastmath=FAST)
def match(c, x, u, v, y, prio, free, w, key, pred, closed, dist, big, limit):
    """Solve one problem of shape n <= m: x[i] is row i's column, v the column duals. Returns (steps, feasible).

    Where nothing is feasible, x is -1 and (u, v) is a Farkas ray: u = 1 on a set of rows, v = -1 on all columns
    that these rows may use, and there are fewer of these columns than rows.
    """
    n, m = c.shape
    for i in range(n):
        x[i] = -1
    for j in range(m):
        y[j] = -1
        v[j] = 0
        prio[j] = j
    if n == m and not (n > 2 and _like_products(c, limit) and _sorted_pairs(c, x, y, v, prio, limit)):
        _column_reduction(c, x, y, v, prio, limit)
    n_free = 0
    for i in range(n):
        if x[i] < 0:
            free[n_free] = i
            n_free += 1
    steps = 0
    if n_free > 0:
        steps += n_free
        n_free = _row_reduction(c, x, y, v, prio, free, n_free, big, limit)
    for f in range(n_free):
        more, stuck = augment(c, free[f], x, y, v, prio, w, key, pred, closed, dist, big, limit)
        steps += more
        if stuck >= 0:
            for i in range(n):
                u[i] = 0
            for j in range(m):
                v[j] = 0
            u[free[f]] = 1
            for s in range(stuck):
                v[closed[s]] = -1
                u[y[closed[s]]] = 1
            for i in range(n):
                x[i] = -1
            return steps, False
    return steps, True
