"""What could go wrong with a plan, as sentences and tables."""

from __future__ import annotations

import math

from dmodels.studies.plan import Plan, Pool
from dmodels.studies.plan.risks import Grown, Risks

from .plan_tables import recommended
from .plan_words import headroom
from .text import Table, milliseconds


def sentences(answer: Plan, found: Risks) -> list[str]:
    """Saturation margin, burst, failure and stale telemetry, one sentence each."""
    first = found.first
    said = [
        f"Saturation: {_named(answer, first.pool)} runs at {first.operating_frac:.0%} of the rate at which it "
        f"saturates, {'beyond' if first.operating_frac > first.knee_frac else 'before'} its knee at "
        f"{first.knee_frac:.0%}; the rate may grow by {headroom(answer)} before an SLO breaks and by "
        f"{first.growth - 1.0:.0%} before queues grow without end."
    ]
    broken = next((grown for grown in found.bursts if not grown.keeps_slo), None)
    said.append(
        f"Burst: {'no burst asked about breaks' if broken is None else f'{broken.factor:g} times the rate breaks'} an "
        f"SLO; {_arrivals(answer)}"
    )
    alone = [lost for lost in found.losses if lost.after is None]
    late = [lost for lost in found.losses if lost.after is not None and not lost.after.keeps_slo]
    if alone:
        names = " and ".join(f"{_named(answer, x.pool)} ({x.pool.request_share_frac:.0%} of requests)" for x in alone)
        one = "is one instance" if len(alone) == 1 else "are one instance each"
        said.append(
            f"Failure: {names} {one}; while it is down nothing serves its requests; one more "
            f"{'of each ' * (len(alone) > 1)}costs ${sum(x.spare_usd_per_hour for x in alone):,.2f}/h."
        )
    elif late:
        names = " or ".join(_named(answer, lost.pool) for lost in late)
        cost = sum(lost.spare_usd_per_hour for lost in late)
        said.append(f"Failure: losing one instance of {names} breaks an SLO; a spare for each costs ${cost:,.2f}/h.")
    else:
        said.append("Failure: each pool may lose one instance and still meet the SLOs.")
    if found.stale:
        herd = min(found.stale, key=lambda stale: stale.herd_s)
        said.append(
            f"Stale telemetry: the latencies hold for random routing, so without telemetry the plan stands; a router "
            f"that sends to whoever looked emptiest needs readings younger than {seconds(herd.herd_s)} "
            f"({_named(answer, herd.pool)}), or it herds prompts onto one instance until TTFT breaks."
        )
    else:
        said.append("Stale telemetry: no pool has a choice of instances, so no reading can mislead the router.")
    return said


def _arrivals(answer: Plan) -> str:
    """What is taken for granted about arrivals."""
    if answer.ensured is not None:
        return "here arrivals are Poisson; the bursts of the trace are in its replay, by which the fleet is sized."
    cv = float(answer.question.workload.arrival_cv)
    return (
        f"arrivals are taken as Poisson at each instance (gaps of CV 1; this workload's: {cv:.2g}), so plan the rate "
        "of the busiest minutes, not the day's mean, or with a trace, which is replayed."
    )


def _named(answer: Plan, pool: Pool) -> str:
    """A pool in a sentence; where there is one only, it has no name."""
    return f"the {pool.stage.name} pool" if len(recommended(answer).pools) > 1 else "the pool"


def load_table(found: Risks) -> Table:
    """Distance from saturation."""
    head = ["pool", "load", "knee at", "saturates at a rate", "TTFT now [ms]", "TTFT at 95 % load [ms]"]
    rows = []
    for load in found.loads:
        near = float(load.ttft_s[abs(load.load_frac - 0.95).argmin()])
        told = [f"{load.operating_frac:.0%}", f"{load.knee_frac:.0%}", f"x {load.growth:.2f}"]
        rows.append([load.pool.stage.name, *told, milliseconds(load.pool.ttft_s), milliseconds(near)])
    return "Saturation: load as a share of the rate at which a pool has no steady state", head, rows


def burst_table(answer: Plan, found: Risks) -> Table:
    """What a burst does."""
    return (
        f"Burst of {found.burst_s:g} s at a higher rate; TTFT of the last to arrive",
        ["rate", *_grown_head(answer)],
        [[f"x {grown.factor:g}", *_grown_row(grown)] for grown in found.bursts],
    )


def loss_table(answer: Plan, found: Risks) -> Table:
    """What the loss of an instance does."""
    rows = []
    for lost in found.losses:
        if lost.after is None:
            told = ["-", "-", "no: nothing else serves these requests", "-"]
        else:
            told = _grown_row(lost.after)
        rows.append([lost.pool.stage.name, f"1 of {lost.pool.instances}", *told, lost.spare_usd_per_hour])
    head = ["pool", "lost", *_grown_head(answer), "a spare costs [USD/h]"]
    return f"Failure of one instance, {found.burst_s:g} s long", head, rows


def stale_table(found: Risks) -> Table:
    """How old readings may be."""
    rows = [
        [stale.pool.stage.name, stale.pool.instances, seconds(stale.herd_s), seconds(stale.memory_s)]
        for stale in found.stale
    ]
    head = ["pool", "instances", "herds beyond", "a reading is forgotten after"]
    return "Stale telemetry: age of the counts of requests in flight", head, rows


def seconds(value: float) -> str:
    """A time as a person says it: ms, s, min or h, two digits that count.

    >>> seconds(0.25), seconds(5400.0)
    ('250 ms', '1.5 h')
    """
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "any age"
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if value >= size:
            return f"{float(f'{value / size:.2g}'):g} {unit}"
    return f"{float(f'{1e3 * value:.2g}'):g} ms"


def _grown_head(answer: Plan) -> list[str]:
    p = f"P{100 * float(answer.question.slo.percentile):g}"
    return [f"TTFT {p} [ms]", f"TPOT {p} [ms]", "SLOs kept", "queue gone after"]


def _grown_row(grown: Grown) -> list[str]:
    kept = "yes" if grown.keeps_slo else "no: saturates" if grown.saturates else "no"
    drained = "-" if not grown.saturates else "never" if not math.isfinite(grown.drain_s) else seconds(grown.drain_s)
    tpot = "no bound" if not math.isfinite(grown.tpot_s) else f"{milliseconds(grown.tpot_s):,g}"
    return [f"{milliseconds(grown.ttft_s):,g}", tpot, kept, drained]
