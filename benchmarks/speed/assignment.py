"""`assign` beside SciPy, lap, lapx and optax: matrices per CPU-second against n and batch size.

Uniform costs, and costs whose columns are 2 to 5 distinct ones repeated (requests to workers with capacities). Every
solver solves every cell in one run, interleaved, and must find the same optima. Single matrices, one per call, are
measured beside the peers' bare calls, which neither sum the costs (SciPy's) nor prove anything, and beside SciPy's
with the sum. CPU-seconds, so that neither other work on the machine nor our second thread decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from benchmarks.speed._assignment_peers import assignment_peers, single_peers, warm
from dmodels.solvers import assign

CELLS = [(1000, 8), (1000, 32), (200, 64), (50, 128), (10, 256), (4, 512)]
BATCHES = [(b, 32) for b in (1, 10, 100, 1000)] + [(b, n) for n in (4, 8) for b in (3, 10)]
SINGLES = (4, 8, 16, 32, 64, 128, 256)
KINDS = ("uniform", "2 distinct columns", "5 distinct columns")

#: optax under vmap needs minutes beyond this n.
OPTAX_UP_TO = 64


def batch(kind: str, count: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    if kind == "uniform":
        return rng.random((count, n, n))
    distinct = int(kind[0])
    return np.take(rng.random((count, n, distinct)), np.arange(n) * distinct // n, axis=2)


def cell(kind: str, count: int, n: int, peers: dict, repeats: int) -> dict[str, float]:
    """Matrices per CPU-second of every solver on one batch; all must find the same optima."""
    costs = batch(kind, count, n)
    cases = {"dmodels": lambda: assign(costs).value.cost}
    for name, solve in peers.items():
        if name != "optax vmapped" or n <= OPTAX_UP_TO:
            cases[name] = lambda solve=solve: solve(costs)
    best = cases["dmodels"]()
    for name, case in cases.items():
        np.testing.assert_allclose(case(), best, rtol=1e-9, err_msg=name)
    calls = max(1, 100 // count) if n <= 32 else 1  # alone, a call of microseconds would measure cold caches
    several = {name: lambda case=case: [case() for _ in range(calls)] for name, case in cases.items()}
    return {name: calls * count / seconds for name, seconds in interleaved(several, repeats, time.process_time).items()}


@benchmark("lapx", "optax")
def assignment(quick: bool) -> Iterator[Row]:
    """Linear assignment on the CPU: matrices per CPU-second by n and batch, and one matrix per call."""
    small = np.eye(4)
    warm(lambda: assign(small), lambda: assign(np.array([small] * 3)))
    peers = assignment_peers()
    for kind in KINDS:
        for count, n in CELLS[-2:] if quick else CELLS + (BATCHES if kind == "uniform" else []):
            for name, rate in cell(kind, count, n, peers, 1 if quick else 5).items():
                yield {"kind": kind, "batch": count, "n": n, "solver": name, "matrices_per_cpu_second": rate}
    for n in SINGLES[: 2 if quick else None]:
        cost = batch("uniform", 1, n)[0]
        calls = max(1, 2_000 // n)
        several = {
            name: lambda solve=solve, cost=cost, calls=calls: [solve(cost) for _ in range(calls)]
            for name, solve in {"dmodels": assign, **single_peers()}.items()
        }
        for name, seconds in interleaved(several, 2 if quick else 50, time.process_time).items():
            yield {"kind": "single", "batch": 1, "n": n, "solver": name, "matrices_per_cpu_second": calls / seconds}
