"""The KKT system of a game, and Newton on its active constraints.

`interior` comes near from afar and stops early; semismooth Newton on the active constraints then converges
quadratically to round-off. Both measure every row of the system by its own terms (`scaling`), so that costs of 1e-15
are solved as well as costs of 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.records import Real
from dmodels.solvers.variational.scaling import Scale, scale_at

from .problem import Problem
from .small_linear import solve


class Point(NamedTuple):
    """Primal and dual iterate. `low`, `high` are the multipliers of the bounds, `slack` is -g(x) on convergence."""

    x: jax.Array  # (n,)
    lam: jax.Array  # (m,)
    slack: jax.Array  # (m,)
    nu: jax.Array  # (p,)
    low: jax.Array  # (n,)
    high: jax.Array  # (n,)


class System(NamedTuple):
    """The KKT functions at one point, with first derivatives."""

    f: jax.Array  # pseudogradient (n,)
    r: jax.Array  # stationarity without bound multipliers (n,)
    h: jax.Array  # its jacobian in x (n, n)
    g: jax.Array  # inequalities (m,)
    jg: jax.Array
    jg_own: jax.Array  # rows masked to their owners
    e: jax.Array  # equalities (p,)
    je: jax.Array
    je_own: jax.Array


def evaluate(problem, x, lam, nu, derivatives: bool = True) -> System:
    """All KKT functions at x; without derivatives, `h` is empty (the merit function needs values only)."""
    g, jg, jg_own = problem.constraints(x, problem.inequalities)
    e, je, je_own = problem.constraints(x, problem.equalities)
    f = problem.pseudogradient(x)
    r = f + jg_own.T @ lam + je_own.T @ nu
    h = jnp.zeros((0, 0))
    if derivatives:
        h = problem.matrix * problem.weights[:, None] if problem.matrix is not None else None
        curved = any(p.function is not None for p in problem.inequalities + problem.equalities)
        if curved or h is None:
            h = jax.jacfwd(lambda y: problem.stationarity(y, lam, nu))(x)
    return System(f, r, h, g, jg, jg_own, e, je, je_own)


def residual(problem: Problem, s: System, x: Real, lam: Real, scale: Scale | None = None) -> Real:
    """Natural residual of the KKT conditions, stacked: x - clip(x - r), min(lam, -g), h; zero exactly at a solution.

    With a scale, r is divided by its force and lam by its price: all parts are then lengths in units of x.
    """
    r, lam = (s.r, lam) if scale is None else (s.r / scale.force, lam / scale.price)
    step = jnp.where(fixed(problem), x - problem.lower, x - jnp.clip(x - r, problem.lower, problem.upper))
    return jnp.concatenate([step, jnp.minimum(lam, -s.g), s.e])


def fixed(problem: Problem) -> Real:
    """Variables whose bounds leave no room."""
    return problem.upper - problem.lower <= 0.0


def norm(vector: Real) -> Real:
    """Largest magnitude; NaN counts as infinite (`max` alone may drop it)."""
    top = jnp.max(jnp.abs(vector), initial=0.0)
    return jnp.where(jnp.isfinite(jnp.sum(vector)), top, jnp.inf)


class Active(NamedTuple):
    """Which bounds and inequalities hold with equality."""

    low: jax.Array
    high: jax.Array
    tight: jax.Array


def active_system(problem, s: System, x, lam, active: Active, scale: Scale):
    """Equations of the active set, stacked (n + m + p,): bound or stationarity; g or lam; h, each in its scale."""
    rows = jnp.where(active.low, x - problem.lower, jnp.where(active.high, x - problem.upper, s.r / scale.force))
    return jnp.concatenate([rows, jnp.where(active.tight, s.g, lam / scale.price), s.e])


def active_jacobian(s: System, active: Active, scale: Scale, proximal: float = 0.0):
    """Derivative of `active_system` in x and in lam and nu divided by their prices.

    `proximal`, relative to the force of each row, keeps Newton defined where the map is flat or active constraints
    depend on each other; it turns quadratic convergence into linear with that (tiny) factor.
    """
    n, m, p = s.r.shape[0], s.g.shape[0], s.e.shape[0]
    bound = (active.low | active.high)[:, None]
    rows = jnp.concatenate([s.h, s.jg_own.T * scale.price[None], s.je_own.T * scale.equal_price[None]], axis=1)
    rows = rows / scale.force[:, None] + proximal * jnp.eye(n, n + m + p)
    first = jnp.where(bound, jnp.eye(n, n + m + p), rows)
    if m + p == 0:
        return first
    tiny = (1e-13 + 1e-2 * proximal) * jnp.eye(m)
    tight = jnp.concatenate([s.jg, -tiny, jnp.zeros((m, p))], axis=1)
    slack = jnp.concatenate([jnp.zeros((m, n)), jnp.eye(m), jnp.zeros((m, p))], axis=1)
    second = jnp.where(active.tight[:, None], tight, slack)
    third = jnp.concatenate([s.je, jnp.zeros((p, m)), -1e-13 * jnp.eye(p)], axis=1)
    return jnp.concatenate([first, second, third])


def guess_active(problem, point: Point, scale: Scale) -> Active:
    """The active set that an interior point suggests: the multiplier outweighs the slack."""
    low = fixed(problem) | (jnp.isfinite(problem.lower) & (point.low / scale.force > point.x - problem.lower))
    high = ~low & jnp.isfinite(problem.upper) & (point.high / scale.force > problem.upper - point.x)
    return Active(low, high, point.lam / scale.price > point.slack)


def semismooth_active(problem, s: System, x, lam, scale: Scale) -> Active:
    """The active set of the natural residual at x (its active branch in each component)."""
    low = fixed(problem) | (x - s.r / scale.force < problem.lower)
    return Active(low, ~low & (x - s.r / scale.force > problem.upper), lam / scale.price > -s.g)


def on_bounds(problem, x, active: Active):
    """x with its active variables exactly on their bounds."""
    return jnp.where(active.low, problem.lower, jnp.where(active.high, problem.upper, x))


def finish(problem, point: Point, tolerance, max_steps):
    """Newton on the active set, best iterate kept. ((x, lam, nu), scaled residual norm, steps).

    It ends when the residual is within `tolerance` and either the last step was short or the residual is rounding: a
    residual of 1e-10 alone can hide a large distance where the map is stiff in some directions and soft in others.
    """

    def step(carry):
        (x, lam, nu), s, scale, active, best, best_error, _, steps = carry
        system = active_system(problem, s, x, lam, active, scale)
        change = solve(active_jacobian(s, active, scale, 1e-10), system, problem.unroll)
        n, m = x.shape[0], lam.shape[0]
        moved = norm(change[:n] / (1.0 + jnp.abs(x)))
        x = on_bounds(problem, jnp.clip(x - change[:n], problem.lower, problem.upper), active)
        lam = jnp.maximum(lam - change[n : n + m] * scale.price, 0.0)
        nu = nu - change[n + m :] * scale.equal_price
        s = evaluate(problem, x, lam, nu)
        scale = scale_at(s, x, lam, nu)
        error = norm(residual(problem, s, x, lam, scale_at(s, x, lam, nu, fine=True)))
        better = error < best_error
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), (x, lam, nu), best)
        active = semismooth_active(problem, s, x, lam, scale)
        return (x, lam, nu), s, scale, active, best, jnp.minimum(error, best_error), moved, steps + 1

    def running(carry):
        z, *_, best_error, moved, steps = carry
        settled = (best_error <= tolerance) & ((moved <= 1e-7) | (best_error <= 1e-4 * tolerance))
        return ~settled & (steps < max_steps) & jnp.isfinite(sum(jnp.sum(part) for part in z))

    z = (jnp.clip(point.x, problem.lower, problem.upper), point.lam, point.nu)
    s = evaluate(problem, *z)
    scale = scale_at(s, *z)
    error = norm(residual(problem, s, z[0], z[1], scale_at(s, *z, fine=True)))
    guess = guess_active(problem, point, scale)
    state = (z, s, scale, guess, z, error, jnp.asarray(jnp.inf), jnp.int32(0))
    *_, best, error, _, steps = jax.lax.while_loop(running, step, state)
    return best, error, steps
