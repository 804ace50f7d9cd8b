"""How the answer moves when an input is wrong: the whole plan again with one input changed at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmodels.core.records import float64
from dmodels.models.workload import compress

from .evaluate import fewest_instances
from .plan import SUPPORT, Plan, Priced, Question, cheapest, price


@dataclass(frozen=True)
class Change:
    """One input changed by a factor, and the cheapest answer to the changed question (inf: none)."""

    what: str
    factor: float
    usd_per_hour: float
    name: str  # of the cheapest scheme then


@float64
def sensitivity(answer: Plan) -> list[Change]:
    """One input at a time, 20 % down and up (SLOs: halved and doubled), and the cheapest plan for each.

    Lengths are scaled on the compressed workload, so their base is that of the same compression.
    """
    asked = answer.question
    workload = asked.workload
    small = compress(workload, *SUPPORT) if workload.input_tokens.shape[-1] > 600 else workload
    thresholds = tuple(stage.high_tokens for stage in answer.priced.stages if stage.name == "short")
    compact = replace(asked, workload=small, thresholds_tokens=thresholds)
    found = []
    for factor in (0.8, 1.2):
        found.append(_rate(answer.priced, factor))
        longer = small.replace(input_tokens=small.input_tokens * factor, cached_tokens=small.cached_tokens * factor)
        found.append(_asked("input length", factor, replace(compact, workload=longer)))
        more = small.replace(output_tokens=np.maximum(small.output_tokens * factor, 1.0))
        found.append(_asked("output length", factor, replace(compact, workload=more)))
        for name in asked.gpus:
            found.append(_price(answer.priced, name, factor))
    for factor in (0.5, 2.0):
        for name in ("ttft_s", "tpot_s"):
            if np.isfinite(getattr(asked.slo, name)):
                slo = asked.slo.replace(**{name: getattr(asked.slo, name) * factor})
                found.append(_asked(f"{name[:4].upper()} SLO", factor, replace(compact, slo=slo)))
    return found


def _asked(what: str, factor: float, asked: Question) -> Change:
    return _change(what, factor, price(asked))


def _rate(priced: Priced, factor: float) -> Change:
    asked = priced.question
    again = fewest_instances(priced.cells, factor * asked.rate_rps, asked.engine).instances
    return _change("request rate", factor, replace(priced, instances=again.reshape(priced.instances.shape)))


def _price(priced: Priced, gpu: str, factor: float) -> Change:
    asked = priced.question
    dearer = asked.gpus[gpu].replace(price_usd_per_hour=asked.gpus[gpu].price_usd_per_hour * factor)
    return _change(f"price of {gpu}", factor, replace(priced, question=replace(asked, gpus=asked.gpus | {gpu: dearer})))


def _change(what: str, factor: float, priced: Priced) -> Change:
    ranked = cheapest(priced, priced.costs_usd_per_hour)
    return Change(what, factor, ranked[0][2], ranked[0][0].name) if ranked else Change(what, factor, np.inf, "none")
