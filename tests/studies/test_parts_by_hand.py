"""What is put beside a plan: fleets by replays, regions, classes, what else pays and where memory goes, where each part
says what it is told to."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO, Trace, Workload
from dmodels.core.errors import InputError
from dmodels.models.instance import Operating
from dmodels.studies.plan import (
    RequestClass,
    Stretch,
    check,
    classes,
    memory_use,
    question,
    regions,
    rejections,
    reverse,
    solve,
    tuning,
)
from dmodels.studies.plan.admitted import admitted
from dmodels.studies.plan.calibration import Calibration
from dmodels.studies.plan.designs import Kind, Layout, Role, Scheme, Stage
from dmodels.studies.plan.ensure import Sizes
from dmodels.studies.plan.margins import LEVELS, Margins, factor
from dmodels.studies.plan.promises import Replayed
from dmodels.studies.plan.sizing import Priced, Ranked
from tests.studies.test_answers_by_hand import SURE, fleet, pool
from tests.studies.test_decisions_by_hand import FREE, a_plan, with_fakes
from tests.studies.test_sizes_by_rule import asked as trial

pays = import_module("dmodels.studies.plan.suggestions")  # a name that the package has for its function

H100, L40S = Layout("h100_sxm", tp=4), Layout("l40s", tp=2)


def priced_of(**given):
    names = ("question", "admitted", "layouts", "stages", "schemes", "cells", "calibration", "strain")
    return Priced(**dict.fromkeys((*names, "instances", "stable_instances")) | given)


def costing(usd_per_hour, kind, *layouts):
    """A fleet of a pool of each layout at that price in all."""
    each = [pool(layout=x, instances=1, price_usd_per_hour=usd_per_hour / x.gpus / len(layouts)) for x in layouts]
    return fleet(*each, kind=kind)


# --- fleets by replays ---


@pytest.fixture
def chosen_from(monkeypatch):
    """Five schemes that hold in their replays, the recommended one among them, and what they are deployed as."""
    told = Record(calls=[], next=Sizes((9,), 1, 1), enough=dict.fromkeys("abcde", True), held="abcde")
    told.made = {
        "a": costing(30.0, Kind.ONE_POOL, H100),
        "b": costing(20.0, Kind.TWO_POOLS, H100, H100),
        "c": costing(25.0, Kind.SPLIT, L40S, H100),
        "d": costing(20.0000004, Kind.ONE_POOL, L40S),  # no dearer than b: of as cheap ones the one of fewer pools
        "e": costing(26.0, Kind.ONE_POOL, H100),
    }
    told.simplest = "b"
    one = lambda name: solve._Chosen(
        Ranked(name, (0,), 1.0), trial(1)._replace(life_s=f"life of {name}"), f"few {name}"
    )
    own = {name: Sizes(name, 3, 4) for name in told.made}

    def with_margin(tried, grown, smallest, days):
        name = smallest[-1]
        assert tried.life_s == f"life of {name}"
        told.calls.append((name, grown, days))
        return own[name]._replace(enough=told.enough[name])

    def for_next(tried, grown, sample, smallest, size, days):
        assert tried.life_s == days[0][1] == f"life of {smallest[-1]}" and grown is told.grown
        told.calls.append(("next", smallest, sample, size.instances))
        return told.next._replace(instances=size.instances, enough=told.enough[smallest[-1]])

    def deployed(priced, one, size, requests):
        assert priced.question is told.asked and one.found.scheme == size.instances and requests == "requests"
        return told.made[size.instances]

    grown = Record(sampled=lambda most: ("sample", most))
    with_fakes(
        monkeypatch,
        solve,
        recording=lambda asked: "requests" if asked is told.asked else None,
        _grown=lambda requests, asked: grown if (requests, asked) == ("requests", told.asked) else None,
        _held=lambda *given: [one(name) for name in told.held] if given == (told.answer, told.asked, grown) else None,
        other_days=lambda sample, life_s: [(sample, life_s)],
        with_margin=with_margin,
        for_next=for_next,
        _deployed=deployed,
        simplest=lambda found: told.made[told.simplest] if told.made[told.simplest] in found else found[0],
        _trial=lambda priced, found: ("plain", found.scheme) if priced.question is told.asked else None,
        _headroom=lambda *given: ("headroom", *given),
        _survives=lambda *given: ("survives", *given),
        _sure=lambda *given: ("sure", *given),
        _told=lambda answer, first, chosen, size: (answer.question, first.found.scheme, chosen, size.instances),
    )
    told.asked = Record(size_for=Stretch.TRACE, margins=Margins(0.125))
    told.answer = a_plan(told.made["a"], question="formula's", priced=priced_of(question="formula's"))
    told.grown = grown
    return told


def test_of_fleets_that_hold_the_simplest_is_recommended_and_the_cheapest_of_each_sort_told(chosen_from):
    made = chosen_from.made
    found = solve.ensured(chosen_from.answer, chosen_from.asked)
    assert found.question is found.priced.question is chosen_from.asked
    assert (found.best, found.cheapest) == (made["b"], made["d"])
    assert found.kinds == (made["b"], made["d"], made["c"]) and found.by_gpu == (made["d"], made["b"])
    one = (("plain", "b"), made["b"], "requests")
    assert found.headroom_frac == ("headroom", *one, 0.125) and found.survives_loss == ("survives", *one)
    assert found.sure_frac == ("sure", *one) and found.ensured == (chosen_from.asked, "b", made["b"], "b")
    days = lambda name: [(("sample", 100_000), f"life of {name}")]
    assert sorted(chosen_from.calls[:5]) == [(name, chosen_from.grown, days(name)) for name in "abcde"]
    assert chosen_from.calls[5:] == [("b", chosen_from.grown, days("b")), ("next", "few b", ("sample", 100_000), "b")]


def test_a_fleet_that_lacks_gpus_is_none_beside_others(chosen_from):
    chosen_from.asked.size_for, chosen_from.enough["b"], chosen_from.enough["d"] = Stretch.NEXT, False, False
    found = solve.ensured(chosen_from.answer, chosen_from.asked)
    assert found.cheapest == chosen_from.made["c"] == found.best
    assert [d.usd_per_hour for d in found.kinds] == [25.0, 26.0] and found.by_gpu == (chosen_from.made["e"],)
    assert sum(call[0] == "next" for call in chosen_from.calls) == 6  # of each, and of the chosen one what is told
    chosen_from.enough = dict.fromkeys("abcde", False)
    assert solve.ensured(chosen_from.answer, chosen_from.asked).cheapest == chosen_from.made["d"]
    chosen_from.held = ""
    assert solve.ensured(chosen_from.answer, chosen_from.asked) is None


@pytest.mark.parametrize("spare, affordable", [(0, True), (1, True), (1, False)])
def test_a_fleet_is_deployed_with_its_margin_as_far_as_there_are_gpus(monkeypatch, spare, affordable):
    """Three and five instances are the fewest; with the margin four and six, and those that are to spare beside."""
    limits, tried = "limits", trial(2)
    asked = Record(limits=limits, margins=Margins(spare_count=spare))
    priced = priced_of(question=asked, instances=np.full((3, 2), 77.0))
    one = solve._Chosen(Ranked(Scheme(Kind.TWO_POOLS, "two", (0, 1)), (2, 0), 9.0), "strict", (3, 5))
    wanted = (4 + spare, 6 + spare) if affordable else (3 + spare, 5 + spare)
    calls = []
    made = fleet(pool("short", instances=wanted[0]), pool("long", instances=wanted[1]), kind=Kind.TWO_POOLS)
    seen = Replayed("a fleet", wanted, (4, 4), "a trace", "p", 9, 60.0, 6.0, 0.99, (), False)

    def sized(changed, schemes):
        calls.append((changed.instances.tolist(), schemes))
        return "sized"

    with_fakes(
        monkeypatch,
        solve,
        _trial=lambda given, found: tried if given is priced and found is one.found else None,
        _can_be_bought=lambda given, plain, counts: affordable if (given, plain) == (limits, tried) else None,
        sized=sized,
        deployment=lambda found, ranked: made if (found, ranked) == ("sized", one.found) else None,
        _span=lambda *asked: (1.0, 99.0) if asked == (priced, one, wanted, "requests") else None,
        _binding=lambda plain, k, *asked: ("", "TTFT")[k] if (plain, *asked) == (tried, wanted, "requests") else None,
        replay=lambda given, fleet, requests: (
            seen if (given, fleet.gpus_low, requests) == (priced, 1.0, "requests") else 0
        ),
    )
    told = solve._deployed(priced, one, Sizes((4, 6), 3, 5), "requests")
    assert calls == [([[77.0, wanted[1]], [77.0, 77.0], [wanted[0], 77.0]], [one.found])]
    assert (priced.instances == 77.0).all() and (told.gpus_low, told.gpus_high) == (1.0, 99.0)
    otherwise = "the margin for other days" + " or 1 spare instance per pool" * spare
    assert [one.binding for one in told.pools] == [otherwise, "TTFT"]
    assert told.replayed == replace(seen, held_count=3 if affordable else 0, days_count=5)


@pytest.mark.parametrize("dear", [True, False])
@pytest.mark.parametrize("long", [True, False])
def test_fleets_are_tried_by_kind_and_by_gpu_and_the_best_of_each_on_the_whole(monkeypatch, dear, long):
    """Of each group the cheapest that holds, each scheme once; those of kinds that the formulas have no fleet of, and,
    where they ask for too much, the leanest."""
    asked = Record(limits=FREE)
    ranked = lambda name: Ranked(name, (0,), 1.0)
    h100, l40s = (replace(costing(cost, Kind.ONE_POOL, H100), name=name) for cost, name in ((9.0, "x"), (8.0, "y")))
    answer = a_plan(h100, by_gpu=(h100, l40s), priced=priced_of(question="formula's"))
    sizes = {"one a": 5, "one b": 4, "two": 7, "x": 9, "lean two": 6}
    groups_seen = []

    def by_replay(priced, groups, sample):
        assert priced.question is asked and sample == ("sample" if long else requests)
        groups_seen.extend(groups)
        every = {one.scheme for group in groups for one in group}
        made = lambda name: solve._Chosen(ranked(name), trial(1, prices=(2.0,)), (sizes[name],))
        return {(name, (0,)): made(name) for name in every & sizes.keys()}

    requests = Record(sampled=lambda most: ("sample" if long else requests) if most == 100_000 else None)
    by_kind = {Kind.ONE_POOL: ["one a", "one b"], Kind.TWO_POOLS: ["two"], Kind.SPLIT: []}
    on_whole = lambda one, all_of_them, question: (
        None if one.found.scheme == "x" else one._replace(smallest=(90,)) if all_of_them is requests else None
    )
    with_fakes(
        monkeypatch,
        solve,
        _ranked=lambda given, deployed: ranked(deployed.name) if given is answer else None,
        _candidates=lambda priced, kind: [ranked(name) for name in by_kind[kind]] if priced is answer.priced else None,
        _leanest=lambda *asked: [ranked("lean two")] if asked == (answer.priced, Kind.TWO_POOLS) else [],
        _too_dear=lambda given, sample: dear and given is answer and sample == ("sample" if long else requests),
        _by_replay=by_replay,
        _on_whole=on_whole,
    )
    found = solve._held(answer, asked, requests)
    names = ["one b", "two"] + [] * long + ["x"] * (not long) + ["lean two"] * dear
    assert [one.found.scheme for one in found] == names
    assert all((one.smallest == (90,)) == long for one in found)
    wanted = [["one a", "one b"], ["two"], [], ["x"], ["y"], *[[], ["lean two"], []] * dear]
    assert [[one.scheme for one in group] for group in groups_seen] == wanted


def test_how_sure_a_fleet_is_is_told_by_replays_of_slower_steps(monkeypatch):
    """Its slower pool bears steps 1.1 times as slow, the whole a TTFT 1.2 times as slow again."""
    sure = [replace(SURE, tpot=(0.8, 1.2), ttft=(0.8, 1.2)), replace(SURE, tpot=(0.8, 1.3), ttft=(0.7, 1.5))]
    made = fleet(*(pool(confidence=one, instances=n) for one, n in zip(sure, (3, 5), strict=True)))
    most = [9.0, 1.2]
    slower = lambda steps, ttft: (steps[0] <= most[0] and steps[1] <= most[1]) and ttft
    holds = lambda tried, requests: Record(holds=lambda counts: bool(tried) and counts == [3, 5] and requests == "day")
    monkeypatch.setattr(solve, "Verdict", holds)
    bears = [c for c in LEVELS if factor(c, np.array([1.3]))[0] <= 1.2]
    assert solve._sure(Record(slower=slower), made, "day") == pytest.approx(bears[-1]) and 2 < len(bears) < 18
    late = lambda steps, ttft: ttft <= 1.1
    bears = [c for c in LEVELS if factor(c, np.array([1.5]))[0] / factor(c, np.array([1.3]))[0] <= 1.1]
    assert solve._sure(Record(slower=late), made, "day") == pytest.approx(bears[-1]) and 2 < len(bears) < 18
    for most[1], told in ((1.0, 0.5), (0.99, 0.0)):
        assert solve._sure(Record(slower=slower), made, "day") == told


# --- regions and classes ---


def test_regions_are_filled_cheapest_per_request_first_and_the_last_serves_what_is_left(monkeypatch):
    """Two USD an hour for each req/s in b, three in a, six in d; c serves nothing."""
    most = {"a": (10.0, 30.0), "b": (20.0, 40.0), "c": (9.0, None), "d": (50.0, 300.0)}
    there = [regions.Region(name, {"h100": 1.0}) for name in most]

    class Asked(Record):
        @property
        def rate_rps(self):
            return self.workload.rate

        def __hash__(self):
            return id(self)

    def of(name, rate):
        workload = Record(rate=rate, at_rate=lambda rate: of(name, rate).workload)
        return Asked(name=name, workload=workload)

    def formula(asked):
        rate, cost = most[asked.name]
        best = None if cost is None else costing(cost * asked.rate_rps / rate, Kind.ONE_POOL, H100)
        return a_plan(best, question=asked)

    def at_limit(asked, target, ensure):
        assert target == "rate" and ensure is False
        return of(asked.name, most[asked.name][0])

    with_fakes(
        monkeypatch,
        regions,
        in_region=lambda asked, region: of(region.name, asked.rate_rps),
        at_limit=at_limit,
        by_formula=formula,
        replace=lambda asked, workload: of(asked.name, workload.rate),
    )
    sites = regions._together(of("", 60.0), there)
    assert [(s.region, s.share_frac, s.plan.question.rate_rps) for s in sites] == [
        ("b", pytest.approx(1 / 3), 20.0),
        ("a", pytest.approx(1 / 6), 10.0),
        ("d", pytest.approx(1 / 2), 30.0),
    ]
    assert [s.usd_per_hour for s in sites] == pytest.approx([40.0, 30.0, 180.0])
    alone = (regions.Site(1.0, a_plan(costing(77.0, Kind.ONE_POOL, H100)), "e"),)
    whole = regions.Regional(alone, sites)
    assert (whole.served_frac, whole.usd_per_hour, whole.fits) == (1.0, pytest.approx(250.0), True)
    one = regions.Regional(alone, ())
    assert (one.served_frac, one.usd_per_hour, one.fits) == (1.0, 77.0, True)
    few = regions.Regional(alone, sites[:2])
    assert few.served_frac == pytest.approx(0.5) and not few.fits
    for best in (alone[0].best, None):  # together they serve what none serves alone
        site = regions.Site(1.0, a_plan(best), "e")
        with_fakes(monkeypatch, regions, _alone=lambda asked, there, site=site: (site,))
        found = regions.plan_regions(of("", 60.0), there)
        assert found.alone == (site,) and [s.region for s in found.together] == ([] if best else ["b", "a", "d"])
    # a five-hundredth is lost in rounding, and no region is looked for to serve it
    assert [s.region for s in regions._together(of("", 30.05), there)] == ["b", "a"]
    assert [s.region for s in regions._together(of("", 30.07), there)] == ["b", "a", "d"]
    assert regions.Regional(alone, (replace(sites[0], share_frac=0.9981),)).fits
    assert not regions.Regional(alone, (replace(sites[0], share_frac=0.998),)).fits


@pytest.mark.parametrize("traced", [True, False])
def test_a_class_is_asked_about_by_its_requests_alone(monkeypatch, traced):
    """Totals to 1,000 tokens, and beyond: the others' share of the rate, their own times, lengths and hits."""
    inputs, outputs = np.array([100.0, 3000.0, 200.0, 5000.0]), np.array([10.0, 40.0, 20.0, 50.0])
    cached, times = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 4.0, 9.0])
    work = Workload(inputs, outputs, [0.1, 0.2, 0.3, 0.4], cached, rate_rps=8.0, arrival_cv=2.0)
    trace = Trace("day", times, inputs, outputs, cached) if traced else None
    asked = question("llama-3.1-8b", ["h100"], work, SLO(9.0, 9.0), workload_name="mine", thresholds_tokens=(500.0,))
    asked = replace(asked, trace=trace, max_gpus=20.0)
    seen = []

    def planned(one, ensure):
        seen.append((one, ensure))
        cost = 6.0 if len(seen) == 1 else 12.0
        return a_plan(costing(cost, Kind.ONE_POOL, H100, L40S), question=one)

    monkeypatch.setattr(classes, "plan", planned)
    chat, jobs = SLO(1.0, 0.1), SLO(60.0, 1.0, percentile=0.9)
    kinds = [RequestClass("chat", chat, 0.0, 1000.0), RequestClass("jobs", jobs, 1000.0)]
    found = classes.plan_apart(asked, kinds, False)
    assert [(x.requests, x.share_frac) for x in found.shares] == [
        (kinds[0], pytest.approx(0.4)),
        (kinds[1], pytest.approx(0.6)),
    ]
    for (one, ensure), name, slo, rows, weights in zip(
        seen, ("chat", "jobs"), (chat, jobs), ([0, 2], [1, 3]), ([0.25, 0.75], [1 / 3, 2 / 3]), strict=True
    ):
        own = one.workload
        assert (own.input_tokens.tolist(), own.output_tokens.tolist()) == (
            inputs[rows].tolist(),
            outputs[rows].tolist(),
        )
        assert own.cached_tokens.tolist() == cached[rows].tolist() and own.weight_frac == pytest.approx(weights)
        assert float(own.rate_rps) == pytest.approx(8.0 * (0.4 if name == "chat" else 0.6))
        assert (float(own.arrival_cv), one.workload_name, one.slo) == (2.0, f"mine ({name})", slo)
        assert one.thresholds_tokens is None and ensure is False and (one.trace is None) == (not traced)
        if traced:
            its = one.trace
            assert (its.name, its.time_s.tolist()) == ("day", times[rows].tolist())
            columns = [x.tolist() for x in (its.input_tokens, its.output_tokens, its.cached_tokens)]
            assert columns == [x[rows].tolist() for x in (inputs, outputs, cached)]
    assert (found.usd_per_hour, found.gpus, found.fits) == (pytest.approx(18.0), 12, True)
    assert [x.keeps_slos_probability for x in found.shares] == [0.75, 0.75]
    dear = replace(found, limits=FREE._replace(max_usd_per_hour=17.9))
    assert not dear.fits and not replace(found, limits=FREE._replace(max_gpus=11.0)).fits
    none = replace(found.shares[1], plan=a_plan())
    lacking = replace(found, shares=(found.shares[0], none))
    assert (lacking.gpus, lacking.fits, lacking.usd_per_hour) == (None, False, math.inf)
    assert none.best is none.keeps_slos_probability is None and none.usd_per_hour == math.inf


