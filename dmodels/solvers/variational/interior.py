"""The interior point: a predictor and corrector towards the KKT points of a game, from afar.

All slacks stay positive, x minus its bounds included (they are carried by x itself, so a map with a pole on a bound is
never evaluated beyond it). The steps follow Mehrotra (SIAM J. Optim. 2, 1992) with the Jacobian of the stationarity
conditions in place of a Hessian; every row is measured by its own terms (`scaling`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.records import Real

from .newton import Point, System, evaluate, fixed
from .problem import Problem
from .scaling import Scale, scale_at
from .small_linear import solve

FRACTION = 0.995  # of the way to the boundary
HALVINGS = 12
CLOSE = 1e-5  # units from a bound that no start is left at


def interior_start(problem: Problem, x0: Real) -> tuple[Point, Scale]:
    """x0 moved inside the box, multipliers of half a unit, slacks at least a tenth; and the scale there.

    From a lone bound, with a unit that may be far too long, x0 is not moved further than it is.
    """
    lower, upper = problem.lower, problem.upper
    room = jnp.where(jnp.isfinite(upper - lower), upper - lower, 2.0)
    margin = jnp.minimum(0.05 * room, 0.1)
    inside = jnp.minimum(x0 - lower, upper - x0)
    margin = jnp.where((inside > CLOSE) & ~jnp.isfinite(upper - lower), jnp.minimum(margin, inside), margin)
    x = jnp.where(fixed(problem), lower, jnp.clip(x0, lower + margin, upper - margin))
    m, p = (sum(piece.rows for piece in pieces) for pieces in (problem.inequalities, problem.equalities))
    s = evaluate(problem, x, jnp.zeros(m), jnp.zeros(p))
    scale = scale_at(s, x, jnp.zeros(m), jnp.zeros(p))
    force = 0.5 * scale.force
    return Point(x, 0.5 * scale.price, jnp.maximum(-s.g, 0.1), jnp.zeros(p), force, force), scale


def interior_restart(problem: Problem, x: Real, scale: Scale) -> Point:
    """Inside the box at x, ten units of everything."""
    g = problem.constraints(x, problem.inequalities)[0]
    p = sum(piece.rows for piece in problem.equalities)
    force = 10.0 * scale.force
    return Point(x, 10.0 * scale.price, jnp.maximum(-g, 1.0), jnp.zeros(p), force, force)


class Barrier:
    """What of a problem stays the same along the way, and the measures of a point that need it."""

    def __init__(self, problem: Problem, multipliers: Real) -> None:
        self.problem = problem
        self.frozen = fixed(problem)
        self.has_low = jnp.isfinite(problem.lower) & ~self.frozen
        self.has_high = jnp.isfinite(problem.upper) & ~self.frozen
        low, high = jnp.where(self.has_low, 1.0, 0.0), jnp.where(self.has_high, 1.0, 0.0)
        self.count = jnp.maximum(jnp.sum(jnp.concatenate([low, high, jnp.ones_like(multipliers)])), 1.0)

    def room(self, x: Real) -> tuple[Real, Real]:
        """Distances of x from its bounds, 1 where there is none."""
        below, above = x - self.problem.lower, self.problem.upper - x
        return jnp.where(self.has_low, below, 1.0), jnp.where(self.has_high, above, 1.0)

    def dual_residual(self, s: System, point: Point) -> Real:
        full = s.r - jnp.where(self.has_low, point.low, 0.0) + jnp.where(self.has_high, point.high, 0.0)
        return jnp.where(self.frozen, 0.0, full)

    def products(self, point: Point) -> tuple[Real, Real, Real]:
        """Complementarity of the constraints, the lower and the upper bounds."""
        below, above = self.room(point.x)
        low = jnp.where(self.has_low, below * point.low, 0.0)
        high = jnp.where(self.has_high, above * point.high, 0.0)
        return point.slack * point.lam, low, high

    def measure(self, s: System, point: Point) -> Scale:
        scale = scale_at(s, point.x, point.lam, point.nu)
        # a row far below the others keeps a share of the barrier, which a later, tighter stage takes away
        return scale._replace(force=jnp.maximum(scale.force, 1e-10 * jnp.max(scale.force)))

    def shares(self, point: Point, scale: Scale) -> tuple[Real, Real, Real]:
        slack, low, high = self.products(point)
        return slack / scale.price, low / scale.force, high / scale.force

    def mean_gap(self, point: Point, scale: Scale) -> Real:
        return sum(jnp.sum(c) for c in self.shares(point, scale)) / self.count

    def merit(self, s: System, point: Point, scale: Scale) -> Real:
        parts = [self.dual_residual(s, point) / scale.force, s.g + point.slack, s.e, *self.shares(point, scale)]
        total = sum(jnp.sum(part**2) for part in parts)
        return jnp.where(jnp.isfinite(total), total, jnp.inf)

    def longest(self, point: Point, d: Point) -> Real:
        """Step length at which the first positive quantity reaches zero, at most 1."""
        below, above = self.room(point.x)
        limits = [jnp.ones(1)]
        pairs = [(point.slack, d.slack), (point.lam, d.lam)]
        pairs += [(below, jnp.where(self.has_low, d.x, 0.0)), (above, jnp.where(self.has_high, -d.x, 0.0))]
        pairs += [(jnp.where(self.has_low, point.low, 1.0), d.low), (jnp.where(self.has_high, point.high, 1.0), d.high)]
        for value, change in pairs:
            limits.append(jnp.where(change < 0, -value / jnp.where(change < 0, change, -1.0), jnp.inf))
        return jnp.min(jnp.concatenate(limits))


class Linearised:
    """Newton's system at a point, for several right-hand sides."""

    def __init__(self, barrier: Barrier, point: Point, s: System, scale: Scale) -> None:
        self.barrier, self.point, self.s, self.scale = barrier, point, s, scale
        has_low, has_high, frozen = barrier.has_low, barrier.has_high, barrier.frozen
        self.below, self.above = barrier.room(point.x)
        self.rd, self.rp = barrier.dual_residual(s, point), s.g + point.slack
        bend = jnp.where(has_low, point.low / self.below, 0.0) + jnp.where(has_high, point.high / self.above, 0.0)
        top = s.h + jnp.diag(bend) + s.jg_own.T @ ((point.lam / point.slack)[:, None] * s.jg)
        # scaled by the row's own terms, not by `top`, whose barrier would make it a brake on the free variables
        top = jnp.where(frozen[:, None], 0.0, top) + jnp.diag(jnp.where(frozen, 1.0, 1e-11 * scale.force))
        right = jnp.where(frozen[:, None], 0.0, s.je_own.T * scale.equal_price[None])
        height = jnp.max(jnp.abs(top), axis=1)
        self.height = jnp.where((height > 0) & jnp.isfinite(height), height, 1.0)
        top, right = top / self.height[:, None], right / self.height[:, None]
        p = s.e.shape[0]
        self.matrix = jnp.block([[top, right], [s.je, -1e-12 * jnp.eye(p)]]) if p else top

    def direction(self, cg: Real, cl: Real, ch: Real) -> Point:
        """Newton step towards slack * lam = ... with complementarity residuals cg, cl, ch."""
        point, s, has_low, has_high = self.point, self.s, self.barrier.has_low, self.barrier.has_high
        lifted = s.jg_own.T @ ((point.lam * self.rp - cg) / point.slack)
        rhs = -self.rd - lifted - jnp.where(has_low, cl / self.below, 0.0) + jnp.where(has_high, ch / self.above, 0.0)
        rhs = jnp.where(self.barrier.frozen, 0.0, rhs / self.height)
        both = solve(self.matrix, jnp.concatenate([rhs, -s.e]), self.barrier.problem.unroll)
        dx, dnu = both[: rhs.shape[0]], both[rhs.shape[0] :] * self.scale.equal_price
        dslack = -self.rp - s.jg @ dx
        dlam = (-cg - point.lam * dslack) / point.slack
        dlow = jnp.where(has_low, (-cl - point.low * dx) / self.below, 0.0)
        dhigh = jnp.where(has_high, (-ch + point.high * dx) / self.above, 0.0)
        return Point(dx, dlam, dslack, dnu, dlow, dhigh)

    def corrected(self) -> tuple[Point, jax.Array]:
        """Mehrotra's corrected direction, and the mean gap that it started from."""
        barrier, point, scale = self.barrier, self.point, self.scale
        cg, cl, ch = barrier.products(point)
        predictor = self.direction(cg, cl, ch)
        reach = barrier.longest(point, predictor)
        mu = barrier.mean_gap(point, scale)
        ahead = jax.tree.map(lambda a, b: a + reach * b, point, predictor)
        sigma = jnp.clip((barrier.mean_gap(ahead, scale) / jnp.maximum(mu, 1e-300)) ** 3, 1e-6, 1.0)
        # Mehrotra's second-order term is dropped where the predictor was short: there it misleads
        trust = reach**2
        aim = sigma * mu * scale.force
        cg2 = cg + trust * predictor.slack * predictor.lam - sigma * mu * scale.price
        cl2 = jnp.where(barrier.has_low, cl + trust * predictor.x * predictor.low - aim, 0.0)
        ch2 = jnp.where(barrier.has_high, ch - trust * predictor.x * predictor.high - aim, 0.0)
        return self.direction(cg2, cl2, ch2), mu


