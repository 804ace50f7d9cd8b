"""Phasor's ablation (Table 2) and sensitivity (Table 5) on the simulated cluster, with paired confidence intervals.

Eight workers: DistServe-like static 4+4 with queue length, Splitwise-like 3+3+2 reactive with queue length, Phasor
3+3+2 and without each of its parts. Bursty arrivals (gamma, CV 3), the six workloads' lengths. Values are means over
replications, relative to the static baseline on the same requests.

    python -m benchmarks.phasor_ablation
"""

from __future__ import annotations

import jax
import numpy as np

from benchmarks.registry import record
from dmodels.sim import arrivals
from dmodels.sim.cluster import Cluster, Control, Flow, simulate
from dmodels.sim.disaggregated import Signal
from dmodels.sim.estimate import mean_of
from dmodels.studies import capacity

STATIC, ELASTIC = Cluster(4, 4), Cluster(3, 3, 2)
SYSTEMS = {
    "DistServe-like": (STATIC, Control(Signal.REQUESTS, Flow.NONE, theta_frag=0.0)),
    "Splitwise-like": (ELASTIC, Control(Signal.REQUESTS, Flow.REACTIVE, theta_frag=0.0)),
    "Phasor": (ELASTIC, Control()),
    "w/o freeness": (ELASTIC, Control(Signal.REQUESTS)),
    "w/o freeness (memory)": (ELASTIC, Control(Signal.MEMORY)),
    "w/o standby": (STATIC, Control(flow=Flow.NONE)),
    "w/o de-frag": (ELASTIC, Control(theta_frag=0.0)),
    "decode blind to its queue": (ELASTIC, Control(sees_waiting=False)),
    "Phi, static 4+4": (STATIC, Control(flow=Flow.NONE, theta_frag=0.0)),
}
#: workload -> arrivals per second, about 80 % of what 4+4 serves
RATES = {"L-S": 13.0, "S-L": 2.5, "burst": 20.0}
CHANGES = {
    "alpha x 0.5": {"alpha": 0.5}, "alpha x 2": {"alpha": 2.0}, "theta_frag 0.10": {"theta_frag": 0.10},
    "theta_frag 0.35": {"theta_frag": 0.35}, "epoch 20 ms": {"epoch_s": 0.02}, "epoch 200 ms": {"epoch_s": 0.2},
    "theta_flow 0.50": {"theta_flow": 0.50}, "theta_flow 0.80": {"theta_flow": 0.80},
}  # fmt: skip


def p99s(job, rate, cluster, control, replication, count, alpha=1.0):
    """(TTFT, E2E) P99 of one replication; `alpha` scales the quadratic term that the router believes in."""
    prompts = capacity.Prompts()
    key = jax.random.fold_in(jax.random.key(7), replication)
    arrival = arrivals.gamma(key, rate, 3.0, count)
    inputs, outputs, seconds = capacity.draw(job, jax.random.fold_in(key, 1), count, prompts)
    believed = seconds + (alpha - 1.0) * prompts.square_s * inputs**2
    run = simulate(arrival, inputs, outputs, seconds, cluster, control, virtual_s=believed)
    skip = count // 5
    return np.quantile(run.ttft_s[skip:], 0.99), np.quantile(run.e2e_s[skip:], 0.99), run


def against(base: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Geometric mean of the ratio, and its half-width (95 %)."""
    e = mean_of(np.log(other / base))
    return float(np.exp(e.value)), float(np.exp(e.value) * e.half_width)


def ablation(replications: int = 12, count: int = 3000) -> list[dict]:
    rows = []
    for name, rate in RATES.items():
        job, got, more = capacity.task(name), {}, {}
        for system, (cluster, control) in SYSTEMS.items():
            runs = [p99s(job, rate, cluster, control, r, count) for r in range(replications)]
            got[system] = np.array([x[:2] for x in runs])
            more[system] = (np.mean([x[2].changes for x in runs]), np.mean([x[2].stranded_frac.max() for x in runs]))
        for system, values in got.items():
            ttft, e2e = (against(got["DistServe-like"][:, k], values[:, k]) for k in (0, 1))
            rows.append({"workload": name, "system": system, "ttft_p99": ttft[0], "ttft_ci": ttft[1],
                         "e2e_p99": e2e[0], "e2e_ci": e2e[1], "changes": more[system][0],
                         "stranded_peak_frac": more[system][1]})  # fmt: skip
    return rows


def capacities(replications: int = 2, count: int = 2400) -> list[dict]:
    """Closed-loop clients within the budgets, and the rate that goes with them."""
    rows = []
    for name in RATES:
        for system in ("DistServe-like", "Splitwise-like", "Phasor", "w/o standby"):
            cluster, control = SYSTEMS[system]
            found = capacity.by_simulation(capacity.task(name), cluster, control, jax.random.key(0), requests=count,
                                           replications=replications)  # fmt: skip
            rows.append({"workload": name, "system": system, "clients": found.clients_count, "rate_rps": found.rate_rps,
                         "binds": found.binds, "flags": found.flags})  # fmt: skip
    return rows


def sensitivity(replications: int = 12, count: int = 3000) -> list[dict]:
    job, rate = capacity.task("burst"), RATES["burst"]
    run = lambda alpha=1.0, **change: np.array([p99s(job, rate, ELASTIC, Control(**change), r, count, alpha)[:2]
                                                for r in range(replications)])  # fmt: skip
    base, rows = run(), []
    for name, change in CHANGES.items():
        got = run(**change)
        ttft, e2e = (against(base[:, k], got[:, k]) for k in (0, 1))
        rows.append({"change": name, "ttft_p99": ttft[0], "ttft_ci": ttft[1], "e2e_p99": e2e[0], "e2e_ci": e2e[1]})
    return rows


def main() -> None:
    for title, make in (("ablation", ablation), ("capacity", capacities), ("sensitivity", sensitivity)):
        rows = make()
        print(f"\n{title}\n" + "  ".join(rows[0]))
        for row in rows:
            print("  ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
        record(f"phasor_{title}", rows)


if __name__ == "__main__":
    main()
