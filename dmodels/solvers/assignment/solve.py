"""Linear assignment, exact and certified, for batches: the least-cost matching of rows to columns."""

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
from dmodels.core.threads import frozen, share
from dmodels.solvers.solution import Solution

#: Backends that a caller can force. None chooses: compiled loops on a CPU, the kernel on a GPU, XLA elsewhere.
BACKENDS = ("cpu", "pallas", "xla")

#: A duality gap above this share of the sum of the magnitudes in the balance is no proof of optimality.
GAP_RTOL = 1e-9

#: What the compiled loop reports of a problem -> flag.
_SOLVED, _INFEASIBLE, _BAD_ENTRIES, _UNSURE, _LARGE_DUALS, _TOO_LARGE = range(6)
_NO_FLAG = np.int32(0)
_FLAGS = np.array([0, Flag.INFEASIBLE, Flag.NONFINITE, Flag.NOT_CONVERGED, 0, Flag.OUT_OF_DOMAIN], np.int32)

#: Integers: what stands for "forbidden", from where on a sum counts as that, and the largest cost accepted.
_FORBIDDEN, _LIMIT, _LARGEST_WHOLE = 2**61, 2**60, 2**58


class Matching(NamedTuple):
    """Which column each row takes (-1: none), and what that costs in total."""

    columns: Any  # (..., n), whole
    cost: Any  # (...,)


def assign(cost: Real, maximize: bool = False, *, backend: str | None = None) -> Solution:
    r"""The matching of rows to columns of least total cost: min over x of sum_i c[i, x_i], columns used at most once.

    `cost` is (..., n, m). min(n, m) pairs are matched; where n > m the other rows get column -1. Leading axes are a
    batch of independent problems. Whole costs are solved in exact integer arithmetic where float64 would round.
    An entry of +inf is forbidden (-inf where `maximize`).

    Returns a `Solution` with

    value         `columns` (..., n), `cost` (...,)
    certificate   `row_duals` u (..., n), `column_duals` v (..., m), `gap`, `reduced`: linear-programming duals.
                  u_i + v_j <= c_ij for all pairs, and the duals of the larger side are <= 0, so that
                  sum u + sum v is a lower bound on every matching's cost; `gap` is how far the cost is above it, and
                  `reduced` the least slack of all these constraints. (For `maximize`, all inequalities turn round.)
    flags         per problem: INFEASIBLE (columns -1, cost inf, and the duals are a Farkas ray: u_i + v_j <= 0 on
                  all pairs that are allowed while sum u + sum v > 0), NONFINITE (a NaN, or -inf among costs to
                  minimise), NOT_CONVERGED (rounding left a gap that proves nothing), OUT_OF_DOMAIN (an integer
                  above 2**58)
    steps         rows scanned

    `backend` forces an engine: "cpu" (compiled loops over problems, on all cores), "pallas" (a GPU kernel, one program
    per problem; interpreted where there is no GPU) or "xla" (plain XLA, anywhere). None takes "cpu" on a CPU, "pallas"
    on a GPU up to 512 columns, else "xla". Where columns repeat (workers with capacities), `transport` is faster.

    NumPy arrays in, NumPy arrays out, in float64 (int64 for integers) whatever `jax.config` says. Inside `jit` and
    `vmap` it yields traced arrays of the cost's own precision. Its derivative with respect to `cost` is the matching
    (the envelope theorem; where the optimum is not unique, one subgradient); columns and certificate are constants.

    Source: R. Jonker and A. Volgenant, Computing 38 (1987) 325-340; D. F. Crouse, IEEE TAES 52 (2016) 1679-1696.

    >>> from dmodels.solvers import assign
    >>> s = assign([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    >>> s.value.columns.tolist(), int(s.value.cost), int(s.certificate["gap"])
    ([1, 0, 2], 5, 0)
    """
    if backend is not None and backend not in BACKENDS:
        raise InputError(f"backend {backend!r} is unknown; accepted are {', '.join(BACKENDS)} or None")
    if type(cost) is np.ndarray and cost.dtype == np.float64 and cost.ndim == 2 and not maximize and backend is None:
        if 0 < cost.shape[0] <= cost.shape[1] and (solution := _solve_one(cost)):
            return solution
    given = cost
    if not isinstance(cost, jax.Array):
        cost = np.asarray(cost)
    if cost.ndim < 2:
        raise InputError(f"cost has shape {cost.shape}; accepted is (..., rows, columns)")
    if not (cost.dtype.kind in "iub" or is_floating(cost.dtype)):
        raise InputError(f"cost has dtype {cost.dtype}; accepted are real numbers")
    traced = isinstance(cost, jax.core.Tracer)
    if not traced and backend in (None, "cpu") and (not isinstance(given, jax.Array) or _on_cpu(given)):
        return _solution(*solve_host(np.asarray(cost), maximize))
    from .traced import assign_traced

    if isinstance(given, jax.Array):
        return _solution(*assign_traced(cost, maximize, backend))
    with jax.enable_x64(True):  # a host array, and a device backend by wish
        found: Solution = jax.tree.map(np.asarray, _solution(*assign_traced(jnp.asarray(cost), maximize, backend)))
        return found


def is_floating(dtype: Any) -> bool:
    """Also true of the 8- and 16-bit floats that NumPy alone does not know."""
    return dtype.kind == "f" or jnp.issubdtype(dtype, jnp.floating)