# --- what else pays ---


def test_what_pays_is_told_with_its_flags_and_its_price(monkeypatch):
    """Of what 100 USD/h cost: 60 with weights and cache of 8 bits, 80 with the cache alone, 95 and 90 with steps of
    2,048 and 4,096 tokens, of which the better is told; 96 is not worth a sentence."""
    costs = {("fp8", "fp8", 8192.0): 60.0, ("as published", "fp8", 8192.0): 80.0}
    costs |= {("as published", "as published", n): usd for n, usd in ((2048.0, 95.0), (4096.0, 90.0), (16384.0, 96.0))}
    seen = []

    def cost(one):
        seen.append((*one.weights, *one.kv, float(one.engine.max_num_batched_tokens)))
        return costs[seen[-1]]

    with_fakes(monkeypatch, pays, price=lambda one: one, least_usd_per_hour=cost)
    work = Workload.fixed(1000.0, 100.0, 5.0)
    asked = question("llama-3.1-70b", ["a100", "h100"], work, SLO(2.0, 0.1))
    told = lambda of: [
        (x.what, x.flags, x.usd_per_hour, pytest.approx(x.saves_frac), x.takes)
        for x in pays.suggestions(Record(question=of, formula_usd_per_hour=100.0))
    ]
    both = ("FP8 weights and KV cache", "--weights fp8 --kv fp8", 60.0, 0.4)
    both += ("an FP8 checkpoint, and a check of the answers' quality",)
    cache = ("an FP8 KV cache", "--kv fp8", 80.0, 0.2, "a check of the answers' quality at long contexts")
    steps = ("another token budget of a step", "--max-num-batched-tokens 4096", 90.0, 0.1, "a setting of the engine")
    assert told(asked) == [both, cache, steps] and len(seen) == 5
    costs["as published", "as published", 4096.0] = 97.0
    steps = ("another token budget of a step", "--max-num-batched-tokens 2048", 95.0, 0.05, "a setting of the engine")
    assert told(asked)[2] == steps  # a twentieth is
    ampere, _ = asked.gpus
    assert told(replace(asked, gpus={ampere: asked.gpus[ampere]})) == [steps]  # which has no FP8 units
    costs |= {("bf16", "fp8", 8192.0): 70.0, **{("bf16", "as published", n): 99.0 for n in (2048.0, 4096.0, 16384.0)}}
    (narrow,) = told(replace(asked, weights=("bf16",)))
    assert narrow[:3] == ("an FP8 KV cache", "--kv fp8", 70.0)
    costs |= {("as published", "bf16", n): 99.0 for n in (2048.0, 4096.0, 16384.0)}
    assert told(replace(asked, kv=("bf16",))) == []


