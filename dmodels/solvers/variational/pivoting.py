"""Affine games on the host's cores: principal pivoting in compiled code (`affine` says how), game by game."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from dmodels.core.records import Floats
from dmodels.core.threads import frozen, share


@cache
def kernels() -> ModuleType:
    """Imported when first needed, as numba takes half a second."""
    from . import _pivot

    return _pivot


def in_one_layout(parts: Any) -> Any:
    """`Games` of arrays (k, ...) or (1, ...): compiled once."""
    return kernels().Games(*(frozen(np.ascontiguousarray(part)) for part in parts))


def pivoted(games: Any, count: int, most: int) -> tuple[Floats, Floats, np.ndarray]:
    """(x (k, n), multipliers (k, m), rounds (k,)) of `count` games after at most `most` rounds each; whether they are
    equilibria is for others to judge."""
    n, rows = games.offset.shape[-1], games.right.shape[-1]
    x, lam, rounds = np.zeros((count, n)), np.zeros((count, rows)), np.zeros(count, np.int32)
    solve = lambda i, j: kernels().solve_games(games, i, j, most, x, lam, rounds)
    share(solve, count, count * 1e-9 * (n + rows) ** 3)
    return x, lam, rounds
