"""Compiled network simplex for transportation between many rows and many columns.

A basis is a spanning tree of rows (nodes 0..n-1), a spare row that takes what capacity is left over (node n, free of
cost) and columns (nodes n+1..n+m). Each node keeps the flow on the arc to its parent. Trees are strongly feasible
(W. H. Cunningham, Mathematical Programming 11, 1976): an arc without flow has its row below its column, which rules out
cycling. The entering arc is the best of a block of rows (M. D. Grigoriadis, Mathematical Programming Study 26, 1986);
one row is priced by a vector loop over its columns. The first tree ships every row to its cheapest columns with room;
where rows are few and little room is left over, it fills every column from its cheapest rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.solvers.assignment.paths import row_least

#: Entries priced per pivot, and the least number of rows.
_BLOCK_ENTRIES, _BLOCK_ROWS = 2048, 2

#: The first tree is made column by column where there are so many per row, and room for so many times the supply
#: (measured on one core: half the time of the other order at 4 x 512 to 16 x 2,000, twice with room for 1.3 times).
_COLUMNS_PER_ROW, _LITTLE_ROOM = 8, 1.03

#: A reduced cost of this share of its terms is rounding.
_ROUNDING = 2.0**-50

#: Pivots per node after which a problem is left to the general loop; the hardest that we know take 30.
_PIVOTS_PER_NODE = 500


@kernel
def _column_of(row: Any, v: Any, least: Any) -> Any:
    for j in range(v.size):
        if row[j] - v[j] == least:
            return j
    return -1


@kernel
def _hang(x: Any, p: Any, tree: Any) -> Any:
    """Make x a child of p."""
    parent, child, left, right = tree[0], tree[1], tree[2], tree[3]
    first = child[p]
    parent[x], left[x], right[x] = p, -1, first
    if first >= 0:
        left[first] = x
    child[p] = x


@kernel
def _cut(x: Any, tree: Any) -> Any:
    """Take x from its parent's children."""
    parent, child, left, right = tree[0], tree[1], tree[2], tree[3]
    before, after = left[x], right[x]
    if before >= 0:
        right[before] = after
    else:
        child[parent[x]] = after
    if after >= 0:
        left[after] = before


@kernel
def _first_tree(c: Any, supply: Any, capacity: Any, parent: Any, flow: Any, price: Any) -> Any:
    """Parents and flows of a first tree; returns its root. Nodes that are used up become children of what goes on."""
    n, m = c.shape
    rest, live, last, root = capacity.copy(), 0, -1, -1
    for j in range(m):
        price[j] = 0.0 if capacity[j] > 0 else -np.inf
        live += 1 if capacity[j] > 0 else 0
    for i in range(n):
        amount = supply[i]
        while True:
            if live == 0:  # what rounding left over goes where the last room was
                column = n + 1 + last
                if parent[column] == i:
                    root = i
                    flow[column] += amount
                else:
                    parent[i], flow[i] = column, amount
                break
            j = _column_of(c[i], price, row_least(c[i], price, np.inf))
            if amount < rest[j]:
                parent[i], flow[i] = n + 1 + j, amount
                rest[j] -= amount
                break
            parent[n + 1 + j], flow[n + 1 + j] = i, rest[j]
            amount -= rest[j]
            price[j] = -np.inf
            live -= 1
            last = j
    if live > 0:
        root = n
        for j in range(m):
            if price[j] == 0.0:
                parent[n + 1 + j], flow[n + 1 + j] = n, rest[j]
    return root


@kernel
def _first_tree_by_columns(c: Any, supply: Any, capacity: Any, parent: Any, flow: Any, left: Any) -> Any:
    """As `_first_tree`, column by column; `left` (n,) is scratch. A row that is used up hangs below its last column, a
    full column below its last row; while rows are left, so is the room for them but for rounding."""
    n, m = c.shape
    live, count, last = np.arange(n), n, -1
    left[:] = supply
    for j in range(m):
        x, room = n + 1 + j, capacity[j]
        while room > 0 and count > 0:
            at = 0
            for k in range(1, count):
                at = k if c[live[k], j] < c[live[at], j] else at
            i = live[at]
            if left[i] >= room:
                parent[x], flow[x], last = i, room, x
                left[i] -= room
                room = 0.0
            else:
                parent[i], flow[i] = x, left[i]
                room -= left[i]
                count -= 1
                live[at] = live[count]
        if room > 0:
            parent[x], flow[x] = n, room
    if count == 0:
        return n
    for i in live[:count]:  # what rounding left over goes where the last room was
        if parent[last] == i:
            flow[last] += left[i]
        else:
            parent[i], flow[i] = last, left[i]
    return parent[last]


@kernel
def _next(x: Any, top: Any, tree: Any) -> Any:
    """The node after x in depth-first order below `top`; -1 at the end."""
    y = tree[1, x]
    if y >= 0:
        return y
    while x != top and tree[3, x] < 0:
        x = tree[0, x]
    return tree[3, x] if x != top else -1


