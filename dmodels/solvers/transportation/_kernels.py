"""Compiled loops of the transportation solver over problems: starting prices, the flow, and what it costs and proves.

Each problem is solved by `_flow`. Where places are contended, its prices start from samples of the rows.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import copy_row, copy_table, kernel, of_batch

from ._flow import PATHS_PER_NODE, solve
from ._prices import choose, greedy_prices, overflow
from .records import GIVEN_UP, INFEASIBLE, SOLVED

#: From so many rows on, prices are first found on samples of the rows.
SAMPLE_FROM = 64


@kernel
def _sampled_prices(c, supply, price, width, lam, keys, rows):
    """Starting prices where places are contended: the optimal ones of ever larger samples of the rows.

    Prices from a sample of n / 4 rows leave an imbalance of the order of sqrt(n), where a blind start leaves one of
    the order of n, so that most paths are found in small problems. Returns (paths, keys, rows).
    """
    n, m = c.shape
    total = supply.sum()
    paths = 0
    stride = 4
    while n // (4 * stride) >= 8:
        stride *= 4
    guess = np.zeros(m + 1)
    while stride > 1:
        count = (n + stride - 1) // stride
        few = np.empty((count, m))
        part = np.empty(count)
        for i in range(count):
            copy_row(few[i], c[i * stride])
            part[i] = supply[i * stride]
        if price.shape[1] == 1:
            room, fee = np.ceil(width * (part.sum() / total)), price
        else:  # one place stands for `stride` places
            slots = (price.shape[1] + stride - 1) // stride
            room, fee = np.ones((m, slots)), np.empty((m, slots))
            for j in range(m):
                for k in range(slots):
                    fee[j, k] = price[j, k * stride]
        x, u, choice = np.empty((count, m)), np.empty(count), np.empty(count, np.int32)
        choose(few, guess, choice)
        more, feasible, keys, rows = solve(few, part, fee, room, guess, choice, x, u, keys, rows, 1e-14 * total)
        paths += more
        if not feasible:
            guess[:] = 0
        stride //= 4
    copy_row(lam, guess)
    return paths, keys, rows


@kernel
def _bill(c, x, price, width, lam, u, columns, flow, load):
    """Write down who ships where; return the cost (by compensated summation) and its gap to the dual bound."""
    n, m = c.shape
    total = 0.0
    lost = 0.0
    gap = 0.0
    for i in range(n):
        for j in range(m):
            amount = x[i, j]
            if amount > 0:
                load[j] += amount
                if columns.size > 0:
                    columns[i] = j
                else:
                    flow[i, j] = amount
                term = c[i, j] * amount
                more = total + term
                lost += (total - more) + term if abs(total) >= abs(term) else (term - more) + total
                total = more
                gap += (c[i, j] + lam[j] - u[i]) * amount
                if columns.size > 0:
                    break
    for j in range(m):
        left = load[j]
        for k in range(price.shape[1]):
            part = min(left, width[j, k])
            if part > 0:
                total += price[j, k] * part
                gap += max(price[j, k] - lam[j], 0.0) * part
                left -= part
            spare = width[j, k] - part
            if spare > 0 and lam[j] > price[j, k]:
                gap += (lam[j] - price[j, k]) * spare
    return total + lost, gap


@kernel(tiered=True)
def ship_many(problems, greedy, first, last, shipped):
    """Solve problems first..last that are not marked as bad: (`Problems` into `Shipped`)."""
    c, supply, price, width = problems
    columns, flow, u, v, load, cost, gap, state, steps = shipped
    n, m = c.shape[1:]
    # a copy of the problem at hand: read-only arrays would be another type, and `solve` compiled a second time
    cb, sb, pb, wb = np.empty((n, m)), np.empty(n), np.empty(price.shape[1:]), np.empty(width.shape[1:])
    x = np.empty((n, m))
    lam = np.empty(m + 1)
    choice = np.empty(n, np.int32)
    keys = np.empty(0, np.float64)
    rows = np.empty(0, np.int32)
    no_columns, no_flow = np.empty(0, np.int64), np.empty((0, 0))
    for b in range(first, last):
        if state[b] != SOLVED:
            continue
        copy_table(cb, of_batch(c, b))
        copy_row(sb, of_batch(supply, b))
        copy_table(pb, of_batch(price, b))
        copy_table(wb, of_batch(width, b))
        lam[:] = 0
        more = 0
        if greedy:
            greedy_prices(cb, sb, pb, wb, lam)
        total = 0.0
        whole = True
        for i in range(n):
            total += sb[i]
            whole = whole and sb[i] == np.floor(sb[i])
        for j in range(m if wb.shape[1] > 0 else 0):
            whole = whole and wb[j, 0] == np.floor(wb[j, 0])
        tol = 0.0 if whole else 1e-14 * total
        choose(cb, lam, choice)
        if n >= SAMPLE_FROM and overflow(choice, sb, pb, wb, lam) > total / 8:
            more, keys, rows = _sampled_prices(cb, sb, pb, wb, lam, keys, rows)
            choose(cb, lam, choice)
        steps[b], feasible, keys, rows = solve(cb, sb, pb, wb, lam, choice, x, u[b], keys, rows, tol)
        given_up = steps[b] >= PATHS_PER_NODE * (n + m)
        steps[b] += more
        for j in range(m):
            v[b, j] = 0.0 - lam[j]
        if given_up or not feasible:
            state[b] = GIVEN_UP if given_up else INFEASIBLE
            continue
        columns_b, flow_b = (columns[b], no_flow) if len(columns) > 0 else (no_columns, flow[b])
        cost[b], gap[b] = _bill(cb, x, pb, wb, lam, u[b], columns_b, flow_b, load[b])
