"""The price-of-anarchy paper's numbers that follow from other printed ones, or from its cost model, recomputed.

Cells of Tables 4 and 6 to 8 come from simulations (benchmarks/papers/price_of_anarchy.py) and stand in their files.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from dmodels.control import adaptive, regime
from dmodels.games.anarchy import AFFINE_WEIGHTED, IndexCost, identical_workers_price
from dmodels.models.latency import LatencyCurve, latency_table
from dmodels.models.queueing import closed_loop_rps
from proofs.papers import rows as papers

TOKENS, SERVICE_S = 256, 1 / 19.0
COST = IndexCost()


def column(table: str, ending: str, beginning: str = "") -> np.ndarray:
    """Printed values of a table's rows whose ids begin and end so, in order."""
    rows = papers.read(f"price_of_anarchy/{table}")
    picked = [row for row in rows if row["id"].startswith(beginning) and row["id"].endswith(ending)]
    return np.array([float(row["printed"]) for row in picked])


def cell(table: str, name: str) -> float:
    """One printed value."""
    return float(next(row["printed"] for row in papers.read(f"price_of_anarchy/{table}") if row["id"] == name))


def load_sweep() -> dict[str, np.ndarray]:
    """Table 4: clients, TTFT P99 (s), ITL P99 (s), PoA-hat and requests per second."""
    found = {
        row["id"]: float(row["printed"]) for row in papers.read("price_of_anarchy/table4") if row["id"][1].isdigit()
    }
    clients = [int(name[1 : -len("_rps")]) for name in found if name.endswith("_rps")]
    at = lambda name: np.array([found[f"c{c}_{name}"] for c in clients])
    return {
        "clients": np.array(clients, float),
        "ttft_p99_s": at("ttft_p99_s"),
        "itl_p99_s": at("itl_p99_ms") / 1e3,
        "poa_hat": at("poa_hat"),
        "rps": at("rps"),
    }


def itl_s() -> float:
    """Mean of the 14 printed ITLs."""
    return float(load_sweep()["itl_p99_s"].mean())


def denominator_s(load: float) -> float:
    """What Eq. (12) charges a fully cached request on a worker with this many requests in the window."""
    singular = float(COST.d_s) / (64 - load) ** 2
    return float(COST.a_s) * load + float(COST.b_s) + singular - float(COST.cache_s)


def throughput(clients: float) -> float:
    """Finite-source queue, averaged over a 30 s ramp and a 120 s hold, as Experiment 1 aggregates."""
    rate = lambda c: float(closed_loop_rps(int(c), TOKENS * itl_s(), SERVICE_S))
    ramp = np.mean([rate(c) for c in np.linspace(1, clients, 8).round()])
    return float((30 * ramp + 120 * rate(clients)) / 150)


def worst_throughput_error() -> float:
    sweep = load_sweep()
    return max(abs(throughput(c) / r - 1) for c, r in zip(sweep["clients"], sweep["rps"], strict=True) if c >= 8)


def saturated(table: str, strategy: str, name: str) -> float:
    return cell(table, f"{strategy}_saturated_{name}")


def computed() -> dict[str, float]:
    """Every recomputed number by its id in claims.csv, table2.csv, table3.csv and table5.csv."""
    sweep, settings = load_sweep(), adaptive.table_2()
    ratio = lambda table, name: saturated(table, "static", name) / saturated(table, "adaptive", name)
    cost = lambda table: 1 - saturated(table, "adaptive", "rps") / saturated(table, "static", "rps")
    knee = 1 + TOKENS * itl_s() / SERVICE_S
    slope = float(np.diff(sweep["ttft_p99_s"][np.isin(sweep["clients"], (64, 128))]).item() / 64)
    latency_70b_s = cell("claims", "plateau_70b") * denominator_s(63)
    panels = {panel: column("table6", "", f"{panel}_tau") for panel in "bc"}
    chosen = {panel: cell("table6", f"{panel}_tau0.7_omega1.0") for panel in panels}
    out = {
        "knee_clients": knee,
        "ceiling_rps": 1 / SERVICE_S,
        "throughput_error": worst_throughput_error(),
        "itl_at_ceiling": itl_s(),
        "plateau_340b": 64 / 10.2 / denominator_s(63),
        "plateau_70b": (TOKENS * 11e-3 + 1 / 47) / denominator_s(63),
        "plateau_70b_5d": 32 / 16.8 / denominator_s(126 / 5),
        "true_poa_c64": float(
            identical_workers_price(latency_table(LatencyCurve(0.005, 0.02, 0.01, 64.0, 2.0), 32)[31], 0.015)
        ),
        "slope_340b": slope,
        "slope_340b_table5": slope,
        "spread_b": panels["b"].mean(),
        "spread_c": panels["c"].mean(),
        "poa_ratio_70b": ratio("table8", "poa_hat"),
        "ttft_ratio_340b": ratio("table7", "ttft_p99_s"),
        "throughput_cost_340b": cost("table7"),
        "throughput_cost_70b": cost("table8"),
        "ci_low_70b": 8.19 - stats.t.ppf(0.975, 2) * 5.6 / np.sqrt(3),
        "little_static": 128 / saturated("table7", "static", "rps"),
        "little_adaptive": 128 / saturated("table7", "adaptive", "rps"),
        "orders_of_magnitude": np.log10(19 / 1.08),
        "remark3_low": 7.5 / AFFINE_WEIGHTED,
        "theta1_multiple_70b": 0.300 / 0.055,
        "ewma_samples": regime.detection_samples(0.29, 28.26, 1.0, 0.3),
        "scale_of_singular_term": max(0.01 / (64 - n) ** 2 for n in range(64)),
        "inter_node_line_rate_pct": 100 * 390 / 400,
        "first_post_knee_340b": min(c for c in sweep["clients"] if c > knee),
        "first_post_knee_70b": min(c for c in sweep["clients"] if c > 47 * latency_70b_s),
        "slope_70b": 10.0 / 64,
        "ceiling_340b_rps": sweep["rps"][-1],
        "ceiling_ratio": 18 / 47,
        "transition_rank_70b": 1 + (panels["c"] < chosen["c"]).sum(),
        "transition_rank_340b": 1 + (panels["b"] < chosen["b"]).sum(),
    }
    for k, state in enumerate(("below", "transition", "saturated")):
        out |= {f"{state}_tau": settings.tau[k], f"{state}_omega": settings.omega[k]}
    return {name: float(value) for name, value in out.items()}
