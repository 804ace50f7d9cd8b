"""What our simulation gives beside every simulated number of NetKV: proofs/papers/netkv/simulated.csv.

Reads the last recorded run of each experiment (benchmarks/results/netkv_*.jsonl), keeps the printed columns and fills
`computed` and `verdict`. One rule for all: within 10 % of the printed number, or at a printed 0 its rounding. Table V's
packet-level rows are those of `netkv_packets`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.papers._netkv_setting import LADDER, PROFILES
from benchmarks.papers._printed import made_by
from benchmarks.registry import RESULTS
from proofs.papers import rows as papers

LOADS = {"chatbot": (1.0, 2.0), "rag": (0.5, 1.0, 1.5, 2.0, 2.5), "long": (0.75, 1.0, 2.0)}
LENGTHS = (1024, 4096, 8192, 16384, 32768, 65536)
RATIOS = (1, 2, 4, 8)
REFRESH_S = (0.1, 1.0, 5.0, 20.0, 60.0)
SHARES = (0.0, 0.3, 0.6, 0.9)
SIZES = {64: 2, 128: 4, 256: 8, 512: 16, 1024: 32}  # GPUs -> pods
NAMES = {"ROUND_ROBIN": "rr", "CACHE_LOAD": "cla", "NETKV_FULL": "full"}
SHORT = ("cla", "topo", "static", "full")


def of_load(rows: list[dict]) -> dict[str, float]:
    """The numbers that the paper prints, by id."""
    found, at = {}, {(r["workload"], r["load"], r["policy"]): r for r in rows}
    for load in (1.0, 2.0, 2.5):
        for policy, short in NAMES.items():
            row, key = at["rag", load, policy], f"t2_{load:.0%}_{short}".replace("%", "")
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
        found[f"e1_100_{short}_p99_s"] = at["rag", 1.0, policy]["ttft_p99_s"]
        found[f"e1_250_{short}_p99_s"] = at["rag", 2.5, policy]["ttft_p99_s"]
        found[f"e1_200_{short}_goodput_rps"] = at["rag", 2.0, policy]["goodput_rps"]
    return found


def of_context(rows: list[dict]) -> dict[str, float]:
    found, at = {}, {(r["input_tokens"], r["policy"]): r for r in rows}
    for tokens in LENGTHS:
        full = at[tokens, "NETKV_FULL"]
        for other, short in (("ROUND_ROBIN", "rr"), ("CACHE_LOAD", "cla")):
            row = at[tokens, other]
            found[f"t3_{tokens}_vs_{short}_pct"] = 100 * (1 - full["ttft_mean_s"] / row["ttft_mean_s"])
            found[f"t3_{tokens}_slo_vs_{short}"] = full["slo_frac"] - row["slo_frac"]
        found[f"t3_{tokens}_tbt_ms"] = 1e3 * (full["tbt_mean_s"] - at[tokens, "CACHE_LOAD"]["tbt_mean_s"])
    return found


def of_topology(rows: list[dict]) -> dict[str, float]:
    found = {}
    at = {(r["workload"], r["ratio"], r["background"], r["where"], r["policy"]): r["ttft_vs_first_frac"] for r in rows}
    for name in PROFILES:
        found[f"e3_{name}_max_stress_pct"] = 100 * at[name, 8, 0.4, "all links", "NETKV_FULL"]
        found[f"e3_{name}_min_stress_pct"] = 100 * at[name, 1, 0.0, "all links", "NETKV_FULL"]
    cells = [v > 0 for (_, _, _, where, policy), v in at.items() if policy == "NETKV_FULL" and where == "all links"]
    found["e3_cells_won"] = sum(cells)
    return found


def averaged(rows: list[dict]) -> dict[tuple, tuple[float, float]]:
    """(reduction against CLA*, SLO attainment) by wander, refresh and policy, over draws of the background."""
    keys = dict.fromkeys((r["wander"], r["refresh_s"], r["policy"]) for r in rows)
    pick = lambda key, name: np.mean([r[name] for r in rows if (r["wander"], r["refresh_s"], r["policy"]) == key])
    return {key: (float(pick(key, "ttft_vs_first_frac")), float(pick(key, "slo_frac"))) for key in keys}


def of_staleness(rows: list[dict]) -> dict[str, float]:
    at = averaged(rows)
    cuts = [100 * at["mild", refresh, "NETKV_FULL"][0] for refresh in REFRESH_S]
    return {"e4_full_vs_cla_pct": float(np.mean(cuts)), "e4_spread_points": float(np.ptp(cuts))}


def of_prefix(rows: list[dict]) -> dict[str, float]:
    at = {(r["share"], r["policy"]): r["ttft_mean_s"] for r in rows}
    cuts = [100 * (1 - at[s, "NETKV_FULL"] / at[s, "CACHE_LOAD"]) for s in SHARES]
    return {"e5_low_pct": min(cuts), "e5_high_pct": max(cuts)}


def of_ablation(rows: list[dict]) -> dict[str, float]:
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


def of_scale(rows: list[dict]) -> dict[str, float]:
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


EXPERIMENTS = {
    "load": of_load,
    "context": of_context,
    "topology": of_topology,
    "staleness": of_staleness,
    "prefix": of_prefix,
    "ablation": of_ablation,
    "scale": of_scale,
}


def last_run(name: str) -> list[dict]:
    """The rows of the last recorded run of an experiment."""
    lines = [json.loads(line) for line in (RESULTS / f"netkv_{name}.jsonl").read_text().splitlines()]
    return [row for row in lines if row["when"] == lines[-1]["when"]]


def off(printed: float, computed: float) -> str:
    """How far off a number is, for rows whose gap has no better reason."""
    side = "the same side" if printed * computed > 0 else "the other side"
    return f"off by {100 * abs(computed / printed - 1):.0f} %, on {side} of 0" if printed else "not nought"


def write(_=None) -> Path:
    """The file of verdicts, from the last recorded run of every experiment."""
    ours = {}
    for name, numbers in EXPERIMENTS.items():
        ours |= numbers(last_run(name))
    rows = papers.read("netkv/simulated")
    for row in rows:
        if row["id"] in ours:
            value = ours[row["id"]]
            row["computed"] = f"{value:.4g}"
            row["verdict"] = papers.judge(row)
            if row["verdict"] == "differs" and (not row["reason"] or row["reason"].startswith("off by")):
                row["reason"] = off(float(row["printed"]), value)
    title = "NetKV. Tables II to VI and Experiments 1 to 5, in the setting of benchmarks/papers/_netkv_setting.py"
    return papers.write("netkv/simulated", made_by(title, __file__), rows)
