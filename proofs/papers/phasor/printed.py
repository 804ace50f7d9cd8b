"""The numbers that Phasor prints, computed from its own other numbers and the shipped formulas.

Rows of the CSV files beside this one, by the rules of `proofs.papers.rows`. `computed()` gives all by id.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers._phasor_capacity import tasks
from dmodels.models import energy
from dmodels.models.freeness import PrefillCost, prefill_cost_flop, prefill_freeness
from dmodels.models.freeness_fit import check_units
from dmodels.sim.cluster import Control

PEAK = 121e12
QWEN_PARAMS = 7.62e9


def computed() -> dict[str, float]:
    """Every computed number by its id."""
    return _energy() | _calibration() | _gains() | _settings()


def _energy() -> dict[str, float]:
    watts, tokens = {"splitwise": 1315.0, "distserve": 1410.0, "phasor": 1720.0}, (5422.0, 7009.0, 9820.0)
    out = {
        f"{name}_j_per_token": float(energy.joules_per_token(w, t))
        for (name, w), t in zip(watts.items(), tokens, strict=True)
    }
    out["saved_rounded_pct"] = 100 * float(energy.saved_frac(0.175, 0.243))
    out["saved_unrounded_pct"] = 100 * float(energy.saved_frac(out["phasor_j_per_token"], out["splitwise_j_per_token"]))
    out["more_power_pct"] = 100 * (1720 / 1315 - 1)
    return out


def _calibration() -> dict[str, float]:
    cost = PrefillCost(4.25e-5 * 1e12, 6.80e-3 * 1e12)  # Table 4 read as TFLOP
    units = check_units(cost, PEAK, QWEN_PARAMS, np.array([1024.0]), None, 28, 28, 128)
    flop = float(prefill_cost_flop(1024.0, cost))
    return {
        "prefill_1024_ms": 1e3 * float(units.latency_s[0]),
        "phi_one_request": float(prefill_freeness(flop, PEAK, 0.4)),
        "linear_over_dense": units.linear_over_dense,
        "quadratic_over_attention": units.quadratic_over_attention,
        "crossover_tokens": float(cost.beta / cost.alpha),
        "figure_2_tflops": 2 * QWEN_PARAMS / 42.8e-6 / 1e12,
        "memory_phi_least": 1 - (32 - 2 * QWEN_PARAMS / 1e9) / 32,
        "kv_needed_gb": 32 * (1 - 0.168),
    }


def _gains() -> dict[str, float]:
    cut = lambda new, old: 100 * (1 - new / old)
    return {
        "p99_vs_splitwise_pct": cut(206.8, 338.6),
        "p99_vs_distserve_pct": cut(206.8, 278.4),
        "fragmentation_peak_pct": cut(7.29, 49.65),
        "summ_without_phi_pct": 100 * (0.92 / 0.66 - 1),
        "mix_without_phi_pct": 100 * (0.90 / 0.74 - 1),
        "code_without_defrag_pct": cut(1.35, 1.59),
        "mix_without_pool_pct": cut(1.48, 1.85),
        "cost_at_1_13_pct": 100 * (1 - 1 / 1.13),
        "cost_at_2_pct": 100 * (1 - 1 / 2.0),
        "mix_vs_splitwise": 1.85 / 0.93,
        "code_vs_distserve": 1.59,
        "qa_vs_splitwise_pct": cut(28.9, 33.5),
        "qa_vs_distserve_pct": cut(28.9, 32.4),
        "ll_vs_splitwise_pct": cut(151.4, 190.2),
        "ll_vs_distserve_pct": cut(151.4, 175.9),
        "dialog_vs_splitwise_pct": cut(102.5, 148.0),
        "dialog_vs_distserve_pct": cut(102.5, 128.0),
        "skew": 36.2 / 15.1,
    }


def _settings() -> dict[str, float]:
    """Tables 1, 3 and 4 as the catalogue and the simulator have them."""
    control, out = Control(), {}
    for name, job in tasks().items():
        key = name.lower().replace("-", "_")
        out |= {
            f"{key}_input_tokens": job.input_tokens,
            f"{key}_output_tokens": job.output_tokens,
            f"{key}_ttft_s": float(job.slo.ttft_s),
            f"{key}_tpot_s": float(job.slo.tpot_s),
        }
    out |= {"epoch_ms": 1e3 * control.epoch_s, "theta_frag": control.theta_frag, "theta_flow": control.theta_flow}
    return out | {"cool_s": control.cool_s}
