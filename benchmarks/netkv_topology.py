"""Experiment 3 (Fig. 1): cross-pod oversubscription 1:1 to 8:1 against background load 0 to 40 %, three workloads.

Oversubscription here makes links slower, as the paper's tier bandwidths do: o:1 leaves 50/o Gbit/s across pods, and at
most 25 within a pod from 2:1 on. Background is one fraction on all links, as the paper has it; then every tier reports
the same congestion and the live signal can change nothing but its weight against the queue. `pod_only` puts the same
background on the pod uplinks alone, where the signal has something to say.

    python -m benchmarks.netkv_topology
"""

from __future__ import annotations

import numpy as np

from benchmarks.netkv_setting import Policy, compare, table
from benchmarks.registry import record
from dmodels.core.units import gbit_per_s
from dmodels.sim.network import CHATBOT, LONG_CONTEXT, RAG, netkv_cluster

POLICIES = (Policy.CACHE_LOAD, Policy.NETKV_STATIC, Policy.NETKV_FULL)
PROFILES = {"chatbot": CHATBOT, "rag": RAG, "long": LONG_CONTEXT}
RATIOS, LEVELS = (1, 2, 4, 8), (0.0, 0.1, 0.2, 0.3, 0.4)


def cluster(ratio: float):
    """NetKV's cluster at a cross-pod oversubscription of ratio:1."""
    rack, pod = gbit_per_s(50 / min(ratio, 2)), gbit_per_s(50 / ratio)
    return netkv_cluster(tier_bytes_per_s=(450e9, gbit_per_s(50), rack, pod))


def run(runs: int = 12) -> list[dict]:
    rows = []
    for name, profile in PROFILES.items():
        for ratio in RATIOS:
            for level in LEVELS:
                for where, load in (("all links", level), ("pod_only", np.array([0, 0, 0, level]))):
                    if where == "pod_only" and (level == 0 or name != "rag"):
                        continue
                    got = compare(POLICIES, profile, runs=runs, cluster=cluster(ratio), background=load)
                    rows += [{"workload": name, "ratio": ratio, "background": level, "where": where} | r for r in got]
    return rows


def numbers(rows: list[dict]) -> dict[str, float]:
    found = {}
    at = {(r["workload"], r["ratio"], r["background"], r["where"], r["policy"]): r["ttft_vs_first_frac"] for r in rows}
    for name in PROFILES:
        found[f"e3_{name}_max_stress_pct"] = 100 * at[name, 8, 0.4, "all links", "NETKV_FULL"]
        found[f"e3_{name}_min_stress_pct"] = 100 * at[name, 1, 0.0, "all links", "NETKV_FULL"]
    cells = [v > 0 for (_, _, _, where, policy), v in at.items() if policy == "NETKV_FULL" and where == "all links"]
    found["e3_cells_won"] = sum(cells)
    return found


def main() -> None:
    rows = run()
    full = [r for r in rows if r["policy"] != "CACHE_LOAD"]
    head = ["workload", "o:1", "background", "where", "policy", "vs CLA* %", "+-", "tier 2", "TBT ms"]
    table(
        "Experiment 3",
        head,
        [
            [
                r["workload"],
                r["ratio"],
                r["background"],
                r["where"],
                r["policy"],
                100 * r["ttft_vs_first_frac"],
                100 * r["ttft_vs_first_se_frac"],
                r["tier_2_frac"],
                1e3 * r["tbt_mean_s"],
            ]
            for r in full
        ],
    )
    record("netkv_topology", rows)


if __name__ == "__main__":
    main()
