"""How the answer moves when an input is wrong: the whole plan again with one input changed at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.records import float64

from .margins import fewest
from .rescale import with_lengths
from .search import Plan
from .sizing import Priced, cheapest, price


@dataclass(frozen=True)
class Change(Answer):
    """One input changed by a factor, and the cheapest answer to the changed question (inf: none)."""

    what: str
    factor: float
    usd_per_hour: float
    name: str  # of the cheapest scheme then
    refused_frac: float  # requests that the model's context keeps out then


@float64
def sensitivity(answer: Plan) -> list[Change]:
    """One input at a time, 20 % down and up (SLOs: halved and doubled), and the cheapest plan for each."""
    priced, asked = answer.priced, answer.question
    found = []
    for factor in (0.8, 1.2):
        found.append(_rate(priced, factor))
        found.append(_change("input length", factor, price(with_lengths(asked, factor, 1.0), priced.calibration)))
        found.append(_change("output length", factor, price(with_lengths(asked, 1.0, factor), priced.calibration)))
        found += [_price(priced, name, factor) for name in asked.gpus]
    for factor in (0.5, 2.0):
        for name in ("ttft_s", "tpot_s"):
            if np.isfinite(getattr(asked.slo, name)):
                found.append(_bound(priced, name, factor))
    return found


def _bound(priced: Priced, name: str, factor: float) -> Change:
    """Every stage's part of an SLO scales with it."""
    slo = priced.cells.slo
    cells = priced.cells._replace(slo=slo.replace(**{name: getattr(slo, name) * factor}))
    asked = priced.question
    again = fewest(cells, priced.rate_rps, asked.engine, asked.margins, priced.strain).instances
    looser = replace(priced, cells=cells, instances=again.reshape(priced.instances.shape))
    return _change(f"{name[:4].upper()} SLO", factor, looser)


def _rate(priced: Priced, factor: float) -> Change:
    asked = priced.question
    again = fewest(priced.cells, factor * priced.rate_rps, asked.engine, asked.margins, priced.strain).instances
    return _change("request rate", factor, replace(priced, instances=again.reshape(priced.instances.shape)))


def _price(priced: Priced, gpu: str, factor: float) -> Change:
    asked = priced.question
    dearer = asked.gpus[gpu].replace(price_usd_per_hour=asked.gpus[gpu].price_usd_per_hour * factor)
    return _change(f"price of {gpu}", factor, replace(priced, question=replace(asked, gpus=asked.gpus | {gpu: dearer})))


def _change(what: str, factor: float, priced: Priced) -> Change:
    ranked = cheapest(priced, priced.costs_usd_per_hour)
    usd_per_hour, name = (ranked[0].usd_per_hour, ranked[0].scheme.name) if ranked else (np.inf, "none")
    return Change(what, factor, usd_per_hour, name, priced.admitted.refused_frac)
