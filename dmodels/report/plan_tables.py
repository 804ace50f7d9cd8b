"""The words and tables of a plan, for terminal, page and JSON alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dmodels.core.units import GIB, counted
from dmodels.models.cost import usd_per_mtoken
from dmodels.studies.plan import GROWTH, Apart, Change, Deployment, Plan, Regional, Suggestion, Tail, command
from dmodels.studies.plan.margins import MOST_SURE
from dmodels.studies.plan.memory_use import MemoryUse
from dmodels.studies.plan.rejections import Rejection
from dmodels.studies.plan.robust import EASIER, harder, lone, told_apart

from .plan_notes import advice, notes
from .text import Table, cell, ms, share

if TYPE_CHECKING:
    from dmodels.studies.servers import Together


def sentences(answer: Plan) -> list[str]:
    """The answer in at most four sentences: what to deploy, against what, how sure, what it leaves."""
    if answer.best is None:
        nearest = answer.rejections[0]
        return [
            f"Nothing among {_layouts(answer)} serves {load(answer)} within the SLOs.",
            f"The nearest is {nearest.layout}: {nearest.binding} binds ({nearest.have} there, {nearest.need} needed); "
            f"smallest fix: {nearest.fix}.",
        ]
    best, base = answer.best, answer.baseline
    said = [
        f"Deploy {best.decomposition()} as {best.name} for {load(answer)}: ${best.usd_per_hour:,.2f}/h, "
        f"{per_year(best.usd_per_year)}{_nodes(best)}."
    ]
    if answer.cheapest is not None and answer.cheapest is not best:
        said.append(_cheaper(answer.cheapest, best))
    elif base is not None and base is not best:
        saved = 1.0 - best.usd_per_hour / base.usd_per_hour
        said.append(
            f"The cheapest single pool takes {base.decomposition()} at ${base.usd_per_hour:,.2f}/h; "
            f"this saves {saved:.1%}."
        )
    rests_on = best.pools[0].confidence.provenance
    said.append(
        f"Under the model's error {sure(answer)}; with step times anywhere in their 80 % interval {_span(best)} "
        f"({rests_on})."
    )
    if alike := [d for d in answer.indistinguishable() if d is not answer.cheapest]:
        others = (
            f"{d.name} ({d.gpus} {' and '.join(sorted({p.layout.gpu for p in d.pools}))}{_easier(d, best)})"
            for d in alike
        )
        said.append(f"Within that error its cost cannot be told from that of {' or '.join(others)}.")
    return said


def load(answer: Plan) -> str:
    """What is served, in words."""
    asked, refused = answer.question, answer.priced.admitted.refused_frac
    of = f" ({share(refused)} of them refused: longer than the model's context)" if 0 < refused < 1 else ""
    return f"{cell(asked.rate_rps)} req/s of {asked.workload_name} with {asked.model_name}{of}"


def sure(answer: Plan) -> str:
    """The probability that the SLOs hold, in words."""
    if not answer.sure_frac:
        return "it misses an SLO more likely than not"
    return f"it keeps its SLOs with a probability of {_chance(answer)}"


def _chance(answer: Plan) -> str:
    if not answer.sure_frac:
        return "below 0.5"
    least = "at least " if answer.sure_frac >= MOST_SURE else ""
    return f"{least}{math.floor(100.0 * answer.sure_frac + 1e-9) / 100.0:g}"


def _cheaper(cheapest: Deployment, best: Deployment) -> str:
    """What was not recommended although the point estimate is lower."""
    saved = 1.0 - cheapest.usd_per_hour / best.usd_per_hour
    alone = lone(cheapest)
    if alone and told_apart(cheapest, best):
        names, second = " and ".join(pool.stage.name for pool in alone), sum(pool.usd_per_hour for pool in alone)
        but = f"but nothing stands in for its only {names} instance; a second costs ${second:,.2f}/h"
    else:
        why = harder(cheapest, best)
        but = f"which the model's error does not tell from this{', ' if why else ''}{why}"
    return (
        f"The cheapest estimate is {cheapest.decomposition()} as {cheapest.name} at ${cheapest.usd_per_hour:,.2f}/h: "
        f"{saved:.1%} less, {but}."
    )


def _easier(other: Deployment, best: Deployment) -> str:
    """Why it was not recommended although it is easier to run: its price."""
    why = harder(best, other, EASIER)
    return f"; {why}, for {other.usd_per_hour / best.usd_per_hour - 1.0:.0%} more" if why else ""


def _nodes(best: Deployment) -> str:
    more = best.bought_gpus - best.gpus
    return f" for {best.bought_gpus} GPUs in whole nodes of {best.node_gpus}, {more} of them idle" if more else ""


def card(answer: Plan) -> Table:
    """The answer as a few numbers; of an answer without one, what binds."""
    best = answer.best
    if best is None:
        nearest = answer.rejections[0]
        return "No fleet serves this", ["binds", "there", "needed"], [[nearest.binding, nearest.have, nearest.need]]
    tight = max(best.pools, key=lambda pool: pool.load_frac)
    head = ["GPUs", "USD a month", "probability that the SLOs hold", "growth of the load that it bears"]
    row: list[object] = [best.bought_gpus, f"{best.usd_per_year / 12.0:,.0f}", _chance(answer), headroom(answer)]
    if answer.ensured is not None and answer.question.trace is not None:
        head, row = [*head, "GPUs for another stretch"], [*row, answer.ensured.next_gpus]
    return "In short", [*head, "one instance less breaks"], [[*row, tight.binding]]


def in_three_sentences(answer: Plan) -> list[str]:
    """The same for someone who reads no tables: what to do; why this; how sure, or what would help."""
    said = sentences(answer)
    if answer.best is None:
        return [
            said[0],
            *(part.rstrip(".") + "." for part in said[1].split("; smallest fix: ", 1)[:1]),
            f"The smallest change that would help: {answer.rejections[0].fix}.",
        ]
    best, base = answer.best, answer.baseline
    if base is None or (base is best and answer.cheapest is best):
        tried = f"{_layouts(answer)}, put together in {len(answer.priced.schemes)} ways"
        several = len(best.pools) > 1
        limits = " and ".join(pool.binding + f" ({pool.stage.name})" * several for pool in best.pools)
        said.insert(1, f"It is the cheapest of {tried}; one instance less would break {limits}.")
    if len(said) < 3:  # one pool, and nothing to compare it with
        return said
    return [said[0], said[1], " and ".join(part.rstrip(".") for part in (said[2], *map(_low, said[3:]))) + "."]


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
    how = "" if best.replayed is None or best.in_turn else " as replayed,"
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
            "-" if x.best is None else _chance(x.plan),
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


def inputs(answer: Plan) -> dict[str, Any]:
    """Everything that was asked, units in the keys."""
    asked, slo, w = answer.question, answer.question.slo, answer.question.workload
    return {
        "model": asked.model_name,
        "gpus": list(asked.gpus),
        "workload": asked.workload_name,
        "rate_rps": asked.rate_rps,
        "mean_input_tokens": float(w.mean_input_tokens),
        "mean_output_tokens": float(w.mean_output_tokens),
        "prefix_hit_frac": float(w.prefix_hit_frac),
        "slo_ttft_ms": milliseconds(slo.ttft_s),
        "slo_tpot_ms": milliseconds(slo.tpot_s),
        "slo_e2e_ms": milliseconds(slo.e2e_s),
        "slo_percentile": float(slo.percentile),
        "tp": list(asked.tp),
        "pp": list(asked.pp),
        "wide_ep": list(asked.wide_ep),
        "weights": list(asked.weights),
        "kv": list(asked.kv),
        "backend": asked.backend,
        "max_gpus": asked.max_gpus,
        "inventory": dict(asked.inventory),
        "node_gpus": asked.node_gpus,
        "max_usd_per_hour": asked.max_usd_per_hour,
        "headroom_frac": asked.margins.headroom_frac,
        "spare_count": asked.margins.spare_count,
        "confidence": asked.margins.confidence,
        "max_num_seqs_count": float(asked.engine.max_num_seqs_count),
        "max_num_batched_tokens": float(asked.engine.max_num_batched_tokens),
        "max_context_tokens": float(asked.model.max_context_tokens),
        "price_usd_per_hour": {name: float(gpu.price_usd_per_hour) for name, gpu in asked.gpus.items()},
    }


def result(
    answer: Plan, changes: list[Change], suggested: Sequence[Suggestion] = (), tail: Sequence[Tail] = ()
) -> dict[str, Any]:
    """The answer as plain data, units in the keys."""
    return {
        "feasible": answer.best is not None,
        "summary": sentences(answer),
        "notes": notes(answer) + advice(suggested, tail),
        "refused_frac": answer.priced.admitted.refused_frac,
        "cut_off_frac": answer.priced.admitted.cut_frac,
        "recommended": answer.best and _plain(answer, answer.best),
        "cheapest": answer.cheapest and _plain(answer, answer.cheapest),
        "alternatives": [_plain(answer, d) for d in answer.kinds],
        "by_gpu": [_plain(answer, d) for d in answer.by_gpu],
        "two_pools_usd_per_hour_by_threshold_tokens": dict(answer.by_threshold),
        "rejections": [
            {"layout": str(r.layout), "binding": r.binding, "have": r.have, "need": r.need, "fix": r.fix}
            for r in answer.rejections
        ],
        "sensitivity": [vars(c) for c in changes],
        "suggestions": [x.to_dict() for x in suggested],
        "longest_requests": [x.to_dict() for x in tail],
        "ensured": answer.ensured and answer.ensured.to_dict(),
        "outside_of_checked": list(answer.outside),
        "rate_headroom_frac": answer.headroom_frac,
        "survives_loss_of_an_instance": answer.survives_loss,
        "keeps_slos_probability": answer.sure_frac,
        "points_count": answer.points_count,
    }


def _plain(answer: Plan, d: Deployment) -> dict[str, Any]:
    pools = [
        {
            "name": x.stage.name,
            "role": x.stage.role,
            "layout": x.layout.parallel,
            "gpu": x.layout.gpu,
            "weights": x.layout.weights,
            "kv": x.layout.kv,
            "pool_instances": x.instances,
            "gpus_per_instance": x.layout.gpus,
            "pool_gpus": x.gpus,
            "usd_per_hour": x.usd_per_hour,
            "request_share_frac": x.request_share_frac,
            "max_model_len_tokens": x.max_model_len_tokens,
            "ttft_ms": milliseconds(d.seen(x, "TTFT")),
            "tpot_ms": milliseconds(d.seen(x, "TPOT")),
            "e2e_ms": milliseconds(d.seen(x, "E2E")),
            "decode_count": x.decode_count,
            "ttft_interval80_ms": [milliseconds(d.seen(x, "TTFT") * f) for f in x.confidence.ttft],
            "tpot_interval80_ms": [milliseconds(d.seen(x, "TPOT") * f) for f in x.confidence.tpot],
            "latency_provenance": x.confidence.provenance,
            "load_frac": x.load_frac,
            "extrapolated": list(x.extrapolated),
            "slots_count": x.slots_count,
            "binding": x.binding,
            "command": command(x, answer.question),
        }
        for x in d.pools
    ]
    return {
        "kind": d.kind,
        "name": d.name,
        "fleet_gpus": d.gpus,
        "bought_gpus": d.bought_gpus,
        "gpus_low": d.gpus_low,
        "gpus_high": d.gpus_high,
        "usd_per_hour": d.usd_per_hour,
        "usd_per_year": d.usd_per_year,
        "ttft_ms": milliseconds(d.ttft_s),
        "tpot_ms": milliseconds(d.tpot_s),
        "e2e_ms": milliseconds(d.e2e_s),
        "router": d.router,
        "replay": d.replayed and d.replayed.to_dict(),
        "pools": pools,
    }


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


def milliseconds(seconds: float) -> float:
    """Milliseconds, four digits."""
    return float(f"{1e3 * float(seconds):.4g}")


def _low(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def headroom(answer: Plan) -> str:
    """How much the rate may grow before an SLO breaks, as far as it was looked for."""
    least = "at least " if answer.headroom_frac > GROWTH[-1] - 1.0 - 1e-9 else ""
    return f"{least}{answer.headroom_frac:.0%}"


def _layouts(answer: Plan) -> str:
    return counted(len(answer.priced.layouts), "layout")


def per_year(usd: float) -> str:
    """Dollars a year, in words."""
    return f"${usd / 1e6:,.2f} M/year" if usd >= 999_500 else f"${usd:,.0f}/year"


def _span(d: Deployment) -> str:
    """The fleet where steps are as fast, and as slow, as the calibration allows."""
    least = counted(int(d.gpus_low), "GPU")
    if not math.isfinite(d.gpus_high):
        return f"the fleet is {least} or more, and at the slow end none keeps the SLOs"
    if d.gpus_low == d.gpus_high:
        return f"the fleet stays at {least}"
    return f"the fleet is {d.gpus_low:,.0f} to {d.gpus_high:,.0f} GPUs"
