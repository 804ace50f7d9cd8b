"""The numbers that arXiv:2604.09613v1 prints, computed from its stated inputs with the shipped formulas.

Each CSV file beside this one lists printed numbers of one kind, by the rules of `proofs.papers.rows`. `computed()`
gives all numbers by id. Lengths are those of the catalogue, which were chosen so that Tables 1 and 2 and Figure 6 come
out: what they give is tuned, no agreement.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from dmodels.catalog import totals_cdf
from dmodels.core.lengths import partial_iterations, partial_moments
from dmodels.models import pooling
from dmodels.models.cost import fleet_cost
from dmodels.models.memory import sequences_that_fit
from dmodels.models.pooling import PAPER_HEADROOM, Headroom, SlotEngine
from dmodels.models.queueing import fluid_occupancy

THRESHOLDS = np.array([1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0])
SINGLE_CONTEXT = 65536.0
RATE_RPS = 1000.0


def sizing(name: str) -> pooling.Savings:
    """Fleets at every threshold of Figure 6, from exact moments of a CDF."""
    share, work, mean = _classes(name)
    engine = SlotEngine()
    return pooling.split_savings(
        share,
        work,
        mean,
        pooling.slots_count(THRESHOLDS, engine),
        pooling.slots_count(SINGLE_CONTEXT, engine),
        RATE_RPS,
        engine,
        Headroom(**PAPER_HEADROOM),
    )


def computed() -> dict[str, float]:
    """Every computed number by its id."""
    parts = (_rates(), _fleets(), _dollars(), _memory(), _latency(), _calibration(), _figure_6())
    return {name: float(value) for part in parts for name, value in part.items()}


@cache
def _classes(name: str):
    """(request share, work share) below each threshold, and E[iterations] of all."""
    cdf = totals_cdf(name)
    below = np.asarray(partial_moments(cdf, THRESHOLDS)[0])
    *work, mean = partial_iterations(cdf, [*THRESHOLDS, np.inf])
    return below, np.array(work) / mean, float(mean)


@cache
def _rates() -> dict[str, float]:
    engine, at = SlotEngine(), 3  # 8192
    out = {f"t_{n}": 1e3 * float(pooling.iteration_s(float(n), engine)) for n in (16, 128)}
    for name in ("azure", "lmsys"):
        share, work, mean = _classes(f"{name}-paper")
        single = float(pooling.throughput_rps(16.0, mean, engine))
        short = float(pooling.throughput_rps(128.0, mean * work[at] / share[at], engine))
        long = float(pooling.throughput_rps(16.0, mean * (1 - work[at]) / (1 - share[at]), engine))
        out |= {
            f"{name}_iterations": mean,
            f"{name}_mu_single": single,
            f"{name}_mu_short": short,
            f"{name}_mu_long": long,
            f"{name}_rho": short / single,
            f"{name}_rho_long": single / long,
            f"{name}_gain_frac": 1 - single / short,
            f"{name}_alpha": share[at],
        }
        out[f"{name}_eq7_pct"] = 100 * float(pooling.ideal_savings(share[at], short / single))
    out["azure_below_2k_pct"] = 100 * float(_classes("azure-paper")[0][1])
    out["lmsys_one_minus_pct"] = 100 * out["lmsys_gain_frac"]
    out["azure_mu_long_1"] = out["azure_mu_long"]
    out["eq7_example_80_pct"] = 100 * float(pooling.ideal_savings(0.80, 4.0))
    out["eq7_example_70_pct"] = 100 * float(pooling.ideal_savings(0.70, 2.0))
    for b in (8192, 16384, 32768, 65536):
        out[f"slots_{b}"] = float(pooling.slots_count(float(b), engine))
    out["slots_gain"] = out["slots_8192"] / out["slots_65536"]
    return out


@cache
def _fleets() -> dict[str, float]:
    out = {}
    for name in ("azure", "lmsys"):
        s = sizing(f"{name}-paper")
        out |= {
            f"{name}_homo": float(s.homo_instances_count),
            f"{name}_short": float(s.short_instances_count[3]),
            f"{name}_long": float(s.long_instances_count[3]),
            f"{name}_dual": float(s.dual_instances_count[3]),
            f"{name}_saved_pct": 100 * float(s.realized_frac[3]),
        }
        out[f"{name}_saved_whole_pct"] = out[f"{name}_saved_pct"]
        out[f"{name}_saved_instances"] = out[f"{name}_homo"] - out[f"{name}_dual"]
    out["eq8_short"], out["eq8_long"] = 917 / 13.5, 83 / 0.37
    out["eq8_total"] = out["eq8_short"] + out["eq8_long"]
    out["azure_overprediction"] = _rates()["azure_eq7_pct"] / out["azure_saved_pct"]
    out["long_utilization_pct"] = 100 * 83 / _rates()["azure_mu_long"] / out["azure_long"]
    return out


def _dollars() -> dict[str, float]:
    fleets, out = _fleets(), {}
    for name in ("azure", "lmsys"):
        cost = fleet_cost(fleets[f"{name}_saved_instances"], 2, 2.21)
        out |= {f"{name}_saved_gpus": cost.fleet_gpus, f"{name}_saved_musd": cost.usd_per_year / 1e6}
    homo, dual = fleet_cost(197, 8, 3.67), fleet_cost(137, 8, 3.67)
    out |= {
        "qwen_homo_gpus": homo.fleet_gpus,
        "qwen_dual_gpus": dual.fleet_gpus,
        "qwen_homo_musd": homo.usd_per_year / 1e6,
        "qwen_dual_musd": dual.usd_per_year / 1e6,
        "qwen_saved_musd": (homo.usd_per_year - dual.usd_per_year) / 1e6,
        "qwen_saved_pct": 100 * (1 - 137 / 197),
    }
    return out


def equation_1_bytes(layers: float, kv_heads: float, head_dim: float, dtype_bytes: float, tp: float) -> float:
    r"""KV bytes per token and GPU, $2 n_l n_h d_h b / tp$: Eq. (1) as printed, which divides KV heads without end.

    `models.memory` replicates them once tp exceeds their number.
    """
    return 2.0 * layers * kv_heads * head_dim * dtype_bytes / tp


def _memory() -> dict[str, float]:
    llama = [equation_1_bytes(80, 8, 128, 2, tp=2) * c for c in (65536, 8192)]
    slots = [float(sequences_that_fit(80e9 * 0.9 - 141e9 / 2, m)) for m in llama]
    token = equation_1_bytes(94, 4, 128, 2, tp=8)
    weights = 235 / 8
    room = 192 * 0.9 - weights - 10
    qwen = [float(sequences_that_fit(133.4e9, token * c)) for c in (8192, 32768)]
    lost = 128 * 15 * token
    return {
        "llama_slots_64k": slots[0],
        "llama_slots_8k": slots[1],
        "qwen_kib_per_token": token / 1024,
        "qwen_weights_gb": weights,
        "qwen_kv_gb": room,
        "qwen_slots_8k": qwen[0],
        "qwen_slots_32k": qwen[1],
        "qwen_slots_gain": qwen[0] / qwen[1],
        "fragmentation_mb": lost / 1e6,
        "fragmentation_pct": 100 * lost / 192e9,
    }


def _latency() -> dict[str, float]:
    """TPOT by the fluid fixed point n = x W / (1 - x H) of the paper's own timing model, in ms."""
    engine, fleets = SlotEngine(), _fleets()
    _, work, mean = _classes("azure-paper")
    out = {}
    for name, iterations_per_s, instances in (
        ("single", RATE_RPS * mean, fleets["azure_homo"]),
        ("short", RATE_RPS * mean * work[3], fleets["azure_short"]),
    ):
        x = iterations_per_s / instances
        n = fluid_occupancy(x, 1.0, engine.base_s, engine.per_sequence_s)
        out[f"tpot_{name}_ms"] = 1e3 * float(pooling.iteration_s(n, engine))
    return out


def _calibration() -> dict[str, float]:
    """Table 4: the relative error of its own columns, and the expected bias of the EMA after 50 observations."""
    rows = {"english": (4.48, 4.41), "code": (3.52, 3.47), "cjk": (2.01, 2.08), "mixed": (3.81, 3.74)}
    out = {}
    for name, (true, shown) in rows.items():
        out[f"{name}_shown_pct"] = 100 * abs(shown - true) / true
        out[f"{name}_expected_pct"] = 100 * 0.95**50 * abs(4.0 - true) / true
        out[f"{name}_estimate"] = true + 0.95**50 * (4.0 - true)
    return out


def _figure_6() -> dict[str, float]:
    out = {}
    for name in ("azure", "lmsys"):
        saved = 100 * np.asarray(sizing(f"{name}-paper").realized_frac)
        out |= {f"{name}_at_{int(b)}_pct": float(x) for b, x in zip(THRESHOLDS, saved, strict=True)}
        out[f"{name}_8k_of_peak_pct"] = 100 * float(saved[3] / saved.max())
        out[f"{name}_16k_of_peak_pct"] = 100 * float(saved[4] / saved.max())
    return out
