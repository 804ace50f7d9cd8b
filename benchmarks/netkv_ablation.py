"""Experiment 6 (Tables IV and VI): the ladder CLA*, + static tiers, + self-contention, + congestion.

python -m benchmarks.netkv_ablation
"""

from __future__ import annotations

from benchmarks.netkv_setting import LADDER, compare, table
from benchmarks.registry import record
from dmodels.sim.network import CHATBOT, LONG_CONTEXT, RAG

PROFILES = {"chatbot": CHATBOT, "rag": RAG, "long": LONG_CONTEXT}
SHORT = ("cla", "topo", "static", "full")


def run(runs: int = 40) -> list[dict]:
    return [{"workload": w} | r for w, profile in PROFILES.items() for r in compare(LADDER, profile, runs=runs)]


def numbers(rows: list[dict]) -> dict[str, float]:
    found = {}
    at = {(r["workload"], r["policy"]): r for r in rows}
    for name in PROFILES:
        ttft = [at[name, p.name]["ttft_mean_s"] for p in LADDER]
        for short, now in zip(SHORT, ttft, strict=True):
            found[f"t4_{name}_{short}_ms"] = 1e3 * now
        for short, before, now in zip(SHORT[1:], ttft[:-1], ttft[1:], strict=True):
            found[f"t4_{name}_{short}_step_pct"] = 100 * (before - now) / before
        cla, full = at[name, "CACHE_LOAD"], at[name, "NETKV_FULL"]
        found[f"t4_{name}_total_pct"] = 100 * (1 - ttft[-1] / ttft[0])
        found[f"t4_{name}_p99_pct"] = 100 * (1 - full["ttft_p99_s"] / cla["ttft_p99_s"])
        found[f"t4_{name}_slo_points"] = 100 * (full["slo_frac"] - cla["slo_frac"])
        found[f"t4_{name}_tbt_ms"] = 1e3 * (full["tbt_mean_s"] - cla["tbt_mean_s"])
    for policy, short in (("CACHE_LOAD", "cla"), ("NETKV_FULL", "full")):
        for tier in range(4):
            found[f"t6_{short}_tier_{tier}_pct"] = 100 * at["rag", policy][f"tier_{tier}_frac"]
        found[f"t6_{short}_xfer_ms"] = 1e3 * at["rag", policy]["transfer_mean_s"]
    return found


def main() -> None:
    rows = run()
    head = ["workload", "policy", "TTFT ms", "+-", "vs CLA* %", "+-", "P99 s", "SLO", "transfer ms", "tier 2", "TBT ms"]
    table(
        "Experiment 6",
        head,
        [
            [
                r["workload"],
                r["policy"],
                1e3 * r["ttft_mean_s"],
                1e3 * r["ttft_se_s"],
                100 * r["ttft_vs_first_frac"],
                100 * r["ttft_vs_first_se_frac"],
                r["ttft_p99_s"],
                r["slo_frac"],
                1e3 * r["transfer_mean_s"],
                r["tier_2_frac"],
                1e3 * r["tbt_mean_s"],
            ]
            for r in rows
        ],
    )
    record("netkv_ablation", rows)


if __name__ == "__main__":
    main()
