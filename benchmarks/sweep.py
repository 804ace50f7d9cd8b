"""Points a second of a plan's full evaluation through `sweep`, from 10^3 to 10^7 points, in bounded memory.

python -m benchmarks.sweep [--most 7]
"""

from __future__ import annotations

import argparse
import resource
import time

import jax
import numpy as np

from benchmarks.registry import record
from dmodels import SLO, catalog, choice, grid
from dmodels.design.space import blocks, sweep
from dmodels.studies.plan import price, question
from dmodels.studies.plan.evaluate import evaluate

OUTPUTS = ("ttft_s", "tpot_s", "e2e_s", "tokens_per_s")


def cells():
    """(batch of 32 cells, engine): layouts of four GPU types serving a bundled conversation workload."""
    asked = question(
        "llama-3.1-70b",
        ["h100_sxm", "h200_sxm", "a100_80", "b200"],
        catalog.workload("azure-conv"),
        SLO(2.0, 0.08),
        rate_rps=100.0,
        split=False,
        thresholds_tokens=(2048.0, 4096.0),
    )
    found = price(asked).cells
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[:32, 0], found)
    return batch, asked.engine


def main(most: int = 7) -> None:
    batch, engine = cells()
    names = [f"cell {i}" for i in range(len(batch.slots_count))]
    rows = []
    fixed = {"cells": choice(batch, names), "slowdown": 1.0, "engine": engine}
    for power in range(3, most + 1):
        per_cell = 10**power // len(names) + 1
        rates = max(1, per_cell // 64)
        counts = -(-per_cell // rates)
        asked = {"instances": grid(np.arange(1.0, counts + 1)), "rate_rps": grid(np.linspace(20.0, 400.0, rates))}
        best, cpu = np.inf, np.inf
        for _ in range(3 if power < 6 else 2):  # the first run compiles
            start, used = time.perf_counter(), time.process_time()
            ds = sweep(evaluate, **fixed, **asked, outputs=OUTPUTS)
            best, cpu = min(best, time.perf_counter() - start), min(cpu, time.process_time() - used)
        points = ds.flags.size
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(
            {
                "case": "sweep of the plan's evaluation",
                "points": points,
                "wall_s": best,
                "cpu_s": cpu,
                "points_per_s": points / best,
                "points_per_cpu_s": points / cpu,
                "peak_gib": peak,
            }
        )
        print(
            f"{points:>10,} points  {best:8.3f} s  {points / best:12,.0f} points/s  "
            f"{points / cpu:12,.0f} points/CPU-s  peak {peak:.2f} GiB",
            flush=True,
        )
        del ds
    start, count = time.perf_counter(), 0
    for part in blocks(evaluate, **fixed, **asked, outputs=OUTPUTS):
        count += len(part["points"])
    spent = time.perf_counter() - start
    rows.append(
        {"case": "the same block by block, one thread", "points": count, "wall_s": spent, "points_per_s": count / spent}
    )
    print(f"{count:>10,} points block by block, one thread: {count / spent:,.0f} points/s")
    record("sweep", rows, "xarray")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=7)
    main(parser.parse_args().most)
