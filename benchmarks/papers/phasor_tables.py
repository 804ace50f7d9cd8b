"""Phasor's ablation (Table 2) and sensitivity (Table 5) on the simulated cluster, with paired confidence intervals.

Eight workers: DistServe-like static 4+4 with queue length, Splitwise-like 3+3+2 reactive with queue length, Phasor
3+3+2 and without each of its parts. Bursty arrivals (gamma, CV 3), the six workloads' lengths. Values are means over
replications, relative to the static baseline on the same requests; the rows that the paper prints go to
proofs/papers/phasor/table2.csv and table5.csv.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from benchmarks.papers import _phasor_capacity as capacity
from benchmarks.papers._printed import made_by
from benchmarks.registry import Row, benchmark
from dmodels.sim import arrivals
from dmodels.sim.cluster import Control, Flow, Signal, Workers, simulate
from dmodels.sim.estimate import mean_of
from proofs.papers import rows as papers
from proofs.papers.rows import Printed

STATIC, ELASTIC = Workers(4, 4), Workers(3, 3, 2)
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
    "alpha x 0.5": {"alpha": 0.5},
    "alpha x 2": {"alpha": 2.0},
    "theta_frag 0.10": {"theta_frag": 0.10},
    "theta_frag 0.35": {"theta_frag": 0.35},
    "epoch 20 ms": {"epoch_s": 0.02},
    "epoch 200 ms": {"epoch_s": 0.2},
    "theta_flow 0.50": {"theta_flow": 0.50},
    "theta_flow 0.80": {"theta_flow": 0.80},
}


def p99s(job, rate, cluster, control, replication, count, alpha=1.0, prompts=capacity.Prompts()):  # noqa: B008
    """(TTFT, E2E) P99 of one replication; `alpha` scales the quadratic term that the router believes in."""
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


#: Printed relative P99 (Table 2, Qwen; Table 5): (workload or None, system or change, metric) -> value
PRINTED_2 = {
    ("L-S", "Splitwise-like", "ttft"): 1.22,
    ("L-S", "Phasor", "ttft"): 0.66,
    ("L-S", "w/o freeness", "ttft"): 0.92,
    ("L-S", "w/o standby", "ttft"): 0.72,
    ("L-S", "w/o de-frag", "ttft"): 0.68,
    ("S-L", "Splitwise-like", "e2e"): 1.13,
    ("S-L", "Phasor", "e2e"): 0.91,
    ("S-L", "w/o freeness", "e2e"): 0.95,
    ("S-L", "w/o standby", "e2e"): 0.93,
    ("S-L", "w/o de-frag", "e2e"): 0.96,
    ("burst", "Splitwise-like", "e2e"): 1.34,
    ("burst", "Phasor", "e2e"): 0.74,
    ("burst", "w/o freeness", "e2e"): 0.90,
    ("burst", "w/o standby", "e2e"): 0.82,
    ("burst", "w/o de-frag", "e2e"): 0.82,
}
PRINTED_5 = {  # change -> E2E, TTFT
    "alpha x 0.5": (1.14, 1.18),
    "alpha x 2": (0.99, 1.00),
    "theta_frag 0.10": (1.09, 1.12),
    "theta_frag 0.35": (1.00, 1.00),
    "epoch 20 ms": (0.99, 0.99),
    "epoch 200 ms": (1.06, 1.08),
    "theta_flow 0.50": (1.02, 1.01),
    "theta_flow 0.80": (1.04, 1.03),
}


#: What the simulation lacks, said of every row that it does not give.
UNKNOWN = "the paper's traces, batch sizes and decode pace are not printed; bursts here are gamma, CV 3"
OTHER_SIDE = "; on the other side of 1"


def printed_row(case: str, where: str, metric: str, printed: float, row: Row) -> Printed:
    """A printed ratio of P99s beside its simulated one, with the interval of the mean of paired replications."""
    value, reach = row[f"{metric}_p99"], row[f"{metric}_ci"]
    how = UNKNOWN + (OTHER_SIDE if (printed - 1) * (value - 1) < 0 else "")
    name = f"{case} {metric}".replace(" / ", "_").replace(" ", "_").replace("/", "").lower()
    what = f"{metric.upper()} P99 over the baseline, {case}"
    return Printed(name, where, printed, value, "interval", how, what, "1", value - reach, value + reach)


def write_table2(rows: list[Row]) -> Path:
    found = {(row["workload"], row["system"]): row for row in rows}
    lines = [printed_row(f"{w} / {s}", "Table 2", metric, p, found[w, s]) for (w, s, metric), p in PRINTED_2.items()]
    return papers.write("phasor/table2", made_by("Phasor. Table 2: P99 over the baseline", __file__), lines)


def write_table5(rows: list[Row]) -> Path:
    pairs = [(row, metric, k) for row in rows for k, metric in enumerate(("e2e", "ttft"))]
    lines = [
        printed_row(row["change"], "Table 5", metric, PRINTED_5[row["change"]][k], row) for row, metric, k in pairs
    ]
    return papers.write("phasor/table5", made_by("Phasor. Table 5: P99 over the default", __file__), lines)


@benchmark(write=write_table2)
def phasor_ablation(quick: bool) -> Iterator[Row]:
    """Phasor's ablation (Table 2): P99 of each system over the static baseline, on the same requests."""
    replications, count = (2, 300) if quick else (12, 3000)
    for name, rate in RATES.items():
        job, got, more = capacity.task(name), {}, {}
        for system, (cluster, control) in SYSTEMS.items():
            runs = [p99s(job, rate, cluster, control, r, count) for r in range(replications)]
            got[system] = np.array([x[:2] for x in runs])
            more[system] = (np.mean([x[2].changes for x in runs]), np.mean([x[2].stranded_frac.max() for x in runs]))
        for system, values in got.items():
            ttft, e2e = (against(got["DistServe-like"][:, k], values[:, k]) for k in (0, 1))
            row = {"workload": name, "system": system, "ttft_p99": ttft[0], "ttft_ci": ttft[1]}
            row |= {"e2e_p99": e2e[0], "e2e_ci": e2e[1]}
            yield row | {"changes": more[system][0], "stranded_peak_frac": more[system][1]}


@benchmark(write=write_table5)
def phasor_sensitivity(quick: bool) -> Iterator[Row]:
    """Phasor's sensitivity (Table 5): P99 after each change of a setting over P99 before, in a burst."""
    replications, count = (2, 300) if quick else (12, 3000)
    job, rate = capacity.task("burst"), RATES["burst"]
    run = lambda alpha=1.0, **change: np.array(
        [p99s(job, rate, ELASTIC, Control(**change), r, count, alpha)[:2] for r in range(replications)]
    )
    base = run()
    for name, change in CHANGES.items():
        got = run(**change)
        ttft, e2e = (against(base[:, k], got[:, k]) for k in (0, 1))
        yield {"change": name, "ttft_p99": ttft[0], "ttft_ci": ttft[1], "e2e_p99": e2e[0], "e2e_ci": e2e[1]}