# --- where memory goes ---


@pytest.mark.parametrize(
    "role, held, used", [(Role.SERVE, 8.0, 20.0), (Role.PREFILL, 3.0, 7.5), (Role.SERVE, 99.0, 50.0)]
)
def test_where_the_memory_of_a_gpu_goes(monkeypatch, role, held, used):
    """Of 100 bytes 30, 7 and 3 for weights, activations and the runtime, 50 for the cache; what is left is left over.
    Each of two ranks holds half of the requests, at 5 bytes each; a worker those of 6 a second for half a second."""
    layout = Layout("h100_sxm", tp=3, pp=2, dp=2, ep=6)
    own = pool(
        stage=Stage("own", role, 10.0, 90.0), layout=layout, decode_count=held, instances=2, request_share_frac=0.75
    )
    own = replace(own, ttft_mean_s=0.5)
    asked = Record(model="model", gpus={"h100_sxm": Record(memory_bytes=100.0)}, memory="rules")
    asked.engine = Record(max_num_batched_tokens=512.0, max_num_seqs_count=40.0)
    cells = Record(budget_bytes=np.array([[1.0], [50.0]]), slots_count=np.array([[1.0], [70.0]]))
    traffic = Record(workload="work")
    priced = Record(cells=cells, cell_of=lambda one: 1 if one is own else 0, rate_rps=16.0, admitted=traffic)
    small = Record(input_tokens="inputs", output_tokens=np.array([4.0, 5.0]), weight_frac="weights")
    degrees = lambda parallel: [float(getattr(parallel, name)) for name in ("tp", "pp", "dp", "ep")] == [3, 2, 2, 6]

    def residents(model, gpu, parallel, inputs, outputs, weights, **limits):
        assert (
            model == "model in h100_sxm"
            and degrees(parallel)
            and limits == {"batched_tokens": 512.0, "engine": "rules"}
        )
        assert gpu.memory_bytes == 100.0 and (inputs, weights) == ("inputs", "weights")
        assert outputs.tolist() == ([1.0, 1.0] if role == Role.PREFILL else [4.0, 5.0])
        return Record(each=Record(mean_bytes=5.0))

    def active(model, parallel, batched, seqs, memory):
        return (
            7.0
            if degrees(parallel) and (model, batched, seqs, memory) == ("model in h100_sxm", 512, 40, "rules")
            else 0
        )

    with_fakes(
        monkeypatch,
        memory_use,
        in_precision=lambda model, layout: f"{model} in {layout.gpu}",
        weight_bytes_per_gpu=lambda model, parallel: Record(total_bytes=30.0 if degrees(parallel) else 0.0),
        activation_bytes=active,
        runtime_bytes=lambda gpu, parallel, memory: 3.0 if degrees(parallel) and memory == "rules" else 0.0,
        compressed=lambda work: f"small {work}",
        condition=lambda work, low, high: small if (work, low, high) == ("small work", 10.0, 90.0) else None,
        residents=residents,
    )
    (told,) = memory_use.memory_use(Record(best=Record(pools=[own]), question=asked, priced=priced))
    assert (told.pool, told.gpu_bytes, told.weights_bytes, told.activations_bytes) == (own, 100.0, 30.0, 7.0)
    assert (told.runtime_bytes, told.kv_used_bytes, told.kv_free_bytes) == (3.0, used, 50.0 - used)
    assert (told.reserved_bytes, told.slots_by_memory_count, told.slots_by_engine_count) == (10.0, 70.0, 80.0)


