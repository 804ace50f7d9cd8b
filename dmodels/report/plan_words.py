"""What a plan says in words: a few sentences, a few numbers."""

from __future__ import annotations

import math

from dmodels.core.units import counted
from dmodels.studies.plan import GROWTH, Deployment, Plan
from dmodels.studies.plan.margins import MOST_SURE
from dmodels.studies.plan.robust import EASIER, harder, lone, told_apart

from .text import Table, cell, share


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
    return f"it keeps its SLOs with a probability of {chance(answer)}"


def chance(answer: Plan) -> str:
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
    row: list[object] = [best.bought_gpus, f"{best.usd_per_year / 12.0:,.0f}", chance(answer), headroom(answer)]
    if answer.ensured is not None and answer.question.trace is not None:
        head, row = [*head, "GPUs for another stretch"], [*row, answer.ensured.next_gpus]
    return "In short", [*head, "one instance less breaks"], [[*row, tight.binding]]


def in_three_sentences(answer: Plan) -> list[str]:
    """The same for someone who reads no tables: what to do; why this; how sure, or what would help."""
    said = sentences(answer)
    if answer.best is None:
        return [
            said[0],
            said[1].partition("; smallest fix: ")[0] + ".",
            f"The smallest change that would help: {answer.rejections[0].fix}.",
        ]
    best, base = answer.best, answer.baseline
    if base is None or (base is best and answer.cheapest is best):
        tried = f"{_layouts(answer)}, put together in {len(answer.priced.schemes)} ways"
        several = len(best.pools) > 1
        limits = " and ".join(pool.binding + f" ({pool.stage.name})" * several for pool in best.pools)
        said.insert(1, f"It is the cheapest of {tried}; one instance less would break {limits}.")
    what, why, unsure, *more = said
    return [what, why, " and ".join(part.rstrip(".") for part in (unsure, *map(_low, more))) + "."]


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
