"""The tables of a plan, for terminal and page alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dmodels.core.units import GIB
from dmodels.models.cost import usd_per_mtoken
from dmodels.studies.plan import Apart, Change, Deployment, Plan, Regional
from dmodels.studies.plan.memory_use import MemoryUse
from dmodels.studies.plan.rejections import Rejection

from .plan_words import chance
from .text import Table, milliseconds, ms, share

if TYPE_CHECKING:
    from dmodels.studies.servers import Together


def recommended(answer: Plan) -> Deployment:
    """`answer.best`, for tables and pictures that only an answer with one has."""
    if answer.best is None:
        raise ValueError("nothing is feasible, so there is no deployment to show")
    return answer.best


def pools_table(answer: Plan) -> Table:
    """The recommended pools, with their sum where there are several."""
    best = recommended(answer)
    p = f"P{100 * float(answer.question.slo.percentile):g}"
    head = [
        "pool",
        "requests",
        "instances",
        "layout",
        "GPUs",
        "USD/h",
        "USD/year",
        f"TTFT {p} [ms]",
        f"TPOT {p} [ms]",
        "in flight",
        "slots",
        "one instance less breaks",
    ]
    rows: list[list[Any]] = [
        [
            x.stage.name,
            f"{x.request_share_frac:.1%}",
            x.instances,
            str(x.layout),
            x.gpus,
            round(x.usd_per_hour, 2),
            round(x.usd_per_year),
            _ranged(best.seen(x, "TTFT"), x.confidence.ttft),
            _ranged(best.seen(x, "TPOT"), x.confidence.tpot) if x.stage.role != "prefill" else "-",
            round(x.decode_count, 1) if x.stage.role != "prefill" else "-",
            math.floor(x.slots_count),
            x.binding,
        ]
        for x in best.pools
    ]
    if len(rows) > 1:
        rows.append(
            [
                "together",
                "100.0%",
                sum(x.instances for x in best.pools),
                "",
                best.gpus,
                round(best.usd_per_hour, 2),
                round(best.usd_per_year),
                f"{milliseconds(best.ttft_s):,g}",
                f"{milliseconds(best.tpot_s):,g}",
                "",
                "",
                "",
            ]
        )
    shares = "; requests are shares of those served" if answer.priced.admitted.refused_frac else ""
    replayed = " of stages by the closed forms, together as replayed," if best.in_turn else " as replayed,"
    how = "" if best.replayed is None else replayed
    title = f"Recommended pools; latencies{how} with their 80 % interval; in flight and slots are requests per instance"
    return title + shares, head, rows


def memory_table(uses: Sequence[MemoryUse]) -> Table:
    """The memory of one GPU of each pool."""
    head = ["pool", "GPU", *(f"{name} [GiB]" for name in uses[0].parts), "all [GiB]"]
    rows = [
        [
            use.pool.stage.name,
            use.pool.layout.gpu,
            *(float(f"{size / GIB:.3g}") for size in use.parts.values()),
            float(f"{use.gpu_bytes / GIB:.4g}"),
        ]
        for use in uses
    ]
    return "Memory of one GPU", head, rows


def classes_table(apart: Apart) -> Table:
    """A fleet for each class of requests."""
    head = ["class", "requests", "TTFT SLO [ms]", "TPOT SLO [ms]", "GPUs", "USD/h", "cost", "probability", "fleet"]
    rows = [
        [
            x.requests.name,
            share(x.share_frac),
            milliseconds(x.requests.slo.ttft_s),
            milliseconds(x.requests.slo.tpot_s),
            "-" if x.best is None else x.best.bought_gpus,
            "infeasible" if x.best is None else round(x.usd_per_hour, 2),
            "-" if apart.gpus is None else share(x.usd_per_hour / apart.usd_per_hour),
            "-" if x.best is None else chance(x.plan),
            "-" if x.best is None else f"{x.best.name}: {x.best.decomposition().partition(' = ')[2]}",
        ]
        for x in apart.shares
    ]
    title = "Each class of requests with a fleet of its own, and the probability that it keeps its SLOs"
    return title, head, rows


def together_table(found: Together) -> Table:
    """What each class sees on one fleet, by priority and without."""
    head = ["class", "priority", "metric", "SLO [ms]", "by priority [ms]", "first come first served [ms]"]
    rows = [
        [x.name, x.priority, x.metric, *map(milliseconds, (x.bound_s, x.by_priority_s, x.in_order_s))]
        for x in found.kept
    ]
    return f"All classes on {found.instances} x {found.layout}, replayed under vLLM's scheduler", head, rows


def regions_table(found: Regional) -> Table:
    """What each region would deploy, alone or for its share."""
    head = ["region", "traffic", "GPUs", "USD/h", "fleet"]
    rows = [
        [
            site.region,
            share(site.share_frac),
            "-" if site.best is None else site.best.bought_gpus,
            "infeasible" if site.best is None else round(site.usd_per_hour, 2),
            "-" if site.best is None else f"{site.best.name}: {site.best.decomposition().partition(' = ')[2]}",
        ]
        for site in found.together or found.alone
    ]
    return "Regions, by the closed forms", head, rows


def alternatives(answer: Plan) -> list[tuple[str, Deployment]]:
    """The recommended fleet, the best of each kind, the cheapest estimate, the best of each GPU type: each once."""
    named = [(d.name, d) for d in answer.kinds]
    named += [(f"cheapest estimate: {d.name}", d) for d in [answer.cheapest] if d is not None and d is not answer.best]
    named += [(f"only {d.pools[0].layout.gpu}: {d.name}", d) for d in answer.by_gpu]
    named[:1] = [(f"recommended: {answer.best.name}", answer.best)] if answer.best is not None else []
    once: dict[tuple[str, str], tuple[str, Deployment]] = {}
    for name, d in named:
        once.setdefault((d.name, d.decomposition()), (name, d))
    return list(once.values())


def alternatives_table(answer: Plan) -> Table:
    """The best of each kind and of each GPU type, with what each serves for the money."""
    p = f"P{100 * float(answer.question.slo.percentile):g}"
    head = [
        "alternative",
        "GPUs",
        "80 % interval",
        "USD/h",
        "USD/year",
        "USD/Mtoken out",
        f"TTFT {p} [ms]",
        f"TPOT {p} [ms]",
        "pools",
    ]
    rows = [_alternative(name, d) for name, d in alternatives(answer)]
    return "Alternatives, the best of each kind and of each GPU type", head, rows


def rejections_table(found: tuple[Rejection, ...]) -> Table:
    """Why layouts fell, nearest misses first."""
    head = ["layout", "binds", "have", "need", "smallest fix"]
    rows = [[str(r.layout), r.binding, r.have, r.need, r.fix] for r in found]
    return "Layouts that cannot serve all requests from one pool", head, rows


def sensitivity_table(answer: Plan, changes: list[Change]) -> Table:
    """What another input would have cost; how many requests are refused only where it is not as planned."""
    refused = answer.priced.admitted.refused_frac
    base = answer.formula_usd_per_hour
    rows = [
        [
            c.what,
            f"x {c.factor:g}",
            round(c.usd_per_hour, 2),
            _against(c, base),
            c.name + (f", {share(c.refused_frac)} refused" if c.refused_frac != refused else ""),
        ]
        for c in changes
    ]
    by = ", by the closed forms" if answer.ensured else ""
    return (
        f"Sensitivity: the cheapest plan when one input changes{by}",
        ["input", "change", "USD/h", "cost", "then"],
        rows,
    )


def _alternative(name: str, d: Deployment) -> list[Any]:
    per_mtoken = float(usd_per_mtoken(d.usd_per_hour, d.tokens_per_s))
    high = f"{d.gpus_high:,.0f}" if math.isfinite(d.gpus_high) else "infeasible"
    interval, pools = f"{d.gpus_low:,.0f} to {high}", d.decomposition().partition(" = ")[2]
    money = [round(d.usd_per_hour, 2), round(d.usd_per_year), per_mtoken]
    return [name, d.gpus, interval, *money, milliseconds(d.ttft_s), milliseconds(d.tpot_s), pools]


def _ranged(seconds: float, factors: tuple[float, float]) -> str:
    """Milliseconds with their interval."""
    middle, low, high = (ms(seconds * factor) for factor in (1.0, *factors))
    return f"{middle} ({low} to {high})"


def _against(change: Change, base: float) -> str:
    return f"{change.usd_per_hour / base - 1:+.1%}" if math.isfinite(change.usd_per_hour) else "infeasible"
