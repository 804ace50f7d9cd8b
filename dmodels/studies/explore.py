"""A question with dials: load, lengths, prefix hits, SLOs, what is kept in hand, GPUs, precision and prices are turned.

Turning a dial keeps the shapes of all arrays (lengths scale, thresholds move along), so that compiled programs are
used again and an answer takes a fraction of a second. Dials at rest give the question itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmodels.core.errors import InputError, unknown

from .plan import Question, check, with_lengths, with_prefix_hits


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
    cached_frac: float = 0.0  # of the input, found in a prefix cache
    headroom_frac: float = 0.0  # growth of the load to be sized for
    spare_count: float = 0.0  # instances that each pool may lose
    max_gpus: float = math.inf  # that there are
    weights: str = ""  # a precision; "": any that was asked for
    kv: str = ""

    def __post_init__(self) -> None:
        for name, unit in (("rate_rps", "req/s"), ("isl_tokens", "tokens"), ("osl_tokens", "tokens")):
            _positive(name.partition("_")[0], getattr(self, name), unit)
        if not float(self.spare_count).is_integer():
            raise InputError(f"spare {self.spare_count:g} per pool: accepted are whole numbers from 0")
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
        float(w.prefix_hit_frac),
        asked.margins.headroom_frac,
        asked.margins.spare_count,
        asked.max_gpus,
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
    hit = with_prefix_hits(longer, dials.cached_frac) if dials.cached_frac != rest.cached_frac else longer
    workload = hit.workload.at_rate(dials.rate_rps)
    check(workload, slo)
    margins = asked.margins._replace(headroom_frac=dials.headroom_frac, spare_count=int(dials.spare_count))
    return replace(
        hit,
        workload=workload,
        slo=slo,
        gpus=gpus,
        max_gpus=dials.max_gpus,
        inventory={name: count for name, count in asked.inventory.items() if name in gpus},
        margins=margins,
        weights=(dials.weights,) if dials.weights else asked.weights,
        kv=(dials.kv,) if dials.kv else asked.kv,
    )


def _positive(name: str, value: float, unit: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} {value:g} {unit}: accepted are positive numbers")
