"""Phasor's capacity (Table 2, Figure 5, Table 5) and its latencies (Figures 4, 6 and 10) on the simulated cluster.

Capacity is the paper's: the most closed-loop clients within both budgets of a workload, found by bisection. Every ratio
is of two systems on the same requests, its interval that of the mean over replications. Latencies are at an arrival
rate of 40 a second, which every system here is too slow for, as in the paper; ratios are compared, not seconds, since
how long the paper's runs lasted is not printed.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from benchmarks.papers import _phasor_capacity as capacity
from benchmarks.papers._printed import verdicts
from benchmarks.papers.phasor_tables import CHANGES, ELASTIC, SYSTEMS, UNKNOWN, against, p99s
from dmodels.sim.cluster import Control
from dmodels.sim.estimate import mean_of
from proofs.papers.rows import Printed

WORKLOADS = {"S-L": "code generation", "L-S": "summarization", "burst": "production mix"}
#: Table 2, Qwen: capacity over DistServe's on code generation, summarization and the production mix.
TABLE_2 = {
    "Splitwise-like": ("0.91", "0.86", "0.93"),
    "Phasor": ("1.59", "1.63", "1.85"),
    "w/o freeness": ("1.42", "1.55", "1.52"),
    "w/o standby": ("1.50", "1.58", "1.48"),
    "w/o de-frag": ("1.35", "1.60", "1.68"),
}
#: Figure 5 and Section 4.3: Phasor's capacity over DistServe's; three workloads are printed as one range.
FIGURE_5 = {"S-L": "1.66", "L-L": "1.41", "M-M": "1.13-1.89", "L-S": "1.13-1.89", "S-S": "1.13-1.89"}
#: Table 5: capacity after a change over before.
TABLE_5 = ("0.92", "0.94", "0.96", "0.98", "1.01", "0.97", "0.99", "0.95")
REQUESTS = {"S-S": 12_000, "S-L": 4800, "M-M": 4800}
#: Section 4.2 and Appendix E at 40 a second: workload, metric, (Splitwise, DistServe, Phasor)
FIGURES_4_AND_10 = (
    ("S-L", "tpot", (136.8, 121.2, 112.8)),
    ("S-L", "e2e", (216.4, 192.4, 174.6)),
    ("burst", "e2e", (338.6, 278.4, 206.8)),
    ("S-S", "e2e", (33.5, 32.4, 28.9)),
    ("S-S", "ttft", (215, 208, 202)),
    ("L-L", "e2e", (190.2, 175.9, 151.4)),
    ("L-L", "tpot", (138.9, 125.5, 118.7)),
    ("M-M", "e2e", (148.0, 128.0, 102.5)),
)


def clients(workload: str, cluster, control: Control, replications: int, requests: int, **options) -> np.ndarray:
    """Capacity in each replication; `options` as of `by_simulation`."""
    search = lambda r: capacity.by_simulation(
        capacity.task(workload), cluster, control, jax.random.key(r), requests=requests, replications=1, **options
    )
    return np.array([search(r).clients_count for r in range(replications)])


def ratio_row(name: str, where: str, printed: str, base, other, what: str, how: str = UNKNOWN) -> Printed:
    """A printed ratio beside ours with the interval of its mean."""
    value, reach = against(base, other)
    rule = f"range {printed.replace('-', ' ')}" if "-" in printed else "interval"
    return Printed(name, where, printed, value, rule, how, what, "1", value - reach, value + reach)


def capacity_rows(quick: bool = False) -> Iterator[Printed]:
    """Table 2's right half and Figure 5."""
    replications = 2 if quick else 8
    found = {}
    for name in ("S-L", "L-S", "burst", *({"L-L", "M-M", "S-S"} if not quick else ())):
        count = 1200 if quick else REQUESTS.get(name, 2400)
        systems = ("DistServe-like", *TABLE_2) if name in WORKLOADS else ("DistServe-like", "Phasor")
        for system in systems:
            found[name, system] = clients(name, *SYSTEMS[system], replications, count)
    for system, printed in TABLE_2.items():
        for (name, task), value in zip(WORKLOADS.items(), printed, strict=True):
            key = f"table2_{name}_{system}".replace(" ", "_").replace("/", "").lower()
            yield ratio_row(
                key, "Table 2", value, found[name, "DistServe-like"], found[name, system], f"{system}, {task}"
            )
    gains = {}
    for name, printed in FIGURE_5.items():
        if (name, "Phasor") in found:
            base, phasor = found[name, "DistServe-like"], found[name, "Phasor"]
            gains[name] = against(base, phasor)[0]
            how = UNKNOWN if "-" not in printed else f"one range for Dialog, Summarization and Q&A; {UNKNOWN}"
            yield ratio_row(f"figure5_{name.lower()}", "Figure 5", printed, base, phasor, f"Phasor, {name}", how)
    base, phasor = found["burst", "Splitwise-like"], found["burst", "Phasor"]
    yield ratio_row("figure5_burst_vs_splitwise", "Section 4.3", "1.99", base, phasor, "Phasor over Splitwise, burst")
    gains["burst"] = against(found["burst", "DistServe-like"], phasor)[0]
    for end, rule, least in (("least", "above", 1.1), ("largest", "above", 2.0)):
        value = min(gains.values()) if end == "least" else max(gains.values())
        how = f"{end} of {len(gains)} workloads; printed: 1.1 to 2.0 times"
        yield Printed(f"figure5_{end}_gain", "Figure 5", least, value - 1e-9, rule, how, f"{end} gain in capacity", "1")


