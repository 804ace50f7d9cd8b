"""Assignment inside `jit`, `vmap` and `grad`: which engine runs, and what the derivative is."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.devices import accelerators
from dmodels.core.flags import Flag, flag_where
from dmodels.solvers.callback import call_host

from .host import solve_host
from .limits import GAP_RTOL


@jax.custom_jvp
def priced(cost, columns, total):
    """`total`, whose derivative by `cost` is the matching: d total = sum_i d cost[i, columns_i]."""
    return total


@priced.defjvp
def _priced_jvp(primals, tangents):
    _, columns, total = primals
    chosen = jnp.take_along_axis(tangents[0], jnp.maximum(columns, 0)[..., None], axis=-1)[..., 0]
    return total, jnp.sum(jnp.where(columns >= 0, chosen, 0), axis=-1).astype(total.dtype)


@partial(jax.jit, static_argnames=("maximize", "backend"))
def assign_traced(cost, maximize: bool, backend: str) -> tuple:
    """columns, cost, row duals, column duals, gap, least reduced cost, flags, steps; all traced."""
    if not jnp.issubdtype(cost.dtype, jnp.floating) and (backend != "auto" or cost.dtype != jnp.int64):
        cost = cost.astype(float)  # whole costs: exact up to 2**53 in float64, up to 2**24 where x64 is off
    fixed = jax.lax.stop_gradient(cost)
    if backend == "auto" and not accelerators():
        backend = "cpu"
    if 0 in cost.shape[-2:]:
        found = _nothing_to_match(fixed)
    elif backend in _ENGINES:
        found = _ENGINES[backend](fixed, maximize)
    else:
        found = jax.lax.platform_dependent(
            fixed,
            cpu=partial(_on_host if backend == "auto" else _in_xla, maximize=maximize),
            cuda=partial(_on_gpu, maximize=maximize),
            default=partial(_in_xla, maximize=maximize),
        )
    columns, total, *rest = found
    if jnp.issubdtype(cost.dtype, jnp.floating) and cost.shape[-1]:
        total = priced(cost, columns, total)
    return columns, total, *rest


def _nothing_to_match(cost) -> tuple:
    batch, (n, m) = cost.shape[:-2], cost.shape[-2:]
    zero, none = jnp.zeros(batch, cost.dtype), jnp.zeros(batch, jnp.int32)
    u, v = jnp.zeros((*batch, n), cost.dtype), jnp.zeros((*batch, m), cost.dtype)
    return jnp.full((*batch, n), -1, jnp.int32), zero, u, v, zero, zero, none, none


def _on_host(cost, maximize: bool) -> tuple:
    batch, (n, m) = cost.shape[:-2], cost.shape[-2:]
    shapes = [(*batch, n), batch, (*batch, n), (*batch, m), batch, batch, batch, batch]
    dtypes = [np.int32, *[cost.dtype] * 5, np.int32, np.int32]
    return call_host(partial(solve_host, maximize=maximize), shapes, dtypes, cost)


def _in_xla(cost, maximize: bool) -> tuple:
    from .xla import match

    return _on_device(jax.vmap(match), cost, maximize)


def _on_gpu(cost, maximize: bool) -> tuple:
    from .pallas import LARGEST, match_batch

    if max(cost.shape[-2:]) > LARGEST:
        return _in_xla(cost, maximize)
    return _on_device(match_batch, cost, maximize)


_ENGINES = {"cpu": _on_host, "xla": _in_xla, "pallas": _on_gpu}


def _on_device(match, cost, maximize: bool) -> tuple:
    """Run `match` on a batch of problems with n <= m, and certify what it returns.

    `match` maps c (B, n, m) to columns (B, n), row duals (B, n; used only as part of a Farkas ray), column duals
    (B, m), feasible (B,), steps (B,).
    """
    batch, (n, m) = cost.shape[:-2], cost.shape[-2:]
    if n > m:
        columns, total, v, u, *rest = _on_device(match, jnp.swapaxes(cost, -1, -2), maximize)
        taken = jax.nn.one_hot(columns, n, axis=-1, dtype=jnp.int32)  # (..., m, n); nothing where -1
        number = jnp.arange(1, m + 1, dtype=jnp.int32).reshape((1,) * len(batch) + (m, 1))
        columns = jnp.max(taken * number, axis=-2, initial=0) - 1
        return columns, total, u, v, *rest
    c = (-cost if maximize else cost).reshape((-1, n, m))
    bad = jnp.any(~(c > -jnp.inf), axis=(1, 2))
    c = jnp.where(bad[:, None, None], 0, c)
    columns, ray, v, feasible, steps = match(c)
    u = jnp.where(feasible[:, None], jnp.min(c - v[:, None, :], axis=-1), ray)
    at = jnp.maximum(columns, 0)
    chosen = jnp.take_along_axis(c, at[..., None], axis=-1)[..., 0]
    slack = chosen - jnp.take_along_axis(v, at, axis=-1) - u
    taken = jnp.sum(jax.nn.one_hot(columns, m, axis=-1, dtype=c.dtype), axis=-2)
    total = jnp.where(feasible, jnp.sum(chosen, axis=-1), jnp.inf)
    gap = jnp.where(feasible, jnp.sum(slack, axis=-1) - jnp.sum(v * (1 - taken), axis=-1), jnp.inf)
    reduced = jnp.minimum(-jnp.max(v, axis=-1), 0) if n < m else jnp.zeros_like(gap)
    balance = jnp.abs(total) + jnp.sum(jnp.abs(u), axis=-1) + jnp.sum(jnp.abs(v), axis=-1)
    rtol = max(GAP_RTOL, 32.0 * float(jnp.finfo(c.dtype).eps))
    flags = flag_where(bad, Flag.NONFINITE) | flag_where(~bad & ~feasible, Flag.INFEASIBLE)
    flags = flags | flag_where(~bad & feasible & (jnp.abs(gap) > rtol * balance), Flag.NOT_CONVERGED)
    flags = flags | flag_where(~bad & feasible & ~jnp.isfinite(total + gap), Flag.NONFINITE)
    columns = jnp.where((bad | ~feasible)[:, None], -1, columns)
    sign = -1.0 if maximize else 1.0
    reals = [
        jnp.where(bad.reshape((-1,) + (1,) * (a.ndim - 1)), jnp.nan, a)
        for a in (sign * total, sign * u, sign * v, gap, reduced)
    ]
    return tuple(a.reshape(batch + a.shape[1:]) for a in (columns, *reals, flags, steps))
