"""What the reader of a plan must know beside the answer, for terminal, page and JSON alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmodels.core.units import counted
from dmodels.studies.plan import Apart, Plan, Regional, Solved, Suggestion, Tail, costly
from dmodels.studies.plan.admitted import Admitted

from . import replay_tables
from .text import cell, share

if TYPE_CHECKING:
    from dmodels.studies.servers import Together


def notes(answer: Plan) -> list[str]:
    """What replays say, and requests that the model cannot take."""
    return replay_tables.notes(answer) + _context(answer)


def advice(suggested: Sequence[Suggestion], tail: Sequence[Tail], limit: Solved | None = None) -> list[str]:
    """What was solved for, what was not asked but pays, and requests that cost far more than their share."""
    said = [] if limit is None else [_limit(limit)]
    most = costly(list(tail))
    if most is not None:
        of = "all of the cost: without them" if most.cost_frac >= 1.0 else f"{most.cost_frac:.0%} of the cost: without"
        them = "" if most.cost_frac >= 1.0 else " them"
        said.append(
            f"Long requests: {share(most.share_frac)} of the requests (from {most.from_tokens:,.0f} tokens) make "
            f"{of}{them} ${most.usd_per_hour:,.2f}/h would do. Planned apart, they need an SLO of their own, "
            f'like --class "long: from {math.ceil(most.from_tokens) - 1}, ttft 60 s".'
        )
    if suggested:
        listed = "; ".join(
            f"{x.what} ({x.flags}) "
            + (f"saves {x.saves_frac:.0%}" if x.saves_frac < 1.0 else f"would do, at ${x.usd_per_hour:,.2f}/h")
            + f" and takes {x.takes}"
            for x in suggested
        )
        said.append(f"Not asked, but it pays, by the closed forms: {listed}.")
    return said


def classes_told(answer: Plan, apart: Apart | None) -> list[str]:
    """Whether the classes of requests are better planned apart, in a sentence."""
    if apart is None:
        return []
    if apart.gpus is None or not apart.fits:
        none = [share.requests.name for share in apart.shares if share.best is None]
        why = f"nothing meets the SLOs of {' and '.join(none)}" if none else "they take more than there is"
        return [f"Classes of requests: fleets apart do not do, {why}."]
    cost = f"${apart.usd_per_hour:,.2f}/h ({counted(apart.gpus, 'GPU')})"
    if answer.best is None:
        return [f"Classes of requests: no one fleet keeps the tightest SLOs for all of them; apart they take {cost}."]
    saved = 1.0 - apart.usd_per_hour / answer.best.usd_per_hour
    better = "as much as" if abs(saved) < 5e-3 else f"{saved:.0%} less than" if saved > 0 else f"{-saved:.0%} more than"
    return [
        f"Classes of requests: planned apart, they take {cost}, {better} the one fleet above, "
        "which keeps the tightest SLOs for all of them."
    ]


def together_told(found: Together | None) -> list[str]:
    """What one fleet by priority takes, and what the priorities change, in sentences."""
    if found is None:
        return []
    size = f"{found.instances} x {found.layout.gpus} {found.layout.gpu} ({found.layout.parallel})"
    if found.holds:
        plain = found.in_order_instances
        otherwise = "as many" if plain == found.instances else "more than was tried" if plain is None else f"{plain}"
        said = (
            f"One fleet by priority: {counted(found.gpus, 'GPU')} = {size} at ${found.usd_per_hour:,.2f}/h keep every "
            "class's SLOs in a replay under vLLM's scheduler (--scheduling-policy priority); first come, first served "
            f"it takes {otherwise} of these instances."
        )
    else:
        late = (
            f"{x.name} {x.metric} {1e3 * x.by_priority_s:,.0f} ms" for x in found.kept if x.by_priority_s > x.bound_s
        )
        said = f"One fleet by priority: up to {size} nothing keeps every class's SLOs ({', '.join(late)})."
    return [
        said,
        "A priority orders who waits and who gives way; a prompt that was begun is computed to its end before anybody "
        "else is admitted, however important.",
    ]


def regions_told(found: Regional | None) -> list[str]:
    """Where the fleet of the plan lies, or how regions share the traffic, in a sentence."""
    if found is None:
        return []
    if not found.together:
        first, *rest = found.alone
        others = [
            f"{site.region} " + ("cannot serve it alone" if site.best is None else f"takes ${site.usd_per_hour:,.2f}/h")
            for site in rest
        ]
        return [f"Regions: the fleet lies in {first.region}" + (f"; {', '.join(others)}" if others else "") + "."]
    parts = "; ".join(
        f"{site.region} {share(site.share_frac)} with {site.best.decomposition()} as {site.best.name}"
        for site in found.together
        if site.best is not None
    )
    served = "serve all of it" if found.fits else f"serve at most {share(found.served_frac)} of it,"
    return [
        f"Regions: none serves all of the traffic; together they {served} at ${found.usd_per_hour:,.2f}/h: {parts}."
    ]


def _limit(found: Solved) -> str:
    """The most that what there is can do, and what a little more would do."""
    name = {"rate": "rate", "ttft": "TTFT SLO", "tpot": "TPOT SLO", "e2e": "E2E SLO"}[found.target]
    shown, more, each = (
        f"{cell(x)} req/s" if found.target == "rate" else f"{cell(1e3 * x)} ms"
        for x in (found.value, found.more_value, abs(found.worth_per_gpu))
    )
    kind = "largest" if found.target == "rate" else "tightest"
    gpus = counted(found.more_gpus, "more GPU")
    return (
        f"{shown} is the {kind} {name} that can be kept with what there is; with {gpus} {more} ({each} per GPU, by the "
        "closed forms)."
    )


def _context(answer: Plan) -> list[str]:
    """Requests beyond the model's context: how many, what becomes of them, and whether the load counts them."""
    found = answer.priced.admitted
    beyond = found.refused_frac + found.cut_frac
    if not beyond:
        return []
    said = [
        f"Context: {share(beyond)} of the requests are longer than the {found.limit_tokens:,.0f} tokens that the "
        f"config of {answer.question.model_name} allows (the longest takes {found.longest_tokens:,.0f})."
    ]
    if found.refused_frac:
        of = f" of {share(found.refused_frac)}" if found.cut_frac else ""
        said.append(f"The prompts{of} fill it alone, and engines refuse them: {_left(found, answer)}.")
    if found.cut_frac:
        of = f" of {share(found.cut_frac)}" if found.refused_frac else ""
        said.append(
            f"The answers{of} would run past it: they are in the load up to there, where engines cut them off (or "
            "refuse them, if they ask for so many tokens in advance)."
        )
    return [" ".join([*said, "Serving all of them whole takes a model with a longer context."])]


def _left(found: Admitted, answer: Plan) -> str:
    if found.none:
        return "nothing is left to serve"
    load = f"{found.rate_rps:,.4g} of {answer.question.rate_rps:,.4g} req/s"
    return f"they are not in the load, which is {load}, and the SLOs are kept for the requests served"
