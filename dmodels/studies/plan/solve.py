"""The main job: from a model, traffic and SLOs to what to deploy; by closed forms, or replays where these tell more."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import float64
from dmodels.core.threads import share
from dmodels.sim.recordings import Recording

from .calibration import Confidence
from .deployment import Deployment
from .designs import Kind, Stretch
from .ensure import Sizes, Trial, Verdict, fewest, most_tried, other_days, with_margin
from .evaluate import MOST
from .forecast import by_recursion, kept
from .limits import Limits, Part
from .machines import SAMPLE, recording, serving_fleet
from .margins import LEVELS, Strain, strain
from .promises import Ensured, Verified
from .questions import Question
from .rejections import Rejection, beyond_limits, too_late
from .replaying import replay
from .robust import simplest
from .search import GROWTH, Plan, by_formula, deployment, sized, with_best_first
from .sizing import Priced, Ranked, cheapest
from .stretches import borne, for_next

#: Layouts of one pool, and schemes of each other kind, that are sized by replays: the cheapest by the closed forms.
_CANDIDATES = {Kind.ONE_POOL: 3, Kind.TWO_POOLS: 2, Kind.SPLIT: 2}
#: What a fleet may cost of another at most for that one to be too dear. What formulas ask for beyond a replay of random
#: arrivals is a margin for bursts: of Azure's conversations 16 GPUs hold where formulas ask for 12, and 8 for random
#: arrivals (Llama 70B, 20 req/s).
_LESS = 0.6


@float64
def plan(asked: Question, ensure: bool | None = None) -> Plan:
    """Answer a question; infeasible is an answer (`best` is None). Deterministic.

    `ensure`: the closed forms choose what to deploy, and replays how many instances: the fewest that keep every SLO on
    the trace (without one, on random arrivals), and a margin: a small one, or, where the question is for the `next`
    stretch of such traffic, what that takes in 19 of 20 cases. By default where the question has a trace, and where
    the closed forms are so far off that by a recursion over random arrivals an SLO breaks (`reach`), or a fleet for
    `_LESS` of the price keeps all of them.
    """
    wanted = asked.trace is not None if ensure is None else ensure
    if asked.size_for == Stretch.NEXT and not (wanted and asked.trace is not None):
        raise InputError("size_for = next: is for a trace that is replayed, without --no-ensure")
    found = by_formula(asked)
    if ensure is False:
        return found
    free, replays_decide = found if found.best is not None else _without_limits(found), wanted or found.reach.breaks
    if free is None or not (replays_decide or _too_dear(free, _grown(recording(asked), asked).sampled(SAMPLE))):
        return found
    made = ensured(free, asked) or _none_holds(found, free)
    decided = replays_decide or found.best is None
    return made if decided or _usd_per_hour(made) < _usd_per_hour(found) else found


def _usd_per_hour(answer: Plan) -> float:
    return answer.best.usd_per_hour if answer.best is not None else math.inf


def _without_limits(found: Plan) -> Plan | None:
    """What the closed forms say where all that they miss is GPUs or money: with as much as it takes."""
    if not found.rejections[0].is_limit:
        return None
    free = by_formula(found.question.unlimited)
    return free if free.best is not None else None


def _none_holds(found: Plan, free: Plan) -> Plan:
    """No answer, where no fleet within the limits holds in its replay: what those take that hold in theirs, or, where
    no number of instances does, how late the most that were tried are."""
    asked, held = found.question, []
    if asked.limits.any:  # otherwise the same search was in vain
        free = by_formula(asked.unlimited) if free is found else free
        held = _held(free, free.question, _grown(recording(asked), asked))
    short = [beyond_limits(asked, one.words(free.priced), one.parts(asked)) for one in held] or _late(free)
    nearest = sorted(short, key=lambda r: r.excess)[:1]
    return replace(
        found,
        best=None,
        cheapest=None,
        kinds=(),
        by_gpu=(),
        rejections=(*nearest, *found.rejections),
        headroom_frac=0.0,
        survives_loss=False,
        sure_frac=0.0,
    )


def _late(free: Plan) -> list[Rejection]:
    """The SLOs that each kind of fleet breaks in its replay, however many instances it has."""
    requests, found = _grown(recording(free.question), free.question), []
    for one in free.kinds:
        trial = _sized_for(free.priced, _ranked(free, one))
        times = Verdict(trial, requests).late(most_tried(trial))
        found.append(too_late(f"{one.name}, however many instances", f"in the replay of {requests.source}", times))
    return [one for one in found if one is not None]


@float64
def verify(answer: Plan, requests: Recording | None = None) -> Verified:
    """The best deployment of each kind in a replay of the trace (without one, of random arrivals) or of `requests`,
    and the smallest fleet of the recommended pools that keeps every SLO in it."""
    assert answer.best is not None, "nothing is recommended"
    requests = recording(answer.question) if requests is None else requests
    trial = _trial(answer.priced, _ranked(answer, answer.best))
    fits = fewest(trial, requests)
    return Verified(
        tuple(replay(answer.priced, d, requests) for d in answer.kinds),
        fits,
        None if fits is None else int(np.dot(fits, trial.gpus)),
    )


def ensured(answer: Plan, asked: Question) -> Plan | None:
    """The plan with as many instances as its replays take, within the limits of `asked`; None: none of its fleets
    holds within them."""
    requests = recording(asked)
    grown = _grown(requests, asked)
    sample, unique = grown.sampled(SAMPLE), _held(answer, asked, grown)
    answer = replace(answer, question=asked, priced=replace(answer.priced, question=asked))
    priced = answer.priced

    def for_stretch(one: _Chosen, stretch: Stretch) -> Sizes:
        days = list(other_days(sample, one.trial.life_s))
        own = with_margin(one.trial, grown, one.smallest, days)
        return own if stretch == Stretch.TRACE else for_next(one.trial, grown, sample, one.smallest, own, days)

    sizes = _on_all_cores(lambda one: for_stretch(one, asked.size_for), unique)
    sized = list(zip(unique, sizes, strict=True))
    sized = [pair for pair in sized if pair[1].enough] or sized  # the smaller fleet may be one that lacks GPUs
    best = [(one, _deployed(priced, one, size, requests)) for one, size in sized]
    best.sort(key=lambda pair: (round(pair[1].usd_per_hour, 6), len(pair[1].pools)))
    if not best:
        return None
    chosen = simplest([d for _, d in best])
    first = next(one for one, d in best if d is chosen)
    kinds = {d.kind: d for _, d in reversed(best)}
    on_one = {d.pools[0].layout.gpu: d for _, d in reversed(best) if len({p.layout.gpu for p in d.pools}) == 1}
    plain = _trial(priced, first.found)
    return replace(
        answer,
        best=chosen,
        cheapest=best[0][1],
        kinds=with_best_first(chosen, (d for _, d in best if kinds[d.kind] is d)),
        by_gpu=tuple(d for _, d in best if on_one.get(d.pools[0].layout.gpu) is d),
        headroom_frac=_headroom(plain, chosen, requests, asked.margins.headroom_frac),
        survives_loss=_survives(plain, chosen, requests),
        sure_frac=_sure(plain, chosen, requests),
        ensured=_told(answer, first, chosen, for_stretch(first, Stretch.NEXT)),
    )


def _held(answer: Plan, asked: Question, requests: Recording) -> list[_Chosen]:
    """The cheapest scheme of each kind and of each GPU type that holds in the replay, with the fewest instances that
    do, within the limits of `asked`."""
    priced, formula = replace(answer.priced, question=asked), answer.best
    assert formula is not None, "nothing is recommended"
    singles = [[_ranked(answer, d)] for d in {d.name: d for d in (*answer.by_gpu, formula)}.values()]
    groups = [_candidates(answer.priced, kind) for kind in Kind] + singles
    sample = requests.sampled(SAMPLE)
    if _too_dear(answer, sample):  # then they rank layouts by waits that do not happen
        groups += [_leanest(answer.priced, kind) for kind in Kind]
    found = _by_replay(priced, groups, sample)
    winners = [min(own, key=_order) for group in groups if (own := [found[x[:2]] for x in group if x[:2] in found])]
    unique = list({one.found[:2]: one for one in winners}.values())
    if sample is not requests:  # of a long trace the whole decides about those that its sample found best
        unique = [whole for one in unique if (whole := _on_whole(one, requests, asked)) is not None]
    return unique


class _Chosen(NamedTuple):
    """A scheme with the fewest instances that hold in the replay, none of them spare."""

    found: Ranked
    trial: Trial  # with things as slow as it is sized for
    smallest: tuple[int, ...]

    def words(self, priced: Priced) -> str:
        layouts = (f"{n} x {priced.layouts[row]}" for n, row in zip(self.smallest, self.found.rows, strict=True))
        return f"{self.found.scheme.name} ({' + '.join(layouts)}), by its replay"

    def parts(self, asked: Question) -> list[Part]:
        """With the spare instances that were asked for."""
        return self.trial.parts([n + asked.margins.spare_count for n in self.smallest])


def _grown(requests: Recording, asked: Question) -> Recording:
    """What a fleet is sized for: the requests at the rate with its headroom."""
    return requests.faster(1.0 + asked.margins.headroom_frac)


def _too_dear(answer: Plan, requests: Recording) -> bool:
    """Whether a fleet for `_LESS` of the price keeps the SLOs by recursion: the same pools, or the leanest."""
    asked, priced = answer.question, answer.priced
    assert answer.best is not None, "nothing is recommended"
    most = _LESS * answer.best.usd_per_hour

    def holds(found: Ranked) -> bool:
        trial = _sized_for(priced, found)
        by = max(most / trial.cost(trial.least), 1.0)
        instances = [int(by * n) for n in trial.least]
        if _bill(asked.limits, trial, instances) > most:
            return False
        percentiles = [float(trial.slo.percentile)] * len(trial.fleet.parts)
        return kept(by_recursion(trial.fleet, requests.warm(trial.life_s), instances, percentiles), trial.slo)

    return any(map(holds, [_ranked(answer, answer.best), *itertools.chain(*(_leanest(priced, kind) for kind in Kind))]))


def _candidates(priced: Priced, kind: Kind) -> list[Ranked]:
    """The cheapest by the closed forms: of one pool several layouts, otherwise several schemes."""
    found: list[Ranked] = []
    costs, count = priced.costs_usd_per_hour.copy(), _CANDIDATES[kind]
    while len(found) < count and (left := _of_kind(priced, costs, kind)):
        if kind != Kind.ONE_POOL:
            return left[:count]
        found.append(left[0])
        costs[left[0].rows[0], left[0].scheme.stages[0]] = np.inf
    return found


def _leanest(priced: Priced, kind: Kind) -> list[Ranked]:
    """The cheapest where pools have no more instances than keep up, of those of which some number holds: behind a
    router that looks at loads large pools come close to it, and what prompts wait by the formulas does not matter."""
    least = np.where(np.isfinite(priced.instances), priced.stable_instances, np.inf)
    lean = replace(priced, instances=least + priced.question.margins.spare_count)
    return _of_kind(lean, lean.costs_usd_per_hour, kind)[:1]


def _of_kind(priced: Priced, costs: np.ndarray, kind: Kind) -> list[Ranked]:
    return [found for found in cheapest(priced, costs, priced.as_sized.ttft_s) if found.scheme.kind == kind]


def _ranked(answer: Plan, chosen: Deployment) -> Ranked:
    """The scheme of a deployment."""
    priced = answer.priced
    stages = tuple(priced.stages.index(pool.stage) for pool in chosen.pools)
    scheme = next(scheme for scheme in priced.schemes if scheme.stages == stages)
    return Ranked(scheme, tuple(priced.layouts.index(pool.layout) for pool in chosen.pools), chosen.usd_per_hour)


def _trial(priced: Priced, found: Ranked) -> Trial:
    stages = found.scheme.stages
    gpus = [priced.layouts[row].gpus for row in found.rows]
    limits, margins = priced.question.limits, priced.question.margins
    kinds = tuple(priced.layouts[row].gpu for row in found.rows)
    return Trial(
        serving_fleet(priced, found.rows, stages, found.scheme.in_turn),
        priced.question.slo,
        guess=tuple(int(n) for n in priced.instances[found.rows, stages]),
        # what the pools were sized for takes more than the plain trace: then the replay alone tells
        least=tuple(1 if margins.any else int(n) for n in priced.stable_instances[found.rows, stages]),
        most=tuple(int(min(limits.of(kind) / each, MOST)) for kind, each in zip(kinds, gpus, strict=True)),
        prices=tuple(float(priced.prices_usd_per_hour[row]) for row in found.rows),
        gpus=tuple(gpus),
        kinds=kinds,
        life_s=float(priced.as_sized.e2e_s[found.rows, stages].max()),
    )


def _sized_for(priced: Priced, found: Ranked, at: Strain | None = None) -> Trial:
    """The scheme with the margins that were asked for: as slow (or as `at`), and without its spare instances."""
    trial = _trial(priced, found)
    margins = priced.question.margins

    def without(counts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(max(n - margins.spare_count, 1) for n in counts)

    least = tuple(int(n) for n in priced.stable_instances[found.rows, found.scheme.stages])
    at = strain(margins.confidence, _confidences(priced, found)) if at is None else at
    slower = trial.slower(at.slowdown.tolist(), float(at.ttft.max()))
    return slower._replace(guess=without(trial.guess), most=without(trial.most), least=least)


def _confidences(priced: Priced, found: Ranked) -> list[Confidence]:
    return [priced.calibration.confidences[priced.layouts[row]] for row in found.rows]


def _by_replay(priced: Priced, groups: Sequence[Sequence[Ranked]], requests: Recording) -> dict[Any, _Chosen]:
    """The fewest instances of each scheme that hold, by (scheme, layouts).

    Left out are those of which no number of instances holds, and those that cost more than another of their group
    even where they only just keep up.
    """
    limits, spare = priced.question.limits, priced.question.margins.spare_count
    best = [limits.max_usd_per_hour] * len(groups)
    made: dict[Any, _Chosen] = {}
    ranks = itertools.zip_longest(*groups)  # the first of every group first: what they cost bounds the others
    jobs = {found[:2]: found for rank in ranks for found in rank if found is not None}
    places = {key: [k for k, group in enumerate(groups) if any(x[:2] == key for x in group)] for key in jobs}

    def size(found: Ranked) -> None:
        own, trial = places[found[:2]], _sized_for(priced, found)
        counts = fewest(trial, requests, max(best[k] for k in own))
        if counts is not None and _can_be_bought(limits, trial, [n + spare for n in counts]):
            made[found[:2]] = _Chosen(found, trial, counts)
            for k in own:
                best[k] = min(best[k], trial.cost(counts))

    _on_all_cores(size, list(jobs.values()))
    return made


def _can_be_bought(limits: Limits, trial: Trial, counts: Sequence[int]) -> bool:
    """Whether there are so many GPUs, and dollars for the whole nodes that they are bought in."""
    return limits.allow(trial.parts(counts), _bill(limits, trial, counts))


def _bill(limits: Limits, trial: Trial, counts: Sequence[int]) -> float:
    """USD/h of the whole nodes that so many instances are bought in."""
    each = {kind: price / gpus for kind, price, gpus in zip(trial.kinds, trial.prices, trial.gpus, strict=True)}
    return sum(count * each[kind] for kind, count in limits.bought(trial.parts(counts)).items())


def _on_all_cores(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """The results of simulations, which leave the interpreter lock."""
    results: list[Any] = [None] * len(items)

    def loop(first: int, last: int) -> None:
        for i in range(first, last):
            results[i] = function(items[i])

    share(loop, len(items), math.inf)
    return results


def _on_whole(one: _Chosen, requests: Recording, asked: Question) -> _Chosen | None:
    """The fewest instances that hold in all of a recording, looked for about those that hold in its sample; none where
    that is more than can be bought."""
    counts = fewest(one.trial._replace(guess=one.smallest), requests)
    spare = asked.margins.spare_count
    if counts is None or not _can_be_bought(asked.limits, one.trial, [n + spare for n in counts]):
        return None
    return one._replace(smallest=counts)


def _order(one: _Chosen) -> tuple[float, int]:
    """Cheapest first; of equals, fewer pools."""
    return round(one.trial.cost(one.smallest), 6), len(one.smallest)


def _deployed(priced: Priced, one: _Chosen, sizes: Sizes, requests: Recording) -> Deployment:
    """With the margin as far as there are GPUs, its replay, and what one instance less would break in it."""
    trial = _trial(priced, one.found)
    limits, margins = priced.question.limits, priced.question.margins
    counts, fewest_ones = (tuple(n + margins.spare_count for n in own) for own in (sizes.instances, one.smallest))
    held = sizes.held_count
    if not _can_be_bought(limits, trial, counts):
        counts, held = fewest_ones, 0
    instances = priced.instances.copy()
    for row, stage, count in zip(one.found.rows, one.found.scheme.stages, counts, strict=True):
        instances[row, stage] = count
    made = deployment(sized(replace(priced, instances=instances), [one.found]), one.found)
    low, high = _span(priced, one, counts, requests)
    otherwise = " or ".join(["the margin for other days", *([margins.words] if margins.any else [])])
    pools = tuple(
        replace(p, binding=_binding(trial, k, counts, requests) or otherwise) for k, p in enumerate(made.pools)
    )
    made = replace(made, pools=pools, gpus_low=low, gpus_high=high)
    seen = replay(priced, made, requests)
    return replace(made, replayed=replace(seen, held_count=held, days_count=sizes.days_count))


def _span(priced: Priced, one: _Chosen, counts: Sequence[int], requests: Recording) -> tuple[float, float]:
    """GPUs, with the margin that `counts` have over the fewest, where steps are as fast and as slow as their 80 %
    interval allows; inf: no number of instances holds."""
    each, spare = _confidences(priced, one.found), priced.question.margins.spare_count
    kept, share = strain(priced.question.margins.confidence, each).ttft, np.divide(counts, np.add(one.smallest, spare))
    now, ends = float(np.dot(counts, one.trial.gpus)), []
    for end in np.array([x.tpot for x in each]).T:
        trial = _sized_for(priced, one.found, Strain(end, kept))
        trial = trial._replace(
            guess=tuple(math.ceil(n * by) for n, by in zip(one.smallest, end, strict=True)),
            least=tuple(max(int(n * min(by, 1.0)), 1) for n, by in zip(trial.least, end, strict=True)),
            most=(MOST,) * len(counts),
        )
        found = fewest(trial, _grown(requests, priced.question))
        there = math.inf if found is None else np.dot(np.round(np.add(found, spare) * share), trial.gpus)
        ends.append(float(there))
    return min(ends[0], now), max(ends[1], now)


def _binding(trial: Trial, k: int, counts: tuple[int, ...], requests: Recording) -> str:
    """What breaks in the replay with one instance of pool k less, in a planner's words; "": nothing."""
    if counts[k] == 1:
        return "all service"
    if counts[k] <= trial.least[k]:
        return "throughput"
    less = [n - (j == k) for j, n in enumerate(counts)]
    return " and ".join(Verdict(trial, requests).breaks(k, less))


