"""Two Newton methods on the KKT system of a game: interior point from afar, active set to finish.

The interior point keeps all slacks positive, x minus its bounds included (they are carried by x itself, so a map with
a pole on a bound is never evaluated beyond it), and follows Mehrotra's predictor and corrector (SIAM J. Optim. 2, 1992)
with the Jacobian of the stationarity conditions in place of a Hessian. It stops early; semismooth Newton on the active
constraints then converges quadratically to round-off.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.records import Real

from .problem import Problem
from .small_linear import solve

FRACTION = 0.995  # of the way to the boundary
HALVINGS = 12


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
    r = problem.pseudogradient(x) + jg_own.T @ lam + je_own.T @ nu
    h = jnp.zeros((0, 0))
    if derivatives:
        h = problem.matrix * problem.weights[:, None] if problem.matrix is not None else None
        curved = any(p.function is not None for p in problem.inequalities + problem.equalities)
        if curved or h is None:
            h = jax.jacfwd(lambda y: problem.stationarity(y, lam, nu))(x)
    return System(r, h, g, jg, jg_own, e, je, je_own)


def residual(problem: Problem, s: System, x: Real, lam: Real) -> Real:
    """Natural residual of the KKT conditions, stacked: x - clip(x - r), min(lam, -g), h; zero exactly at a solution."""
    step = jnp.where(fixed(problem), x - problem.lower, x - jnp.clip(x - s.r, problem.lower, problem.upper))
    return jnp.concatenate([step, jnp.minimum(lam, -s.g), s.e])


def fixed(problem: Problem) -> Real:
    """Variables whose bounds leave no room."""
    return problem.upper - problem.lower <= 0.0


def norm(vector: Real) -> Real:
    """Largest magnitude; NaN counts as infinite (`max` alone may drop it)."""
    top = jnp.max(jnp.abs(vector), initial=0.0)
    return jnp.where(jnp.isfinite(jnp.sum(vector)), top, jnp.inf)


def interior_start(problem, x0, scale=1.0) -> Point:
    """x0 moved inside the box, unit multipliers, slacks at least one."""
    lower, upper = problem.lower, problem.upper
    room = jnp.where(jnp.isfinite(upper - lower), upper - lower, 2.0)
    margin = jnp.minimum(0.05 * room, 0.1)
    x = jnp.where(fixed(problem), lower, jnp.clip(x0, lower + margin, upper - margin))
    g = problem.constraints(x, problem.inequalities)[0]
    p = sum(piece.rows for piece in problem.equalities)
    ones = jnp.ones_like(x) * scale
    return Point(x, jnp.ones_like(g) * scale, jnp.maximum(-g, 0.1 * scale), jnp.zeros(p), ones, ones)


def interior(problem, start: Point, gap, max_steps):
    """Predictor-corrector steps until the mean complementarity and the residuals fall below `gap`. (Point, steps)."""
    lower, upper = problem.lower, problem.upper
    frozen = fixed(problem)
    has_low, has_high = jnp.isfinite(lower) & ~frozen, jnp.isfinite(upper) & ~frozen
    ones = jnp.concatenate([jnp.where(has_low, 1.0, 0.0), jnp.where(has_high, 1.0, 0.0), jnp.ones_like(start.lam)])
    count = jnp.maximum(jnp.sum(ones), 1.0)

    def room(x):
        return jnp.where(has_low, x - lower, 1.0), jnp.where(has_high, upper - x, 1.0)

    def dual_residual(s: System, point: Point):
        full = s.r - jnp.where(has_low, point.low, 0.0) + jnp.where(has_high, point.high, 0.0)
        return jnp.where(frozen, 0.0, full)

    def products(point: Point):
        below, above = room(point.x)
        return (
            point.slack * point.lam,
            jnp.where(has_low, below * point.low, 0.0),
            jnp.where(has_high, above * point.high, 0.0),
        )

    def mean_gap(point: Point):
        return sum(jnp.sum(c) for c in products(point)) / count

    def merit(s: System, point: Point):
        parts = [dual_residual(s, point), s.g + point.slack, s.e, *products(point)]
        total = sum(jnp.sum(part**2) for part in parts)
        return jnp.where(jnp.isfinite(total), total, jnp.inf)

    def step(carry):
        point, s, _, steps, _ = carry
        below, above = room(point.x)
        rd, rp = dual_residual(s, point), s.g + point.slack
        bend = jnp.where(has_low, point.low / below, 0.0) + jnp.where(has_high, point.high / above, 0.0)
        top = s.h + jnp.diag(bend) + s.jg_own.T @ ((point.lam / point.slack)[:, None] * s.jg)
        proximal = 1e-11 * (1.0 + jnp.max(jnp.abs(top), initial=0.0))
        top = jnp.where(frozen[:, None], 0.0, top) + jnp.diag(jnp.where(frozen, 1.0, proximal))
        right = jnp.where(frozen[:, None], 0.0, s.je_own.T)
        p = s.e.shape[0]
        matrix = jnp.block([[top, right], [s.je, -1e-12 * jnp.eye(p)]]) if p else top

        def direction(cg, cl, ch):
            """Newton step towards slack * lam = ... with complementarity residuals cg, cl, ch."""
            lifted = s.jg_own.T @ ((point.lam * rp - cg) / point.slack)
            rhs = -rd - lifted - jnp.where(has_low, cl / below, 0.0) + jnp.where(has_high, ch / above, 0.0)
            rhs = jnp.where(frozen, 0.0, rhs)
            both = solve(matrix, jnp.concatenate([rhs, -s.e]), problem.unroll)
            dx, dnu = both[: rhs.shape[0]], both[rhs.shape[0] :]
            dslack = -rp - s.jg @ dx
            dlam = (-cg - point.lam * dslack) / point.slack
            dlow = jnp.where(has_low, (-cl - point.low * dx) / below, 0.0)
            dhigh = jnp.where(has_high, (-ch + point.high * dx) / above, 0.0)
            return Point(dx, dlam, dslack, dnu, dlow, dhigh)

        def longest(d: Point):
            """Step length at which the first positive quantity reaches zero, at most 1."""
            limits = [jnp.ones(1)]
            pairs = [(point.slack, d.slack), (point.lam, d.lam)]
            pairs += [(jnp.where(has_low, below, 1.0), jnp.where(has_low, d.x, 0.0))]
            pairs += [(jnp.where(has_high, above, 1.0), jnp.where(has_high, -d.x, 0.0))]
            pairs += [(jnp.where(has_low, point.low, 1.0), d.low), (jnp.where(has_high, point.high, 1.0), d.high)]
            for value, change in pairs:
                limits.append(jnp.where(change < 0, -value / jnp.where(change < 0, change, -1.0), jnp.inf))
            return jnp.min(jnp.concatenate(limits))

        cg, cl, ch = products(point)
        predictor = direction(cg, cl, ch)
        reach = longest(predictor)
        mu = mean_gap(point)
        ahead = jax.tree.map(lambda a, b: a + reach * b, point, predictor)
        sigma = jnp.clip((mean_gap(ahead) / jnp.maximum(mu, 1e-300)) ** 3, 1e-6, 1.0)
        # Mehrotra's second-order term is dropped where the predictor was short: there it misleads
        trust = reach**2
        cg2 = jnp.where(jnp.ones_like(cg, bool), cg + trust * predictor.slack * predictor.lam - sigma * mu, cg)
        cl2 = jnp.where(has_low, cl + trust * predictor.x * predictor.low - sigma * mu, 0.0)
        ch2 = jnp.where(has_high, ch - trust * predictor.x * predictor.high - sigma * mu, 0.0)
        d = direction(cg2, cl2, ch2)
        alpha = jnp.minimum(1.0, FRACTION * longest(d))
        before = merit(s, point)

        def ahead_by(alpha):
            return jax.tree.map(lambda a, b: a + alpha * b, point, d)

        def shorter(state):
            alpha, tries, _ = state
            alpha = jnp.where(tries > 0, 0.5 * alpha, alpha)
            trial = ahead_by(alpha)
            values = evaluate(problem, trial.x, trial.lam, trial.nu, derivatives=False)
            return alpha, tries + 1, merit(values, trial)

        def too_long(state):
            alpha, tries, reached = state
            return (tries < HALVINGS) & ~(reached <= before * (1.0 - 1e-4 * alpha) + mu**2 * count)

        alpha, _, reached = jax.lax.while_loop(too_long, shorter, (alpha, jnp.int32(0), jnp.asarray(jnp.inf)))
        moved = ahead_by(alpha)
        sound = jnp.isfinite(sum(jnp.sum(part) for part in moved)) & jnp.isfinite(reached)
        moved = jax.tree.map(lambda new, old: jnp.where(sound, new, old), moved, point)
        error = jnp.where(sound, jnp.maximum(mean_gap(moved), jnp.sqrt(reached)), jnp.inf)
        return moved, evaluate(problem, moved.x, moved.lam, moved.nu), error, steps + 1, sound

    def running(carry):
        _, _, error, steps, sound = carry
        return (error > gap) & (steps < max_steps) & sound

    first = evaluate(problem, start.x, start.lam, start.nu)
    state = (start, first, jnp.asarray(jnp.inf), jnp.int32(0), jnp.asarray(True))
    point, _, _, steps, _ = jax.lax.while_loop(running, step, state)
    return point, steps


class Active(NamedTuple):
    """Which bounds and inequalities hold with equality."""

    low: jax.Array
    high: jax.Array
    tight: jax.Array


def active_system(problem, s: System, x, lam, active: Active):
    """Equations of the active set, stacked (n + m + p,): bound or stationarity; g or lam; h."""
    rows = jnp.where(active.low, x - problem.lower, jnp.where(active.high, x - problem.upper, s.r))
    return jnp.concatenate([rows, jnp.where(active.tight, s.g, lam), s.e])


def active_jacobian(s: System, active: Active, proximal: float = 0.0):
    """Derivative of `active_system` in (x, lam, nu).

    `proximal`, relative to the jacobian, keeps Newton defined where the map is flat or active constraints depend on
    each other; it turns quadratic convergence into linear with that (tiny) factor.
    """
    n, m, p = s.r.shape[0], s.g.shape[0], s.e.shape[0]
    bound = (active.low | active.high)[:, None]
    flat = s.h + proximal * jnp.max(jnp.abs(s.h), initial=0.0) * jnp.eye(n)
    first = jnp.where(bound, jnp.eye(n, n + m + p), jnp.concatenate([flat, s.jg_own.T, s.je_own.T], axis=1))
    if m + p == 0:
        return first
    tiny = (1e-13 + 1e-2 * proximal) * jnp.eye(m)
    tight = jnp.concatenate([s.jg, -tiny, jnp.zeros((m, p))], axis=1)
    slack = jnp.concatenate([jnp.zeros((m, n)), jnp.eye(m), jnp.zeros((m, p))], axis=1)
    second = jnp.where(active.tight[:, None], tight, slack)
    third = jnp.concatenate([s.je, jnp.zeros((p, m)), -1e-13 * jnp.eye(p)], axis=1)
    return jnp.concatenate([first, second, third])


def guess_active(problem, point: Point) -> Active:
    """The active set that an interior point suggests: the multiplier outweighs the slack."""
    low = fixed(problem) | (jnp.isfinite(problem.lower) & (point.low > point.x - problem.lower))
    high = ~low & jnp.isfinite(problem.upper) & (point.high > problem.upper - point.x)
    return Active(low, high, point.lam > point.slack)


def semismooth_active(problem, s: System, x, lam) -> Active:
    """The active set of the natural residual at x (its active branch in each component)."""
    low = fixed(problem) | (x - s.r < problem.lower)
    return Active(low, ~low & (x - s.r > problem.upper), lam > -s.g)


def finish(problem, point: Point, tolerance, max_steps):
    """Newton on the active set, best iterate kept. ((x, lam, nu), residual norm, steps)."""

    def step(carry):
        (x, lam, nu), s, active, best, best_error, steps = carry
        change = solve(active_jacobian(s, active, 1e-10), active_system(problem, s, x, lam, active), problem.unroll)
        n, m = x.shape[0], lam.shape[0]
        x = jnp.clip(x - change[:n], problem.lower, problem.upper)
        lam, nu = jnp.maximum(lam - change[n : n + m], 0.0), nu - change[n + m :]
        s = evaluate(problem, x, lam, nu)
        error = norm(residual(problem, s, x, lam))
        better = error < best_error
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), (x, lam, nu), best)
        return (x, lam, nu), s, semismooth_active(problem, s, x, lam), best, jnp.minimum(error, best_error), steps + 1

    def running(carry):
        z, _, _, _, best_error, steps = carry
        return (best_error > tolerance) & (steps < max_steps) & jnp.isfinite(sum(jnp.sum(part) for part in z))

    z = (jnp.clip(point.x, problem.lower, problem.upper), point.lam, point.nu)
    s = evaluate(problem, *z)
    error = norm(residual(problem, s, z[0], z[1]))
    state = (z, s, guess_active(problem, point), z, error, jnp.int32(0))
    _, _, _, best, error, steps = jax.lax.while_loop(running, step, state)
    return best, error, steps