def _on_cpu(array: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in array.devices())


def _solution(
    columns: Real, cost: Real, u: Real, v: Real, gap: Real, reduced: Real, flags: Real, steps: Real
) -> Solution:
    certificate = {"row_duals": u, "column_duals": v, "gap": gap, "reduced": reduced}
    return Solution(Matching(columns, cost), certificate, flags, steps)


@cache
def _kernels() -> ModuleType:
    """Imported when first needed, as numba takes half a second; cached, as even an import statement takes time."""
    from . import _kernels as _lap_kernels

    return _lap_kernels


def _solve_one(cost: np.ndarray) -> Solution | None:
    """One float64 problem with 0 < n <= m, without the steps that others need: they would take longer than a small
    problem. None where there is more to say than an optimum and its proof."""
    n, m = cost.shape
    exact = _exact_below(n + m)
    x, u, v, total, gap, reduced, state, steps = _kernels().match_one(
        np.ascontiguousarray(cost), GAP_RTOL, exact, 2.0**106 / exact
    )
    if state != _SOLVED:
        return None
    certificate = {"row_duals": u, "column_duals": v, "gap": np.float64(gap), "reduced": np.float64(reduced)}
    return Solution(Matching(x, np.float64(total)), certificate, _NO_FLAG, np.int64(steps))


def solve_host(cost: np.ndarray, maximize: bool = False) -> tuple[np.ndarray, ...]:
    """columns, cost, row duals, column duals, gap, least reduced cost, flags, steps; all on the host."""
    batch, (n, m) = cost.shape[:-2], cost.shape[-2:]
    count = math.prod(batch)
    whole = not is_floating(cost.dtype)
    c = np.asarray(cost, np.float64).reshape((count, n, m))
    size = np.abs(c).max((1, 2), initial=0.0) if whole else np.zeros(0)
    in_integers = whole and size.max(initial=0.0) >= _exact_below(n + m)
    if in_integers:
        c = np.where((size > _LARGEST_WHOLE)[:, None, None], 0, cost.reshape(c.shape)).astype(np.int64)
    if maximize:
        c = -c
    if n > m:
        c = c.swapaxes(1, 2)
    answer = _solve_wide(np.ascontiguousarray(c))
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
    total, gap, reduced, flags, steps = (a.reshape(batch)[()] for a in (total, gap, reduced, _FLAGS[state], steps))
    return columns, total, u, v, gap, reduced, flags, steps


def _exact_below(size: int) -> float:
    """Whole costs below this keep every intermediate sum below 2**53, for duals are sums of n + m costs at most."""
    return 2.0**53 / (2 * (size + 1))


def _inverse(rows: np.ndarray, n: int) -> np.ndarray:
    """From the row of each column to the column of each row, -1 where a row has none."""
    columns = np.full((rows.shape[0], n), -1, np.int64)
    b, j = np.nonzero(rows >= 0)
    columns[b, rows[b, j]] = j
    return columns


def _solve_wide(c: np.ndarray) -> tuple[np.ndarray, ...]:
    """The compiled loop over problems with n <= m, in the arithmetic of c's dtype (float64 or int64)."""
    count, n, m = c.shape
    c = frozen(c)
    integers = c.dtype.kind == "i"
    lowest, big, limit = (-_FORBIDDEN, _FORBIDDEN, _LIMIT) if integers else (-np.inf, np.inf, np.inf)
    x, u, v = np.empty((count, n), np.int64), np.empty((count, n), c.dtype), np.empty((count, m), c.dtype)
    total, gap, reduced = np.empty(count, c.dtype), np.empty(count, c.dtype), np.empty(count, c.dtype)
    state, steps = np.empty(count, np.int64), np.empty(count, np.int64)
    exact = _exact_below(n + m)
    doubtful = (float(_LIMIT), np.inf) if integers else (exact, 2.0**106 / exact)

    def loop(first: int, last: int) -> None:
        _kernels().match_many(
            c, first, last, lowest, big, limit, GAP_RTOL, *doubtful, x, u, v, total, gap, reduced, state, steps
        )

    share(loop, count, count * (3e-7 + 3e-9 * n * m))
    if integers:  # a sum that ran over 2**60 may have been taken for forbidden, or wrapped: then nothing is proved
        state[state != _SOLVED] = _UNSURE
    elif np.count_nonzero(state):
        total[state == _INFEASIBLE], gap[state == _INFEASIBLE] = np.inf, np.inf
        for array in (total, gap, reduced, u, v):
            array[state == _BAD_ENTRIES] = np.nan
    return x, total, u, v, gap, reduced, state, steps


def _refine_whole(c: np.ndarray, answer: tuple[np.ndarray, ...]) -> None:
    """Solve again in integers the problems whose floating costs are whole, but too large for float64 sums."""
    state = answer[6]
    for b in np.flatnonzero((state == _LARGE_DUALS) | (state == _UNSURE)):
        allowed = np.isfinite(c[b])
        if np.abs(c[b][allowed]).max() > 2.0**53 or (c[b][allowed] != np.floor(c[b][allowed])).any():
            continue
        exact = _solve_wide(np.where(allowed, c[b], float(_FORBIDDEN)).astype(np.int64)[None])
        if exact[6][0] == _SOLVED:
            for ours, better in zip(answer, exact, strict=True):
                ours[b] = better[0]