def _headroom(trial: Trial, chosen: Deployment, requests: Recording, sized_for_frac: float) -> float:
    """Growth of the rate, all times shorter by it, at which the replay still keeps the SLOs; what the fleet is sized
    for may lie between two steps of it."""
    counts = [pool.instances for pool in chosen.pools]
    return max(float(GROWTH[max(borne(trial, requests, counts, GROWTH), 1) - 1] - 1.0), sized_for_frac)


def _survives(trial: Trial, chosen: Deployment, requests: Recording) -> bool:
    """Whether every pool may lose an instance in the replay."""
    verdict, counts = Verdict(trial, requests), [pool.instances for pool in chosen.pools]
    less = [[n - (j == k) for j, n in enumerate(counts)] for k in range(len(counts))]
    return all(min(one) > 0 and verdict.holds(one) for one in less)


def _sure(trial: Trial, chosen: Deployment, requests: Recording) -> float:
    """The greatest confidence at which the replay keeps the SLOs, all as much slower than predicted; 0: none."""
    each, counts = [pool.confidence for pool in chosen.pools], [pool.instances for pool in chosen.pools]

    def holds(level: int) -> bool:
        at = strain(float(LEVELS[level]), each)
        return Verdict(trial.slower(at.slowdown.tolist(), float(at.ttft.max())), requests).holds(counts)

    kept = bisect_left(range(len(LEVELS)), True, key=lambda level: not holds(level))
    return float(LEVELS[kept - 1]) if kept else 0.0


def _told(answer: Plan, first: _Chosen, chosen: Deployment, for_next: Sizes) -> Ensured:
    assert answer.best is not None
    spare = answer.question.margins.spare_count
    return Ensured(
        formula_gpus=answer.best.gpus,
        same_formula_gpus=int(np.dot(np.add(first.trial.guess, spare), first.trial.gpus)),
        smallest_gpus=int(np.dot(np.add(first.smallest, spare), first.trial.gpus)),
        gpus=chosen.gpus,
        next_gpus=int(np.dot(np.add(for_next.instances, spare), first.trial.gpus)),
    )
