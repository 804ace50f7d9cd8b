"""Transportation by the compiled loops: rows of one unit, rows of any size, and convex congestion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import Real
from dmodels.core.threads import frozen, share
from dmodels.solvers.assignment.limits import GAP_RTOL
from dmodels.solvers.solution import Solution

from .records import BAD, GIVEN_UP, INFEASIBLE, LEFT, NO_WAY, PROVED, SOLVED, Placement, Problems, Shipment, Shipped

#: Marginals may fall by this share of the column's largest before the congestion counts as not convex: they are
#: usually differences of a total cost, and carry its rounding.
MONOTONE_RTOL = 1e-9


#: Where columns are few, the loop over their shortest paths is faster than the simplex (measured on one core): for
#: rows of one unit (`_units`) from so many rows per column on, or twice as many rows as columns, of which there are
#: few; for rows with a supply (`_flow`) from so many per column.
UNITS_PER_COLUMN, FEW_COLUMNS, SUPPLIES_PER_COLUMN = 16, 16, 32

_PROVED, _NOT_PROVED, _NO_WAY = np.int32(0), np.int32(Flag.NOT_CONVERGED), np.int32(Flag.INFEASIBLE)
_NONE, _NAN = np.float64(0), np.float64(np.nan)
_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)


def transport_host(cost: Real, capacity: Real, supply: Real | None = None) -> Solution:
    """`transport` of arrays on the host."""
    capacity = np.asarray(capacity, np.float64)
    n, m = cost.shape[-2:]
    arrays = (cost, capacity) if supply is None else (cost, capacity, np.asarray(supply, np.float64))
    kernels = _kernels_for(n, m, supply is None) if n and m else None
    if kernels is None:
        return _transport_any(*arrays)
    if cost.ndim == 2 and all(a.ndim == 1 for a in arrays[1:]):
        return _ship_one(kernels, np.asarray(cost, np.float64), *arrays[1:])
    return _ship_many(kernels, *arrays)


def transport_one(cost: Real, capacity: Real, supply: Real | None = None) -> Solution | None:
    """`transport_host` of one problem whose arrays need no reading: that would take longer than a small problem."""
    known = type(cost) is type(capacity) is np.ndarray and cost.dtype is capacity.dtype is _FLOAT64
    if not known or cost.ndim != 2 or not cost.size or capacity.shape != cost.shape[1:]:
        return None
    if supply is not None:
        if type(supply) is not np.ndarray or supply.dtype is not _FLOAT64 or supply.shape != cost.shape[:1]:
            return None
    n, m = cost.shape
    kernels = _kernels_for(n, m, supply is None)
    return _ship_one(kernels, cost, capacity, supply) if kernels else None


def _kernels_for(n: int, m: int, units: bool) -> ModuleType | None:
    """The compiled loops that are fastest at this size; None for the general one."""
    if units and n >= (2 if m <= FEW_COLUMNS else UNITS_PER_COLUMN) * m:
        return _unit_kernels()
    return _dense_kernels() if units or n <= SUPPLIES_PER_COLUMN * m else None


@cache
def _unit_kernels() -> ModuleType:
    """Imported when first needed, as numba takes half a second; cached, as even an import statement takes time."""
    from . import _units as _transport_units

    return _transport_units


@cache
def _dense_kernels() -> ModuleType:
    """As `_unit_kernels`."""
    from . import _dense as _transport_dense

    return _transport_dense


def _ship_one(
    kernels: ModuleType, cost: np.ndarray, capacity: np.ndarray, supply: np.ndarray | None = None
) -> Solution:
    """One problem, without the steps that a batch needs: they would take longer than solving it."""
    n, m = cost.shape
    arrays, u, v, load = (np.ascontiguousarray(cost), np.ascontiguousarray(capacity)), *map(np.empty, (n, m, m))
    if supply is None:
        shipped: np.ndarray = np.empty(n, _INT64)
        found = kernels.place_one(*arrays, shipped, u, v, load)
    else:
        shipped = np.zeros((n, m))
        found = kernels.ship_one(*arrays, np.ascontiguousarray(supply), shipped, u, v, load)
    total, gap, balance, steps, ended = found
    if ended == LEFT or (ended == PROVED and not math.isfinite(total + gap)):
        return _transport_any(cost, capacity, supply)
    flags = _NO_WAY if ended == NO_WAY else _PROVED if gap <= GAP_RTOL * balance else _NOT_PROVED
    reduced = _NAN if ended == NO_WAY else _NONE
    certificate = {"row_duals": u, "column_duals": v, "gap": np.float64(gap), "reduced": reduced}
    value = (Placement if supply is None else Shipment)(shipped, load, np.float64(total))
    return Solution(value, certificate, flags, np.int64(steps))


def _ship_many(kernels: ModuleType, *arrays: np.ndarray) -> Solution:
    """A batch by these loops, what they leave by the general loop. `arrays`: cost, capacity and, if any, supply."""
    cost, split = np.asarray(arrays[0], np.float64), len(arrays) > 2
    n, m = cost.shape[-2:]
    batch = _batch_of(cost.shape[:-2], *(a.shape[:-1] for a in arrays[1:]))
    count = math.prod(batch)
    arrays = (_batched(cost, batch, 2), *(_batched(a, batch, 1) for a in arrays[1:]))
    shipped = np.zeros((count, n, m)) if split else np.empty((count, n), np.int64)
    u, v, load = np.empty((count, n)), np.empty((count, m)), np.empty((count, m))
    total, gap, balance = np.empty(count), np.empty(count), np.empty(count)
    ended, steps = np.zeros(count, np.int64), np.empty(count, np.int64)
    found = (shipped, u, v, load, total, gap, balance, ended, steps)
    solve = kernels.ship_many if split else kernels.place_many
    share(lambda i, j: solve(*arrays, i, j, *found), count, 3e-9 * count * n * m)
    reduced, flags = np.zeros(count), np.zeros(count, np.int32)
    flags[gap > GAP_RTOL * balance] = int(Flag.NOT_CONVERGED)
    flags[(ended == PROVED) & ~(np.isfinite(total) & np.isfinite(gap))] = int(Flag.NONFINITE)
    flags[ended == NO_WAY], reduced[ended == NO_WAY] = int(Flag.INFEASIBLE), np.nan
    rest = np.flatnonzero(ended == LEFT)
    if rest.size:
        s = _transport_any(*(a if len(a) == 1 else a[rest] for a in arrays))
        ours: tuple[np.ndarray, ...] = (shipped, load, total, u, v, gap, reduced, flags, steps)
        theirs = (*s.value, *s.certificate.values(), s.flags, s.steps)
        for mine, other in zip(ours, theirs, strict=True):
            mine[rest] = other
    value = Shipment(shipped, load, total) if split else Placement(shipped, load, total)
    return _solution(batch, value, u, v, gap, reduced, flags, steps)


def _solution(
    batch: tuple[int, ...],
    value: Placement | Shipment,
    u: np.ndarray,
    v: np.ndarray,
    gap: np.ndarray,
    reduced: np.ndarray,
    flags: np.ndarray,
    steps: np.ndarray,
) -> Solution:
    """Arrays with all problems along one axis, in the shape of the batch that was asked for."""
    many: Callable[[np.ndarray], np.ndarray] = lambda a: a.reshape((*batch, *a.shape[1:]))
    one: Callable[[np.ndarray], Any] = lambda a: a.reshape(batch)[()]
    shipped, load, total = value
    certificate = {"row_duals": many(u), "column_duals": many(v), "gap": one(gap), "reduced": one(reduced)}
    return Solution(type(value)(many(shipped), many(load), one(total)), certificate, one(flags), one(steps))


def _batch_of(*batches: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*batches)
    except ValueError:
        raise InputError(f"leading axes {', '.join(map(str, batches))} do not broadcast") from None


def _transport_any(cost: Real, capacity: Real, supply: Real | None = None) -> Solution:
    """By the general loop."""
    bad = [(np.isnan(capacity), Flag.NONFINITE), (capacity < 0, Flag.OUT_OF_DOMAIN)]
    width = capacity if supply is not None else np.floor(capacity)  # a row that is one unit cannot be split
    if supply is not None:
        bad += [(~np.isfinite(supply), Flag.NONFINITE), (supply < 0, Flag.OUT_OF_DOMAIN)]
    width = np.where(width >= 0, width, 0.0)[..., None]
    price = np.zeros((1,) * width.ndim).repeat(width.shape[-2], axis=-2)
    return _ship(cost, supply, price, width, bad)


def congestion_host(cost: Real, marginal: Real) -> Solution:
    """`congestion_transport` of arrays on the host."""
    marginal = np.asarray(marginal, np.float64)
    rising = np.maximum.accumulate(marginal, axis=-1)
    with np.errstate(invalid="ignore"):
        fall = np.where(np.isinf(rising) & (marginal == rising), 0.0, rising - marginal)
        size = np.abs(np.where(np.isfinite(marginal), marginal, 0.0)).max(-1, initial=0.0, keepdims=True)
        bad = [
            ((fall > MONOTONE_RTOL * size).any(-1), Flag.OUT_OF_DOMAIN),
            ((np.isnan(marginal) | (marginal == -np.inf)).any(-1), Flag.NONFINITE),
        ]
    width = np.ones((1,) * (marginal.ndim - 2) + marginal.shape[-2:])
    return _ship(cost, None, rising, width, bad, greedy=True)


def _ship(
    cost: Real,
    supply: Real | None,
    price: np.ndarray,
    width: np.ndarray,
    bad: Sequence[tuple[np.ndarray, Flag]],
    greedy: bool = False,
) -> Solution:
    """Solve a broadcast batch. `bad`: (mask (..., something), flag) pairs that keep a problem from being solved."""
    from . import _kernels as kernels

    cost = np.asarray(cost, np.float64)
    n, m = cost.shape[-2:]
    split = supply is not None
    supply = np.ones(n) if supply is None else supply
    batch = _batch_of(cost.shape[:-2], supply.shape[:-1], price.shape[:-2], width.shape[:-2])
    count = math.prod(batch)
    flags = np.zeros(count, np.int32)
    wrong = (np.isnan(cost) | (cost == -np.inf)).any((-1, -2))[..., None]
    for mask, flag in [(wrong, Flag.NONFINITE), *bad]:
        flags |= np.broadcast_to(np.where(mask.any(-1), np.int32(flag), np.int32(0)), batch).reshape(count)
    problems = Problems(*(_batched(a, batch, k) for a, k in ((cost, 2), (supply, 1), (price, 2), (width, 2))))
    shipped = Shipped(
        columns=np.full((0 if split else count, n), -1, np.int64),
        flow=np.zeros((count if split else 0, n, m)),
        row_duals=np.zeros((count, n)),
        column_duals=np.zeros((count, m)),
        loads=np.zeros((count, m)),
        cost=np.zeros(count),
        gap=np.zeros(count),
        state=np.where(flags != 0, BAD, SOLVED),
        steps=np.zeros(count, np.int64),
    )
    columns, flow, u, v, load, total, gap, state, steps = shipped
    if m:
        share(
            lambda first, last: kernels.ship_many(problems, greedy, first, last, shipped), count, 20e-9 * count * n * m
        )
    else:
        state[(state == SOLVED) & (n > 0)] = INFEASIBLE
        u[state == INFEASIBLE] = 1
    for array in (total, gap, load, flow) if split else (total, gap, load):
        array[state != SOLVED] = np.nan
    for array in (u, v):
        array[(state == BAD) | (state == GIVEN_UP)] = np.nan
    total[state == INFEASIBLE], gap[state == INFEASIBLE] = np.inf, np.inf
    flags[state == INFEASIBLE] = int(Flag.INFEASIBLE)
    flags[state == GIVEN_UP] = int(Flag.NOT_CONVERGED)
    with np.errstate(invalid="ignore", over="ignore"):
        balance = np.abs(total) + (problems.supply * np.abs(u)).sum(-1) + (load * np.abs(v)).sum(-1)
        flags[(state == SOLVED) & (gap > GAP_RTOL * balance)] = int(Flag.NOT_CONVERGED)
        flags[(state == SOLVED) & ~np.isfinite(total + gap)] = int(Flag.NONFINITE)  # a sum over the largest float64
    least = np.zeros(count) if greedy else np.minimum(0.0, -v.max(-1, initial=-np.inf))
    reduced = np.where(state == SOLVED, least, np.nan)
    value = Shipment(flow, load, total) if split else Placement(columns, load, total)
    return _solution(batch, value, u, v, gap, reduced, flags, steps)


def _batched(array: np.ndarray, batch: tuple[int, ...], axes: int) -> np.ndarray:
    """`array` as (problems or 1, ...): problems that share it are not given a copy each."""
    core = array.shape[array.ndim - axes :]
    if math.prod(array.shape[: array.ndim - axes]) == 1:
        array = array.reshape((1, *core))
    else:
        array = np.broadcast_to(array, (*batch, *core)).reshape((math.prod(batch), *core))
    return frozen(np.ascontiguousarray(array))
