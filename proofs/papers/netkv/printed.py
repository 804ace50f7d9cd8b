"""NetKV's printed numbers that follow from other printed numbers, recomputed. Simulated ones are in simulated.csv.

Rows of the CSV files beside this one, by the rules of `proofs.papers.rows`. `computed()` gives all by id.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.model import Model
from dmodels.models import transfer as law

GBIT = 1e9 / 8
LLAMA = Model(80, 8, 128)
#: Table IV, mean TTFT in ms: CLA*, + static, + self-contention, + dynamic congestion.
TABLE_4 = {"chatbot": (629, 598, 596, 595), "rag": (1812, 1627, 1596, 1592), "long": (7121, 6326, 6150, 6160)}
#: Table II: load -> (TBT ms, SLO, transfer ms) of RR, CLA*, NetKV-Full.
TABLE_2 = {
    100: ((12.74, 0.907, 993), (12.71, 0.923, 835), (12.94, 0.944, 620)),
    200: ((13.01, 0.887, 1194), (12.88, 0.906, 1018), (13.29, 0.933, 733)),
    250: ((13.13, 0.882, 1246), (12.97, 0.899, 1091), (13.42, 0.925, 816)),
}


def computed() -> dict[str, float]:
    """Every computed number by its id."""
    parts = (_sizes(), _worked_example(), _propositions(), _tables())
    return {name: float(value) for part in parts for name, value in part.items()}


def _sizes() -> dict[str, float]:
    shard = law.kv_cache_bytes(LLAMA, 131072.0, 4.0)
    return {
        "kv_kib_per_token": law.kv_cache_bytes(LLAMA, 1.0) / 1024,
        "kv_kib_per_token_shard": law.kv_cache_bytes(LLAMA, 1.0, 4.0) / 1024,
        "kv_gb_128k": law.kv_cache_bytes(LLAMA, 131072.0) / 1e9,
        "kv_gib_128k": law.kv_cache_bytes(LLAMA, 131072.0) / 2**30,
        "shard_gb_128k": shard / 1e9,
        "shard_s_25_gbit": law.transfer_time_s(10e9, 25 * GBIT),
        "shard_s_25_gbit_exact": law.transfer_time_s(shard, 25 * GBIT),
        "shard_gib_32k": law.kv_cache_bytes(LLAMA, 32768.0, 4.0) / 2**30,
        "kv_gb_16k": law.kv_cache_bytes(LLAMA, 16384.0) / 1e9,
    }


def _worked_example() -> dict[str, float]:
    def times(cross: float) -> np.ndarray:
        rate = law.effective_bandwidth_bytes_per_s(
            np.array([25.0, 12.5]) * GBIT, np.array([0.2, cross]), np.array([1.0, 0.0])
        )
        return np.asarray(law.transfer_time_s(2.5e9 * np.array([0.5, 0.1]), rate))

    near, far = times(0.2)
    return {"we_near_s": near, "we_far_s": far, "we_factor": near / far, "we_far_busy_s": times(0.8)[1]}


def _propositions() -> dict[str, float]:
    return {
        "p1_ratio": law.oblivious_loss(1e9, 0.0, 0.5, 4.0, 1.0).ratio,
        "p2_tolerance": law.tier_staleness_tolerance(4.0, 0.3, 0.3),
        "p2_our_topology": law.tier_staleness_tolerance(2.0, 0.3, 0.3),
    }


def _tables() -> dict[str, float]:
    found = {}
    for name, ttft in TABLE_4.items():
        for step, before, now in zip(("static", "self", "dynamic"), ttft[:-1], ttft[1:], strict=True):
            found[f"t4_{name}_{step}_pct"] = 100 * (before - now) / before
        found[f"t4_{name}_total_pct"] = 100 * (1 - ttft[-1] / ttft[0])
        found[f"t4_{name}_static_share_pct"] = 100 * (ttft[0] - ttft[1]) / (ttft[0] - ttft[-1])
    for name in ("rag", "long"):
        found[f"t4_{name}_static_short_of_full_points"] = 100 * (TABLE_4[name][1] - TABLE_4[name][3]) / TABLE_4[name][0]
    rr, cla, full = TABLE_2[100]
    found |= {
        "t2_tbt_100_ms": full[0] - cla[0],
        "t2_tbt_250_ms": TABLE_2[250][2][0] - TABLE_2[250][1][0],
        "t2_slo_vs_rr_points": 100 * (full[1] - rr[1]),
        "t2_slo_vs_cla_points": 100 * (full[1] - cla[1]),
        "t6_transfer_cut_pct": 100 * (1 - full[2] / cla[2]),
        "e5_transfer_cut_pct": 100 * (1 - full[2] / cla[2]),
        "e4_cut_pct": 100 * (1 - 1580 / 1776),
        "peak_cut_pct": max(12.6, 21.2, 23.9),
        "least_transfer_cut_pct": 100 * (1 - 451 / 559),
        "largest_transfer_cut_pct": 100 * (1 - 620 / 993),
        "t6_time_ratio": _tier_time_ratio(),
        "capacity_rps": np.mean([g / r[1] for g, r in zip((10.81, 11.04, 11.37), TABLE_2[200], strict=True)]) / 2,
    }
    return found


def _tier_time_ratio() -> float:
    """Seconds on tier 3 over seconds on tier 2 that Table VI implies, were they the same under both policies."""
    near, far = np.linalg.solve([[0.320, 0.680], [0.689, 0.311]], [835.0, 620.0])
    return far / near