# --- other questions ---


def test_whether_a_rate_or_a_bound_is_served(monkeypatch):
    """At twice the rate or at half of a bound by the margins of the plan; nothing where no request is taken."""
    asked = []

    class Cells(Record):
        def _replace(self, **changes):
            return Cells(**vars(self) | changes)

    def fewest(cells, rate_rps, engine, kept, at):
        asked.append((float(cells.slo.ttft_s), float(cells.slo.tpot_s), rate_rps, engine, kept, at))
        return Record(instances=np.arange(6.0))

    def cheapest(priced, costs):
        assert costs == "costs" and priced.instances.tolist() == [[0, 1, 2], [3, 4, 5]]
        return found

    found = ["a fleet"]
    with_fakes(monkeypatch, reverse, fewest=fewest, cheapest=cheapest)
    monkeypatch.setattr(Priced, "costs_usd_per_hour", property(lambda self: "costs"))
    question = Record(engine="engine", margins="margins")
    taken = Record(none=False, rate_rps=10.0)
    priced = priced_of(question=question, admitted=taken, cells=Cells(slo=SLO(4.0, 0.5)), strain="strain")
    priced = replace(priced, instances=np.zeros((2, 3)))
    assert reverse._serves(priced, 2.0, "", 1.0) is True and reverse._serves(priced, 1.0, "ttft_s", 0.5) is True
    rest = ("engine", "margins", "strain")
    assert asked == [(4.0, 0.5, 20.0, *rest), (2.0, 0.5, 10.0, *rest)]
    taken.none = True
    assert reverse._serves(priced, 2.0, "", 1.0) is False
    taken.none, found = False, []
    assert reverse._serves(priced, 2.0, "", 1.0) is False


