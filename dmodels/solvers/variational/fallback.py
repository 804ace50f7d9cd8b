"""When Newton fails: extragradient steps, and the least violation of the constraints."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dmodels.core.records import Real

from .newton import Point, evaluate, fixed, norm, residual
from .problem import Problem
from .small_linear import solve


def extragradient(problem, point: Point, tolerance, max_steps):
    """Korpelevich's method with Khobotov's step rule on x and the multipliers together. (Point, steps).

    For a monotone map and convex constraints the primal-dual map (r, -g, -h) is monotone, and the method converges
    from anywhere (Facchinei and Pang, Finite-Dimensional Variational Inequalities, 2003, section 12.1), if slowly.
    """
    frozen = fixed(problem)

    def field(z):
        s = evaluate(problem, *z, derivatives=False)
        return (jnp.where(frozen, 0.0, s.r), -s.g, -s.e), norm(residual(problem, s, z[0], z[1]))

    def project(z, direction, length):
        x = jnp.clip(z[0] - length * direction[0], problem.lower, problem.upper)
        return x, jnp.maximum(z[1] - length * direction[1], 0.0), z[2] - length * direction[2]

    def distance(a, b):
        return jnp.sqrt(sum(jnp.sum((p - q) ** 2) for p, q in zip(a, b, strict=True)))

    def step(carry):
        z, length, _, steps = carry
        here, error = field(z)
        ahead = project(z, here, length)
        there, _ = field(ahead)
        short = length * distance(here, there) <= 0.9 * distance(z, ahead)
        accepted = project(z, there, length)
        z = jax.tree.map(lambda new, old: jnp.where(short, new, old), accepted, z)
        length = jnp.where(short, jnp.minimum(length * 1.1, 1e6), length * 0.6)
        return z, length, error, steps + 1  # the error is one step old: good enough to stop by

    def running(carry):
        _, length, error, steps = carry
        return (error > tolerance) & (steps < max_steps) & (length > 1e-14)

    start = (jnp.clip(point.x, problem.lower, problem.upper), point.lam, point.nu)
    state = (start, jnp.asarray(0.1), jnp.asarray(jnp.inf), jnp.int32(0))
    (x, lam, nu), _, _, steps = jax.lax.while_loop(running, step, state)
    ran = steps > 0
    s = evaluate(problem, x, lam, nu, derivatives=False)
    estimate = Point(x, lam, jnp.maximum(-s.g, 0.0), nu, jnp.maximum(s.r, 0.0), jnp.maximum(-s.r, 0.0))
    return jax.tree.map(lambda new, old: jnp.where(ran, new, old), estimate, point), steps


def least_violation(problem: Problem, x0: Real, max_steps: Real) -> tuple[Real, Real]:
    """The smallest norm of (max(g, 0), h) over the box that projected Gauss-Newton finds, and where.

    For convex g and linear h a positive minimum proves that nothing satisfies the constraints.
    """
    lower, upper = problem.lower, problem.upper

    def violation(x):
        g, jg, _ = problem.constraints(x, problem.inequalities)
        e, je, _ = problem.constraints(x, problem.equalities)
        broken = g > 0
        return jnp.concatenate([jnp.where(broken, g, 0.0), e]), jnp.concatenate(
            [jnp.where(broken[:, None], jg, 0.0), je]
        )

    def step(carry):
        x, damping, steps, _ = carry
        v, jacobian = violation(x)
        gradient = jacobian.T @ v
        free = ~(((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)))
        normal = jacobian.T @ jacobian
        normal = jnp.where(free[:, None] & free[None, :], normal, 0.0)
        size = damping * (1e-12 + jnp.max(jnp.abs(normal), initial=0.0))
        d = solve(normal + jnp.diag(jnp.where(free, size, 1.0)), jnp.where(free, -gradient, 0.0), problem.unroll)
        trial = jnp.clip(x + d, lower, upper)
        better = jnp.sum(violation(trial)[0] ** 2) < jnp.sum(v**2)
        moved = norm(trial - x) > 1e-13 * (1.0 + norm(x))
        return (
            jnp.where(better, trial, x),
            jnp.where(better, jnp.maximum(damping * 0.2, 1e-14), damping * 8.0),
            steps + 1,
            moved & (damping < 1e12),
        )

    def running(carry):
        x, _, steps, alive = carry
        return (steps < max_steps) & alive & (jnp.sum(violation(x)[0] ** 2) > 1e-24)

    state = (jnp.clip(x0, lower, upper), jnp.asarray(1e-3), jnp.int32(0), jnp.asarray(True))
    x, *_ = jax.lax.while_loop(running, step, state)
    return jnp.linalg.norm(violation(x)[0]), x