class Progress(NamedTuple):
    """Where the interior point stands."""

    point: Point
    system: System
    scale: Scale
    error: jax.Array
    steps: jax.Array
    is_sound: jax.Array


def _step(barrier: Barrier, now: Progress) -> Progress:
    """One predictor and corrector, shortened until the merit falls."""
    point, problem = now.point, barrier.problem
    d, mu = Linearised(barrier, point, now.system, now.scale).corrected()
    alpha = jnp.minimum(1.0, FRACTION * barrier.longest(point, d))
    before = barrier.merit(now.system, point, now.scale) + 1e-28 * barrier.count  # and rounding

    def ahead_by(alpha: Real) -> Point:
        return Point(*(a + alpha * b for a, b in zip(point, d, strict=True)))

    def shorter(state: tuple[Real, Real, Real]) -> tuple[Real, Real, Real]:
        alpha, tries, _ = state
        alpha = jnp.where(tries > 0, 0.5 * alpha, alpha)
        trial = ahead_by(alpha)
        values = evaluate(problem, trial.x, trial.lam, trial.nu, derivatives=False)
        return alpha, tries + 1, barrier.merit(values, trial, now.scale)

    def too_long(state: tuple[Real, Real, Real]) -> Real:
        alpha, tries, reached = state
        return (tries < HALVINGS) & ~(reached <= before * (1.0 - 1e-4 * alpha) + mu**2 * barrier.count)

    alpha, _, reached = jax.lax.while_loop(too_long, shorter, (alpha, jnp.int32(0), jnp.asarray(jnp.inf)))
    moved = ahead_by(alpha)
    sound = jnp.isfinite(sum(jnp.sum(part) for part in moved)) & jnp.isfinite(reached)
    moved = jax.tree.map(lambda new, old: jnp.where(sound, new, old), moved, point)
    s = evaluate(problem, moved.x, moved.lam, moved.nu)
    scale = barrier.measure(s, moved)
    error = jnp.maximum(barrier.mean_gap(moved, scale), jnp.sqrt(barrier.merit(s, moved, scale)))
    return Progress(moved, s, scale, jnp.where(sound, error, jnp.inf), now.steps + 1, sound)


def interior(problem: Problem, start: Point, gap: Real, max_steps: Real) -> tuple[Point, Real]:
    """Predictor-corrector steps until the mean complementarity and the residuals, all relative to the scale of their
    rows, fall below `gap`. (Point, steps)."""
    barrier = Barrier(problem, start.lam)
    first = evaluate(problem, start.x, start.lam, start.nu)
    state = Progress(start, first, barrier.measure(first, start), jnp.asarray(jnp.inf), jnp.int32(0), jnp.asarray(True))
    running = lambda now: (now.error > gap) & (now.steps < max_steps) & now.is_sound
    done = jax.lax.while_loop(running, lambda now: _step(barrier, now), state)
    return done.point, done.steps
