"""`assign` on a GPU beside optax on the same GPU and the fastest CPU code of the same run.

    python -m benchmarks.assignment_gpu

10,000 uniform float32 problems of n = 32, 64, 128. Needs a device that JAX sees; without one it says so and stops.
Rows go to results/assignment_gpu.jsonl.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.solvers import assign

from .assignment_peers import assignment_peers
from .registry import interleaved, record

BATCH, SIZES = 10_000, (32, 64, 128)

#: Problems per call of the solvers that would not fit or take minutes.
OPTAX_BATCH, CPU_BATCH = 1_000, 2_000


def cell(n: int, device) -> dict[str, float]:
    """Problems per second of each solver. Costs lie on the device beforehand for those that run there."""
    from optax.assignment import hungarian_algorithm

    costs = np.random.default_rng(n).random((BATCH, n, n)).astype(np.float32)
    there = jax.device_put(jnp.asarray(costs), device)
    best = assign(costs).value.cost
    cases, counts = {}, {}
    for backend in ("pallas", "xla"):
        cases[f"dmodels, {backend}"] = lambda b=backend: jax.block_until_ready(assign(there, backend=b).value.cost)
        counts[f"dmodels, {backend}"] = BATCH
    optax = jax.jit(jax.vmap(lambda c: c[hungarian_algorithm(c)].sum()))
    cases["optax vmapped"] = lambda: jax.block_until_ready(optax(there[:OPTAX_BATCH]))
    counts["optax vmapped"] = OPTAX_BATCH
    cases["dmodels, CPU"] = lambda: assign(costs).value.cost
    counts["dmodels, CPU"] = BATCH
    for name, solve in assignment_peers().items():
        if name != "optax vmapped":
            cases[f"{name}, CPU"] = lambda solve=solve: solve(costs[:CPU_BATCH].astype(np.float64))
            counts[f"{name}, CPU"] = CPU_BATCH
    for name, case in cases.items():
        np.testing.assert_allclose(case(), best[: counts[name]], rtol=1e-4, err_msg=name)
    return {name: counts[name] / seconds for name, seconds in interleaved(cases, 3).items()}


def main() -> int:
    devices = [d for d in jax.devices() if d.platform != "cpu"]
    if not devices:
        print("no accelerator: nothing measured", file=sys.stderr)
        return 1
    rows = []
    for n in SIZES:
        rates = cell(n, devices[0])
        rows += [{"batch": BATCH, "n": n, "solver": name, "matrices_per_second": rate} for name, rate in rates.items()]
        for name, rate in rates.items():
            print(f"{BATCH} x {n:3d} {name:20s} {rate:14,.0f} /s {rates['dmodels, pallas'] / rate:8.2f} x")
    record("assignment_gpu", rows, "lapx", "optax")
    return 0


if __name__ == "__main__":
    sys.exit(main())
