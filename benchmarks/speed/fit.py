"""The calibration's Levenberg-Marquardt against optimistix's on the same rows: the same optimum, at what cost.

A row feels a dozen of the many levels, so `fit/descent.py` sums derivatives by efficiency (19 forward passes) into the
normal equations. optimistix differentiates by every effect (one pass each) and factors the dense Jacobian by QR.
Both minimise the robust loss plus |z|^2; optimistix gets it as squares, r -> sign(r) sqrt(rho(r)).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from dmodels.core.records import float64
from dmodels.fit import descent, silicon
from dmodels.fit.points import to_points
from dmodels.fit.rows import Table, read_rows

STEPS = 40
ROWS = Path(__file__).parents[3] / "shared" / "data" / "silicon_fit.csv"


def residuals(z: jax.Array, problem: descent.Problem) -> jax.Array:
    """What is squared and summed: robust residuals of both latencies, and the effects z (active ones, whitened)."""
    active = np.flatnonzero(problem.scale.ravel() > 0)
    effects = jnp.zeros(problem.scale.size).at[active].set(z).reshape(problem.scale.shape) * problem.scale
    value = descent.log_latencies(problem.halves, problem.origin + effects[problem.paths].sum(axis=1))
    r = (problem.measured - value) / descent.SIGMA / descent.ROBUST
    square = jnp.maximum(r**2, 1e-30)
    robust = r * jnp.sqrt(jnp.log1p(square) / square) * descent.ROBUST * np.sqrt(problem.weight)[:, None]
    return jnp.concatenate([robust.ravel(), z])


@float64
def compare(count: int) -> dict[str, float]:
    """Loss, seconds and steps of both on `count` rows spread over the file, after one compilation of each."""
    import optimistix as optx

    table = read_rows(ROWS)
    chosen = np.linspace(0, len(table.rows) - 1, count).astype(int)
    points, kept = to_points(Table([table.rows[i] for i in chosen], []))
    problem, _, _ = silicon.problem_of(points, kept.rows)
    active = problem.scale.ravel() > 0
    start = jnp.zeros(int(active.sum()))
    loss = jax.jit(lambda z: (residuals(z, problem) ** 2).sum())

    def ours():
        found = descent.minimise(problem, np.zeros(problem.scale.shape), STEPS)
        return found.z.ravel()[active], found.steps

    solver = optx.LevenbergMarquardt(rtol=descent.ENOUGH, atol=1e-6)

    @jax.jit
    def solve(z):
        found = optx.least_squares(
            lambda z, _: residuals(z, problem), solver, z, max_steps=STEPS, throw=False, options={"jac": "fwd"}
        )
        return found.value, found.stats["num_steps"]

    def theirs():
        z, steps = solve(start)
        return np.asarray(z), int(steps)

    row: dict[str, float] = {"rows": count, "effects": int(active.sum()), "start": float(loss(start))}
    took = interleaved({"ours": ours, "optimistix": theirs}, 1)
    for name, run in (("ours", ours), ("optimistix", theirs)):
        z, steps = run()
        row |= {f"{name}_s": took[name], f"{name}_steps": steps, f"{name}_loss": float(loss(z))}
    return row


@benchmark("optimistix")
def fit_peers(quick: bool) -> Iterator[Row]:
    """The calibration's Levenberg-Marquardt beside optimistix's on the same rows: the same optimum, at what cost."""
    yield compare(10 if quick else 40)
