r"""Entropic transport: Sinkhorn's iteration in logarithms, with gradients and a proof against the exact problem.

$$\min_P \sum_{ij} P_{ij} \big(C_{ij} + \varepsilon \ln \tfrac{P_{ij}}{a_i b_j}\big)
\quad\text{with}\quad P 1 = a,\ P^\top 1 = b.$$

Source: M. Cuturi, *Sinkhorn distances*, NIPS 2013; G. Peyré and M. Cuturi, *Computational Optimal Transport*, 2019,
4.4; the rounding of J. Altschuler, J. Weed and P. Rigollet, NIPS 2017.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag, flag_nonfinite, flag_where
from dmodels.core.programs import program
from dmodels.core.records import Real, float64, on_host

from .functions import floats
from .solution import Solution

#: Each round starts from the potentials of a temperature higher by this factor, down from the range of the costs.
_COOLING = 0.8


@float64
def entropic_transport(
    cost: Real, supply: Real, demand: Real, temperature: Real, *, tolerance: float = 1e-9, most_steps: int = 20_000
) -> Solution:
    r"""The plan that ships `supply` (..., n) to `demand` (..., m) at `cost` (..., n, m), smoothed by `temperature` > 0.

    Leading axes are a batch. Supplies and demands are not negative and have the same sum; +inf forbids a pair.
    `temperature` $\varepsilon$ (...) is in the unit of the costs. Runs under `jit`, `vmap` and `grad`, in float64.

    value         `plan` (..., n, m), whose rows sum to the supply and columns to the demand within `tolerance` of the
                  total, `cost` (...,) the minimum above (the dual's value), `row_potentials` f, `column_potentials` g
    certificate   `marginal_error` the mass in wrong rows and columns over the total, `lower` and `upper` bounds on the
                  *exact* transportation problem (temperature 0; the solver is `transport`), `gap` their difference:
                  `lower` is the dual value of g and $\min_j C_{ij} - g_j$, `upper` what the plan costs once it is
                  rounded to keep all sums
    flags         OUT_OF_DOMAIN (negative amounts, or sums that differ), NONFINITE, NOT_CONVERGED
    steps         sweeps over rows and columns, of the longest problem of a batch

    Derivatives of `cost` are exact by the envelope theorem: the plan with respect to C, the potentials with respect to
    a and b (up to a constant, as the sums must stay equal). Plan, potentials and certificate are constants.

    >>> s = entropic_transport([[0.0, 1.0], [1.0, 0.0]], [0.5, 0.5], [0.5, 0.5], 0.1)
    >>> s.value["plan"].round(4).tolist(), bool(s.certificate["lower"] <= 0.0 <= s.certificate["upper"])
    ([[0.5, 0.0], [0.0, 0.5]], True)
    """
    try:
        c, a, b, eps = (floats(value) for value in (cost, supply, demand, temperature))
    except (TypeError, ValueError):
        raise InputError("cost, supply, demand and temperature: expected arrays of numbers") from None
    if c.ndim < 2 or a.shape[-1:] != c.shape[-2:-1] or b.shape[-1:] != c.shape[-1:]:
        shapes = f"cost {c.shape}, supply {a.shape} and demand {b.shape}"
        raise InputError(f"{shapes} do not fit; accepted are (..., n, m), (..., n) and (..., m)")
    if not isinstance(eps, jax.core.Tracer) and not bool(np.all(eps > 0)):
        raise InputError(f"temperature = {temperature}; accepted are numbers above 0 (for 0 use `transport`)")
    return on_host(_solved(c, a, b, eps, tolerance, most_steps))


@program
def _solved(c: Real, a: Real, b: Real, eps: Real, tolerance: float, most: int) -> Solution:
    batch = jnp.broadcast_shapes(c.shape[:-2], a.shape[:-1], b.shape[:-1], eps.shape)
    n, m = c.shape[-2:]
    c, a, b = (jnp.broadcast_to(v, (*batch, *core)) for v, core in ((c, (n, m)), (a, (n,)), (b, (m,))))
    eps = jnp.broadcast_to(eps, batch)
    f, g, steps = _sinkhorn(*jax.lax.stop_gradient((c, a, b, eps)), tolerance, most)
    f, g = jax.lax.stop_gradient((f, g))
    plan = _plan(c, a, b, eps, f, g)
    sums = a.sum(-1) + b.sum(-1)
    value = _weighted(f, a) + _weighted(g, b) - eps * (plan.sum((-1, -2)) - sums + 0.5 * jax.lax.stop_gradient(sums))
    certificate, flags = jax.lax.stop_gradient(_evidence(c, a, b, plan, g, tolerance))
    flags = flags | flag_nonfinite(jax.lax.stop_gradient(value))
    answer = {"plan": jax.lax.stop_gradient(plan), "cost": value, "row_potentials": f, "column_potentials": g}
    return Solution(answer, certificate, flags, steps)


def _weighted(potential: Real, mass: Real) -> Real:
    """sum of potential * mass, over what has mass."""
    return jnp.sum(jnp.where(mass > 0, potential, 0.0) * mass, axis=-1)


def _plan(c: Real, a: Real, b: Real, eps: Real, f: Real, g: Real) -> Real:
    e = eps[..., None, None]
    exponent = (f[..., :, None] + g[..., None, :] - c) / e
    mass = a[..., :, None] * b[..., None, :]
    live = (jax.lax.stop_gradient(mass) > 0) & jnp.isfinite(c)
    return jnp.where(live, mass * jnp.exp(jnp.where(live, exponent, 0.0)), 0.0)


def _sinkhorn(c: Real, a: Real, b: Real, eps: Real, tolerance: float, most: int) -> tuple[Real, Real, Real]:
    """(f, g, sweeps): each potential in turn makes its sums right; the temperature falls to `eps` on the way."""
    log_a, log_b, total = jnp.log(a), jnp.log(b), a.sum(-1)
    finite = jnp.where(jnp.isfinite(c), c, jnp.nan)
    start = jnp.nan_to_num(jnp.nanmax(finite, axis=(-1, -2)) - jnp.nanmin(finite, axis=(-1, -2)))

    def sweep(state: Any) -> Any:
        f, g, _, steps, at = state
        warm = jnp.maximum(eps, at)[..., None]
        f = -warm * logsumexp(log_b[..., None, :] + (g[..., None, :] - c) / warm[..., None], axis=-1)
        f = jnp.where(a > 0, f, 0.0)
        g = -warm * logsumexp(log_a[..., :, None] + (f[..., :, None] - c) / warm[..., None], axis=-2)
        g = jnp.where(b > 0, g, 0.0)
        error = jnp.abs(_plan(c, a, b, eps, f, g).sum(-1) - a).sum(-1) / total
        error = jnp.where(at > eps, jnp.inf, error)
        return f, g, error, steps + 1, at * _COOLING

    begin = (jnp.zeros_like(a), jnp.zeros_like(b), jnp.full(eps.shape, jnp.inf), jnp.int32(0), start)
    f, g, _, steps, _ = jax.lax.while_loop(lambda s: jnp.any(s[2] > tolerance) & (s[3] < most), sweep, begin)
    return f, g, steps


def _evidence(c: Real, a: Real, b: Real, plan: Real, g: Real, tolerance: float) -> tuple[dict[str, Real], Real]:
    total = a.sum(-1)
    wrong = jnp.abs(plan.sum(-1) - a).sum(-1) + jnp.abs(plan.sum(-2) - b).sum(-1)
    error = wrong / jnp.where(total > 0, total, 1.0)
    lower = _weighted(jnp.min(c - g[..., None, :], axis=-1), a) + _weighted(g, b)
    kept = plan * jnp.minimum(1.0, _ratio(a, plan.sum(-1)))[..., :, None]
    kept = kept * jnp.minimum(1.0, _ratio(b, kept.sum(-2)))[..., None, :]
    rows, columns = jnp.maximum(a - kept.sum(-1), 0.0), jnp.maximum(b - kept.sum(-2), 0.0)
    rest = rows[..., :, None] * columns[..., None, :] * _ratio(jnp.ones_like(total), rows.sum(-1))[..., None, None]
    feasible = kept + rest
    upper = jnp.sum(jnp.where(feasible > 0, feasible * jnp.where(feasible > 0, c, 0.0), 0.0), axis=(-1, -2))
    unequal = jnp.abs(total - b.sum(-1)) > 1e-9 * total
    bad = jnp.any(a < 0, axis=-1) | jnp.any(b < 0, axis=-1) | unequal | ~(total > 0)
    flags = flag_where(bad, Flag.OUT_OF_DOMAIN) | flag_where(~bad & ~(error <= 2.0 * tolerance), Flag.NOT_CONVERGED)
    return {"marginal_error": error, "lower": lower, "upper": upper, "gap": upper - lower}, flags


def _ratio(over: Real, under: Real) -> Real:
    return jnp.where(under > 0, over / jnp.where(under > 0, under, 1.0), 1.0)
