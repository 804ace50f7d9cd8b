"""A question with dials: load, mean lengths, SLO, GPU types and prices are turned, everything else stays.

Turning a dial keeps the shapes of all arrays (lengths scale, thresholds move along), so that compiled programs are
used again and an answer takes a fraction of a second. Dials at rest give the question itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmodels.core.errors import InputError, unknown

from .plan import Question, check, with_lengths

#: How far a slider goes, as a factor on the value at rest, down and up.
REACH = {"rate_rps": 16.0, "isl_tokens": 8.0, "osl_tokens": 8.0, "ttft_s": 8.0, "tpot_s": 8.0, "price": 4.0}


@dataclass(frozen=True)
class Dials:
    """Where the dials stand."""

    rate_rps: float
    isl_tokens: float  # mean input
    osl_tokens: float  # mean output
    ttft_s: float  # inf: no bound
    tpot_s: float
    gpu: str  # one of the question's GPU types; "": any of them
    price_usd_per_hour: dict[str, float]  # of one GPU, for every type

    def __post_init__(self) -> None:
        for name, unit in (("rate_rps", "req/s"), ("isl_tokens", "tokens"), ("osl_tokens", "tokens")):
            _positive(name.partition("_")[0], getattr(self, name), unit)
        for name, price in self.price_usd_per_hour.items():
            _positive(f"price of {name}", price, "USD/h")


def at_rest(asked: Question) -> Dials:
    """The dials of a question as it was asked."""
    w, slo = asked.workload, asked.slo
    prices = {name: float(gpu.price_usd_per_hour) for name, gpu in asked.gpus.items()}
    return Dials(
        asked.rate_rps,
        float(w.mean_input_tokens),
        float(w.mean_output_tokens),
        float(slo.ttft_s),
        float(slo.tpot_s),
        "",
        prices,
    )


def turned(asked: Question, dials: Dials) -> Question:
    """The question with the dials where they stand: what `plan` answers.

    Mean lengths scale every request alike, so the shape of their distribution stays.
    """
    rest = at_rest(asked)
    if dials.gpu and dials.gpu not in asked.gpus:
        raise unknown("GPU", dials.gpu, asked.gpus)
    for name in dials.price_usd_per_hour:
        if name not in asked.gpus:
            raise unknown("GPU", name, asked.gpus)
    gpus = {
        name: gpu.replace(price_usd_per_hour=dials.price_usd_per_hour.get(name, float(gpu.price_usd_per_hour)))
        for name, gpu in asked.gpus.items()
        if dials.gpu in ("", name)
    }
    slo = asked.slo.replace(ttft_s=dials.ttft_s, tpot_s=dials.tpot_s)
    longer = with_lengths(asked, dials.isl_tokens / rest.isl_tokens, dials.osl_tokens / rest.osl_tokens)
    workload = longer.workload.at_rate(dials.rate_rps)
    check(workload, slo)
    return replace(longer, workload=workload, slo=slo, gpus=gpus)


def _positive(name: str, value: float, unit: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} {value:g} {unit}: accepted are positive numbers")
