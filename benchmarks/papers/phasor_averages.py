"""Phasor's averages over loads (Section 4.2, Appendix E) and the tokens that it generates at peak load (Table 6).

The paper gives averages "across all arrival rates" and once their range, 5 to 40 a second, without the steps between.
Here they are means of P99s over four rates, on the same requests for all systems; what is compared is the reduction.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from benchmarks.papers import _phasor_capacity as capacity
from benchmarks.papers._printed import verdicts
from benchmarks.papers.phasor_capacity import latencies
from benchmarks.papers.phasor_tables import SYSTEMS, UNKNOWN, against
from dmodels.sim import arrivals
from dmodels.sim.cluster import simulate
from dmodels.sim.estimate import mean_of
from proofs.papers.rows import Printed

RATES_RPS = (5.0, 10.0, 20.0, 40.0)
BASELINES = ("Splitwise-like", "DistServe-like")
#: Where, workload, metric: reductions of the average P99 against Splitwise and DistServe, in per cent.
AVERAGES = (
    ("Section 4.2", "burst", "e2e", ("34.8", "22.4")),
    ("Section 4.2", "L-S", "ttft", ("44.2", "34.1")),
    ("Section 4.2", "S-L", "tpot", ("15.6", "7.6")),
    ("Appendix E", "S-S", "e2e", ("11.5", "8.9")),
    ("Appendix E", "L-L", "tpot", ("11.8", "4.1")),
    ("Appendix E", "L-L", "e2e", ("14.9", "8.7")),
    ("Appendix E", "M-M", "e2e", ("25.6", "19.6")),
)
#: Table 6 at 40 to 60 requests a second; the middle is taken.
PEAK_RPS = 50.0
TOKENS_PER_S = {"Splitwise-like": "5422", "DistServe-like": "7009", "Phasor": "9820"}


def average_rows(quick: bool = False) -> Iterator[Printed]:
    """Reductions of the mean of P99s over the rates."""
    replications, count = (2, 300) if quick else (6, 1500)
    found = {
        (workload, system): [latencies(workload, system, replications, count, rate) for rate in RATES_RPS]
        for workload in dict.fromkeys(row[1] for row in AVERAGES)
        for system in (*BASELINES, "Phasor")
    }
    mean = lambda workload, system, metric: np.mean([at[metric] for at in found[workload, system]], axis=0)
    for where, workload, metric, printed in AVERAGES:
        for system, shown in zip(BASELINES, printed, strict=True):
            ratio, reach = against(mean(workload, system, metric), mean(workload, "Phasor", metric))
            value, reach = 100 * (1 - ratio), 100 * reach
            key = f"{workload}_{metric}_vs_{system.split('-')[0]}".lower()
            what = f"reduction of the mean {metric.upper()} P99 over {len(RATES_RPS)} rates, {workload}, {system}"
            yield Printed(
                key, where, shown, value, "interval", f"5 to 40/s; {UNKNOWN}", what, "%", value - reach, value + reach
            )


def tokens_per_s(system: str, replication: int, count: int) -> float:
    """Output tokens of answers that end while requests still come, per second, after a fifth of the arrivals."""
    job, key = capacity.task("burst"), jax.random.fold_in(jax.random.key(11), replication)
    when = arrivals.gamma(key, PEAK_RPS, 3.0, count)
    inputs, outputs, seconds = capacity.draw(job, jax.random.fold_in(key, 1), count)
    end_s = simulate(when, inputs, outputs, seconds, *SYSTEMS[system]).end_s
    begin_s, last_s = float(when[count // 5]), float(when[-1])
    return float(outputs[(end_s > begin_s) & (end_s <= last_s)].sum() / (last_s - begin_s))


def throughput_rows(quick: bool = False) -> Iterator[Printed]:
    """Table 6's generated tokens a second, and their ratios."""
    replications, count = (2, 1000) if quick else (8, 6000)
    made = {name: np.array([tokens_per_s(name, r, count) for r in range(replications)]) for name in TOKENS_PER_S}
    for system, printed in TOKENS_PER_S.items():
        e, key = mean_of(made[system]), f"{system.split('-')[0].lower()}_tokens_per_s"
        what = f"output tokens a second at {PEAK_RPS:g} requests/s, {system}"
        yield Printed(key, "Table 6", printed, e.value, "interval", UNKNOWN, what, "tokens/s", e.low, e.high)
    for system in BASELINES:
        shown = f"{float(TOKENS_PER_S['Phasor']) / float(TOKENS_PER_S[system]):.2f}"
        value, reach = against(made[system], made["Phasor"])
        key, how = f"tokens_over_{system.split('-')[0].lower()}", f"9820 over {TOKENS_PER_S[system]}; {UNKNOWN}"
        what = f"output tokens a second, Phasor over {system}"
        yield Printed(key, "Table 6", shown, value, "interval", how, what, "1", value - reach, value + reach)


def rows(quick: bool = False) -> Iterator[Printed]:
    """Both."""
    yield from average_rows(quick)
    yield from throughput_rows(quick)


verdicts("phasor_averages", "phasor/averages", "Phasor. Averages over loads, and Table 6's tokens", __file__, rows)
