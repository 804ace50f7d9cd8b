"""Compiled loops of affine games: principal pivoting on the active set, game by game (`affine` says how)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.compiled import kernel, of_batch
from dmodels.core.records import Real

#: Rows that give way by this share of their multiplier make the matrix of the game a P-matrix: pivoting ends.
SOFT = 1e-9


#: Sums may be taken in any order, as vector units take them; NaN and inf keep their meaning.
REORDERED = {"reassoc", "contract"}


def fast(function: Callable[..., Any]) -> Any:
    """A kernel whose sums may be taken in any order."""
    return kernel(function, fastmath=REORDERED)


class Games(NamedTuple):
    """F(x) = matrix x + offset, rows x <= right, low <= x <= high; (k, ...), or (1, ...) where all games share it."""

    matrix: Real
    offset: Real
    rows: Real
    right: Real
    low: Real
    high: Real


@kernel
def one_of(games: Games, k: int) -> Games:
    """Game k."""
    return Games(
        of_batch(games.matrix, k),
        of_batch(games.offset, k),
        of_batch(games.rows, k),
        of_batch(games.right, k),
        of_batch(games.low, k),
        of_batch(games.high, k),
    )


@kernel(tiered=True)
def solve_games(games: Games, first: int, last: int, most: int, x: Real, lam: Real, rounds: Real) -> None:
    """Write x (k, n), lam (k, m) and the rounds used of games first..last."""
    n, rows = x.shape[1], lam.shape[1]
    mk, ak, unit, height = np.empty((n, n)), np.empty((rows, n)), np.empty(n), np.empty(rows)
    system, right = np.empty((n + rows, n + rows)), np.empty(n + rows)
    for k in range(first, last):
        m, q, a, b, low, high = one_of(games, k)
        # y = x / unit and rows / height, powers of two that make the diagonal and the rows of A of the order of 1
        for i in range(n):
            size = abs(m[i, i])
            if size == 0.0:
                for c in range(n):
                    size = max(size, abs(m[i, c]))
            unit[i] = _power(1.0 / math.sqrt(size)) if size > 0.0 else 1.0
        for j in range(rows):
            size = 0.0
            for i in range(n):
                size = max(size, abs(a[j, i]) * unit[i])
            height[j] = _power(size) if size > 0.0 else 1.0
            for i in range(n):
                ak[j, i] = a[j, i] * unit[i] / height[j]
        for i in range(n):
            for c in range(n):
                mk[i, c] = unit[i] * m[i, c] * unit[c]
        game = Games(mk, unit * q, ak, b / height, low / unit, high / unit)
        rounds[k] = _solve(game, system, right, x[k], lam[k], most)
        x[k] *= unit
        lam[k] /= height


@kernel
def _power(value: Real) -> float:
    return math.ldexp(1.0, math.frexp(value)[1])


@kernel
def _solve(game: Games, system: Real, right: Real, x: Real, lam: Real, most: int) -> int:
    """One game; writes x and lam. State of a variable: 0 inside, -1 at its lower bound, 1 at its upper."""
    n, rows = game.offset.shape[0], game.right.shape[0]
    state, tight = np.zeros(n, np.int8), np.zeros(rows, np.bool_)
    _begin(game, x, state)
    index, wish, pull = np.empty(n + rows, np.int64), np.empty(n + rows, np.int8), np.empty(n)
    fewest, patience, soft, done = n + rows + 1, 5, 0.0, False
    for step in range(most):
        inside, size = _assemble(game, x, lam, state, tight, index, system, right)
        for r in range(inside, size):
            system[r, r] = -soft
        column = _eliminate(system, right, size)
        if column < size:
            if column < inside:
                return step + 1
            tight[index[column]] = False  # it says nothing beside the others
            continue
        for r in range(inside):
            x[index[r]] = right[r]
        for r in range(inside, size):
            lam[index[r]] = right[r]
        if done:
            lam[:] = np.maximum(lam, 0.0)
            x[:] = np.minimum(np.maximum(x, game.low), game.high)
            return step + 1
        wrong, last, worst = _wishes(game, x, lam, state, tight, wish, pull)
        if wrong == 0:
            if soft == 0.0:
                return step + 1
            soft, done = 0.0, True  # once more, with rows that do not give way
            continue
        bulk = patience > 0
        if wrong < fewest:
            fewest, patience, bulk = wrong, 5, True
        else:
            patience -= 1
        soft = soft if bulk else SOFT
        for i in range(n):
            if wish[i] != _STAY and (bulk or i == last):
                state[i] = wish[i]
        for j in range(rows):
            if wish[n + j] != _STAY and ((bulk and (tight[j] or j == worst)) or n + j == last):
                tight[j] = not tight[j]
    return most


#: The sign is right: the index keeps its state.
_STAY = np.int8(2)


@fast
def _begin(game: Games, x: Real, state: Real) -> None:
    """At the bounds, with what wants to leave them free: small systems from the first round."""
    m, q, _, _, low, high = game
    n = q.shape[0]
    for i in range(n):
        x[i] = low[i] if np.isfinite(low[i]) else (high[i] if np.isfinite(high[i]) else 0.0)
    for i in range(n):
        r = q[i]
        for c in range(n):
            r += m[i, c] * x[c]
        if low[i] == high[i] or (np.isfinite(low[i]) and r >= 0.0):
            state[i] = -1
        elif not np.isfinite(low[i]) and np.isfinite(high[i]) and r <= 0.0:
            state[i] = 1


@fast
def _assemble(
    game: Games, x: Real, lam: Real, state: Real, tight: Real, index: Real, system: Real, right: Real
) -> tuple[int, int]:
    """The linear system of the free variables and tight rows, which `index` lists: (free ones, all)."""
    m, q, a, b, low, high = game
    n, rows = q.shape[0], b.shape[0]
    size, away = 0, False
    for i in range(n):
        if state[i] == 0:
            index[size] = i
            size += 1
            x[i] = 0.0
        else:
            x[i] = low[i] if state[i] < 0 else high[i]
            away |= x[i] != 0.0
    inside = size
    for j in range(rows):
        lam[j] = 0.0
        if tight[j]:
            index[size] = j
            size += 1
    for r in range(size):
        if r < inside:
            source, total = m[index[r]], -q[index[r]]
        else:
            source, total = a[index[r]], b[index[r]]
        if away:
            for c in range(n):
                total -= source[c] * x[c]
        right[r] = total
        for c in range(inside):
            system[r, c] = source[index[c]]
        for c in range(inside, size):
            system[r, c] = a[index[c], index[r]] if r < inside else 0.0
    return inside, size


@fast
def _wishes(game: Games, x: Real, lam: Real, state: Real, tight: Real, wish: Real, pull: Real) -> tuple[int, int, int]:
    """Writes the state that each variable and row wants, `_STAY` where its sign is right; (how many are wrong, the
    last of them, the row most exceeded). `pull` (n,) is room for A' lam."""
    m, q, a, b, low, high = game
    n, rows = q.shape[0], b.shape[0]
    wrong, last, worst, most = 0, -1, -1, 0.0
    pull[:] = 0.0
    for j in range(rows):
        if lam[j] != 0.0:
            for i in range(n):
                pull[i] += a[j, i] * lam[j]
    for i in range(n):
        wish[i] = _STAY
        if state[i] == 0:
            if x[i] < low[i]:
                wish[i] = -1
            elif x[i] > high[i]:
                wish[i] = 1
        elif low[i] < high[i]:
            r = pull[i] + q[i]
            for c in range(n):
                r += m[i, c] * x[c]
            if (state[i] < 0 and r < 0.0) or (state[i] > 0 and r > 0.0):
                wish[i] = 0
        if wish[i] != _STAY:
            wrong += 1
            last = i
    for j in range(rows):
        wish[n + j] = _STAY
        if tight[j]:
            bad = lam[j] < 0.0
        else:
            total = -b[j]
            for c in range(n):
                total += a[j, c] * x[c]
            bad = total > 0.0
            if total > most:
                worst, most = j, total
        if bad:
            wish[n + j] = 0
            wrong += 1
            last = n + j
    return wrong, last, worst


@fast
def _eliminate(system: Real, right: Real, size: int) -> int:
    """Solve in place by Gaussian elimination with row pivoting; the column without a pivot, `size` if each has one."""
    for k in range(size):
        best, row = abs(system[k, k]), k
        for i in range(k + 1, size):
            if abs(system[i, k]) > best:
                best, row = abs(system[i, k]), i
        if not best > 1e-14:
            return k
        if row != k:
            for j in range(k, size):
                system[k, j], system[row, j] = system[row, j], system[k, j]
            right[k], right[row] = right[row], right[k]
        pivot = 1.0 / system[k, k]
        for i in range(k + 1, size):
            factor = system[i, k] * pivot
            if factor != 0.0:
                for j in range(size - k - 1):
                    system[i, k + 1 + j] -= factor * system[k, k + 1 + j]
                right[i] -= factor * right[k]
    for k in range(size - 1, -1, -1):
        total = right[k]
        for j in range(k + 1, size):
            total -= system[k, j] * right[j]
        right[k] = total / system[k, k]
    return size
