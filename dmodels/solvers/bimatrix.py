"""Mixed equilibria of small finite two-player games: all extreme ones, in exact rational arithmetic.

A mixed strategy y with payoff 1/t against a positive payoff matrix A is a point of {y >= 0, A y <= 1} scaled by t, and
an equilibrium is a pair of vertices that together touch the inequality of every pure strategy of either player
(B. von Stengel, *Equilibrium computation for two-player games*, in *Algorithmic Game Theory*, 2007, 3.5). All vertices
are listed, so that degenerate games are answered too: their equilibria are the convex hulls of extreme ones that share
a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from dmodels.core.errors import InputError

from .solution import Solution

if TYPE_CHECKING:
    from dmodels.core.records import Real

#: Candidate vertices of one side up to which a game is taken: 8 x 8 actions, about half a minute.
MOST_CANDIDATES = 12_870

_Vertex = tuple[tuple[Fraction, ...], frozenset[int]]


def mixed_equilibria(row_payoff: Real, column_payoff: Real | None = None) -> Solution:
    """All extreme Nash equilibria of the game in which both players maximise; (n, m) each, zero-sum where one is given.

    value         `row_strategies` (k, n), `column_strategies` (k, m), `row_payoffs` (k,), `column_payoffs` (k,)
    certificate   `row_regret`, `column_regret` (k,): what the best pure strategy would gain. They are computed from the
                  strategies in rational arithmetic on the given numbers, so 0 is exact; `joined` (k, k): whether every
                  mix of the two equilibria is one too (a segment of a degenerate game)
    flags         0: the list is complete
    steps         candidate vertices looked at

    >>> s = mixed_equilibria([[3, 0], [5, 1]], [[3, 5], [0, 1]])  # the prisoner's dilemma
    >>> s.value["row_strategies"].tolist(), s.value["column_strategies"].tolist()
    ([[0.0, 1.0]], [[0.0, 1.0]])
    """
    a = _payoffs("row_payoff", row_payoff)
    b = -a if column_payoff is None else _payoffs("column_payoff", column_payoff)
    if a.shape != b.shape:
        raise InputError(f"column_payoff has shape {b.shape}; accepted is that of row_payoff, {a.shape}")
    n, m = a.shape
    if (count := comb(n + m, n)) > MOST_CANDIDATES:
        raise InputError(f"row_payoff: {n} x {m} actions have {count:,} candidates; accepted are {MOST_CANDIDATES:,}")
    exact_a, exact_b = _exact(a), _exact(b)
    # labels 0..n-1: the row player's actions; n..n+m-1: the column player's
    rows = _vertices(list(map(list, zip(*_positive(exact_b), strict=True))), n, range(n), range(n, n + m))
    columns = _vertices(_positive(exact_a), m, range(n, n + m), range(n))
    every = frozenset(range(n + m))
    pairs = [(x, y) for x, touched in rows for y, met in columns if touched | met == every and any(x) and any(y)]
    shares = [(_scaled(x), _scaled(y)) for x, y in pairs]
    known = {x: touched for x, touched in rows}, {y: met for y, met in columns}
    joined = np.zeros((len(pairs),) * 2, bool)
    for i, (x, y) in enumerate(pairs):
        for j, (v, w) in enumerate(pairs):
            joined[i, j] = (known[0][x] & known[0][v]) | (known[1][y] & known[1][w]) == every
    paid = [_regrets(exact_a, exact_b, x, y) for x, y in shares]
    numbers = np.array([[float(v) for v in four] for four in paid]).reshape(-1, 4)
    value = {
        "row_strategies": np.array([[float(v) for v in x] for x, _ in shares]).reshape(-1, n),
        "column_strategies": np.array([[float(v) for v in y] for _, y in shares]).reshape(-1, m),
        "row_payoffs": numbers[:, 0],
        "column_payoffs": numbers[:, 1],
    }
    certificate = {"row_regret": numbers[:, 2], "column_regret": numbers[:, 3], "joined": joined}
    return Solution(value, certificate, np.int32(0), np.int64(2 * count))


def _payoffs(name: str, given: Any) -> np.ndarray:
    try:
        found = np.asarray(given, float)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected a matrix of numbers") from None
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise InputError(f"{name} has shape {found.shape}; accepted are finite numbers (rows, columns), one at least")
    return found


def _exact(matrix: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(value) for value in row] for row in matrix.tolist()]


def _positive(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """All payoffs raised to 1 at least, which moves no equilibrium."""
    low = min(map(min, matrix))
    return [[value - low + 1 for value in row] for row in matrix]


def _vertices(payoff: list[list[Fraction]], size: int, own: range, others: range) -> list[_Vertex]:
    """Vertices of {x >= 0, payoff x <= 1} with the labels they touch: own actions not played, best responses to x."""
    unit = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    rows, right = unit + payoff, [Fraction(0)] * size + [Fraction(1)] * len(payoff)
    labels = [*own, *others]
    found: dict[tuple[Fraction, ...], frozenset[int]] = {}
    for chosen in combinations(range(len(rows)), size):
        x = _solved([rows[i] for i in chosen], [right[i] for i in chosen])
        if x is None or x in found or min(x) < 0:
            continue
        sides = [_dot(row, x) for row in payoff]
        if max(sides) > 1:
            continue
        touched = [value == 0 for value in x] + [side == 1 for side in sides]
        found[x] = frozenset(label for label, is_met in zip(labels, touched, strict=True) if is_met)
    return list(found.items())


def _solved(matrix: list[list[Fraction]], right: list[Fraction]) -> tuple[Fraction, ...] | None:
    """The solution of a square system by Gauss and Jordan; None where there is not exactly one."""
    table = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(table)):
        pivot = next((i for i in range(k, len(table)) if table[i][k]), None)
        if pivot is None:
            return None
        table[k], table[pivot] = table[pivot], table[k]
        lead = table[k][k]
        table[k] = [value / lead for value in table[k]]
        for i, row in enumerate(table):
            if i != k and (factor := row[k]):
                table[i] = [value - factor * other for value, other in zip(row, table[k], strict=True)]
    return tuple(row[-1] for row in table)


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def _scaled(x: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    total = sum(x)
    return tuple(value / total for value in x)


def _regrets(a: list[list[Fraction]], b: list[list[Fraction]], x: Any, y: Any) -> tuple[Fraction, ...]:
    """(row payoff, column payoff, row regret, column regret)."""
    of_rows = [_dot(row, y) for row in a]
    of_columns = [_dot(column, x) for column in zip(*b, strict=True)]
    row, column = _dot(of_rows, x), _dot(of_columns, y)
    return row, column, max(of_rows) - row, max(of_columns) - column
