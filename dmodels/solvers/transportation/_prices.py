"""Prices and choices of the transportation solver: a row's cheapest column, a column's open segment, a first guess."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel


@kernel
def _cheapest(c, price, i):
    least = np.inf
    where = -1
    for j in range(c.shape[1]):
        r = c[i, j] + price[j]
        less = r < least
        least = r if less else least
        where = j if less else where
    return where


@kernel
def choose(c, lam, choice):
    """Every row's cheapest column at these prices, -1 where all are forbidden."""
    for i in range(c.shape[0]):
        choice[i] = _cheapest(c, lam, i)


@kernel
def open_segment(price, width, seg, used, j):
    """Price and room of the next units of column j (inf, 0 where it is full)."""
    slots = price.shape[1]
    while seg[j] < slots and used[j] >= width[j, seg[j]]:
        seg[j] += 1
        used[j] = 0
    if seg[j] >= slots or price[j, seg[j]] == np.inf:
        return np.inf, 0.0
    return price[j, seg[j]], width[j, seg[j]] - used[j]


@kernel
def last_segment(price, width, seg, used, j):
    """Segment, price and amount of the units that column j opened last (segment -1 where it has none)."""
    if seg[j] < price.shape[1] and used[j] > 0:
        return seg[j], price[j, seg[j]], used[j]
    k = seg[j] - 1
    while k >= 0 and width[j, k] <= 0:
        k -= 1
    if k < 0:
        return -1, -np.inf, 0.0
    return k, price[j, k], width[j, k]


@kernel
def greedy_prices(c, supply, price, width, lam):
    """Starting prices for rising segments: rows choose in turn at the price of the column's next unit."""
    n, m = c.shape
    seg = np.zeros(m, np.int64)
    used = np.zeros(m)
    for j in range(m):
        lam[j] = open_segment(price, width, seg, used, j)[0]
    for i in range(n):
        j = _cheapest(c, lam, i)
        if j >= 0:
            used[j] += supply[i]
            lam[j] = open_segment(price, width, seg, used, j)[0]
    for j in range(m):
        last = last_segment(price, width, seg, used, j)
        lam[j] = last[1] if last[0] >= 0 else 0.0
    lam[m] = 0


@kernel
def overflow(choice, supply, price, width, lam):
    """Supply that finds no place if every row ships to its choice."""
    m = price.shape[0]
    over = np.zeros(m)
    for i in range(choice.shape[0]):
        if choice[i] >= 0:
            over[choice[i]] += supply[i]
    total = 0.0
    for j in range(m):
        for k in range(price.shape[1]):
            if price[j, k] > lam[j]:
                break
            over[j] -= width[j, k]
        total += max(over[j], 0.0)
    return total
