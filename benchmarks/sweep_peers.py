"""The same design questions through vllm-sr-sim's analytic optimiser and through `sweep`: answers and points a second.

Question: the fewest GPUs of an M/G/c pool (c = GPUs x slots) whose P99 wait keeps a bound (Kimura's tail) and whose
utilisation stays below 85 %, for a grid of rates, slots, variabilities and bounds. The peer answers one at a time in
Python; it is given a random subset of the points, and its answers are compared with ours at those points. Its whole
optimiser (`FleetOptimizer.sweep_analytical`, with its sampled calibration) is timed too.

    pip install vllm-sr-sim; python -m benchmarks.sweep_peers
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
from fleet_sim.gpu_profiles.profiles import A100_80GB
from fleet_sim.optimizer.analytical import min_gpus_analytical
from fleet_sim.optimizer.base import FleetOptimizer

from benchmarks.registry import record
from dmodels import grid, sweep
from dmodels.models.queueing import erlang_c

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


def main(asked: int = 300) -> None:
    axes = {name: grid(values) for name, values in AXES.items()}
    sweep(fewest_gpus, **axes)
    ours, ds = np.inf, None
    theirs, places = (
        np.inf,
        np.stack([np.random.default_rng(0).integers(0, len(v), asked) for v in AXES.values()], axis=1),
    )
    points = [[float(v[i]) for v, i in zip(AXES.values(), row, strict=True)] for row in places]
    for _ in range(2):
        start = time.perf_counter()
        ds = sweep(fewest_gpus, **axes)
        ours = min(ours, time.perf_counter() - start)
        start = time.perf_counter()
        answers = [
            min_gpus_analytical(rate, mu, bound, scv, 0.85, int(slots)) for rate, mu, slots, scv, bound in points
        ]
        theirs = min(theirs, time.perf_counter() - start)
    got = ds.gpus.values[tuple(places.T)]
    answers = np.array(answers, float)
    start = time.perf_counter()
    cdf = [(512, 0.3), (1024, 0.5), (2048, 0.7), (4096, 0.85), (8192, 0.95), (16384, 0.99), (65536, 1.0)]
    gammas = [round(1.0 + 0.1 * k, 1) for k in range(11)]
    FleetOptimizer(A100_80GB, A100_80GB, 4096, 500.0).sweep_analytical(cdf, 200.0, gammas)
    whole = (time.perf_counter() - start) / len(gammas)
    case = "fewest GPUs of an M/G/c pool"
    rows = [
        {"case": case, "who": "dmodels", "points": ds.gpus.size, "points_per_s": ds.gpus.size / ours},
        {
            "case": case,
            "who": "vllm-sr-sim",
            "points": asked,
            "points_per_s": asked / theirs,
            "same_answer_frac": float((got == answers).mean()),
            "one_more_frac": float((answers == got + 1).mean()),
        },
        {"case": "its optimiser, a fleet per gamma", "who": "vllm-sr-sim", "points": 11, "points_per_s": 1 / whole},
    ]
    for row in rows:
        print(f"{row['who']:<12} {row['case']:<34} {row['points']:>9,} points {row['points_per_s']:>14,.1f} points/s")
    print(
        f"ratio {ds.gpus.size / ours / (asked / theirs):,.0f}; same answer at "
        f"{(got == answers).mean():.1%} of {asked} points, one GPU fewer than the peer at "
        f"{(answers == got + 1).mean():.1%} (it starts its search one above the least stable number)"
    )
    record("sweep_peers", rows, "vllm-sr-sim")


if __name__ == "__main__":
    main()
