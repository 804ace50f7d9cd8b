"""The question the other way round: the most that what there is can do."""

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
from .solve import plan

#: What can be asked for: the largest rate, or the tightest bound.
TARGETS = ("rate", "ttft", "tpot", "e2e")
#: Factors on what was asked that are looked at; the first step from one, and how close the answer is to the limit: by
#: the closed forms, and by whole plans, each of which takes seconds where replays size it.
_REACH, _STEP, _CLOSE = 1e6, 4.0, 1e-3
_STEP_OF_PLANS, _CLOSE_OF_PLANS = 1.5, 0.02


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
    """What `answer`, a plan of `at_limit(asked, target)`, was solved for. What more GPUs would make of it is by the
    closed forms, or, where replays found it, in their proportion."""
    assert answer.best is not None, "nothing is recommended"
    asked, layout = answer.question, answer.best.pools[0].layout
    more = max(layout.gpus, asked.node_gpus)
    there = {gpu: n + more * (gpu == layout.gpu) for gpu, n in asked.inventory.items()}
    money = asked.max_usd_per_hour + more * answer.best.pools[0].price_usd_per_hour
    richer = replace(asked, max_gpus=asked.max_gpus + more, inventory=there, max_usd_per_hour=money)
    value, more_value = _value(asked, target), _value(_by_forms(richer, target), target)
    if answer.ensured is not None:
        more_value *= value / _value(_by_forms(asked, target), target)
    return Solved(target, value, more, more_value)


def _value(asked: Question, target: str) -> float:
    return asked.rate_rps if target == "rate" else float(getattr(asked.slo, f"{target}_s"))


@float64
def at_limit(asked: Question, target: str, ensure: bool | None = None) -> Question:
    """The same question at the largest rate that can be served with what there is, or at the tightest SLO (of TTFT,
    TPOT or E2E) that can be kept; at what was asked, where no factor from 1e-6 to 1e6 on it helps.

    The rate is within 2 % below the largest at which `plan`, with this `ensure`, has a fleet that keeps the SLOs (in
    its replay, where it has one), the bound within 2 % above the tightest; with False by the closed forms alone, and
    within 0.1 %. Raises `InputError` where there is no limit to what can be bought, or no bound to tighten.
    """
    limit = _by_forms(asked, target)
    if ensure is False or limit is asked:
        return limit
    factor = _largest(lambda f: plan(_at(limit, target, f), ensure).best is not None, _STEP_OF_PLANS, _CLOSE_OF_PLANS)
    return _at(limit, target, factor) if factor else limit


def _by_forms(asked: Question, target: str) -> Question:
    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    if target == "rate":
        if not (np.isfinite([asked.max_gpus, asked.max_usd_per_hour]).any() or set(asked.gpus) <= set(asked.inventory)):
            raise InputError("rate: without a limit any can be served; give GPUs (max_gpus, inventory) or a budget")
        priced = price(asked)
        factor = _largest(lambda f: _serves(priced, f, "", 1.0))
        return _at(asked, target, factor) if factor else asked
    if not np.isfinite(_value(asked, target)):
        raise InputError(f"{target}: there is no bound to tighten; accepted is a question with an SLO of {target}")
    priced = price(asked)
    factor = _largest(lambda f: _serves(priced, 1.0, f"{target}_s", 1.0 / f))
    return _at(asked, target, factor) if factor else asked


def _at(asked: Question, target: str, factor: float) -> Question:
    """At so many times the rate, or a bound divided by it."""
    if target == "rate":
        return replace(asked, workload=asked.workload.at_rate(factor * asked.rate_rps))
    return replace(asked, slo=asked.slo.replace(**{f"{target}_s": _value(asked, target) / factor}))


def _serves(priced: Priced, growth: float, bound: str, by: float) -> bool:
    """Whether a fleet that can be bought serves the rate times `growth`, a bound times `by`."""
    asked, cells = priced.question, priced.cells
    if bound:
        cells = cells._replace(slo=cells.slo.replace(**{bound: getattr(cells.slo, bound) * by}))
    found = fewest(cells, growth * priced.rate_rps, asked.engine, asked.margins, priced.strain)
    sized = replace(priced, instances=found.instances.reshape(priced.instances.shape))
    return bool(not priced.admitted.none and cheapest(sized, sized.costs_usd_per_hour))


def _largest(holds: Callable[[float], bool], step: float = _STEP, close: float = _CLOSE) -> float:
    """The largest factor that holds, where every smaller one does; 0: none from 1e-6.

    >>> round(_largest(lambda f: f <= 37.0), 1), round(_largest(lambda f: f <= 0.1), 3), _largest(lambda f: False)
    (37.0, 0.1, 0.0)
    """
    low = 1.0
    while not holds(low):
        if low <= 1.0 / _REACH:
            return 0.0
        low = max(low / step, 1.0 / _REACH)
    high = step * low
    while high < _REACH and holds(high):
        low, high = high, step * high
    while high / low > 1.0 + close:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
