"""The arguments of a game that say its size: lists of constraints, players' blocks, bounds in their several forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real
from dmodels.solvers.functions import floats


def listed(spec: Any) -> list[Any]:
    """A constraint argument as a list of single constraints."""
    if spec is None:
        return []
    if callable(spec) or _linear(spec):
        return [spec]
    if isinstance(spec, Mapping) or not isinstance(spec, Sequence):
        raise InputError("constraints: expected a function g(x) <= 0, a pair (A, b) for A x <= b, or a list of these")
    return [item for entry in spec for item in listed(entry)]


def _linear(spec: Any) -> bool:
    return (
        isinstance(spec, Sequence)
        and len(spec) == 2
        and not any(callable(part) for part in spec)
        and (np.ndim(spec[0]) in (1, 2) and np.ndim(spec[1]) in (0, 1))
    )


def variables_count(players: Any, matrix: Any, limits: list[Any], bounds: Any, x0: Any, blocks: Any) -> int:
    """The number of variables, from whatever tells it."""
    if matrix is not None:
        return int(matrix.shape[0])
    if players and blocks is None and x0 is not None and np.size(x0) % len(players):
        raise InputError(f"x0: {np.size(x0)} numbers for {len(players)} players; give `blocks`, the sizes of each")
    if x0 is not None:
        return int(np.size(x0))
    if blocks is not None:
        return sum(int(b) if isinstance(b, int | np.integer) else len(b) for b in blocks)
    for item in limits:
        if not callable(item):
            return int(np.shape(item[0])[-1])
    if hasattr(bounds, "lb"):
        sizes = [np.size(bounds.lb), np.size(bounds.ub)]
    elif bounds is not None and len(bounds) != 2:
        return len(bounds)
    else:
        sizes = [np.size(b) for b in (bounds or ()) if b is not None]
    if sizes and max(sizes) > 1:
        return max(sizes)
    if players:
        return len(players)
    raise InputError("x0: give a starting point (or bounds of full length), so that the number of variables is known")


def groups_of(blocks: Any, n: int, players: int | None) -> tuple[tuple[int, ...], ...]:
    """Indices of each player's variables, from sizes, from index lists, or by an equal split."""
    if blocks is None:
        count = players if players is not None else n
        if n % count:
            raise InputError(f"blocks: {n} variables do not split evenly over {count} players; give their sizes")
        size = n // count
        return tuple(tuple(range(i * size, (i + 1) * size)) for i in range(count))
    if all(isinstance(b, int | np.integer) for b in blocks):
        edges = np.cumsum([0, *blocks])
        groups: list[Any] = [range(a, b) for a, b in pairwise(edges)]
    else:
        groups = [np.arange(n)[b] if isinstance(b, slice) else b for b in blocks]
    result = tuple(tuple(int(i) for i in g) for g in groups)
    if sorted(i for g in result for i in g) != list(range(n)):
        raise InputError(f"blocks: {list(blocks)} do not cover the {n} variables exactly once")
    if players is not None and len(result) != players:
        raise InputError(f"blocks: {len(result)} blocks for {players} cost functions")
    return result


def sides(bounds: Any, n: int) -> tuple[Real, Real]:
    """(lower, upper) of shape (n,). `(lower, upper)`, or one (low, high) pair per variable as in SciPy; None: no bound.

    With two variables the two forms look alike; a list of pairs is read as SciPy does, anything else as
    (lower, upper), unless that reading leaves no room at all and the other one does.
    """
    if bounds is None:
        return np.full(n, -np.inf), np.full(n, np.inf)
    if hasattr(bounds, "lb"):
        bounds = (bounds.lb, bounds.ub)

    def side(value: Any, missing: float) -> Real:
        values = [missing if v is None else v for v in value] if isinstance(value, list | tuple) else value
        given = floats(missing if values is None else values)
        if given.ndim > 1 or given.size not in (1, n):
            raise InputError(f"bounds: a side of shape {given.shape} does not fit {n} variables")
        if not isinstance(given, jax.core.Tracer) and bool(np.any(np.isnan(given))):
            raise InputError("bounds: a bound is NaN; accepted are numbers, -inf and inf")
        return given.reshape(-1)[np.zeros(n, int)] if given.size == 1 else given

    def as_sides() -> tuple[Real, Real]:
        return side(bounds[0], -np.inf), side(bounds[1], np.inf)

    def as_pairs() -> tuple[Real, Real]:
        return side([p[0] for p in bounds], -np.inf), side([p[1] for p in bounds], np.inf)

    pairs = len(bounds) == n and all(np.ndim(p) == 1 and len(p) == 2 for p in bounds if not callable(p))
    if len(bounds) != 2:
        if not pairs:
            raise InputError(f"bounds: expected (lower, upper) or {n} (low, high) pairs")
        return as_pairs()
    if not pairs or n != 2:
        return as_sides()
    scipy_style = isinstance(bounds, list) and all(isinstance(p, tuple) for p in bounds)
    readings = [as_pairs, as_sides] if scipy_style else [as_sides, as_pairs]
    first = readings[0]()
    if isinstance(first[0], jax.core.Tracer) or isinstance(first[1], jax.core.Tracer) or _has_room(*first):
        return first
    second = readings[1]()
    return second if _has_room(*second) else first


def _has_room(lower: Real, upper: Real) -> bool:
    return bool(np.all(lower <= upper) & np.any(lower < upper))
