"""Who decides what to deploy, the formulas or replays, where each part says what it is told to: which numbers of whose
go where."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO
from dmodels.core.errors import InputError
from dmodels.studies.plan import Stretch, search, solve
from dmodels.studies.plan.designs import Kind, Layout, Scheme
from dmodels.studies.plan.ensure import Trial
from dmodels.studies.plan.limits import Limits
from dmodels.studies.plan.margins import Margins, Strain
from dmodels.studies.plan.search import Plan
from dmodels.studies.plan.sizing import Ranked
from tests.studies.test_answers_by_hand import SURE, fleet, pool
from tests.studies.test_pools_by_hand import with_fakes

FREE = Limits(math.inf, {}, 1, math.inf)


def test_a_plan_by_the_formulas_puts_each_fleet_in_its_place(monkeypatch):
    """The cheapest of each kind and of each GPU type are looked at; the simplest of all is recommended, and says its
    margins."""
    one, two, turn = (
        Scheme(Kind.ONE_POOL, "one pool", (0,)),
        Scheme(Kind.TWO_POOLS, "two pools", (1, 2)),
        Scheme(Kind.SPLIT, "a split", (3, 4)),
    )
    other = Scheme(Kind.TWO_POOLS, "two pools, too", (5, 6))
    layouts = [Layout("h100_sxm"), Layout("l40s"), Layout("h100_sxm", tp=2)]
    stages = [Record(high_tokens=100.0 * k) for k in range(7)]
    asked = Record(gpus={"h100_sxm": None, "l40s": None})
    costs = np.array([[4.0] * 7, [3.0] * 7, [2.0] * 7])
    priced = Record(question=asked, layouts=layouts, stages=stages, schemes=[one, two, other, turn])
    priced.costs_usd_per_hour, priced.as_sized = costs, Record(ttft_s="quick")
    made = {}

    def deployment(looked_at, found):
        assert looked_at[0] is priced and found in looked_at[1]
        of = (found.scheme.kind, found.rows)
        return made.setdefault(of, costing(found.usd_per_hour, kind=found.scheme.kind))

    def cheapest(given, usd, ttft):
        assert given is priced and ttft == "quick"
        if usd is costs:
            return [Ranked(two, (2, 1), 7.0), Ranked(other, (0, 1), 7.5), Ranked(one, (2,), 9.0)]
        own = [row for row in range(3) if np.isfinite(usd[row]).all()]
        return [Ranked(one, (row,), 30.0 - row) for row in own]

    with_fakes(
        monkeypatch,
        search,
        price=lambda question, calibration: priced if (question, calibration) == (asked, "own") else None,
        cheapest=cheapest,
        sized=lambda given, schemes: (given, list(schemes)),
        deployment=deployment,
        simplest=lambda fleets: fleets[1],
        _margins=lambda looked_at, best: (0.25, True, 0.75) if best.usd_per_hour == 9.0 else None,
        rejections=lambda given: ["why"] if given is priced else [],
    )
    told = search.by_formula(asked, "own")
    assert told.question is asked and told.priced is priced and told.rejections == ("why",)
    assert (told.best.usd_per_hour, told.cheapest.usd_per_hour) == (9.0, 7.0)
    assert [d.usd_per_hour for d in told.kinds] == [9.0, 7.0] and told.ensured is None
    assert [d.usd_per_hour for d in told.by_gpu] == [29.0, 30.0]
    assert made.keys() == {
        (Kind.TWO_POOLS, (2, 1)),
        (Kind.ONE_POOL, (2,)),
        (Kind.ONE_POOL, (0,)),
        (Kind.ONE_POOL, (1,)),
    }
    assert told.by_threshold == ((100.0, 7.0), (500.0, 7.5))
    assert (told.headroom_frac, told.survives_loss, told.sure_frac) == (0.25, True, 0.75)
    with_fakes(monkeypatch, search, cheapest=lambda *_: [])
    none = search.by_formula(asked, "own")
    assert none.best is none.cheapest is None and none.kinds == none.by_gpu == () and none.rejections == ("why",)
    assert none.by_threshold == ((100.0, math.inf), (500.0, math.inf))
    assert (none.headroom_frac, none.survives_loss, none.sure_frac) == (0.0, False, 0.0)


def a_plan(best=None, **given):
    nothing = {"question": None, "cheapest": None, "kinds": (), "by_gpu": (), "by_threshold": (), "rejections": ()}
    nothing |= {"headroom_frac": 0.5, "survives_loss": True, "sure_frac": 0.75, "priced": None}
    return Plan(**nothing | {"best": best} | given)


def costing(usd_per_hour, **given):
    return fleet(pool(price_usd_per_hour=usd_per_hour / 12.0), **given)


@pytest.mark.parametrize(
    "trace, ensure, breaks, dear, cost, by",
    [
        ("a trace", None, False, False, 90.0, "replays"),
        ("a trace", False, True, True, 10.0, "formulas"),
        (None, True, False, False, 90.0, "replays"),
        (None, None, False, False, 10.0, "formulas"),
        (None, None, True, False, 90.0, "replays"),
        (None, None, False, True, 39.0, "replays"),
        (None, None, False, True, 40.0, "formulas"),
        (None, None, False, True, math.inf, "formulas"),
        (None, None, True, False, math.inf, "none"),
    ],
)
def test_who_says_how_many_instances(monkeypatch, trace, ensure, breaks, dear, cost, by):
    """Replays of a trace, or where they are asked for, or where an SLO breaks; where the formulas' fleet of 40 USD/h is
    far too dear those do that make it cheaper."""
    free = a_plan(costing(40.0))
    object.__setattr__(free, "reach", Record(breaks=breaks))
    made = None if math.isinf(cost) else a_plan(costing(cost))
    none = a_plan()
    asked = Record(trace=trace, size_for=Stretch.TRACE)
    with_fakes(
        monkeypatch,
        solve,
        by_formula=lambda one: free if one is asked else None,
        recording=lambda one: "requests",
        _grown=lambda requests, one: Record(sampled=lambda most: (requests, most)),
        _too_dear=lambda one, sample: dear and one is free and sample == ("requests", 100_000),
        ensured=lambda one, question: made if one is free and question is asked else None,
        _none_holds=lambda found, one: none if found is one is free else None,
    )
    told = solve.plan(asked, ensure)
    assert told is {"replays": made, "formulas": free, "none": none}[by]


@pytest.mark.parametrize("dear", [True, False])
@pytest.mark.parametrize("holds", [True, False])
def test_what_only_limits_keep_out_is_asked_without_them(monkeypatch, dear, holds):
    """Where the formulas' fleet without limits is far too dear, replays may find one within them."""
    beyond, free = a_plan(rejections=(Record(is_limit=True),)), a_plan(costing(90.0))
    asked = Record(trace=None, size_for=Stretch.TRACE, unlimited="unlimited")
    object.__setattr__(beyond, "question", asked)
    object.__setattr__(beyond, "reach", Record(breaks=False))
    made, none = a_plan(costing(50.0)), a_plan()
    found = {"unlimited": free}
    with_fakes(
        monkeypatch,
        solve,
        by_formula=lambda one: beyond if one is asked else found[one],
        recording=lambda one: None,
        _grown=lambda requests, one: Record(sampled=lambda most: None),
        _too_dear=lambda one, sample: dear and one is free,
        ensured=lambda one, question: made if holds else None,
        _none_holds=lambda one, other: none if one is beyond and other is free else None,
    )
    assert solve.plan(asked) is ((made if holds else none) if dear else beyond)
    found["unlimited"] = a_plan()
    assert solve.plan(asked) is beyond  # nothing would do, however much there were
    beyond.rejections[0].is_limit = False
    found.clear()
    assert solve.plan(asked, True) is beyond


