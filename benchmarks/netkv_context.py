"""Experiment 2 (Table III): every prompt overridden, 1K to 64K tokens, RAG arrivals at 100 %.

python -m benchmarks.netkv_context
"""

from __future__ import annotations

from benchmarks.netkv_setting import Policy, compare, table
from benchmarks.registry import record

POLICIES = (Policy.ROUND_ROBIN, Policy.CACHE, Policy.CACHE_LOAD, Policy.NETKV_FULL)
LENGTHS = (1024, 4096, 8192, 16384, 32768, 65536)


def run(runs: int = 20) -> list[dict]:
    rows = []
    for tokens in LENGTHS:
        rows += [{"input_tokens": tokens} | r for r in compare(POLICIES, runs=runs, arrivals={"input_tokens": tokens})]
    return rows


def numbers(rows: list[dict]) -> dict[str, float]:
    found, at = {}, {(r["input_tokens"], r["policy"]): r for r in rows}
    for tokens in LENGTHS:
        full = at[tokens, "NETKV_FULL"]
        for other, short in (("ROUND_ROBIN", "rr"), ("CACHE_LOAD", "cla")):
            row = at[tokens, other]
            found[f"t3_{tokens}_vs_{short}_pct"] = 100 * (1 - full["ttft_mean_s"] / row["ttft_mean_s"])
            found[f"t3_{tokens}_slo_vs_{short}"] = full["slo_frac"] - row["slo_frac"]
        found[f"t3_{tokens}_tbt_ms"] = 1e3 * (full["tbt_mean_s"] - at[tokens, "CACHE_LOAD"]["tbt_mean_s"])
    return found


def main() -> None:
    rows = run()
    head = ["tokens", "policy", "TTFT s", "SLO", "transfer ms", "tier 2", "TBT ms", "vs RR %", "rejected+late"]
    table(
        "Experiment 2",
        head,
        [
            [
                r["input_tokens"],
                r["policy"],
                r["ttft_mean_s"],
                r["slo_frac"],
                1e3 * r["transfer_mean_s"],
                r["tier_2_frac"],
                1e3 * r["tbt_mean_s"],
                100 * r["ttft_vs_first_frac"],
                1 - r["served_frac"],
            ]
            for r in rows
        ],
    )
    record("netkv_context", rows)


if __name__ == "__main__":
    main()
