r"""Divisible load on parallel resources: all used ones equally slow, no unused one faster (Wardrop's principle)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.records import Real, float64

from .functions import as_array, check_shape, result_shape
from .roofline import DeviceWork
from .solution import Solution

_HALVINGS = 80


def wardrop_work(m: int, operations: float = 5.0) -> DeviceWork:
    """Of one `wardrop` on m resources whose latency takes `operations`: a bisection of loads within one of levels, the
    ends of both read and written at each turn, two launches a turn (the body, the loop's condition)."""
    turns = (_HALVINGS + 2.0) * _HALVINGS
    return DeviceWork(turns * 4 * 8.0 * m, flop64=turns * operations * m, launches=2 * turns, registers=40)


@float64
def wardrop(latency: Callable[[Real], Real], demand: Real, capacity: Real) -> Solution:
    r"""x with $\sum_j x_j = r$ and $f_j(x_j) = \lambda$ where $x_j > 0$, $f_j(0) \ge \lambda$ elsewhere.

    `latency` maps loads (..., m) to latencies (..., m), nondecreasing in its own load, finite below `capacity` (...,
    m; inf is no limit). `demand` is (...). Water-filling by bisection on the level, the loads at a level by bisection
    too, flat latencies share what is left; then one Newton step on the stopped answer, which polishes it and carries
    the derivative of loads and level by anything that `latency` and `demand` depend on (a bisection's own is 0).

    `value` has `loads` and `level`. Certificate: `spread` = slowest used minus fastest any, relative to the level (next
    to 0, to 1e-9 of the slowest at an even split); `excess` = |sum x - r| / r. Flags: OVERLOAD where the demand is not
    below the capacity, OUT_OF_DOMAIN where it is negative.

    In float64, whatever `jax.config` says: near a pole float32 cannot part the loads.

    For the social optimum hand over marginal costs: `marginal(latency)`.

    >>> s = wardrop(lambda x: jnp.array([1.0, 0.0]) * x + jnp.array([0.0, 1.0]), 1.0, jnp.inf)  # Pigou
    >>> [round(float(v), 6) for v in s.value["loads"]]
    [1.0, 0.0]
    """
    demand = jnp.asarray(demand, float)
    shape = latencies_shape(latency, jnp.zeros(jnp.shape(capacity) or (1,)) + 0.0 * demand[..., None])
    latency = as_array(latency)
    capacity = jnp.broadcast_to(jnp.asarray(capacity, float), shape)
    fits = demand < jnp.sum(capacity, axis=-1)
    top = jnp.minimum(capacity, jnp.broadcast_to(demand[..., None], shape))
    stopped: Callable[[Real], Real] = lambda x: jax.lax.stop_gradient(latency(x))

    def loads_at(level: Real) -> Real:
        """Greatest loads (on `below`: least) at which nobody is slower than the level."""

        def halve(_: Real, ends: tuple[Real, Real]) -> tuple[Real, Real]:
            low, high = ends
            middle = 0.5 * (low + high)
            ok = stopped(middle) <= level[..., None]
            return jnp.where(ok, middle, low), jnp.where(ok, high, middle)

        zero = jnp.zeros(shape)
        low, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (zero, jax.lax.stop_gradient(top)))
        full = stopped(jax.lax.stop_gradient(top)) <= level[..., None]
        return jnp.where(full, jax.lax.stop_gradient(top), low)

    first = stopped(jnp.zeros(shape))
    # a level at which demand is met: every worker at its share of the demand, or of the capacity where that is finite
    share = jnp.where(jnp.isfinite(capacity), capacity, top)
    share = share * jnp.minimum(1.0, (demand / jnp.sum(share, axis=-1)))[..., None]
    level_high = jnp.max(stopped(jax.lax.stop_gradient(share)), axis=-1)
    level_low = jnp.min(first, axis=-1)
    level_low = level_low - 1e-15 * jnp.abs(level_low) - 1e-300  # one at which nobody is served, flat ones neither

    def halve_level(_: Real, ends: tuple[Real, Real]) -> tuple[Real, Real]:
        low, high = ends
        middle = 0.5 * (low + high)
        enough = jnp.sum(loads_at(middle), axis=-1) >= demand
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve_level, (level_low, level_high))
    x_low = jnp.where(first > low[..., None], 0.0, loads_at(low))
    x_high = loads_at(high)
    x_low = jnp.minimum(x_low, x_high)
    gap = jnp.sum(x_high - x_low, axis=-1)
    part = jnp.where(gap > 0, (demand - jnp.sum(x_low, axis=-1)) / jnp.where(gap > 0, gap, 1.0), 0.0)
    loads = x_low + jnp.clip(part, 0.0, 1.0)[..., None] * (x_high - x_low)
    loads, level, steps = _newton(latency, jax.lax.stop_gradient(loads), jax.lax.stop_gradient(high), demand, capacity)
    at = latency(loads)
    used = loads > 1e-9 * demand[..., None]
    slowest = jnp.max(jnp.where(used, at, -jnp.inf), axis=-1)
    spread = slowest - jnp.min(jnp.where(loads < capacity, at, jnp.inf), axis=-1)
    spread = spread / jnp.maximum(jnp.abs(level), 1e-9 * jnp.abs(level_high))
    excess = jnp.abs(jnp.sum(loads, axis=-1) / demand - 1.0)
    flags = flag_where(~fits, Flag.OVERLOAD) | flag_nonfinite(level)
    flags = flags | flag_where(demand < 0, Flag.OUT_OF_DOMAIN)
    flags = flags | flag_where(((spread > 1e-6) | (excess > 1e-9)) & fits, Flag.NOT_CONVERGED)
    return Solution({"loads": loads, "level": level}, {"spread": spread, "excess": excess}, flags, steps)