@pytest.mark.parametrize("trace, ensure", [(None, None), (None, True), ("a trace", False)])
def test_the_next_stretch_is_one_of_a_trace_that_is_replayed(trace, ensure):
    with pytest.raises(InputError, match="size_for = next: is for a trace that is replayed"):
        solve.plan(Record(trace=trace, size_for=Stretch.NEXT), ensure)


def trial_of(price=5.0, least=(2,), node=1, percentile=0.9):
    parts = Record(parts=("p",) * len(least))
    n = len(least)
    return Trial(
        parts, SLO(1.0, percentile=percentile), least, least, (99,) * n, (price,) * n, (4,) * n, ("h100",) * n, 6.0
    )


@pytest.mark.parametrize(
    "cost, node, needs, dear",
    [
        (50.0, 1, 6, True),
        (50.0, 1, 7, False),
        (49.0, 1, 6, False),
        (50.0, 16, 6, False),
        (10.0, 1, 2, False),
        (17.0, 1, 2, True),
    ],
)
def test_a_fleet_is_too_dear_where_one_for_three_fifths_keeps_the_slos(cost, node, needs, dear, monkeypatch):
    """By the recursion: two instances at 5 USD/h each keep up, and what 30 USD/h buys of them is six. In nodes of 16
    GPUs, four instances each, six cost 40."""
    trial = trial_of()

    def by_recursion(fleet, ready, instances, percentiles):
        assert (fleet, ready, percentiles) == (trial.fleet, 6.0, [0.9])
        return instances

    with_fakes(
        monkeypatch,
        solve,
        _sized_for=lambda *given: trial if given == ("priced", "its own") else None,
        _ranked=lambda *given: "its own" if given == (answer, answer.best) else None,
        _leanest=lambda priced, kind: [] if priced == "priced" and kind in Kind else None,
        by_recursion=by_recursion,
        kept=lambda instances, slo: slo is trial.slo and instances[0] >= needs,
    )
    answer = a_plan(costing(cost), question=Record(limits=FREE._replace(node_gpus=node)), priced="priced")
    requests = Record(warm=lambda life_s: life_s)
    assert solve._too_dear(answer, requests) == dear