@pytest.mark.parametrize(
    "rate_rps, percentile, output, says",
    [
        (1e-9, 0.5, 1.0, None),
        (1e9, 0.999, 0.5, None),
        (5.0, 0.499, 9.0, "percentile 0.499: accepted are shares from 0.5 to below 1"),
        (5.0, 0.9, 0.0, "workload: no request generates a token"),
    ],
)
def test_what_no_plan_can_answer_is_a_mistake(rate_rps, percentile, output, says):
    work, slo = Workload([9.0, 9.0], [0.0, output], [0.5, 0.5], rate_rps=rate_rps), SLO(1.0, 1.0, percentile=percentile)
    with pytest.raises(InputError, match=says) if says else nullcontext():
        check(work, slo)


def test_where_more_gpus_would_do_the_fleet_of_the_fewest_is_told(monkeypatch):
    """Pools of three instances of four GPUs and of two of two: 16 are needed of 10, whatever they cost."""
    again = lambda one, **changes: Record(**vars(one) | changes)
    layouts = [L40S, H100]
    gpus = {x.gpu: Record(price_usd_per_hour=9.0) for x in layouts}
    for gpu in gpus.values():
        gpu.replace = lambda **changes: Record(**changes)
    asked = Record(limits=FREE._replace(max_gpus=10.0), gpus=gpus, unlimited=Record(gpus=None))
    priced = Record(question=asked, layouts=layouts, costs_usd_per_hour="costs", stages=["all", "short", "long"])
    priced.instances = np.array([[99.0, 2.0, 99.0], [99.0, 99.0, 3.0]])
    schemes = {"two": Scheme(Kind.TWO_POOLS, "two pools", (2, 1)), "one": Scheme(Kind.ONE_POOL, "one pool", (1,))}
    found = {"now": [], "ever": [(schemes["two"], (1, 0), 16.0)]}

    def cheapest(one, costs):
        if one is priced:
            return found["now"]
        assert {float(gpu.price_usd_per_hour) for gpu in one.question.gpus.values()} == {1.0} and costs == "costs"
        return found["ever"]

    with_fakes(monkeypatch, rejections, cheapest=cheapest, replace=again)
    (told,) = rejections._too_few_gpus(priced)
    assert told.layout == "two pools (3 x h100_sxm tp4pp1dp1ep1 + 2 x l40s tp2pp1dp1ep1)"
    assert (told.binding, told.have, told.need, told.fix) == ("GPU budget", "10 GPUs", "16 GPUs", "6 more GPUs")
    found["ever"] = [(schemes["one"], (0,), 4.0)]
    assert rejections._too_few_gpus(priced) == []  # a layout of its own is told as such
    for name, value in (("ever", []), ("now", ["a fleet"])):
        found[name] = value
        assert rejections._too_few_gpus(priced) == []
    priced.instances[0, 1] = math.inf
    never = rejections._short(priced, "x", [(1, 2), (0, 1)])
    assert (never.layout, never.binding, never.have, never.need) == ("x", "rate", "4,194,304 instances", "more")
    assert (never.fix, never.excess, never.is_limit) == ("a lower rate", math.inf, False)


