"""Experiment 4 (Fig. 2): oracle refresh 0.1 to 60 s, under background that wanders.

The paper's background is steady, so its curve must be flat whatever the policy does with the signal. Here the tiers
wander as first-order autoregressions of a given standard deviation and correlation time, mildly (as the paper says it
measured: an order below 0.42 over a minute) and strongly, where staleness has a price. "forecast" replaces a reading
by what an autoregression, fitted to ten minutes of earlier telemetry, expects half a refresh later.

    python -m benchmarks.netkv_staleness
"""

from __future__ import annotations

import numpy as np

from benchmarks.netkv_setting import Policy, compare, table
from benchmarks.registry import record
from dmodels.control import congestion as forecasts

POLICIES = (Policy.CACHE_LOAD, Policy.NETKV_STATIC, Policy.NETKV_FULL)
REFRESH_S = (0.1, 1.0, 5.0, 20.0, 60.0)
STEP_S = 0.1
#: name -> (mean, standard deviation, correlation time)
WANDERS = {"mild": (0.2, 0.02, 20.0), "strong": (0.4, 0.25, 5.0)}


def background(mean: float, std: float, tau_s: float, seed: int = 0, seconds: float = 660.0) -> np.ndarray:
    """(S, 4) of autoregressions, independent by tier, clipped to [0, 0.95]; NVLink idle. All but 60 s is history."""
    rng = np.random.default_rng(seed)
    steps, phi = int(seconds / STEP_S), np.exp(-STEP_S / tau_s)
    x = np.empty((steps, 4))
    x[0] = rng.normal(0, std, 4)
    for k in range(1, steps):
        x[k] = phi * x[k - 1] + np.sqrt(1 - phi**2) * rng.normal(0, std, 4)
    x = np.clip(mean + x, 0.0, 0.95)
    x[:, 0] = 0.0
    return x


def forecast(history: np.ndarray, level: np.ndarray, refresh_s: float) -> np.ndarray:
    """Readings (R, 4): at each refresh, what the fitted autoregression expects half an interval later."""
    import jax

    with jax.enable_x64(True):
        step = lambda state, reading: (forecasts.ar1_update(state, reading, 0.002), None)
        fitted, _ = jax.lax.scan(step, forecasts.ar1_init(history[0]), history)
        seen = level[:: max(round(refresh_s / STEP_S), 1)]
        expect = lambda reading: forecasts.ar1_forecast(fitted._replace(last=reading), refresh_s / 2 / STEP_S)
        return np.asarray(jax.vmap(expect)(seen))


def run(runs: int = 12, draws: int = 3) -> list[dict]:
    rows = []
    for name, wander in WANDERS.items():
        for refresh in REFRESH_S:
            for draw in range(draws):
                whole = background(*wander, seed=draw)
                history, level = whole[:-600], whole[-600:]
                options = {"runs": runs, "background": level, "background_step_s": STEP_S, "refresh_s": refresh}
                got = compare(POLICIES, **options)
                ahead = compare(POLICIES[::2], readings=forecast(history, level, refresh), **options)[-1]
                got.append(ahead | {"policy": "NETKV_FULL, forecast"})
                rows += [{"wander": name, "refresh_s": refresh, "draw": draw} | r for r in got]
    return rows


def averaged(rows: list[dict]) -> dict[tuple, tuple[float, float]]:
    """(reduction against CLA*, SLO attainment) by wander, refresh and policy, over draws of the background."""
    keys = dict.fromkeys((r["wander"], r["refresh_s"], r["policy"]) for r in rows)
    pick = lambda key, name: np.mean([r[name] for r in rows if (r["wander"], r["refresh_s"], r["policy"]) == key])
    return {key: (float(pick(key, "ttft_vs_first_frac")), float(pick(key, "slo_frac"))) for key in keys}


def numbers(rows: list[dict]) -> dict[str, float]:
    at = averaged(rows)
    cuts = [100 * at["mild", refresh, "NETKV_FULL"][0] for refresh in REFRESH_S]
    return {"e4_full_vs_cla_pct": float(np.mean(cuts)), "e4_spread_points": float(np.ptp(cuts))}


def main() -> None:
    rows = run()
    table(
        "Experiment 4",
        ["background", "refresh s", "policy", "vs CLA* %", "SLO"],
        [[*key, 100 * cut, slo] for key, (cut, slo) in averaged(rows).items() if key[2] != "CACHE_LOAD"],
    )
    record("netkv_staleness", rows)


if __name__ == "__main__":
    main()
