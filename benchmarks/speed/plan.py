"""Points per second of the full plan evaluation, and how its cost grows with their number.

One point is one pool: a layout, a class of requests and a number of instances; out come occupancy, waits, percentiles
of TTFT, TPOT and E2E, and flags. Compare commits by running each in turn on one machine.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels import SLO, catalog
from dmodels.core.records import float64
from dmodels.studies.plan import Priced, price, question
from dmodels.studies.plan.evaluate import sweep_instances

#: Each number of points is evaluated so often, and the median is told: memory that a process never touched before costs
#: its first run up to a tenth.
REPEATS = 3


def prepared() -> Priced:
    """The cells of a question that a planner asks: four GPU types, four TP degrees, precisions, all thresholds."""
    both = ("as published", "fp8")
    gpus, workload = ["h100", "h200", "b200", "mi300x"], catalog.workload("azure-conv", 200.0)
    return price(question("llama-3.1-70b", gpus, workload, SLO(2.0, 0.08), weights=both, kv=both))


@benchmark()
def plan_speed(quick: bool) -> Iterator[Row]:
    """Points per second and per CPU-second of the full plan evaluation, up to 10^7 points."""
    yield from float64(measured)(10**5 if quick else 10**7)


def measured(most: int) -> list[Row]:
    priced = prepared()
    cells, asked = priced.cells, priced.question
    stable = np.where(np.isfinite(priced.stable_instances), priced.stable_instances, 1.0).reshape(-1, 1)
    run = lambda counts: sweep_instances(cells, counts, asked.rate_rps, asked.engine)
    for width in (64, 65):  # compile: wide batches have a program of their own
        run(stable * np.geomspace(1, 12, width))
    rows, width = [], 64
    while not rows or len(stable) * width <= most:
        counts = stable * np.geomspace(1, 12, width)
        taken = []
        for _ in range(REPEATS):
            wall, cpu = time.perf_counter(), time.process_time()
            run(counts)
            taken.append((time.perf_counter() - wall, time.process_time() - cpu))
        wall, cpu = np.median(taken, axis=0)
        size = counts.size
        rows.append({"points_count": size, "points_per_s": size / wall, "points_per_cpu_s": size / cpu})
        width *= 4
    rows[-1]["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return rows
