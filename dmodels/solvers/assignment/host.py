"""Assignment by the compiled loops: floating costs, whole costs in exact arithmetic, and the flags."""

from __future__ import annotations

import math
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import Real
from dmodels.core.threads import WORTH_A_THREAD_S, frozen, share
from dmodels.solvers.solution import Solution

from .limits import GAP_RTOL, doubtful, exact_below
from .records import Matching

#: What the compiled loop reports of a problem -> flag.
_SOLVED, _INFEASIBLE, _BAD_ENTRIES, _UNSURE, _LARGE_DUALS, _TOO_LARGE, _OVERFLOW = range(7)
_FLAGS = np.array(
    [0, Flag.INFEASIBLE, Flag.NONFINITE, Flag.NOT_CONVERGED, 0, Flag.OUT_OF_DOMAIN, Flag.NONFINITE], np.int32
)

#: Integers: what stands for "forbidden", from where on a sum counts as that, and the largest cost accepted.
_FORBIDDEN, _LIMIT, _LARGEST_WHOLE = 2**61, 2**60, 2**58

_INT64, _NO_FLAG = np.dtype(np.int64), np.int32(0)

#: A named tuple in half the time that its own constructor takes.
_record: Any = tuple.__new__


class Batch(NamedTuple):
    """What the compiled loop leaves of each problem."""

    columns: np.ndarray
    cost: np.ndarray
    row_duals: np.ndarray
    column_duals: np.ndarray
    gap: np.ndarray
    reduced: np.ndarray
    state: np.ndarray
    steps: np.ndarray


def is_floating(dtype: Any) -> bool:
    """Also true of the 8- and 16-bit floats that NumPy alone does not know."""
    return dtype.kind == "f" or jnp.issubdtype(dtype, jnp.floating)


def real_array(name: str, value: Real, axes: int) -> Real:
    """`value` as an array of real numbers with at least so many axes, NumPy's unless it is JAX's."""
    if not isinstance(value, jax.Array):
        try:
            value = np.asarray(value)
        except ValueError:
            raise InputError(f"{name} has rows of several lengths; accepted is an array of numbers") from None
    if value.ndim < axes:
        raise InputError(f"{name} has shape {value.shape}; accepted are at least {axes} axes")
    if not (value.dtype.kind in "fiub" or is_floating(value.dtype)):
        raise InputError(f"{name} has dtype {value.dtype}; accepted are real numbers")
    return value


@cache
def _kernels() -> ModuleType:
    """Imported when first needed, as numba takes half a second; cached, as even an import statement takes time."""
    from . import _kernels as _lap_kernels

    return _lap_kernels


def solve_small(cost: np.ndarray) -> Solution | None:
    """`solve_host` of one float64 problem, or of a few, with 0 < n <= m, without the steps that others need: they would
    take longer than a small problem. None where there is more to say than an optimum and its proof."""
    axes = cost.ndim
    if axes == 3:
        return _solve_few(cost)
    if axes != 2:
        return None
    n, m = cost.shape
    if not 0 < n <= m:
        return None
    x, found = np.empty(1 + n, _INT64), np.empty(3 + n + m)
    if _kernels().match_one(np.ascontiguousarray(cost), x, found):
        return None
    split = 3 + n
    proof = {"row_duals": found[3:split], "column_duals": found[split:], "gap": found[1], "reduced": found[2]}
    answer: Solution = _record(Solution, (_record(Matching, (x[1:], found[0])), proof, _NO_FLAG, x[0]))
    return answer


def _solve_few(cost: np.ndarray) -> Solution | None:
    """`solve_small` for problems (count, n, m) that are not worth a second thread; None where they are, too."""
    count, n, m = cost.shape
    if not (count and 0 < n <= m) or _work_s(count, n, m) > WORTH_A_THREAD_S:
        return None
    x, found = np.empty((count, 1 + n), _INT64), np.empty((count, 3 + n + m))
    if _kernels().match_few(np.ascontiguousarray(cost), x, found):
        return None
    u, v = found[:, 3 : 3 + n], found[:, 3 + n :]
    proof = {"row_duals": u, "column_duals": v, "gap": found[:, 1], "reduced": found[:, 2]}
    return Solution(Matching(x[:, 1:], found[:, 0]), proof, np.zeros(count, np.int32), x[:, 0])


def _work_s(count: int, n: int, m: int) -> float:
    """Rough time of so many problems."""
    return count * (3e-7 + 3e-9 * n * m)


