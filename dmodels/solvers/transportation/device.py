"""Placements on a device: searched in float32, proved in float64, and what is not proved solved again on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dmodels.core.flags import Flag, flag_where
from dmodels.core.records import Real
from dmodels.solvers.assignment.limits import GAP_RTOL
from dmodels.solvers.device import PROVED_RTOL, Program, batched, in_chunks
from dmodels.solvers.roofline import DeviceWork
from dmodels.solvers.solution import Solution

from .host import MONOTONE_RTOL, congestion_host, transport_host
from .records import Placement
from .slots import place, prove, ray


def placement_work(n: int, m: int, paths: float) -> DeviceWork:
    """Of `proved_placement`, n rows on m columns, of which `paths` rows take a path.

    The search reads c in float32 once for each column on a path that has lost a row; in a large batch every path waits
    for the longest, about 4 columns. Some 30 launches a path: relaxation, walk, and the conditions of their loops. The
    proof reads c in float64 9 times. All state is in memory, so that registers bind nothing.
    """
    cells = float(n * m)
    return DeviceWork(
        paths * 4 * 4.0 * cells + 9 * 8.0 * cells,
        flop64=20 * cells + 2.0 * m**3,
        flop32=paths * (4 * 4 * cells + 4 * 3.0 * m * m),
        launches=100 + 30 * paths,
        registers=72,
    )


def proved_placement(c: Array, step: Array) -> tuple[Array, ...]:
    """columns, loads, cost, u, v, gap, paths, proved: one problem of costs c (n, m) and rising steps (m, K), float64.

    The search sees float32 differences from each row's cheapest column, so that a common offset costs no digits.
    """
    least = jnp.min(c, axis=1, keepdims=True)
    easiest = jnp.min(step[:, 0])
    shift = jnp.where(jnp.isfinite(least), least, 0)
    floor = jnp.where(jnp.isfinite(easiest), easiest, 0)
    damaged = jnp.any(~(c > -jnp.inf)) | jnp.any(~(step > -jnp.inf))
    at, paths = place(*(jnp.where(damaged, 0, a).astype(jnp.float32) for a in (c - shift, step - floor)))
    cost, u, v, gap, balance, load = prove(c, step, at)
    numbers = jnp.sum(jnp.where(c == jnp.inf, 0, c)) + jnp.sum(jnp.where(step == jnp.inf, 0, step))
    sound = jnp.isfinite(numbers) & jnp.isfinite(balance)  # the inputs too: a minimum may lose a NaN
    return at, load, cost, u, v, gap, paths, sound & (gap <= PROVED_RTOL * balance)


def unit_steps(capacity: Array, units: int) -> Array:
    """Steps (m, units + 1) of columns that cost nothing up to their capacity (m,), and cannot be had beyond it."""
    unit = jnp.arange(units + 1, dtype=jnp.int32).astype(capacity.dtype)
    return jnp.where(unit[None, :] + 1 <= capacity[:, None], jnp.zeros((), capacity.dtype), jnp.inf)


def _with_capacity(c: Array, capacity: Array) -> tuple[Array, ...]:
    *found, proved = proved_placement(c, unit_steps(capacity, c.shape[0]))
    return *found, proved & jnp.all(capacity >= 0)


def rising_steps(marginal: Array) -> tuple[Array, Array]:
    """(steps that never fall, whether they differ from `marginal` by rounding only)."""
    rising = jax.lax.cummax(marginal, axis=1)
    fall = jnp.where(marginal == rising, 0, rising - marginal)
    size = jnp.max(jnp.where(jnp.isfinite(marginal), jnp.abs(marginal), 0), axis=1, keepdims=True, initial=0)
    return rising, jnp.all(fall <= MONOTONE_RTOL * size)


def _with_congestion(c: Array, marginal: Array) -> tuple[Array, ...]:
    rising, convex = rising_steps(marginal)
    *found, proved = proved_placement(c, rising)
    return *found, proved & convex


def _answered(c: Array, step: Array, bad: Array) -> tuple[Array, ...]:
    """columns, loads, cost, u, v, gap, reduced, flags, steps of one problem in its own precision, without the host;
    `bad` are the flags of problems that are not to be solved."""
    at, paths = place(*(jnp.where(bad != 0, 0, a) for a in (c, step)))
    cost, u, v, gap, balance, load = prove(c, step, at)
    missing = jnp.any(at < 0)
    rtol = max(GAP_RTOL, 32.0 * float(np.finfo(c.dtype).eps))
    flags = jnp.where(bad != 0, bad, flag_where(missing, Flag.INFEASIBLE))
    flags = flags | flag_where((flags == 0) & ~(gap <= rtol * balance), Flag.NOT_CONVERGED)
    answered, infeasible = (bad == 0) & ~missing, (bad == 0) & missing
    cost, gap = (jnp.where(answered, a, jnp.where(infeasible, jnp.inf, jnp.nan)) for a in (cost, gap))
    u, v = (
        jnp.where(answered, dual, jnp.where(infeasible, other, jnp.nan))
        for dual, other in zip((u, v), ray(c, at), strict=True)
    )
    load, reduced = jnp.where(answered, load, jnp.nan), jnp.where(answered, jnp.zeros((), c.dtype), jnp.nan)
    return jnp.where(answered, at, -1), load, cost, u, v, gap, reduced, flags, paths


def answered_transport(c: Array, capacity: Array) -> tuple[Array, ...]:
    """One problem of `transport`, rows of one unit, on whatever device it is traced for."""
    bad = flag_where(jnp.any(~(c > -jnp.inf)) | jnp.any(jnp.isnan(capacity)), Flag.NONFINITE)
    bad = bad | flag_where(jnp.any(capacity < 0), Flag.OUT_OF_DOMAIN)
    return _answered(c, unit_steps(capacity, c.shape[0]), bad)


def answered_congestion(c: Array, marginal: Array) -> tuple[Array, ...]:
    """One problem of `congestion_transport` on whatever device it is traced for."""
    rising, convex = rising_steps(marginal)
    bad = flag_where(jnp.any(~(c > -jnp.inf)) | jnp.any(~(marginal > -jnp.inf)), Flag.NONFINITE)
    return _answered(c, rising, bad | flag_where(~convex, Flag.OUT_OF_DOMAIN))


def transport_program() -> Program:
    """Proved placements of batches of costs (B, n, m) and capacities (B, m)."""
    return batched(_with_capacity)


def congestion_program() -> Program:
    """Proved placements of batches of costs (B, n, m) and marginals (B, m, K)."""
    return batched(_with_congestion)


def transport_on_device(cost: Real, capacity: Real) -> Solution:
    """`transport` of host arrays, rows of one unit."""
    return _solve(transport_program(), transport_host, cost, np.asarray(capacity, np.float64), 1)


def congestion_on_device(cost: Real, marginal: Real) -> Solution:
    """`congestion_transport` of host arrays."""
    return _solve(congestion_program(), congestion_host, cost, np.asarray(marginal, np.float64), 2)


def _solve(
    program: Program,
    on_host: Callable[..., Solution],
    cost: Real,
    columns_side: np.ndarray,
    axes: int,
) -> Solution:
    cost = np.asarray(cost, np.float64)
    side = columns_side.shape[columns_side.ndim - axes :]
    n, m = cost.shape[-2:]
    batch = np.broadcast_shapes(cost.shape[:-2], columns_side.shape[: columns_side.ndim - axes])
    count = math.prod(batch)
    if 0 in (count, n, m, *side):
        return on_host(cost, columns_side)
    arrays = [
        np.broadcast_to(a, (*batch, *core)).reshape((count, *core))
        for a, core in ((cost, (n, m)), (columns_side, side))
    ]
    slots = side[-1] if axes == 2 else n + 1
    found = in_chunks(program, arrays, 8.0 * m * (3 * n + 4 * slots + 4 * m) + 64.0 * n)
    at, load, total, u, v, gap, paths, proved = (np.array(a) for a in found)
    at, paths, reduced, flags = at.astype(np.int64), paths.astype(np.int64), np.zeros(count), np.zeros(count, np.int32)
    ours: tuple[Any, ...] = (at, load, total, u, v, gap, reduced, flags, paths)
    if not proved.all():
        rest = np.flatnonzero(~proved)
        s = on_host(*(a[rest] for a in arrays))
        for mine, other in zip(ours, (*s.value, *s.certificate.values(), s.flags, s.steps), strict=True):
            mine[rest] = other
    at, load, total, u, v, gap, reduced, flags, paths = (a.reshape((*batch, *a.shape[1:]))[()] for a in ours)
    certificate = {"row_duals": u, "column_duals": v, "gap": gap, "reduced": reduced}
    return Solution(Placement(at, load, total), certificate, flags, paths)
