"""The calibration's Levenberg-Marquardt against optimistix's on the same rows: the same optimum, at what cost.

    python -m benchmarks.fit_peers                  # 40 measurements; two minutes
    python -m benchmarks.fit_peers --rows 40 200

A row feels a dozen of the many levels, so `fit/descent.py` sums derivatives by efficiency (19 forward passes) into the
normal equations. optimistix differentiates by every effect (one pass each) and factors the dense Jacobian by QR.
Both minimise the robust loss plus |z|^2; optimistix gets it as squares, r -> sign(r) sqrt(rho(r)).
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from benchmarks.accuracy import ROWS
from benchmarks.registry import record
from dmodels.core.records import float64
from dmodels.fit import descent, silicon
from dmodels.fit.points import to_points
from dmodels.fit.rows import Table, read_rows

STEPS = 40


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
    for name, run in (("ours", ours), ("optimistix", theirs)):
        run()  # compilation
        began = time.perf_counter()
        z, steps = run()
        row |= {f"{name}_s": time.perf_counter() - began, f"{name}_steps": steps, f"{name}_loss": float(loss(z))}
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="*", default=[40])
    found = []
    print(f"{'rows':>5} {'effects':>8} {'loss at 0':>10} {'loss':>17} {'seconds':>17} {'steps':>7} {'ratio':>6}")
    for count in parser.parse_args().rows:
        r = compare(count)
        found.append(r)
        print(
            f"{count:5d} {r['effects']:8.0f} {r['start']:10.2f} {r['ours_loss']:8.3f} {r['optimistix_loss']:8.3f} "
            f"{r['ours_s']:8.2f} {r['optimistix_s']:8.2f} {r['ours_steps']:3.0f} {r['optimistix_steps']:3.0f} "
            f"{r['optimistix_s'] / r['ours_s']:6.1f}",
            flush=True,
        )
    record("fit_peers", found)


if __name__ == "__main__":
    main()
