"""Experiment 5 (Fig. 3): share of requests whose prefix some decode instance holds, 0 to 0.9.

`own blocks` replaces the drawn hits by the trace's block hashes and LRU caches in the instances.

    python -m benchmarks.netkv_prefix
"""

from __future__ import annotations

from benchmarks.netkv_setting import Policy, compare, table
from benchmarks.registry import record
from dmodels.sim.network import RAG

POLICIES = (Policy.CACHE, Policy.CACHE_LOAD, Policy.NETKV_FULL)
SHARES = (0.0, 0.3, 0.6, 0.9)


def run(runs: int = 20) -> list[dict]:
    rows = []
    for share in SHARES:
        rows += [{"share": share} | r for r in compare(POLICIES, RAG._replace(share_frac=share), runs=runs)]
    got = compare(POLICIES, runs=runs, arrivals={"own_blocks": True, "seconds": 120.0}, warmup_s=60.0, measure_s=60.0)
    return rows + [{"share": "own blocks"} | r for r in got]


def numbers(rows: list[dict]) -> dict[str, float]:
    at = {(r["share"], r["policy"]): r["ttft_mean_s"] for r in rows}
    cuts = [100 * (1 - at[s, "NETKV_FULL"] / at[s, "CACHE_LOAD"]) for s in SHARES]
    return {"e5_low_pct": min(cuts), "e5_high_pct": max(cuts)}


def main() -> None:
    rows = run()
    table(
        "Experiment 5",
        ["share", "policy", "TTFT s", "vs CA %", "transfer ms", "SLO", "tier 2"],
        [
            [
                r["share"],
                r["policy"],
                r["ttft_mean_s"],
                100 * r["ttft_vs_first_frac"],
                1e3 * r["transfer_mean_s"],
                r["slo_frac"],
                r["tier_2_frac"],
            ]
            for r in rows
        ],
    )
    record("netkv_prefix", rows)


if __name__ == "__main__":
    main()
