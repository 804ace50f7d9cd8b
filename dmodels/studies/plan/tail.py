"""Which requests cost what: the plan again without the longest requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.records import float64
from dmodels.core.workload import Workload

from .questions import Question
from .search import Plan
from .sizing import least_usd_per_hour, price, saved_frac

#: Shares of the requests, the longest ones, that are left out.
_SHARES = (0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Tail(Answer):
    """The plan without the longest requests, by the closed forms."""

    share_frac: float  # of the requests: those left out
    from_tokens: float  # in total, of the shortest of them
    usd_per_hour: float  # of the cheapest plan for the others alone; inf: none serves these either
    cost_frac: float  # of the whole plan's cost: what those left out cost more


@float64
def tails(answer: Plan) -> list[Tail]:
    """Without the longest 1, 2, 5 and 10 %; [] where nothing but GPUs or money is missing, which no SLO mends."""
    if answer.best is None and answer.rejections[0].is_limit:
        return []
    asked, now = answer.question, answer.formula_usd_per_hour
    found: list[Tail] = []
    for share in _SHARES:
        short, left_out, from_tokens = without_longest(asked.admitted.workload, share)
        if not left_out or (found and left_out == found[-1].share_frac):
            continue  # no request is that rare
        cost = least_usd_per_hour(price(_for(asked, short)))
        found.append(Tail(left_out, from_tokens, cost, saved_frac(now, cost)))
    return found


def long_tailed(answer: Plan) -> bool:
    """Whether the longest 2 % of the requests hold a quarter of all tokens."""
    every = answer.question.admitted.workload
    short, left_out, _ = without_longest(every, 0.02)
    tokens, whole = (float(w.mean_input_tokens + w.mean_output_tokens) for w in (short, every))
    return (1.0 - left_out) * tokens <= 0.75 * whole


def costly(found: list[Tail]) -> Tail | None:
    """The requests that cost most beyond their number: a quarter of the money or more, and five times their share."""
    worth = [x for x in found if x.cost_frac >= 0.25 and x.cost_frac >= 5.0 * x.share_frac]
    if not worth:
        return None
    most = max(x.usd_per_hour for x in worth)
    return min(worth, key=lambda x: x.usd_per_hour / most + x.share_frac)


def _for(asked: Question, short: Workload) -> Question:
    """The same question about these requests; thresholds that would leave a pool without any are not tried."""
    wanted, total = asked.thresholds_tokens, np.asarray(short.total_tokens)
    kept = tuple(t for t in wanted or () if total.min() <= t < total.max())
    return replace(asked, workload=short, trace=None, thresholds_tokens=kept or (None if wanted is None else ()))


def without_longest(workload: Workload, share_frac: float) -> tuple[Workload, float, float]:
    """(the requests but for the longest `share_frac` of them at most, the share left out, tokens from which it was).

    >>> some = Workload([100.0, 200.0, 9000.0], [10.0] * 3, [0.5, 0.48, 0.02], rate_rps=10.0)
    >>> short, left_out, from_tokens = without_longest(some, 0.05)
    >>> short.input_tokens.tolist(), left_out, from_tokens, float(short.rate_rps)
    ([100.0, 200.0], 0.02, 9010.0, 9.8)
    """
    total, weight = (np.asarray(x) for x in (workload.total_tokens, workload.weight_frac))
    lengths, which = np.unique(total, return_inverse=True)
    at_least = np.cumsum(np.bincount(which, weight)[::-1])[::-1]  # share of the requests that are as long or longer
    beyond = lengths[at_least <= share_frac * (1.0 + 1e-9)]
    longest = beyond[0] if beyond.size else np.inf
    kept = total < longest
    left_out = float(weight[~kept].sum())
    if not kept.any() or left_out <= 0.0:
        return workload, 0.0, np.inf
    small = workload.replace(
        input_tokens=np.asarray(workload.input_tokens)[kept],
        output_tokens=np.asarray(workload.output_tokens)[kept],
        cached_tokens=np.broadcast_to(workload.cached_tokens, total.shape)[kept],
        weight_frac=weight[kept] / weight[kept].sum(),
        rate_rps=workload.rate_rps * (1.0 - left_out),
    )
    return small, left_out, float(longest)
