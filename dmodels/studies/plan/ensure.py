"""The smallest fleet that keeps its SLOs in a replay, by bisection on the simulator, with a margin for other days.

The closed forms size a pool for Poisson arrivals and random routing. A trace has bursts, which take more, and the
recommended router looks at loads, which takes less: only a replay tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dmodels.core.hardware import SLO
from dmodels.sim.deployments import ServingFleet
from dmodels.sim.recordings import Recording
from dmodels.sim.requests import Served

from .limits import Part
from .replaying import broken, percentiles, quantile, values

#: Margins, as shares of the smallest pool that holds, from the least to the greatest.
MARGINS = (0.1, 0.15, 0.2)
#: Other days: halves and quarters of the recording, and resamples of it in so many blocks.
PARTS, RESAMPLES, BLOCKS = (2, 4), 4, 4
#: Requests that are looked at each alone.
_ALONE = 1000
#: No pool is looked for beyond so many times its size by the closed forms, or by capacity.
_FURTHEST = 256


class Sizes(NamedTuple):
    """Instances of each pool of a fleet, with the margin."""

    instances: tuple[int, ...]
    held_count: int  # other days on which these hold
    days_count: int  # that were tried
    enough: bool = True  # for what they are to serve; not: there are no more GPUs


class Running(NamedTuple):
    """A fleet that runs: what a verdict asks for."""

    fleet: ServingFleet
    slo: SLO
    life_s: float  # of a request


class Trial(NamedTuple):
    """A fleet that is to be sized."""

    fleet: ServingFleet
    slo: SLO
    guess: tuple[int, ...]  # of each pool, by the closed forms
    least: tuple[int, ...]  # below which a pool cannot keep up for ever
    most: tuple[int, ...]  # as far as there are GPUs
    prices: tuple[float, ...]  # of an instance of each pool
    gpus: tuple[int, ...]  # of an instance
    kinds: tuple[str, ...]  # of these GPUs
    life_s: float  # of a request

    def slower(self, steps: Sequence[float], ttft: float) -> Trial:
        """The same with steps of each pool slower by a factor, and TTFT by another one beyond that."""
        pools = (pool.slower(by) for pool, by in zip(self.fleet.pools, steps, strict=True))
        strict = self.slo.replace(ttft_s=self.slo.ttft_s / ttft)
        return self._replace(fleet=self.fleet._replace(pools=tuple(pools)), slo=strict)

    def parts(self, instances: Sequence[int]) -> list[Part]:
        """So many instances of each layout."""
        return list(zip(self.kinds, instances, self.gpus, strict=True))

    def cost(self, instances: Sequence[int]) -> float:
        """USD/h of so many instances of each pool."""
        return sum(n * price for n, price in zip(instances, self.prices, strict=True))


class Verdict:
    """A recording's verdicts. What a number of prefill workers makes of it is kept for the next question."""

    def __init__(self, trial: Trial | Running, requests: Recording) -> None:
        ready = requests.warm(trial.life_s)
        self.trial, self.from_s = trial, ready.warm_s
        self.own = trial.fleet.own(ready.requests())
        self.prefilled: dict[int, Served] = {}

    def breaks(self, k: int, instances: Sequence[int]) -> list[str]:
        """The metrics that pool k does not keep, or that the whole does not where every request passes all pools."""
        part = 0 if self.trial.fleet.in_turn else k
        if not self.own[part].arrival_s.size:
            return []
        return broken(self.counted(self.served(part, instances)), self.trial.slo)

    def late(self, instances: Sequence[int]) -> list[tuple[str, float, float]]:
        """`percentiles` of all pools."""
        served = [self.counted(self.served(k, instances)) for k, own in enumerate(self.own) if own.arrival_s.size]
        return [found for one in served for found in percentiles(one, self.trial.slo)]

    def keeps(self, k: int, instances: Sequence[int]) -> bool:
        """Whether there are none; a replay that is lost ends early."""
        part = 0 if self.trial.fleet.in_turn else k
        own, slo = self.own[part], self.trial.slo
        if not own.arrival_s.size:
            return True
        counts = own.arrival_s >= self.from_s
        asked, answers = (max(some.sum(), 1) for some in (counts, counts & (own.output_tokens > 1)))
        least = {"TTFT": asked, "TPOT": answers, "E2E": asked}  # of each metric, that has a value in the end
        lost = {name: n - math.floor((n - 1) * float(slo.percentile)) for name, n in least.items()}

        def give_up(seen: Served) -> bool:
            late = values(self.counted(seen), slo)
            return any(np.count_nonzero(seconds > bound) >= lost[name] for name, bound, seconds in late)

        served = self.served(part, instances, give_up)
        return not give_up(served) and not broken(self.counted(served), slo)

    def possible(self, k: int) -> bool:
        """Whether pool k's requests are in time where each is alone; if not, no number of instances holds."""
        part, slo, pools = 0 if self.trial.fleet.in_turn else k, self.trial.slo, self.trial.fleet.pools
        own = self.own[part]
        size = min(own.arrival_s.size, _ALONE)
        ordered = np.argsort(own.input_tokens + own.output_tokens, kind="stable")  # all lengths alike
        rows = np.sort(ordered[np.linspace(0, own.arrival_s.size - 1, size).astype(int)])
        served = self.trial.fleet.serve(part, own.at(rows), [size] * len(pools))
        percentile = max(float(slo.percentile) - 2.0 / max(size, 1), 0.0)
        return all(quantile(seconds, percentile) <= bound for _, bound, seconds in values(served, slo))

    def holds(self, instances: Sequence[int]) -> bool:
        """Whether every pool keeps every SLO."""
        return all(self.keeps(k, instances) for k in range(len(self.own)))

    def answers(self, workers: int) -> bool:
        """Whether so many prefill workers alone keep the TTFT, which decoders only add to."""
        first = self.counted(self.first(workers))
        return quantile(first.ttft_s, float(self.trial.slo.percentile)) <= float(self.trial.slo.ttft_s)

    def first(self, workers: int) -> Served:
        """What so many prefill workers make of the recording."""
        if workers not in self.prefilled:
            self.prefilled = {workers: self.trial.fleet.pools[0].serve(self.own[0], workers)}
        return self.prefilled[workers]

    def served(self, part: int, instances: Sequence[int], give_up: Callable[[Served], bool] | None = None) -> Served:
        """What the fleet makes of the requests of one of its parts, those included that are played before it counts."""
        fleet, own = self.trial.fleet, self.own[part]
        first = self.first(instances[0]) if fleet.in_turn else None
        return fleet.serve(part, own, instances, prefilled=first, give_up=give_up)

    def counted(self, served: Served) -> Served:
        """Without those."""
        return served.at(served.arrival_s >= self.from_s) if self.from_s > 0 else served


