"""The question the other way round: the most that what there is can do, by the closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError, unknown
from dmodels.core.records import float64

from .margins import fewest
from .questions import Question
from .search import Plan
from .sizing import Priced, cheapest, price

#: What can be asked for: the largest rate, or the tightest bound.
TARGETS = ("rate", "ttft", "tpot", "e2e")
#: Factors on what was asked that are looked at, and how close the answer is to the limit.
_REACH, _CLOSE = 1e6, 1e-3


@dataclass(frozen=True)
class Solved(Answer):
    """What was solved for, and what a little more to buy with would make of it."""

    derived = ("worth_per_gpu",)
    target: str
    value: float  # req/s, or seconds
    more_gpus: int  # GPUs more: an instance of the recommended fleet, in whole nodes
    more_value: float  # with these

    @property
    def worth_per_gpu(self) -> float:
        """What the next GPU is worth, in units of `value`."""
        return (self.more_value - self.value) / self.more_gpus


@float64
def solved(answer: Plan, target: str) -> Solved:
    """What `answer`, a plan of `at_limit(asked, target)`, was solved for."""
    assert answer.best is not None, "nothing is recommended"
    asked, layout = answer.question, answer.best.pools[0].layout
    more = max(layout.gpus, asked.node_gpus)
    there = {gpu: n + more * (gpu == layout.gpu) for gpu, n in asked.inventory.items()}
    money = asked.max_usd_per_hour + more * answer.best.pools[0].price_usd_per_hour
    richer = replace(asked, max_gpus=asked.max_gpus + more, inventory=there, max_usd_per_hour=money)
    return Solved(target, _value(asked, target), more, _value(at_limit(richer, target), target))


def _value(asked: Question, target: str) -> float:
    return asked.rate_rps if target == "rate" else float(getattr(asked.slo, f"{target}_s"))


@float64
def at_limit(asked: Question, target: str) -> Question:
    """The same question at the largest rate that can be served with what there is, or at the tightest SLO (of TTFT,
    TPOT or E2E) that can be kept; at what was asked, where no factor from 1e-6 to 1e6 on it helps.

    The rate is within 0.1 % below the largest, the bound within 0.1 % above the tightest.
    """
    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    if target == "rate":
        if not (np.isfinite([asked.max_gpus, asked.max_usd_per_hour]).any() or set(asked.gpus) <= set(asked.inventory)):
            raise InputError("rate: without a limit any can be served; give GPUs (max_gpus, inventory) or a budget")
        priced = price(asked)
        factor = _largest(lambda f: _serves(priced, f, "", 1.0))
        return replace(asked, workload=asked.workload.at_rate(factor * asked.rate_rps)) if factor else asked
    bound = float(getattr(asked.slo, f"{target}_s"))
    if not np.isfinite(bound):
        raise InputError(f"{target}: there is no bound to tighten; accepted is a question with an SLO of {target}")
    priced = price(asked)
    factor = _largest(lambda f: _serves(priced, 1.0, f"{target}_s", 1.0 / f))
    return replace(asked, slo=asked.slo.replace(**{f"{target}_s": bound / factor})) if factor else asked


def _serves(priced: Priced, growth: float, bound: str, by: float) -> bool:
    """Whether a fleet that can be bought serves the rate times `growth`, a bound times `by`."""
    asked, cells = priced.question, priced.cells
    if bound:
        cells = cells._replace(slo=cells.slo.replace(**{bound: getattr(cells.slo, bound) * by}))
    found = fewest(cells, growth * priced.rate_rps, asked.engine, asked.margins, priced.strain)
    sized = replace(priced, instances=found.instances.reshape(priced.instances.shape))
    return bool(not priced.admitted.none and cheapest(sized, sized.costs_usd_per_hour))


def _largest(holds: Callable[[float], bool]) -> float:
    """The largest factor that holds, where every smaller one does; 0: none from 1e-6.

    >>> round(_largest(lambda f: f <= 37.0), 1), round(_largest(lambda f: f <= 0.1), 3), _largest(lambda f: False)
    (37.0, 0.1, 0.0)
    """
    low = 1.0
    while not holds(low):
        if low <= 1.0 / _REACH:
            return 0.0
        low = max(low / 4.0, 1.0 / _REACH)
    high = 4.0 * low
    while high < _REACH and holds(high):
        low, high = high, 4.0 * high
    while high / low > 1.0 + _CLOSE:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