def test_why_layouts_are_no_answer_is_told_nearest_miss_first(monkeypatch):
    """Of five layouts with two stages the first is one. Of the others the context binds, or the memory, or a bound
    without load, or what can be bought; those short of memory come last, and what a fleet lacks is told before."""
    told = lambda binding, excess: rejections.Rejection("x", binding, "", "", "", excess)
    why = {1: ("memory", 1.5), 2: ("slow", 4.0), 3: ("bought", 3.0), 4: ("context", 9.0)}
    every = {row: told(*one) for row, one in why.items()}
    of = lambda kind: lambda priced, row, *idle: every[row] if why[row][0] == kind and check_idle(row, *idle) else None
    asked = []

    def check_idle(row, *idle):
        return all(float(one.ttft_s) == 2.0 * row for one in idle)  # the one-pool cell of its own row

    def swept(cells, counts, rate_rps, engine):
        asked.append((cells.tolist(), counts.tolist(), engine))
        assert 0 < rate_rps < 1e-6
        return Operating(*[cells[:, None]] * len(Operating._fields))

    priced = Record(cells=np.arange(10.0), stages=[0, 1], layouts="vwxyz", question=Record(engine="engine"))
    costs = np.array([[5.0, math.inf], *[[math.inf, 1.0]] * 4])
    priced.costs_usd_per_hour = costs
    few = told("GPU budget", 99.0)
    with_fakes(
        monkeypatch,
        rejections,
        sweep_instances=swept,
        _too_few_gpus=lambda one: [few] if one is priced else [],
        _beyond_context=of("context"),
        _short_of_memory=of("memory"),
        _slow_without_load=of("slow"),
        _short=lambda one, layout, places: every[3] if (one, layout, places) == (priced, "y", [(3, 0)]) else None,
    )
    assert rejections.rejections(priced) == [few, every[3], every[2], every[4], every[1]]
    assert asked == [([2.0, 4.0, 6.0, 8.0], [[1.0]] * 4, "engine")]
    priced.costs_usd_per_hour = np.ones((5, 2))
    assert rejections.rejections(priced) == [] and len(asked) == 1


