"""Points a second of `sweep`: a plan's full evaluation in bounded memory, and a design question that a peer answers.

The peer's question: the fewest GPUs of an M/G/c pool (c = GPUs x slots) whose P99 wait keeps a bound (Kimura's tail)
and whose utilisation stays below 85 %, for a grid of rates, slots, variabilities and bounds. vllm-sr-sim answers one
at a time in Python; it is given a random subset of the points, and its answers are compared with ours there. Its whole
optimiser (`FleetOptimizer.sweep_analytical`, with its sampled calibration) is timed, too.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from dmodels import SLO, catalog, choice, grid
from dmodels.design.space import blocks
from dmodels.design.space import sweep as swept
from dmodels.models.queueing import erlang_c
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


@benchmark("xarray")
def sweep(quick: bool) -> Iterator[Row]:
    """Points a second of a plan's full evaluation through `sweep`, from 10^3 to 10^7 points, in bounded memory."""
    batch, engine = cells()
    names = [f"cell {i}" for i in range(len(batch.slots_count))]
    fixed = {"cells": choice(batch, names), "slowdown": 1.0, "engine": engine, "outputs": OUTPUTS}
    for power in range(3, 5 if quick else 8):
        per_cell = 10**power // len(names) + 1
        rates = max(1, per_cell // 64)
        counts = -(-per_cell // rates)
        asked = {"instances": grid(np.arange(1.0, counts + 1)), "rate_rps": grid(np.linspace(20.0, 400.0, rates))}
        run = lambda asked=asked: swept(evaluate, **fixed, **asked).flags.size
        points, repeats = run(), 2 if power < 6 else 1
        wall = interleaved({"": run}, repeats)[""]
        cpu = interleaved({"": run}, repeats, time.process_time)[""]
        yield {
            "case": "sweep of the plan's evaluation",
            "points": points,
            "wall_s": wall,
            "cpu_s": cpu,
            "points_per_s": points / wall,
            "points_per_cpu_s": points / cpu,
            "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
    start = time.perf_counter()
    count = sum(len(part["points"]) for part in blocks(evaluate, **fixed, **asked))
    wall = time.perf_counter() - start
    yield {"case": "the same block by block, one thread", "points": count, "wall_s": wall, "points_per_s": count / wall}


AXES = {
    "rate_rps": np.geomspace(5.0, 2000.0, 200),
    "gpu_rps": np.array([0.5, 1.0, 3.0, 8.0]),
    "slots_count": np.array([1.0, 4.0, 16.0, 64.0]),
    "service_scv": np.linspace(0.2, 4.0, 8),
    "wait_s": np.linspace(0.05, 2.0, 8),
}


def fewest_gpus(rate_rps, gpu_rps, slots_count, service_scv, wait_s):
    """The smallest pool, by bisection over whole GPUs: more servers never wait longer."""
    each = gpu_rps / slots_count

    def enough(gpus):
        servers = gpus * slots_count
        stable = servers * each > rate_rps
        spare = jnp.where(stable, servers * each - rate_rps, 1.0)
        waits = erlang_c(servers, rate_rps / each)
        late = jnp.log(jnp.maximum(waits, 1e-300) / 0.01) * (1.0 + service_scv) / (2.0 * spare)
        return stable & (late <= wait_s) & (rate_rps <= 0.85 * gpus * gpu_rps)

    def bit(i, wanting):
        trial = wanting + 2.0 ** (14 - i)
        return jnp.where(enough(trial), wanting, trial)

    return {"gpus": jax.lax.fori_loop(0, 15, bit, 0.0 * rate_rps) + 1.0}


@benchmark("vllm-sr-sim")
def sweep_peers(quick: bool) -> Iterator[Row]:
    """Fewest GPUs of an M/G/c pool through `sweep`, and one at a time through vllm-sr-sim's analytic optimiser."""
    from fleet_sim.gpu_profiles.profiles import A100_80GB
    from fleet_sim.optimizer.analytical import min_gpus_analytical
    from fleet_sim.optimizer.base import FleetOptimizer

    axes, asked = {name: grid(values) for name, values in AXES.items()}, 20 if quick else 300
    places = np.stack([np.random.default_rng(0).integers(0, len(v), asked) for v in AXES.values()], axis=1)
    points = [[float(v[i]) for v, i in zip(AXES.values(), row, strict=True)] for row in places]
    ours = lambda: swept(fewest_gpus, **axes).gpus.values
    theirs = lambda: [min_gpus_analytical(r, mu, bound, scv, 0.85, int(slots)) for r, mu, slots, scv, bound in points]
    cdf = [(512, 0.3), (1024, 0.5), (2048, 0.7), (4096, 0.85), (8192, 0.95), (16384, 0.99), (65536, 1.0)]
    gammas = [round(1.0 + 0.1 * k, 1) for k in range(11)]
    whole = lambda: FleetOptimizer(A100_80GB, A100_80GB, 4096, 500.0).sweep_analytical(cdf, 200.0, gammas)
    took = interleaved({"ours": ours, "theirs": theirs, "whole": whole}, 2)
    everywhere, answers = ours(), np.array(theirs(), float)
    got, name = everywhere[tuple(places.T)], "fewest GPUs of an M/G/c pool"
    size = everywhere.size
    yield {"case": name, "who": "dmodels", "points": size, "points_per_s": size / took["ours"]}
    yield {
        "case": name,
        "who": "vllm-sr-sim",
        "points": asked,
        "points_per_s": asked / took["theirs"],
        "same_answer_frac": float((got == answers).mean()),
        "one_more_frac": float((answers == got + 1).mean()),  # it starts its search one above the least stable number
    }
    name = "its optimiser, a fleet per gamma"
    yield {"case": name, "who": "vllm-sr-sim", "points": 11, "points_per_s": len(gammas) / took["whole"]}