def table5_rows(quick: bool = False) -> Iterator[Printed]:
    """Table 5's middle column: capacity in a burst after a change of a setting over before."""
    replications, count = (2, 1200) if quick else (8, 2400)
    base = clients("burst", ELASTIC, Control(), replications, count)
    for (change, setting), printed in zip(CHANGES.items(), TABLE_5, strict=True):
        belief = {"believed_alpha": setting["alpha"]} if "alpha" in setting else {}
        control = Control(**({} if belief else setting))
        after = clients("burst", ELASTIC, control, replications, count, **belief)
        yield ratio_row(f"table5_{change}".replace(" ", "_"), "Table 5", printed, base, after, f"capacity, {change}")


def latencies(workload: str, system: str, replications: int, count: int, rate: float = 40.0) -> dict[str, np.ndarray]:
    """P99s of a system by metric, and the peak and mean share of stranded blocks (%), one value per replication."""
    job, (cluster, control) = capacity.task(workload), SYSTEMS[system]
    runs = [p99s(job, rate, cluster, control, r, count) for r in range(replications)]
    tail = lambda run: np.nanquantile(run.tpot_s[count // 5 :], 0.99)
    return {
        "ttft": np.array([x[0] for x in runs]),
        "e2e": np.array([x[1] for x in runs]),
        "tpot": np.array([tail(x[2]) for x in runs]),
        "peak": np.array([100 * x[2].stranded_frac.max() for x in runs]),
        "mean": np.array([100 * x[2].stranded_frac.mean() for x in runs]),
    }


def panorama_rows(quick: bool = False) -> Iterator[Printed]:
    """Figures 4, 6 and 10: Phasor's P99 over both baselines', fragmentation, and which part matters most."""
    replications, count = (2, 300) if quick else (8, 2000)
    names = ("Splitwise-like", "DistServe-like", "Phasor")
    found = {
        (w, system): latencies(w, system, replications, count)
        for w in dict.fromkeys(row[0] for row in FIGURES_4_AND_10)
        for system in names
    }
    for workload, metric, (splitwise, distserve, phasor) in FIGURES_4_AND_10:
        for name, other in (("splitwise", splitwise), ("distserve", distserve)):
            base = found[workload, f"{'Splitwise' if name == 'splitwise' else 'DistServe'}-like"][metric]
            key = f"{workload}_{metric}_vs_{name}".lower()
            how = f"{phasor} over {other} as printed; {UNKNOWN}"
            what = f"{metric.upper()} P99 over {name}, {workload}, 40/s"
            where = "Figure 4" if workload in ("S-L", "burst") else "Figure 10"
            yield ratio_row(key, where, f"{phasor / other:.3f}", base, found[workload, "Phasor"][metric], what, how)
    for key, system, kind, printed in (
        ("fragmentation_peak_baseline", "Splitwise-like", "peak", "49.65"),
        ("fragmentation_mean_phasor", "Phasor", "mean", "6.20"),
    ):
        e = mean_of(latencies("S-L", system, replications, count, 2.5)[kind])
        how = f"code generation at 2.5/s, where KV memory is short; {UNKNOWN}"
        yield Printed(
            key, "Figure 6", printed, e.value, "interval", how, f"stranded blocks, {system}", "%", e.low, e.high
        )


def part_rows(quick: bool = False) -> Iterator[Printed]:
    """Section 4.4: is losing freeness the largest regression of P99 in every workload?"""
    replications, count = (2, 300) if quick else (8, 2000)
    rates = {"L-S": ("ttft", 13.0), "S-L": ("e2e", 2.5), "burst": ("e2e", 20.0)}
    parts = ("w/o freeness", "w/o standby", "w/o de-frag")
    for workload, (metric, rate) in rates.items():
        k = 0 if metric == "ttft" else 1
        run = lambda system, w=workload, at=rate, k=k: np.array(
            [p99s(capacity.task(w), at, *SYSTEMS[system], r, count)[k] for r in range(replications)]
        )
        full = run("Phasor")
        loss = {part: against(full, run(part)) for part in parts}
        others = max(value for part, (value, _) in loss.items() if part != "w/o freeness")
        value, reach = loss["w/o freeness"]
        worst = max(loss, key=lambda part: loss[part][0])
        how = f"P99 without freeness over P99 with it; the largest of the others is {others:.3f}; worst: {worst}"
        key, what = f"freeness_regression_{workload.lower()}", f"{metric.upper()} P99 without freeness over with it"
        low, high, where = value - reach, value + reach, "Section 4.4"
        yield Printed(key, where, f"{others:.3f}", value, "above", how, f"{what}, {workload}", "1", low, high)


for name, path, title, make in (
    ("capacity", "capacity", "Table 2 and Figure 5: capacity", capacity_rows),
    ("sensitivity_capacity", "table5_capacity", "Table 5: capacity over the default", table5_rows),
    ("panorama", "panorama", "Figures 4, 6 and 10: P99 over the baselines and fragmentation", panorama_rows),
    ("parts", "parts", 'Section 4.4: "Removing freeness causes the largest regression"', part_rows),
):
    verdicts(f"phasor_{name}", f"phasor/{path}", f"Phasor. {title}", __file__, make)