def latencies_shape(latency: Callable[[Real], Real], loads: Real) -> tuple[int, ...]:
    """The shape of loads and latencies alike, which may be wider than that of `loads`; `InputError` where none is."""
    wanted = "a function of the loads (..., m) to the latencies (..., m)"
    shape = result_shape("latency", latency, wanted, loads)
    check_shape("latency", latency, wanted, shape or (1,), jnp.zeros(shape or (1,)))
    if shape != loads.shape and _joined(shape, loads.shape) != shape:
        raise InputError(f"latency: it returns numbers of shape {shape}; accepted is {wanted}, {loads.shape} here")
    return shape


def _joined(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that all broadcast to, where there is one."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _newton(
    latency: Callable[[Real], Real], loads: Real, level: Real, demand: Real, capacity: Real
) -> tuple[Real, Real, Real]:
    """One Newton step on f_j(x_j) = level (used), sum x = demand; flat latencies keep their loads, full resources too,
    which may be faster than the level."""
    shape = loads.shape
    full = loads >= capacity
    loads = jnp.where(full, capacity, loads)
    _, slope = jax.jvp(latency, (loads,), (jnp.ones(shape),))
    slope = jax.lax.stop_gradient(slope)
    now = latency(loads)
    used = (
        (loads > 0)
        & ~full
        & jnp.isfinite(now)
        & (slope > 1e-9 * level[..., None] / jnp.maximum(demand[..., None], 1e-300))
    )
    steep = jnp.where(used, slope, 1.0)
    weight = jnp.where(used, 1.0 / steep, 0.0)
    total = jnp.sum(weight, axis=-1)
    any_steep = total > 0
    flat = (loads > 0) & ~used & ~full
    pinned = jnp.any(flat, axis=-1)  # a flat worker in use sets the level
    flat_level = jnp.min(jnp.where(flat, now, jnp.inf), axis=-1)
    base = jnp.sum(loads - jnp.where(used, now / steep, 0.0), axis=-1)
    free_level = (demand - base) / jnp.where(any_steep, total, 1.0)
    new_level = jnp.where(pinned, flat_level, jnp.where(any_steep, free_level, level))
    moved = jnp.where(used, jnp.minimum(loads + (new_level[..., None] - now) / steep, capacity), loads)
    rest = demand - jnp.sum(jnp.where(flat, 0.0, moved), axis=-1)
    flat_total = jnp.sum(jnp.where(flat, loads, 0.0), axis=-1)
    scale = jnp.where(pinned, rest / jnp.where(pinned, flat_total, 1.0), 1.0)
    moved = jnp.maximum(jnp.where(flat, loads * scale[..., None], moved), 0.0)
    return moved, new_level, jnp.full(demand.shape, 2 * _HALVINGS, jnp.int32)


def marginal(latency: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """x f(x)' per resource: the latency under which the social optimum is the equilibrium."""

    def value(x: Real) -> Real:
        f, slope = jax.jvp(latency, (x,), (jnp.ones_like(x),))
        return f + x * slope

    return value