def test_tuned_servers_are_faster_by_their_gpus_factor(monkeypatch):
    factors = {"h100_sxm": Record(factor=2.0, latency=(0.9, 1.1), provenance="MLPerf, H100")}
    factors["l40s"] = Record(factor=3.0, latency=(0.8, 1.3), provenance="MLPerf, L40S")
    with_fakes(monkeypatch, tuning, tuned=lambda gpu: factors[gpu], faster=lambda own, by: own / by)
    found = tuning.tuned_calibration(Calibration({H100: 8.0, L40S: 9.0}, {}))
    assert found.efficiencies == {H100: 4.0, L40S: 3.0}
    said = {x.gpu: (own.tpot, own.ttft, own.provenance) for x, own in found.confidences.items()}
    assert said["h100_sxm"] == ((0.9, 1.1), (0.9, 1.1), "MLPerf, H100") and said["l40s"][0] == (0.8, 1.3)


def test_what_is_taken_keeps_its_hits_and_its_shares():
    work = Workload([500.0, 100.0, 900.0], [100.0, 50.0, 200.0], [0.2, 0.3, 0.5], [5.0, 1.0, 9.0], rate_rps=10.0)
    found = admitted(work, 1000.0)
    assert (found.cut_frac, found.refused_frac, found.limit_tokens, found.longest_tokens) == (0.5, 0.0, 1000.0, 1100.0)
    assert found.workload.output_tokens.tolist() == [100.0, 50.0, 100.0]
    found = admitted(work, 900.0)  # which a prompt of 900 tokens leaves no room in
    assert (found.refused_frac, found.cut_frac, found.none) == (0.5, 0.0, False)
    own = found.workload
    assert (own.cached_tokens.tolist(), own.weight_frac.tolist(), own.input_tokens.tolist()) == (
        [5.0, 1.0],
        [0.4, 0.6],
        [500.0, 100.0],
    )
    assert found.rate_rps == 5.0
    none = admitted(work, 100.0)
    assert (none.refused_frac, none.cut_frac, none.none, none.workload) == (1.0, 0.0, True, work)
    free = admitted(work, 0.0)
    assert (free.limit_tokens, free.workload) == (math.inf, work) and admitted(work, 1100.0).cut_frac == 0.0