def solve_host(cost: np.ndarray, maximize: bool = False) -> tuple[np.ndarray, ...]:
    """columns, cost, row duals, column duals, gap, least reduced cost, flags, steps; all on the host."""
    batch, (n, m) = cost.shape[:-2], cost.shape[-2:]
    count = math.prod(batch)
    whole = not is_floating(cost.dtype)
    c = np.asarray(cost, np.float64).reshape((count, n, m))
    size = np.abs(c).max((1, 2), initial=0.0) if whole else np.zeros(0)
    in_integers = whole and size.max(initial=0.0) >= exact_below(n + m)
    if in_integers:
        c = np.where((size > _LARGEST_WHOLE)[:, None, None], 0, cost.reshape(c.shape)).astype(np.int64)
    if maximize:
        c = -c
    if n > m:
        c = c.swapaxes(1, 2)
    answer = _solve_wide(c)
    columns, total, u, v, gap, reduced, state, steps = answer
    if not whole and state.any():
        _refine_whole(c, answer)
    if in_integers:
        state[size > _LARGEST_WHOLE] = _TOO_LARGE
        columns[state == _TOO_LARGE] = -1
    if n > m:
        u, v, columns = v, u, _inverse(columns, n)
    if maximize:
        total, u, v = -total, -u, -v
    if whole and not in_integers:
        total, u, v, gap, reduced = (a.astype(np.int64) for a in (total, u, v, gap, reduced))
    columns, u, v = columns.reshape((*batch, n)), u.reshape((*batch, n)), v.reshape((*batch, m))
    flags = _FLAGS[state]
    total, gap, reduced, flags, steps = (a.reshape(batch)[()] for a in (total, gap, reduced, flags, steps))
    return columns, total, u, v, gap, reduced, flags, steps


def rematched(
    cost: np.ndarray, columns: np.ndarray, u: np.ndarray, v: np.ndarray, maximize: bool
) -> tuple[Any, ...] | None:
    """What `solve_host` returns of one problem, from the matching and duals of similar costs; None where that proves
    nothing."""
    n, m = cost.shape
    whole = not is_floating(cost.dtype)
    c = np.asarray(cost, np.float64)
    if whole and np.abs(c).max() >= exact_below(n + m):
        return None
    x, old = columns[None].astype(np.int64), np.asarray(u if n > m else v, np.float64)
    if maximize:
        c, old = -c, -old
    if n > m:
        c, x = c.T, _inverse(x, m)
    c = frozen(np.ascontiguousarray(c))
    square = c if n == m else frozen(np.concatenate([c, np.zeros((abs(n - m), c.shape[1]))]))
    rows, prices, x = np.empty(len(c)), np.array(old), x[0]
    total, gap, reduced, state, steps = _kernels().rematch(c, square, GAP_RTOL, *doubtful(n + m), x, rows, prices)
    if state:
        return None
    u, v = rows, prices
    if n > m:
        u, v, x = v, u, _inverse(x[None], n)[0]
    if maximize:
        total, u, v = -total, -u, -v
    kind = np.int64 if whole else np.float64
    total, gap, reduced, u, v = (np.asarray(a, kind)[()] for a in (total, gap, reduced, u, v))
    return x, total, u, v, gap, reduced, _NO_FLAG, np.int64(steps)


def _inverse(rows: np.ndarray, n: int) -> np.ndarray:
    """From the row of each column to the column of each row, -1 where a row has none."""
    columns = np.full((rows.shape[0], n), -1, np.int64)
    b, j = np.nonzero(rows >= 0)
    columns[b, rows[b, j]] = j
    return columns


def _solve_wide(c: np.ndarray) -> Batch:
    """The compiled loop over problems with n <= m, in the arithmetic of c's dtype (float64 or int64)."""
    count, n, m = c.shape
    c = frozen(np.ascontiguousarray(c))
    integers = c.dtype.kind == "i"
    lowest, big, limit = (-_FORBIDDEN, _FORBIDDEN, _LIMIT) if integers else (-np.inf, np.inf, np.inf)
    x, u, v = np.empty((count, n), np.int64), np.empty((count, n), c.dtype), np.empty((count, m), c.dtype)
    total, gap, reduced = np.empty(count, c.dtype), np.empty(count, c.dtype), np.empty(count, c.dtype)
    state, steps = np.empty(count, np.int64), np.empty(count, np.int64)
    limits = GAP_RTOL, *((float(_LIMIT), np.inf) if integers else doubtful(n + m))

    def loop(first: int, last: int) -> None:
        _kernels().match_many(c, first, last, lowest, big, limit, *limits, x, u, v, total, gap, reduced, state, steps)

    share(loop, count, _work_s(count, n, m))
    if integers:  # a sum that ran over 2**60 may have been taken for forbidden, or wrapped: then nothing is proved
        state[state != _SOLVED] = _UNSURE
    elif np.count_nonzero(state):
        total[state == _INFEASIBLE], gap[state == _INFEASIBLE] = np.inf, np.inf
        for array in (total, gap, reduced, u, v):
            array[state == _BAD_ENTRIES] = np.nan
    return Batch(x, total, u, v, gap, reduced, state, steps)


def _refine_whole(c: np.ndarray, answer: Batch) -> None:
    """Solve again in integers the problems whose floating costs are whole, but too large for float64 sums."""
    for b in np.flatnonzero((answer.state == _LARGE_DUALS) | (answer.state == _UNSURE)):
        allowed = np.isfinite(c[b])
        if np.abs(c[b][allowed]).max() > 2.0**53 or (c[b][allowed] != np.floor(c[b][allowed])).any():
            continue
        exact = _solve_wide(np.where(allowed, c[b], float(_FORBIDDEN)).astype(np.int64)[None])
        if exact.state[0] == _SOLVED:
            for ours, better in zip(answer, exact, strict=True):
                ours[b] = better[0]