@kernel
def _potentials(c: Any, root: Any, tree: Any, u: Any, v: Any) -> Any:
    """Depths, and duals that make every arc of the tree tight, from the root on."""
    n = c.shape[0]
    parent, depth = tree[0], tree[4]
    depth[root] = 0
    u[root] = 0.0
    x = _next(root, root, tree)
    while x >= 0:
        p = parent[x]
        depth[x] = depth[p] + 1
        i, j = (x, p - n - 1) if x <= n else (p, x - n - 1)
        cost = c[i, j] if i < n else 0.0
        if x <= n:
            u[x] = cost - v[j]
        else:
            v[j] = cost - u[p]
        x = _next(x, root, tree)


@kernel
def _blocking(column: Any, row: Any, n: Any, tree: Any, flow: Any) -> Any:
    """Of the cycle that the arc row -> column closes: (node whose arc leaves, whether it lies on the column's side,
    how much fits, node where both sides meet). Among ties the last one, seen from there along the arc."""
    parent, depth = tree[0], tree[4]
    x, y = column, row
    fits_x, fits_y, out_x, out_y = np.inf, np.inf, -1, -1
    while x != y:
        if depth[x] >= depth[y]:
            if x > n and flow[x] <= fits_x:
                fits_x, out_x = flow[x], x
            x = parent[x]
        else:
            if y <= n and flow[y] < fits_y:
                fits_y, out_y = flow[y], y
            y = parent[y]
    if fits_x <= fits_y:
        return out_x, True, fits_x, x
    return out_y, False, fits_y, x


@kernel
def _pivot(i: Any, j: Any, reduced: Any, n: Any, tree: Any, flow: Any, u: Any, v: Any) -> Any:
    """Let the arc i -> j of this reduced cost into the tree."""
    parent, depth = tree[0], tree[4]
    column, row = n + 1 + j, i
    out, below, amount, meet = _blocking(column, row, n, tree, flow)
    if amount > 0:
        x = column
        while x != meet:
            flow[x] += -amount if x > n else amount
            x = parent[x]
        x = row
        while x != meet:
            flow[x] += -amount if x <= n else amount
            x = parent[x]
    x, p = (column, row) if below else (row, column)
    top = x
    while True:  # turn the path from the entering arc to the leaving one
        onward, had = parent[x], flow[x]
        _cut(x, tree)
        _hang(x, p, tree)
        flow[x] = amount
        if x == out:
            break
        x, p, amount = onward, x, had
    shift = reduced if below else -reduced
    x = top
    while x >= 0:
        depth[x] = depth[parent[x]] + 1
        if x > n:
            v[x - n - 1] += shift
        else:
            u[x] -= shift
        x = _next(x, top, tree)


@kernel
def _entering(c: Any, free: Any, rows: Any, at: Any, size: Any, u: Any, v: Any) -> Any:
    """(row, column, reduced cost) of the best arc in `size` rows from `at` on; row -1 where all are rounding."""
    n = c.shape[0]
    best, where = 0.0, -1
    for _ in range(size):
        r = row_least(c[at] if at < n else free, v, np.inf) - u[at]
        if r < best:
            best, where = r, at
        at = at + 1 if at + 1 < rows else 0
    if where >= 0:
        row = c[where] if where < n else free
        j = _column_of(row, v, row_least(row, v, np.inf))
        r = row[j] - u[where] - v[j]
        if r < -_ROUNDING * (abs(row[j]) + abs(u[where]) + abs(v[j])):
            return where, j, r
    return -1, -1, 0.0


@kernel
def ship(c: Any, supply: Any, capacity: Any, tree: Any, flow: Any, v: Any) -> Any:
    """Least-cost shipment of supplies (n,) to capacities (m,) that exceed them or equal them up to rounding.

    Fills `tree` (5, n + m + 1), of which row 0 is every node's parent (-1: root, or a column without room), the flow
    to it, and column duals v (-inf where there is no room). Returns (pivots, whether this is the optimum).
    """
    n, m = c.shape
    free, u = np.zeros(m), np.empty(n + 1)
    tree[:] = -1
    flow[:] = 0.0
    if m >= _COLUMNS_PER_ROW * n and capacity.sum() <= _LITTLE_ROOM * supply.sum():
        root = _first_tree_by_columns(c, supply, capacity, tree[0], flow, u[:n])
    else:
        root = _first_tree(c, supply, capacity, tree[0], flow, v)
    for j in range(m):
        v[j] = -np.inf
    rows = n + 1 if root == n else n
    for x in range(n + m + 1):
        if tree[0, x] >= 0:
            _hang(x, tree[0, x], tree)
    _potentials(c, root, tree, u, v)
    size = min(rows, max(_BLOCK_ROWS, _BLOCK_ENTRIES // m))
    pivots, at, seen, exact = 0, 0, 0, True
    while pivots < _PIVOTS_PER_NODE * (n + m):
        i, j, reduced = _entering(c, free, rows, at, size, u, v)
        at = (at + size) % rows
        seen += size
        if i >= 0:
            _pivot(i, j, reduced, n, tree, flow, u, v)
            pivots += 1
            seen, exact = 0, False
        elif seen >= rows:
            if exact:
                return pivots, True
            _potentials(c, root, tree, u, v)  # free of what many updates have rounded: look once more
            seen, exact = 0, True
    return pivots, False