def smallest(
    holds: Callable[[int], bool], guess: int, least: int, most: int, possible: Callable[[], bool] = lambda: True
) -> int | None:
    """The fewest instances from `least` to `most` that hold, where more always hold if fewer do; None: not even most.

    `possible` is asked before more than the guess are tried: whether any number may hold.

    >>> smallest(lambda n: n >= 37, guess=5, least=2, most=1000), smallest(lambda n: False, 5, 2, 1000)
    (37, None)
    """
    most = max(most, least)
    at = min(max(guess, least), most)
    step = max(1, at // 16)
    if holds(at):
        high, low = at, least - 1
        while high > least:
            at = max(least, high - step)
            if not holds(at):
                low = at
                break
            high, step = at, 2 * step
    else:
        low = at
        if low < most and not possible():
            return None
        while low < most:
            at = min(most, low + step)
            if holds(at):
                break
            low, step = at, 2 * step
        else:
            return None
        high = at
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def fewest(trial: Trial, requests: Recording, most_usd_per_hour: float = math.inf) -> tuple[int, ...] | None:
    """The cheapest numbers of instances that keep every SLO in a replay of `requests`; None: none does at this cost."""
    most_usd_per_hour *= 1.0 + 1e-9  # what costs as much is not kept out by rounding
    if trial.cost(trial.least) > most_usd_per_hour:
        return None
    verdict = Verdict(trial, requests)
    if trial.fleet.in_turn:
        return _cheapest_two(trial, verdict, most_usd_per_hour)
    found = list(trial.least)
    for k, (guess, least, price) in enumerate(zip(trial.guess, trial.least, trial.prices, strict=True)):
        alone = lambda n, k=k: verdict.keeps(k, [n] * (k + 1))
        left = most_usd_per_hour - trial.cost(found) + least * price
        most = most_tried(trial)[k]
        if left < most * price:  # and what costs nothing is limited by nothing
            most = int(left / price)
        possible = partial(verdict.possible, k)
        count = smallest(alone, _start(guess, least), least, most, possible) if most >= least else None
        if count is None:
            return None
        found[k] = count
    return tuple(found)


def most_tried(trial: Trial) -> tuple[int, ...]:
    """The most instances of each pool that are looked at."""
    pools = zip(trial.guess, trial.least, trial.most, strict=True)
    return tuple(min(most, _FURTHEST * max(guess, least)) for guess, least, most in pools)


def _start(guess: int, least: int) -> int:
    """Where to begin: a pool whose router looks at loads seldom takes twice what it takes to keep up."""
    return min(guess, 2 * least + 8)


def _beside(verdict: Verdict, first: int, second: int) -> bool:
    return verdict.holds((first, second))


def _cheapest_two(trial: Trial, verdict: Verdict, most_usd_per_hour: float) -> tuple[int, ...] | None:
    """Prefill and decode workers: for each number of the one the fewest of the other, as long as that may pay."""
    tops = most_tried(trial)
    ample = [min(top, 4 * max(guess, least)) for top, guess, least in zip(tops, trial.guess, trial.least, strict=True)]
    (guess, _), (least, floor) = trial.guess, trial.least
    enough = lambda n: verdict.answers(n) and verdict.holds((n, ample[1]))
    first = smallest(enough, _start(guess, least), least, tops[0], partial(verdict.possible, 0))
    if first is None:
        return None
    second_most, price = ample[1], trial.prices
    step, best, cost = max(1, first // 16), None, most_usd_per_hour
    while first <= tops[0] and trial.cost((first, floor)) < cost:
        if cost < math.inf and price[1] > 0:  # only what is cheaper matters, and mostly the most of that breaks already
            second_most = min(second_most, math.ceil((cost - first * price[0]) / price[1] - 1e-9) - 1)
        if second_most < floor:
            break
        if verdict.answers(first) and verdict.holds((first, second_most)):
            fewer = partial(_beside, verdict, first)
            second = smallest(fewer, min(trial.guess[1], second_most - 1), floor, second_most - 1)
            second_most = second_most if second is None else second
            best, cost = (first, second_most), trial.cost((first, second_most))
        first += step
    return best


def with_margin(trial: Trial, requests: Recording, fewest: tuple[int, ...], days: Iterable[Recording]) -> Sizes:
    """More instances until the fleet holds on other days too: the first of the `MARGINS`, or the next ones.

    More instances do not help every percentile; where they would break the recording itself, it gets others.
    """
    whole, parts = trial.fleet.in_turn, 1 if trial.fleet.in_turn else len(fewest)
    level, held, count = [0] * parts, 0, 0

    def instances(k: int, margin: int) -> list[int]:
        """With this margin for part k; -1: none."""
        levels = [margin if j == k else own for j, own in enumerate(level)]
        return [_more(n, levels[0 if whole else j], trial.most[j]) for j, n in enumerate(fewest)]

    for day in days:
        verdict, kept, count = Verdict(trial, day), True, count + 1
        for k in range(parts):
            while not (holds := verdict.keeps(k, instances(k, level[k]))) and level[k] < len(MARGINS) - 1:
                level[k] += 1
            kept &= holds
        held += kept
    verdict = Verdict(trial, requests)
    for k in range(parts):
        tried = [*range(level[k], len(MARGINS)), *range(level[k] - 1, -1, -1)]
        level[k] = next((margin for margin in tried if verdict.keeps(k, instances(k, margin))), -1)
    return Sizes(tuple(instances(0, level[0])), held, count)


def _more(fewest: int, level: int, most: int) -> int:
    """So many instances with the margin of a level, rounded, and never more than with the greatest of them."""
    if level < 0:
        return fewest
    wanted = math.floor(fewest * (1.0 + MARGINS[level]) + 0.5)
    return max(fewest, min(wanted, math.floor(fewest * (1.0 + MARGINS[-1]) + 1e-9), most))


def other_days(requests: Recording, life_s: float) -> Iterator[Recording]:
    """Parts of a recording, each at the rate of the whole and no shorter than a request's life, and resamples of it."""
    for count in PARTS:
        if requests.size >= 2 * BLOCKS and requests.period_s >= count * life_s:
            yield from (requests.part(k / count, (k + 1) / count) for k in range(count))
    for seed in range(RESAMPLES):
        yield requests.resampled(seed, BLOCKS)