def test_fleets_that_cost_the_same_to_a_millionth_are_told_apart_by_their_pools():
    one, two = (solve._Chosen(None, trial_of(0.5, (1,) * n), (1,) * n) for n in (1, 2))
    order = lambda dearer: [
        len(x.smallest) for x in sorted([two, one._replace(trial=trial_of(1.0 + dearer))], key=solve._order)
    ]
    assert (order(4e-7), order(4e-6), order(-4e-6)) == ([1, 2], [2, 1], [1, 2])


@pytest.mark.parametrize("needs, dear", [(30, True), (31, False)])
def test_another_fleet_for_three_fifths_tells_that_one_is_too_dear_as_well(needs, dear, monkeypatch):
    """The leanest of each kind: here a split, of which 30 USD/h buy thirty instances."""
    own, lean = trial_of(), trial_of(price=1.0)
    with_fakes(
        monkeypatch,
        solve,
        _ranked=lambda *given: own if given == (answer, answer.best) else None,
        _leanest=lambda priced, kind: [lean] if kind == Kind.SPLIT and priced == "priced" else [],
        _sized_for=lambda priced, found: found if priced == "priced" else None,
        by_recursion=lambda fleet, ready, instances, percentiles: instances if percentiles == [0.9] else None,
        kept=lambda instances, slo: slo is lean.slo and instances[0] >= needs,
    )
    answer = a_plan(costing(50.0), question=Record(limits=FREE), priced="priced")
    assert solve._too_dear(answer, Record(warm=lambda life_s: life_s)) == dear


def test_a_scheme_is_tried_with_its_own_numbers(monkeypatch):
    """Two pools: what each was sized for, as few as keep up, and as many as there are GPUs; spare ones are bought
    beside those that are looked for, and things are as slow as the confidence asks."""
    layouts = [Layout("l40s", tp=1), Layout("h100_sxm", tp=4), Layout("h200_sxm", tp=8)]
    sure = {layout: replace(SURE, tpot=(0.8, 1.2 + k), ttft=(0.7, 1.5 + 2 * k)) for k, layout in enumerate(layouts)}
    made = Record(pools=[Record(slower=lambda by: by)] * 2, _replace=lambda pools: pools)
    asked = []
    monkeypatch.setattr(solve, "serving_fleet", lambda *given: asked.append(given) or made)
    limits = Limits(50.0, {"h200_sxm": 30.0}, 1, math.inf)
    priced = Record(
        layouts=layouts,
        question=Record(limits=limits, margins=Margins(), slo=SLO(6.0, 0.5)),
        instances=np.array([[1.0, 2.0], [9.0, 4.0], [5.0, 7.0]]),
        stable_instances=np.array([[1.0, 2.0], [3.0, 2.0], [2.0, 6.0]]),
        prices_usd_per_hour=np.array([1.0, 8.0, 16.0]),
        as_sized=Record(e2e_s=np.array([[99.0, 99.0], [12.0, 99.0], [99.0, 15.0]])),
        calibration=Record(confidences=sure),
    )
    found = Ranked(Scheme(Kind.SPLIT, "a split", (0, 1)), (1, 2), 9.0)
    plain = solve._trial(priced, found)
    assert asked == [(priced, (1, 2), (0, 1), True)] and plain.fleet is made and plain.slo is priced.question.slo
    assert (plain.guess, plain.least, plain.most) == ((9, 7), (3, 6), (12, 3))
    assert (plain.prices, plain.gpus, plain.kinds) == ((8.0, 16.0), (4, 8), ("h100_sxm", "h200_sxm"))
    assert plain.life_s == 15.0
    priced.question.margins = Margins(0.0, 2, 0.9)
    assert solve._trial(priced, found)._replace(least=(3, 6)) == plain and solve._trial(priced, found).least == (1, 1)
    slow = solve._sized_for(priced, found)
    assert slow.fleet == pytest.approx((2.2, 3.2)) and (slow.guess, slow.least, slow.most) == ((7, 5), (3, 6), (10, 1))
    assert float(slow.slo.ttft_s) == pytest.approx(6.0 / (5.5 / 3.2)) and slow[6:] == plain[6:]
    slow = solve._sized_for(priced, found, Strain(np.array([0.5, 0.25]), np.array([1.0, 2.0])))
    assert slow.fleet == (0.5, 0.25) and float(slow.slo.ttft_s) == 3.0
    priced.question.margins = Margins(0.0, 20, 0.5)
    assert solve._sized_for(priced, found).guess == (1, 1) == solve._sized_for(priced, found).most
    monkeypatch.setattr(solve, "serving_fleet", lambda *given: made)
    many = Record(**vars(priced) | {"question": Record(limits=FREE, margins=Margins(), slo=SLO(6.0, 0.5))})
    assert solve._trial(many, found).most == (2**22, 2**22)


