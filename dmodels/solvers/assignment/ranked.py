"""The k cheapest assignments in order, and the assignment whose dearest pair is cheapest."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers.solution import Solution

from .records import Matching
from .solve import assign


def ranked_assignments(cost: Any, count: int) -> Solution:
    """The `count` cheapest assignments of n rows to m >= n columns, cheapest first (Murty, Operations Research 16,
    1968).

    cost (n, m), inf forbids a pair. `value`: columns (count, n) and cost (count,); -1 and inf from where on there are
    no more, with the flag INFEASIBLE. Certificate: "next_cost", the cost of the cheapest assignment that is not listed
    (inf where all are): what an unlisted one costs at least. Each answer splits what is left into n problems, solved
    as one batch by `assign`.

    >>> ranked_assignments([[4.0, 1.0], [2.0, 0.0]], 2).value.cost.tolist()
    [3.0, 4.0]
    """
    cost = _table(cost)
    if not count >= 1 or count != int(count):
        raise InputError(f"count = {count}; accepted are whole numbers from 1")
    n = cost.shape[0]
    flags, steps = 0, 0
    found: list[tuple[float, np.ndarray]] = []
    heap: list[Any] = []
    turn = itertools.count()  # of equal costs the first found

    def enter(tables: np.ndarray, fixed: np.ndarray) -> None:
        """Put the best of each table on the heap; `fixed` rows of it are decided."""
        nonlocal flags, steps
        best = assign(tables)
        steps += int(best.steps.sum())
        flags |= int(np.bitwise_or.reduce(best.flags & ~np.int32(Flag.INFEASIBLE), initial=0))
        for b in np.flatnonzero(best.flags == 0):
            entry = (best.value.columns[b], tables[b], int(fixed[b]))
            heapq.heappush(heap, (float(best.value.cost[b]), next(turn), entry))

    enter(cost[None], np.zeros(1, int))
    while heap and len(found) < count:
        total, _, (columns, table, fixed) = heapq.heappop(heap)
        found.append((total, columns))
        parts = np.repeat(table[None], n - fixed, axis=0)
        for part, row in zip(parts, range(fixed, n), strict=True):
            for done in range(fixed, row):
                part[done] = np.where(np.arange(table.shape[1]) == columns[done], part[done], np.inf)
            part[row, columns[row]] = np.inf
        if n > fixed:
            enter(parts, np.arange(fixed, n))
    missing = int(count) - len(found)
    flags |= int(Flag.INFEASIBLE) if missing else 0
    columns = np.stack([*(c for _, c in found), *[np.full(n, -1)] * missing]).astype(np.int64)
    totals = np.array([*(t for t, _ in found), *[np.inf] * missing])
    certificate = {"next_cost": np.float64(heap[0][0] if heap else np.inf)}
    return Solution(Matching(columns, totals), certificate, np.int32(flags), np.int64(steps))


def bottleneck_assignment(cost: Any) -> Solution:
    """The assignment of n rows to m >= n columns whose largest cost is least; of several the one with the least sum.

    `value`: columns (n,) and cost, the largest. Certificate: "blocking_rows" (n,), a set of rows that have fewer
    columns cheaper than `cost` between them than they are (Hall), so that nobody does better; all False where the
    cost is -inf or there is nothing to prove. INFEASIBLE: some pair that is forbidden (inf) would be needed.

    >>> bottleneck_assignment([[4.0, 1.0], [2.0, 3.0]]).value.columns.tolist()
    [1, 0]
    """
    cost = _table(cost)
    levels = np.unique(cost[np.isfinite(cost)])
    low, high = 0, len(levels)  # the first level that will do; len(levels): none
    steps = 0
    while low < high:
        middle, steps = (low + high) // 2, steps + 1
        low, high = (low, middle) if (_matched(cost <= levels[middle]) >= 0).all() else (middle + 1, high)
    if low == len(levels) and cost.size:
        blocked = _blocking(np.isfinite(cost))
        value = Matching(np.full(len(cost), -1), np.float64(np.inf))
        return Solution(value, {"blocking_rows": blocked}, np.int32(Flag.INFEASIBLE), np.int64(steps))
    most = levels[low] if cost.size else -np.inf
    best = assign(np.where(cost <= most, cost, np.inf))
    value = Matching(np.asarray(best.value.columns), np.float64(most))
    return Solution(value, {"blocking_rows": _blocking(cost < most)}, np.int32(best.flags), np.int64(steps))


def _table(cost: Any) -> np.ndarray:
    try:
        table = np.asarray(cost, np.float64)
    except (TypeError, ValueError):
        raise InputError("cost: expected an array of numbers") from None
    if table.ndim != 2 or table.shape[0] > table.shape[1]:
        raise InputError(f"cost has shape {table.shape}; accepted is (rows, columns) with at least as many columns")
    if not (table > -np.inf).all():
        raise InputError("cost holds NaN or -inf; accepted are numbers, and inf for a forbidden pair")
    return table


def _matched(allowed: np.ndarray) -> np.ndarray:
    """The column of each row in a largest matching, -1 where a row has none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    return np.asarray(maximum_bipartite_matching(csr_array(allowed), perm_type="column"))


def _blocking(allowed: np.ndarray) -> np.ndarray:
    """Rows that alternating paths reach from an unmatched row: more than the columns that they may use."""
    column = _matched(allowed)
    rows = np.zeros(len(allowed), bool)
    rows[np.flatnonzero(column < 0)[:1]] = True
    while True:
        columns = np.asarray(allowed[rows].any(axis=0))
        more = rows | ((column >= 0) & np.take(columns, column))
        if (more == rows).all():
            return rows
        rows = more
