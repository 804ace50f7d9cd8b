"""What our simulation gives beside every simulated number of NetKV: proofs/papers/netkv/simulated.csv.

Reads the last recorded run of each experiment (benchmarks/results/netkv_*.jsonl), keeps the printed columns and fills
`computed`, its interval and `verdict`. One rule for all: within 10 % of the printed number, or at a printed 0 its
rounding; what the setting was matched to is tuned (`MATCHED`). Table V's packet-level rows: `netkv_packets`.
"""

from __future__ import annotations

import json
import re
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


Found = dict[str, tuple[float, float]]  # id -> a value and the half-width of its interval (95 %); NaN: none


def of(row: dict, metric: str, scale: float = 1.0) -> tuple[float, float]:
    """A metric of a policy."""
    return scale * row[metric], scale * row["reach"][metric]


def gain(row: dict, other: dict, metric: str, scale: float = 1.0) -> tuple[float, float]:
    """What a policy has of a metric above another on the same requests."""
    return scale * (row[metric] - other[metric]), scale * row["reach_against"][other["policy"]][metric]


def cut(row: dict, other: dict, metric: str = "ttft_mean_s") -> tuple[float, float]:
    """What a policy takes off a metric of another on the same requests, in per cent."""
    return tuple(x * y for x, y in zip(gain(row, other, metric, 100 / other[metric]), (-1, 1), strict=True))


def of_load(rows: list[dict]) -> Found:
    """The numbers that the paper prints, by id."""
    found, at = {}, {(r["workload"], r["load"], r["policy"]): r for r in rows}
    for load in (1.0, 2.0, 2.5):
        for policy, short in NAMES.items():
            row, key = at["rag", load, policy], f"t2_{load:.0%}_{short}".replace("%", "")
            found |= {
                f"{key}_tbt_ms": of(row, "tbt_mean_s", 1e3),
                f"{key}_slo": of(row, "slo_frac"),
                f"{key}_xfer_ms": of(row, "transfer_mean_s", 1e3),
            }
        for other in ("ROUND_ROBIN", "CACHE_LOAD"):
            key = f"e1_{load * 100:.0f}_vs_{'rr' if other == 'ROUND_ROBIN' else 'cla'}_pct"
            found[key] = cut(at["rag", load, "NETKV_FULL"], at["rag", load, other])
    for name in PROFILES:
        for other, short in (("ROUND_ROBIN", "rr"), ("CACHE_LOAD", "cla")):
            cuts = [cut(at[name, load, "NETKV_FULL"], at[name, load, other]) for load in LOADS[name]]
            found[f"e1_{name}_peak_vs_{short}_pct"] = max(cuts)
    for policy, short in NAMES.items():
        found[f"e1_100_{short}_p99_s"] = of(at["rag", 1.0, policy], "ttft_p99_s")
        found[f"e1_250_{short}_p99_s"] = of(at["rag", 2.5, policy], "ttft_p99_s")
        found[f"e1_200_{short}_goodput_rps"] = of(at["rag", 2.0, policy], "goodput_rps")
    return found


def of_context(rows: list[dict]) -> Found:
    found, at = {}, {(r["input_tokens"], r["policy"]): r for r in rows}
    for tokens in LENGTHS:
        full = at[tokens, "NETKV_FULL"]
        for other, short in (("ROUND_ROBIN", "rr"), ("CACHE_LOAD", "cla")):
            row = at[tokens, other]
            found[f"t3_{tokens}_vs_{short}_pct"] = cut(full, row)
            found[f"t3_{tokens}_slo_vs_{short}"] = gain(full, row, "slo_frac")
        found[f"t3_{tokens}_tbt_ms"] = gain(full, at[tokens, "CACHE_LOAD"], "tbt_mean_s", 1e3)
    return found


def of_topology(rows: list[dict]) -> Found:
    found = {}
    at = {(r["workload"], r["ratio"], r["background"], r["where"], r["policy"]): r for r in rows}
    gains = {key[:4]: cut(row, at[*key[:4], "CACHE_LOAD"]) for key, row in at.items() if key[4] == "NETKV_FULL"}
    for name in PROFILES:
        found[f"e3_{name}_max_stress_pct"] = gains[name, 8, 0.4, "all links"]
        found[f"e3_{name}_min_stress_pct"] = gains[name, 1, 0.0, "all links"]
    found["e3_cells_won"] = sum(value > 0 for key, (value, _) in gains.items() if key[3] == "all links"), np.nan
    return found


def averaged(rows: list[dict]) -> dict[tuple, tuple[float, float]]:
    """(reduction against CLA*, SLO attainment) by wander, refresh and policy, over draws of the background."""
    keys = dict.fromkeys((r["wander"], r["refresh_s"], r["policy"]) for r in rows)
    pick = lambda key, name: np.mean([r[name] for r in rows if (r["wander"], r["refresh_s"], r["policy"]) == key])
    return {key: (float(pick(key, "ttft_vs_first_frac")), float(pick(key, "slo_frac"))) for key in keys}


def of_staleness(rows: list[dict]) -> Found:
    at = averaged(rows)
    cuts = [100 * at["mild", refresh, "NETKV_FULL"][0] for refresh in REFRESH_S]
    mild = {(r["refresh_s"], r["draw"], r["policy"]): r for r in rows if r["wander"] == "mild"}
    # the draws of the background meet the same windows: their intervals are averaged, not shrunk
    reach = [cut(r, mild[*key[:2], "CACHE_LOAD"])[1] for key, r in mild.items() if key[2] == "NETKV_FULL"]
    spread = float(np.ptp(cuts))
    return {"e4_full_vs_cla_pct": (float(np.mean(cuts)), float(np.mean(reach))), "e4_spread_points": (spread, np.nan)}


