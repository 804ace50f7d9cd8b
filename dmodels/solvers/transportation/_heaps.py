"""Heaps of the transportation solver: for columns j and k, the rows that ship to j by what moving to k would cost.

The m heaps of a column lie side by side in one arena (keys and row numbers), each with `room` for so many entries;
when one is full, the column's heaps are built anew, larger, at the arena's end. A heap keeps rows that have left j:
they are dropped when they come to the top. `best` and `who` (m, m) hold every heap's top.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import copy_row, kernel
from dmodels.core.heaps import sift_down, sift_up


@kernel
def settle(x, keys, rows, off, room, size, best, who, j, k):
    """Drop rows from the heap j -> k until the top still ships to j; note the edge's cost and row."""
    start = off[j] + k * room[j]
    left = size[j, k]
    while left > 0 and x[rows[start], j] <= 0:
        left -= 1
        if left > 0:
            keys[start], rows[start] = keys[start + left], rows[start + left]
            sift_down(keys, rows, start, left, 0)
    size[j, k] = left
    if left > 0:
        best[j, k] = keys[start]
        who[j, k] = rows[start]
    else:
        best[j, k] = np.inf
        who[j, k] = -1


@kernel
def build(c, keys, rows, off, room, size, best, who, j, members, count, end):
    """Heaps of column j over `members[:count]`, at the end of the arena. Returns (keys, rows, new end)."""
    m = c.shape[1]
    room[j] = count + count // 2 + 16
    off[j] = end
    end += m * room[j]
    if end > keys.shape[0]:
        more_keys = np.empty(2 * end, np.float64)
        more_rows = np.empty(2 * end, np.int32)
        copy_row(more_keys, keys[: off[j]])
        copy_row(more_rows, rows[: off[j]])
        keys, rows = more_keys, more_rows
    for k in range(m):
        best[j, k] = np.inf
        who[j, k] = -1
        size[j, k] = 0
        if k == j:
            continue
        start = off[j] + k * room[j]
        left = 0
        for s in range(count):
            i = members[s]
            if c[i, k] < np.inf:
                keys[start + left] = c[i, k] - c[i, j]
                rows[start + left] = i
                left += 1
        for at in range(left // 2 - 1, -1, -1):
            sift_down(keys, rows, start, left, at)
        size[j, k] = left
        if left > 0:
            best[j, k] = keys[start]
            who[j, k] = rows[start]
    return keys, rows, end


@kernel
def rows_of(x, j, members):
    """Write the rows that ship to column j into `members`; return how many."""
    count = 0
    for i in range(x.shape[0]):
        if x[i, j] > 0:
            members[count] = i
            count += 1
    return count


@kernel
def enter(c, x, keys, rows, off, room, size, best, who, j, i, members, end):
    """Row i begins to ship to column j, whose heaps exist. Returns (keys, rows, end of the arena)."""
    m = c.shape[1]
    full = False
    for k in range(m):
        full = full or size[j, k] >= room[j]
    if full:
        return build(c, keys, rows, off, room, size, best, who, j, members, rows_of(x, j, members), end)
    for k in range(m):
        if k != j and c[i, k] < np.inf:
            start = off[j] + k * room[j]
            key = c[i, k] - c[i, j]
            sift_up(keys, rows, start, size[j, k], key, i)
            size[j, k] += 1
            if key < best[j, k]:
                best[j, k] = key
                who[j, k] = i
    return keys, rows, end
