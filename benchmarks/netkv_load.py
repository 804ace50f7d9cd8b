"""Experiment 1 (Table II): TTFT, TBT, SLO attainment and transfer time against load, three workloads.

python -m benchmarks.netkv_load
"""

from __future__ import annotations

from benchmarks.netkv_setting import Policy, compare, table
from benchmarks.registry import record
from dmodels.sim.network import CHATBOT, LONG_CONTEXT, RAG

POLICIES = (Policy.ROUND_ROBIN, Policy.CACHE_LOAD, Policy.NETKV_FULL)
NAMES = dict(zip(POLICIES, ("rr", "cla", "full"), strict=True))
PROFILES = {"chatbot": CHATBOT, "rag": RAG, "long": LONG_CONTEXT}
LOADS = {"chatbot": (1.0, 2.0), "rag": (0.5, 1.0, 1.5, 2.0, 2.5), "long": (0.75, 1.0, 2.0)}


def run(runs: int = 40) -> list[dict]:
    """One row per workload, load and policy."""
    rows = []
    for name, profile in PROFILES.items():
        for load in LOADS[name]:
            rows += [{"workload": name, "load": load} | r for r in compare(POLICIES, profile, load, runs)]
    return rows


def numbers(rows: list[dict]) -> dict[str, float]:
    """The numbers that the paper prints, by id."""
    found, at = {}, {(r["workload"], r["load"], r["policy"]): r for r in rows}
    for load in (1.0, 2.0, 2.5):
        for policy, short in NAMES.items():
            row, key = at["rag", load, policy.name], f"t2_{load:.0%}_{short}".replace("%", "")
            found |= {
                f"{key}_tbt_ms": row["tbt_mean_s"] * 1e3,
                f"{key}_slo": row["slo_frac"],
                f"{key}_xfer_ms": row["transfer_mean_s"] * 1e3,
            }
        for other in ("ROUND_ROBIN", "CACHE_LOAD"):
            a, b = at["rag", load, other], at["rag", load, "NETKV_FULL"]
            cut = 100 * (1 - b["ttft_mean_s"] / a["ttft_mean_s"])
            found[f"e1_{load * 100:.0f}_vs_{'rr' if other == 'ROUND_ROBIN' else 'cla'}_pct"] = cut
    for name in PROFILES:
        for other, short in (("ROUND_ROBIN", "rr"), ("CACHE_LOAD", "cla")):
            ttft = lambda load, policy, name=name: at[name, load, policy]["ttft_mean_s"]
            cuts = [1 - ttft(x, "NETKV_FULL") / ttft(x, other) for x in LOADS[name]]
            found[f"e1_{name}_peak_vs_{short}_pct"] = 100 * max(cuts)
    for policy, short in NAMES.items():
        found[f"e1_100_{short}_p99_s"] = at["rag", 1.0, policy.name]["ttft_p99_s"]
        found[f"e1_250_{short}_p99_s"] = at["rag", 2.5, policy.name]["ttft_p99_s"]
        found[f"e1_200_{short}_goodput_rps"] = at["rag", 2.0, policy.name]["goodput_rps"]
    return found


def main() -> None:
    rows = run()
    head = ["workload", "load", "policy", "TTFT s", "P99 s", "TBT ms", "SLO", "transfer ms", "tier 2", "vs RR %"]
    table(
        "Experiment 1",
        head,
        [
            [
                r["workload"],
                r["load"],
                r["policy"],
                r["ttft_mean_s"],
                r["ttft_p99_s"],
                1e3 * r["tbt_mean_s"],
                r["slo_frac"],
                1e3 * r["transfer_mean_s"],
                r["tier_2_frac"],
                100 * r["ttft_vs_first_frac"],
            ]
            for r in rows
        ],
    )
    record("netkv_load", rows)


if __name__ == "__main__":
    main()