def of_prefix(rows: list[dict]) -> Found:
    at = {(r["share"], r["policy"]): r for r in rows}
    cuts = [cut(at[s, "NETKV_FULL"], at[s, "CACHE_LOAD"]) for s in SHARES]
    return {"e5_low_pct": min(cuts), "e5_high_pct": max(cuts)}


def of_ablation(rows: list[dict]) -> Found:
    found = {}
    at = {(r["workload"], r["policy"]): r for r in rows}
    for name in PROFILES:
        ladder = [at[name, p.name] for p in LADDER]
        for short, row in zip(SHORT, ladder, strict=True):
            found[f"t4_{name}_{short}_ms"] = of(row, "ttft_mean_s", 1e3)
        for short, before, row in zip(SHORT[1:], ladder[:-1], ladder[1:], strict=True):
            found[f"t4_{name}_{short}_step_pct"] = cut(row, before)
        cla, full = at[name, "CACHE_LOAD"], at[name, "NETKV_FULL"]
        found[f"t4_{name}_total_pct"] = cut(full, cla)
        found[f"t4_{name}_p99_pct"] = cut(full, cla, "ttft_p99_s")
        found[f"t4_{name}_slo_points"] = gain(full, cla, "slo_frac", 100)
        found[f"t4_{name}_tbt_ms"] = gain(full, cla, "tbt_mean_s", 1e3)
    for policy, short in (("CACHE_LOAD", "cla"), ("NETKV_FULL", "full")):
        for tier in range(4):
            found[f"t6_{short}_tier_{tier}_pct"] = of(at["rag", policy], f"tier_{tier}_frac", 100)
        found[f"t6_{short}_xfer_ms"] = of(at["rag", policy], "transfer_mean_s", 1e3)
    return found


def of_scale(rows: list[dict]) -> Found:
    found = {}
    at = {(r["gpus"], r["policy"]): r for r in rows}
    for gpus in SIZES:
        cla, full = at[gpus, "CACHE_LOAD"], at[gpus, "NETKV_FULL"]
        found |= {
            f"t5_{gpus}_cut_pct": cut(full, cla),
            f"t5_{gpus}_slo_points": gain(full, cla, "slo_frac", 100),
            f"t5_{gpus}_full_xfer_ms": of(full, "transfer_mean_s", 1e3),
            f"t5_{gpus}_cla_xfer_ms": of(cla, "transfer_mean_s", 1e3),
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


#: Ids -> the parameters that were chosen with these numbers in sight.
MATCHED_TO_RAG = (
    "rates per flow, uplinks, prefill's law, prefixes and what the scheduler sees were matched to RAG's transfer times"
)
MATCHED = {
    r"t2_\d+_\w+_tbt_ms": "the iteration time was fitted to Table II's TBTs",
    r"e1_200_\w+_goodput_rps": "the rate at 100 % was taken from these goodputs over their SLO attainments",
    r"t2_.*|t6_.*|e1_100_.*|e1_rag_peak_.*": MATCHED_TO_RAG,
    r"t4_rag_(cla|topo|static|full)_ms|t4_rag_total_pct|t5_64_\w+_xfer_ms": MATCHED_TO_RAG,
}


def matched(name: str) -> str:
    """The parameters that were fitted to a number, or nothing."""
    return next((how for ids, how in MATCHED.items() if re.fullmatch(ids, name)), "")


def off(printed: float, computed: float) -> str:
    """How far off a number is, for rows whose gap has no better reason."""
    side = "the same side" if printed * computed > 0 else "the other side"
    return f"off by {100 * abs(computed / printed - 1):.0f} %, on {side} of 0" if printed else "not nought"


def judged(row: dict[str, str], value: float, reach: float) -> dict[str, str]:
    """A row with our number, its interval and its verdict; why it differs stays, or is how far off it is."""
    low, high = ("", "") if np.isnan(reach) else (f"{value - reach:.4g}", f"{value + reach:.4g}")
    row = row | {"computed": f"{value:.4g}", "low": low, "high": high}
    row["rule"] = "relative 0.1" if float(row["printed"]) and row["unit"] != "cells" else "rounds"
    how, why = matched(row["id"]), row["reason"].split("; fitted: ")[0]
    row = papers.fitted(row) if how else row | {"verdict": papers.judge(row)}
    if row["verdict"] == "agrees":
        return row | {"reason": ""}
    if row["verdict"] == "tuned":
        return row | {"reason": how}
    if not why or why.startswith("off by") or why == how:
        why = off(float(row["printed"]), value)
    return row | {"reason": f"{why}; fitted: {how}" if how else why}


def write(_=None) -> Path:
    """The file of verdicts, from the last recorded run of every experiment."""
    ours: Found = {}
    for name, numbers in EXPERIMENTS.items():
        ours |= numbers(last_run(name))
    rows = [judged(row, *ours[row["id"]]) for row in papers.read("netkv/simulated")]
    title = "NetKV. Tables II to VI and Experiments 1 to 5, in the setting of benchmarks/papers/_netkv_setting.py"
    return papers.write("netkv/simulated", made_by(title, __file__), rows)
