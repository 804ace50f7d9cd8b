r"""Continuous optimisation of smooth formulas: thresholds, rates, splits, router parameters.

$\min_x f(x)$ subject to $g(x) \le 0$ and $l \le x \le u$, by an augmented Lagrangian: multipliers $\lambda$ and a
penalty $\mu$ outside, projected BFGS inside,

$$L(x) = f(x) + \frac{\mu}{2} \sum_j \Big(\max(0, g_j(x) + \lambda_j/\mu)^2 - (\lambda_j/\mu)^2\Big).$$

All starts run in one batch; the best feasible one is the answer. Gradients are JAX's, so formulas whose inner equations
are solved with implicit derivatives (occupancies, equilibria) are differentiated through. The answer is differentiable
in the parameters by the same implicit function theorem (`derivative`).

J. Nocedal, S. J. Wright, Numerical Optimization (2006), sections 17.3 and 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import Real, float64
from dmodels.solvers.solution import Solution

#: of (x, parameters)
Function = Callable[[Real, Any], Real]

_OUTER, _INNER, _LINE = 20, 60, 30


def _none(x: Real, parameters: Any) -> Real:
    return jnp.zeros((0,))


@float64
def minimize(
    objective: Function,
    low: Real,
    high: Real,
    parameters: Any = None,
    constraints: Function = _none,
    *,
    starts: int = 16,
    key: int = 0,
    tolerance: float = 1e-7,
) -> Solution:
    """The least `objective(x, parameters)` over the box with `constraints(x, parameters) <= 0` (a vector).

    `starts` points: the middle of the box, and points drawn from it with `key`. Numbers in `parameters` are data: other
    numbers do not recompile. Only a global minimum of a convex problem is certain; `certificate` proves a local one.
    A constraint is kept that is missed by 1000 `tolerance` at most; more than 100 of its roots in any number of the
    certificate is NOT_CONVERGED.

    `value`: x (n,), objective, multipliers (m,) (shadow prices: the objective falls by so much per unit by which a
    constraint is loosened), spread (starts,) objectives that the starts reached. `certificate`, in units of x scaled to
    the box: stationarity (projected gradient of the Lagrangian over the scale of the objective's), violation,
    complementarity. Flags: NOT_CONVERGED, INFEASIBLE (no start reached the constraints), NONFINITE.
    """
    low, high = (np.atleast_1d(np.asarray(bound, np.float64)) for bound in (low, high))
    if low.shape != high.shape or low.ndim != 1 or not (np.isfinite(low) & np.isfinite(high)).all():
        raise InputError(f"low {low} and high {high}: accepted are finite bounds of one shape (n,)")
    if not (low < high).all():
        raise InputError(f"low {low} and high {high}: accepted are bounds with low < high")
    if starts < 1:
        raise InputError(f"starts = {starts}: accepted are whole numbers from 1")
    drawn = np.random.default_rng(key).random((starts, len(low)))
    drawn[0] = 0.5
    parameters = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), parameters)
    every = jax.device_get(_batch(objective, constraints, drawn, low, high, parameters))
    return _chosen(every, low, high, tolerance)


def _chosen(every: dict[str, Real], low: Real, high: Real, tolerance: float) -> Solution:
    """The best start: of those within the constraints the least objective, else the least violation."""
    fits = (every["violation"] <= 1e3 * tolerance) & np.isfinite(every["objective"])
    finite = np.where(np.isfinite(every["violation"]), every["violation"], np.inf)
    rank = np.where(fits, every["objective"], np.inf)
    top = int(np.argmin(rank)) if fits.any() else int(np.argmin(finite))
    best = {name: value[top] for name, value in every.items()}
    certificate = {name: best[name] for name in ("stationarity", "violation", "complementarity")}
    good = max(certificate.values()) <= 1e2 * tolerance**0.5
    flags = Flag(0) if fits.any() else Flag.INFEASIBLE
    flags |= Flag(0) if good or not fits.any() else Flag.NOT_CONVERGED
    flags |= Flag(0) if np.isfinite(best["objective"]) else Flag.NONFINITE
    value = {
        "x": low + (high - low) * best["unit"],
        "objective": best["objective"],
        "multipliers": best["multipliers"],
        "spread": every["objective"],
    }
    return Solution(value, certificate, np.int32(flags), np.int32(best["steps"]))


@partial(jax.jit, static_argnums=(0, 1))
def _batch(
    objective: Function, constraints: Function, starts: Real, low: Real, high: Real, parameters: Any
) -> dict[str, Real]:
    return jax.vmap(lambda start: _solve(objective, constraints, start, low, high, parameters))(starts)


def _solve(
    objective: Function, constraints: Function, start: Real, low: Real, high: Real, parameters: Any
) -> dict[str, Real]:
    """One start, in coordinates where the box is [0, 1]."""
    at: Callable[[Real], Real] = lambda u: low + (high - low) * u
    f: Callable[[Real], Real] = lambda u: jnp.asarray(objective(at(u), parameters))
    g: Callable[[Real], Real] = lambda u: jnp.asarray(constraints(at(u), parameters))
    slope = jax.grad(f)(start)
    scale = jnp.maximum(jnp.max(jnp.abs(slope)), 1e-3 * jnp.abs(f(start)))
    scale = jnp.where(jnp.isfinite(scale) & (scale > 0), scale, 1.0)

    def lagrangian(u: Real, multipliers: Real, penalty: Real) -> Real:
        shifted = jnp.maximum(g(u) + multipliers / penalty, 0.0)
        return f(u) / scale + 0.5 * penalty * jnp.sum(shifted**2 - (multipliers / penalty) ** 2)

    def outer(_: Real, state: tuple[Real, ...]) -> tuple[Real, ...]:
        u, multipliers, penalty, last, steps = state
        u, used = _descend(partial(lagrangian, multipliers=multipliers, penalty=penalty), u)
        excess = g(u)
        raised = jnp.maximum(multipliers + penalty * excess, 0.0)
        worst = jnp.max(excess, initial=0.0)
        penalty = jnp.where(worst > 0.25 * last, jnp.minimum(4.0 * penalty, 1e8), penalty)
        return u, raised, penalty, worst, steps + used

    zero = jnp.zeros_like(g(start))
    begun = (start, zero, jnp.asarray(10.0), jnp.asarray(jnp.inf), jnp.int32(0))
    rounds = _OUTER if zero.size else 1
    u, multipliers, _, _, steps = jax.lax.fori_loop(0, rounds, outer, begun)
    gradient = jax.grad(lambda v: f(v) / scale + multipliers @ g(v))(u)
    excess = g(u)
    return {
        "unit": u,
        "objective": f(u),
        "multipliers": multipliers * scale,
        "stationarity": jnp.max(jnp.abs(u - jnp.clip(u - gradient, 0.0, 1.0))),
        "violation": jnp.max(excess, initial=0.0),
        "complementarity": jnp.max(jnp.abs(multipliers * excess), initial=0.0),
        "steps": steps,
    }


def _descend(f: Callable[[Real], Real], start: Real) -> tuple[Real, Any]:
    """Projected BFGS over [0, 1]^n: (minimum, steps). Coordinates held at a bound by the gradient do not move."""
    size = start.shape[0]
    identity = jnp.eye(size)

    def direction(u: Real, slope: Real, inverse: Real) -> Real:
        held = ((u <= 0.0) & (slope > 0)) | ((u >= 1.0) & (slope < 0))
        free = jnp.where(held, 0.0, 1.0)
        step = -free * (inverse @ (free * slope))
        downhill = step @ slope < 0
        return jnp.where(downhill, step, -free * slope)

    def line(u: Real, value: Real, slope: Real, step: Real) -> Real:
        """The largest of 1, 1/2, 1/4, ... that falls enough along the projected path."""

        def shorter(state: tuple[Real, Real, Real]) -> tuple[Real, Real, Real]:
            size, _, tries = state
            new = jnp.clip(u + size * step, 0.0, 1.0)
            enough = f(new) <= value + 1e-4 * (slope @ (new - u))
            return jnp.where(enough, size, 0.5 * size), enough, tries + 1

        size, _, _ = jax.lax.while_loop(
            lambda state: ~state[1] & (state[2] < _LINE), shorter, (jnp.asarray(1.0), jnp.asarray(False), jnp.int32(0))
        )
        return jnp.clip(u + size * step, 0.0, 1.0)

    def body(state: tuple[Real, ...]) -> tuple[Real, ...]:
        u, value, slope, inverse, _, steps = state
        step = direction(u, slope, inverse)
        step = step * jnp.minimum(1.0, 0.5 / jnp.max(jnp.abs(step)))
        new = line(u, value, slope, step)
        new_value, new_slope = jax.value_and_grad(f)(new)
        better = new_value <= value  # also refuses NaN
        pairs = (new, u), (new_value, value), (new_slope, slope)
        new, new_value, new_slope = (jnp.where(better, after, before) for after, before in pairs)
        s, y = new - u, new_slope - slope
        curved = s @ y
        rho = 1.0 / curved
        left = identity - rho * s[:, None] * y[None]
        updated = left @ inverse @ left.T + rho * s[:, None] * s[None]
        stopped = jnp.max(jnp.abs(s)) < 1e-13
        inverse = jnp.where(curved > 1e-14, updated, identity)
        residual = jnp.max(jnp.abs(new - jnp.clip(new - new_slope, 0.0, 1.0)))
        return new, new_value, new_slope, inverse, stopped | (residual < 1e-10), steps + 1

    value, slope = jax.value_and_grad(f)(start)
    begun = (start, value, slope, identity, jnp.asarray(False), jnp.int32(0))
    found = jax.lax.while_loop(lambda state: ~state[4] & (state[5] < _INNER), body, begun)
    return found[0], found[5]


@float64
def derivative(
    objective: Function, solution: Solution, low: Real, high: Real, parameters: Any, constraints: Function = _none
) -> tuple[Any, Any]:
    r"""(dx/dp, dv/dp) of a solution of `minimize`: how the best x and its value move with each parameter.

    By the implicit function theorem on the KKT system of the active constraints and bounds,
    $\begin{pmatrix} H & A^T \\ A & 0 \end{pmatrix} \begin{pmatrix} dx \\ d\lambda \end{pmatrix} =
    -\begin{pmatrix} \partial_p \nabla L \\ \partial_p g \end{pmatrix}$; the value by the envelope theorem,
    $dv/dp = \partial_p L$. Both have the structure of `parameters`; dx with a leading axis (n,). Valid where the active
    set does not change (strict complementarity); the matrix is singular, and the answer NaN, where it does.
    """
    low, high = (np.atleast_1d(np.asarray(bound, np.float64)) for bound in (low, high))
    parameters = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), parameters)
    x, prices = solution.value["x"], solution.value["multipliers"]
    width = high - low
    free = (x - low > 1e-9 * width) & (high - x > 1e-9 * width)
    active = prices > 1e-9 * prices.max(initial=0.0)
    hessian, rows, mixed, moved, envelope = jax.device_get(_system(objective, constraints, x, parameters, prices))
    hessian, rows = hessian[np.ix_(free, free)], rows[np.ix_(active, free)]
    matrix = np.block([[hessian, rows.T], [rows, np.zeros((len(rows), len(rows)))]])

    def one(cross: np.ndarray, shift: np.ndarray) -> np.ndarray:
        cross, shift = np.asarray(cross), np.asarray(shift)
        each = cross[0].size  # numbers of a parameter
        right = -np.concatenate([cross[free].reshape(-1, each), shift[active].reshape(-1, each)])
        try:
            solved = np.linalg.solve(matrix, right)[: free.sum()]
        except np.linalg.LinAlgError:
            solved = np.full((free.sum(), right.shape[1]), np.nan)
        whole = np.zeros((len(x), right.shape[1]))
        whole[free] = solved
        return whole.reshape(cross.shape)

    return jax.tree.map(one, mixed, moved), envelope


@partial(jax.jit, static_argnums=(0, 1))
def _system(objective: Function, constraints: Function, x: Real, parameters: Any, prices: Real) -> tuple[Any, ...]:
    """Second derivatives of the Lagrangian in x, slopes of the constraints, and both in the parameters."""
    lagrangian = lambda v, p: objective(v, p) + prices @ jnp.asarray(constraints(v, p))
    gradient = jax.grad(lagrangian)
    return (
        jax.jacobian(gradient)(x, parameters),
        jax.jacobian(constraints)(x, parameters),
        jax.jacobian(gradient, argnums=1)(x, parameters),
        jax.jacobian(constraints, argnums=1)(x, parameters),
        jax.grad(lagrangian, argnums=1)(x, parameters),
    )