@pytest.mark.parametrize("fast, low", [(0.8, 24.0), (0.01, 4.0)])
def test_at_either_end_of_its_interval_a_fleet_has_as_many_as_keep_up_there(fast, low, monkeypatch):
    """Ten keep up, eight with steps 0.8 times as long; no fewer are tried, though four would hold. There are half
    as many again as the fewest."""
    tried = lambda priced, found, at: trial_of(least=(10,))._replace(life_s=float(at.slowdown[0]), gpus=(2,))
    with_fakes(
        monkeypatch,
        solve,
        _confidences=lambda given, found: [replace(SURE, tpot=(fast, 1.5))] if given is priced else None,
        _sized_for=tried,
        fewest=lambda trial, requests: (max(round(4 * trial.life_s), *trial.least),) if requests == "grown" else None,
        _grown=lambda *given: "grown" if given == ("day", priced.question) else None,
    )
    one = solve._Chosen(None, trial_of()._replace(gpus=(2,)), (10,))
    priced = Record(question=Record(margins=Margins()))
    assert solve._span(priced, one, (15,), "day") == (low, 30.0)


def test_the_recommended_pools_are_verified_in_the_requests_given_or_asked_about(monkeypatch):
    best, other = costing(10.0), costing(20.0)
    answer = a_plan(best, kinds=(best, other), question="question", priced="priced")
    seen = {"drawn": (3, 5), "given": None}
    with_fakes(
        monkeypatch,
        solve,
        recording=lambda asked: "drawn" if asked == "question" else None,
        _trial=lambda priced, found: Record(gpus=(4, 2)) if (priced, found) == ("priced", best) else None,
        _ranked=lambda one, chosen: chosen if one is answer else None,
        fewest=lambda trial, requests: seen[requests],
        replay=lambda priced, one, requests: (priced, one, requests),
    )
    found = solve.verify(answer)
    assert (found.smallest, found.smallest_gpus) == ((3, 5), 22)
    assert found.replays == (("priced", best, "drawn"), ("priced", other, "drawn"))
    found = solve.verify(answer, "given")
    assert (found.smallest, found.smallest_gpus) == (None, None) and found.replays[1] == ("priced", other, "given")


def test_where_no_fleet_holds_the_nearest_miss_is_told_first(monkeypatch):
    """Within limits what those take that hold without them, the least excess; without limits how late the most are."""
    known = Record(excess=9.0)
    asked = Record(limits=FREE._replace(max_gpus=8.0), unlimited="unlimited")
    best = costing(10.0)
    found = a_plan(best, cheapest=best, kinds=(best,), by_gpu=(best,), question=asked, rejections=(known,))
    free, wide = (
        a_plan(best, question="free", priced="free priced"),
        a_plan(best, question="wide", priced="wide priced"),
    )
    calls = []

    def held(answer, question, requests):
        calls.append((answer, question, requests))
        return [Record(words=lambda p, k=k: f"{k} of {p}", parts=lambda of, k=k: (k, of is asked)) for k in (3, 1, 2)]

    with_fakes(
        monkeypatch,
        solve,
        by_formula=lambda one: wide if one == "unlimited" else None,
        recording=lambda one: "requests" if one is asked else None,
        _grown=lambda requests, one: ("grown", requests, one is asked),
        _held=held,
        beyond_limits=lambda one, words, parts: Record(excess=float(parts[0]), words=words, parts=parts),
        _late=lambda one: [Record(excess=4.0, late=one), Record(excess=2.0, late=one)],
    )
    told = solve._none_holds(found, free)
    first, second = told.rejections
    assert (first.excess, first.words, first.parts, second) == (1.0, "1 of free priced", (1, True), known)
    assert calls == [(free, "free", ("grown", "requests", True))]
    assert told.best is told.cheapest is None and told.kinds == told.by_gpu == ()
    assert (told.headroom_frac, told.survives_loss, told.sure_frac, told.question) == (0.0, False, 0.0, asked)
    assert solve._none_holds(found, found).rejections[0].words == "1 of wide priced" and calls[1][:2] == (wide, "wide")
    asked.limits = FREE
    first, second = solve._none_holds(found, free).rejections
    assert (first.excess, first.late, second) == (2.0, free, known) and len(calls) == 2
    asked.limits = FREE._replace(max_gpus=8.0)
    monkeypatch.setattr(solve, "_held", lambda *given: [])
    assert solve._none_holds(found, free).rejections[0].late is free
