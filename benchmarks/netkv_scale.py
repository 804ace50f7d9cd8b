"""Experiment 7 (Table V): 64 to 1,024 GPUs, with the simulator's speed and the scorer's latency at each size.

python -m benchmarks.netkv_scale
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.netkv_setting import Policy, compare, table, windows
from benchmarks.registry import interleaved, record
from dmodels.control.netkv import Oracle, Pool, choose, dispatch
from dmodels.sim.network import advertised_bytes_per_s, netkv_cluster, simulate

SIZES = {64: 2, 128: 4, 256: 8, 512: 16, 1024: 32}


def run(runs: int = 8) -> list[dict]:
    """CLA* and NetKV-Full at every size, load in proportion; the trace is too short for more windows at the top."""
    rows = []
    for gpus, pods in SIZES.items():
        cluster = netkv_cluster(pods=pods)
        got = compare((Policy.CACHE_LOAD, Policy.NETKV_FULL), load=pods / 2, runs=runs, cluster=cluster)
        rows += [{"gpus": gpus, "decode_instances": len(cluster.decode)} | r | speed(cluster, pods) for r in got]
    return rows


def speed(cluster, pods: int) -> dict[str, float]:
    """Simulated over elapsed seconds, one thread; microseconds per decision, batched and one after another."""
    arrivals = windows(load=pods / 2, runs=1, pool=len(cluster.decode))(0)
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        out = simulate(cluster, arrivals, Policy.NETKV_FULL)
        best = min(best, time.perf_counter() - start)
    rng, count, pool = np.random.default_rng(0), 20_000, len(cluster.decode)
    tier = cluster.fabric.tier(cluster.prefill[:, None], cluster.decode[None, :])
    oracle = Oracle(tier, advertised_bytes_per_s(cluster), cluster.fabric.tier_latency_s, np.full(4, 0.2))
    state = Pool(np.full(pool, 1e14), np.zeros(pool), rng.integers(0, 20, pool).astype(float))
    source, kv = rng.integers(0, len(cluster.prefill), count), rng.uniform(1e8, 1e10, count)
    hits = rng.uniform(0, 1, (count, pool))
    took = interleaved(
        {
            "batch": lambda: choose(Policy.NETKV_FULL, oracle, source, kv, hits, state),
            "sequence": lambda: dispatch(Policy.NETKV_FULL, oracle, source, kv, hits, state),
        }
    )
    return {
        "times_real_time": float(np.nanmax(out.arrival_s + out.e2e_s)) / best,
        "events_per_s": out.events / best,
        "decision_us": took["batch"] / count * 1e6,
        "sequential_decision_us": took["sequence"] / count * 1e6,
        "decisions_per_s": count / took["batch"],
    }


def numbers(rows: list[dict]) -> dict[str, float]:
    found = {}
    at = {(r["gpus"], r["policy"]): r for r in rows}
    for gpus in SIZES:
        cla, full = at[gpus, "CACHE_LOAD"], at[gpus, "NETKV_FULL"]
        found |= {
            f"t5_{gpus}_cut_pct": 100 * full["ttft_vs_first_frac"],
            f"t5_{gpus}_slo_points": 100 * (full["slo_frac"] - cla["slo_frac"]),
            f"t5_{gpus}_full_xfer_ms": 1e3 * full["transfer_mean_s"],
            f"t5_{gpus}_cla_xfer_ms": 1e3 * cla["transfer_mean_s"],
        }
    return found


def main() -> None:
    rows = run()
    head = [
        "GPUs",
        "decode",
        "policy",
        "TTFT s",
        "vs CLA* %",
        "+-",
        "SLO",
        "transfer ms",
        "tier 3",
        "x real time",
        "us/decision",
        "in sequence",
    ]
    table(
        "Experiment 7",
        head,
        [
            [
                r["gpus"],
                r["decode_instances"],
                r["policy"],
                r["ttft_mean_s"],
                100 * r["ttft_vs_first_frac"],
                100 * r["ttft_vs_first_se_frac"],
                r["slo_frac"],
                1e3 * r["transfer_mean_s"],
                r["tier_3_frac"],
                r["times_real_time"],
                r["decision_us"],
                r["sequential_decision_us"],
            ]
            for r in rows
        ],
    )
    record("netkv_scale", rows)


if __name__ == "__main__":
    main()
