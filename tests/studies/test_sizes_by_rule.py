"""Fleets sized by replays, where what holds is a rule: margins, the next stretch, what can be bought, what binds."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels import SLO
from dmodels.sim.requests import Served
from dmodels.studies.plan import ensure, solve, stretches
from dmodels.studies.plan.calibration import Confidence
from dmodels.studies.plan.designs import Kind, Layout, Scheme
from dmodels.studies.plan.ensure import Trial, Verdict, fewest, with_margin
from dmodels.studies.plan.limits import Limits
from dmodels.studies.plan.margins import Margins
from dmodels.studies.plan.sizing import Priced, Ranked
from dmodels.studies.plan.stretches import REACH, borne, for_next, growth


class ByRule:
    """Verdicts of a rule: what the recording says of (pool, instances), or of prefill workers alone."""

    def __init__(self, trial, requests):
        self.trial, self.rule = trial, requests.rule
        self.own = range(len(trial.guess))

    def keeps(self, k, instances):
        return self.rule.keeps(k, list(instances))

    def holds(self, instances):
        return all(self.keeps(k, instances) for k in self.own)

    def possible(self, k):
        return True

    def answers(self, workers):
        return self.rule.answers(workers)

    def breaks(self, k, instances):
        return [] if self.keeps(k, instances) else ["TTFT", "TPOT"]


@pytest.fixture(autouse=True)
def by_rule(monkeypatch):
    for module in (ensure, solve, stretches):
        monkeypatch.setattr(module, "Verdict", ByRule)


def needing(*counts):
    """A recording that every pool keeps from so many instances on."""
    return SimpleNamespace(rule=SimpleNamespace(keeps=lambda k, instances: instances[k] >= counts[k]))


def asked(pools, in_turn=False, **options):
    n = pools
    given = {"guess": (5,) * n, "least": (1,) * n, "most": (400,) * n, "prices": (1.0,) * n, "gpus": (2,) * n} | options
    return Trial(SimpleNamespace(in_turn=in_turn), SLO(1.0, 1.0), **given, kinds=("h100",) * n, life_s=1.0)


def test_no_pool_is_looked_for_beyond_256_times_its_size():
    far = asked(1, guess=(1,), least=(1,), most=(10**6,))
    assert fewest(far, needing(256)) == (256,) and fewest(far, needing(257)) is None


@pytest.mark.parametrize(
    "bad, counts", [((), 22), ((22,), 23), ((22, 23), 24), ((22, 23, 24), 20), ((23, 24), 22), ((22, 24), 23)]
)
def test_where_a_margin_breaks_the_recording_it_gets_another(bad, counts):
    odd = SimpleNamespace(rule=SimpleNamespace(keeps=lambda k, instances: instances[0] not in bad))
    assert with_margin(asked(1), odd, (20,), [needing(22)]).instances == (counts,)
    if counts in (22, 23):  # from a day that takes 23 on: the wider ones first, then the narrower
        wanted = {(): 23, (22,): 23, (23, 24): 22, (22, 24): 23}[bad]
        assert with_margin(asked(1), odd, (20,), [needing(23)]).instances == (wanted,)


@pytest.mark.parametrize("bad, counts", [((), 24), ((24,), 23), ((23, 24), 22), ((22, 23, 24), 20)])
def test_where_the_widest_margin_breaks_the_recording_it_gets_the_next_narrower(bad, counts):
    odd = SimpleNamespace(rule=SimpleNamespace(keeps=lambda k, instances: instances[0] not in bad))
    assert with_margin(asked(1), odd, (20,), [needing(24)]).instances == (counts,)


def test_two_pools_in_turn_have_one_margin():
    both = lambda first, second: SimpleNamespace(
        rule=SimpleNamespace(keeps=lambda k, n: n[0] >= first and n[1] >= second)
    )
    trial = asked(2, in_turn=True)
    found = with_margin(trial, both(10, 40), (10, 40), [both(10, 40), both(11, 45), both(13, 40)])
    assert found.instances == (12, 48) and (found.held_count, found.days_count) == (2, 3)


class Quarters:
    """A recording whose quarters bear so many times their rate; the whole bears the first."""

    def __init__(self, bears, rate=1.0, size=100):
        self.bears, self.rate, self.size = bears, rate, size
        self.rule = SimpleNamespace(keeps=lambda k, n: n[k] * bears[0] >= rate * 10 - 1e-9)

    def part(self, low, high):
        assert high - low == 0.25
        return Quarters([self.bears[int(4 * low)]])

    def faster(self, by):
        return Quarters(self.bears, self.rate * by, self.size)


def test_growth_by_what_quarters_bear():
    """Student's 95 % of three degrees of freedom, 2.3534, on the deviation of logarithms, for stretches four times as
    long whose spread falls by 4 to the -0.2; between 2.25 and 8."""
    assert pytest.approx(math.sqrt(2) * 4**-0.2 * 2.3534, rel=1e-4) == REACH
    factors = np.array([0.5, 1.0, 2.0, 4.0])
    assert [borne(asked(1), Quarters([b]), (10,), factors) for b in (0.4, 1.0, 3.9, 9.0)] == [0, 2, 3, 4]
    for bears in ([1.0, 1.2, 1.5, 1.0], [1.0, 2.0, 1.0, 1.3], [1.0, 1.01, 1.0, 1.0], [0.2, 6.0, 1.0, 3.0]):
        step = 64 ** (1 / 84)
        logs = [math.log(step) * math.ceil(math.log(b) / math.log(step) + 1e-9) for b in bears]
        wanted = min(max(math.exp(REACH * np.std(logs, ddof=1)), 2.25), 8.0)
        assert growth(asked(1), Quarters(bears), (10,)) == pytest.approx(wanted, rel=0.1)
    assert growth(asked(1), Quarters([1.0, 9.0, 1.0, 1.0], size=7), (10,)) == 2.25


def test_the_fleet_for_the_next_stretch_by_its_growth():
    calm = Quarters([1.0] * 4)  # takes ten instances; at 2.25 times its rate, 23
    own = ensure.Sizes((12,), 3, 4)
    days = [needing(23), needing(24), needing(1)]
    assert for_next(asked(1), calm, calm, (10,), own, days) == ((23,), 2, 3, True)
    assert for_next(asked(1, most=(22,)), calm, calm, (10,), own, days) == ((12,), 3, 4, False)
    assert for_next(asked(1), calm, calm, (10,), ensure.Sizes((30,), 3, 4), days) == ((30,), 3, 3, True)


def test_what_a_verdict_counts():
    """Toy servers: every request takes as many seconds as there are requests for an instance; after the warm-up, by
    the percentile; the answer of one token has no time per token; and a lost replay is given up and says the same."""
    size = 40

    def serve(part, own, instances, prefilled=None, give_up=None):
        arrival, outputs = own.arrival_s, own.output_tokens
        ttft = np.full(len(arrival), size / instances[part]) + 0.01 * arrival + (0 if prefilled is None else 1.0)
        tpot = np.where(outputs > 1, 0.5 * ttft, np.nan)
        first = arrival + ttft
        done = Served(arrival, arrival, first, first + np.nan_to_num(tpot) * np.maximum(outputs - 1, 0), outputs)
        if give_up is not None:
            seen.append(give_up(done))
        return done

    seen = []
    arrival, outputs = np.arange(40.0), np.where(np.arange(40) % 4 == 0, 1.0, 3.0)
    own = SimpleNamespace(arrival_s=arrival, output_tokens=outputs)
    none = SimpleNamespace(arrival_s=np.zeros(0), output_tokens=np.zeros(0))
    fleet = SimpleNamespace(in_turn=False, own=lambda requests: [own, none], serve=serve)
    ready = SimpleNamespace(warm_s=10.0, requests=lambda: None)
    recording = SimpleNamespace(warm=lambda life_s: ready if life_s == 2.0 else None)
    for bound, per_token, percentile in itertools.product((2.0, 4.0, 9.0), (1.05, 2.0), (0.9, 0.5)):
        slo = SLO(bound, per_token, percentile=percentile)
        trial = asked(2)._replace(fleet=fleet, slo=slo, life_s=2.0)
        verdict = Verdict(trial, recording)
        for n in (1, 5, 10, 19, 21, 40):
            ttft = size / n + 0.01 * arrival[10:]
            each = ttft[outputs[10:] > 1] * 0.5
            late = [
                name
                for name, values, most in (("TTFT", ttft, bound), ("TPOT", each, per_token))
                if np.quantile(values, percentile) > most
            ]
            assert verdict.breaks(0, [n, 1]) == late and verdict.breaks(1, [n, 1]) == []
            assert verdict.keeps(0, [n, 1]) == (not late) == verdict.holds([n, 1]) and verdict.keeps(1, [n, 1])
            assert not (seen[-1] and not late)  # never given up where it would hold
    assert any(seen) and not all(seen)


def test_answers_of_one_token_keep_every_time_per_token():
    """None of them has one, whatever the bound; of requests that come before the fleet is warm none counts."""
    own = SimpleNamespace(arrival_s=np.arange(40.0), output_tokens=np.ones(40))

    def serve(part, own, instances, prefilled=None, give_up=None):
        first = own.arrival_s + 20.0 / instances[part]
        return Served(own.arrival_s, own.arrival_s, first, first, own.output_tokens)

    fleet = SimpleNamespace(in_turn=False, own=lambda requests: [own], serve=serve)
    for warm_s, fewest_that_hold in ((0.0, 5), (10.0, 5), (40.0, 1)):
        recording = SimpleNamespace(warm=lambda s, w=warm_s: SimpleNamespace(warm_s=w, requests=lambda: None))
        verdict = Verdict(asked(1)._replace(fleet=fleet, slo=SLO(4.0, 1e-6)), recording)
        assert [verdict.keeps(0, [n]) for n in range(1, 9)] == [n >= fewest_that_hold for n in range(1, 9)]
        assert [not verdict.breaks(0, [n]) for n in range(1, 9)] == [n >= fewest_that_hold for n in range(1, 9)]


def test_prefill_workers_are_served_once_for_all_decoders():
    served = []

    def serve(part, own, instances, prefilled=None, give_up=None):
        assert part == 0 and prefilled.arrival_s.size == 4
        return prefilled

    def alone(own, workers):
        served.append(workers)
        return Served(
            own.arrival_s, own.arrival_s, own.arrival_s + 12.0 / workers, own.arrival_s + 20.0, np.full(4, 3.0)
        )

    own = SimpleNamespace(arrival_s=np.arange(4.0), output_tokens=np.full(4, 3.0))
    fleet = SimpleNamespace(in_turn=True, own=lambda r: [own], serve=serve, pools=[SimpleNamespace(serve=alone)])
    recording = SimpleNamespace(warm=lambda s: SimpleNamespace(warm_s=0.0, requests=lambda: None))
    verdict = Verdict(asked(2)._replace(fleet=fleet, slo=SLO(4.0, 100.0)), recording)
    assert [verdict.answers(n) for n in (2, 3, 4)] == [False, True, True] and served == [2, 3, 4]
    assert verdict.holds((4, 9)) and verdict.holds((4, 8)) and served == [2, 3, 4]
    assert verdict.breaks(1, (3, 1)) == [] and verdict.breaks(0, (2, 1)) == ["TTFT"] and served == [2, 3, 4, 3, 2]


def test_what_can_be_bought_with_the_spares_that_are_asked_for(monkeypatch):
    """By replays the cheapest of each group within the limits; a spare instance of each pool counts for GPUs and money;
    what costs more than another of its group is none."""
    kinds = {"cheap": 2.0, "dear": 3.0, "far": 9.0}
    needs = {"cheap": 7, "dear": 4, "far": 2}
    trials = {name: asked(1, prices=(price,), gpus=(2,), most=(50,)) for name, price in kinds.items()}
    monkeypatch.setattr(solve, "_sized_for", lambda priced, found: trials[found.scheme] if priced.question else None)
    monkeypatch.setattr(solve, "_on_all_cores", lambda function, items: [function(one) for one in items])

    def by_need(trial, requests, most=math.inf):
        assert requests == "requests"
        (name,) = (name for name, own in trials.items() if own.prices == trial.prices)
        return (needs[name],) if needs[name] * kinds[name] <= most * (1 + 1e-9) else None

    monkeypatch.setattr(solve, "fewest", by_need)

    def found(groups, spare=0, **limits):
        given = Limits(
            **({"max_gpus": math.inf, "inventory": {}, "node_gpus": 1, "max_usd_per_hour": math.inf} | limits)
        )
        question = SimpleNamespace(limits=given, margins=Margins(spare_count=spare))
        ranked = [[Ranked(name, (0,), 1.0) for name in names] for names in groups]
        made = solve._by_replay(SimpleNamespace(question=question), ranked, "requests")
        return {name: one.smallest for (name, _), one in made.items()}

    assert found([["cheap"], ["dear"], ["far"]]) == {"cheap": (7,), "dear": (4,), "far": (2,)}
    assert found([["dear", "cheap"]]) == {"dear": (4,)}  # 12 USD/h, and 14 is more
    assert found([["cheap", "dear"]]) == {"cheap": (7,), "dear": (4,)}
    assert found([["dear", "cheap"], ["cheap"]]) == {"dear": (4,), "cheap": (7,)}  # the cheapest of a group of its own
    assert found([["cheap"], ["dear"]], max_gpus=13.0) == {"dear": (4,)}
    assert found([["cheap"], ["dear"]], max_gpus=14.0) == {"cheap": (7,), "dear": (4,)}
    assert found([["dear"]], spare=1, max_gpus=9.0) == {} and found([["dear"]], spare=1, max_gpus=10.0)
    assert found([["dear"]], spare=2, max_usd_per_hour=17.9) == {} and found([["dear"]], spare=2, max_usd_per_hour=18.0)
    assert found([["cheap"]], max_usd_per_hour=math.nextafter(14.0, 0.0)) == {"cheap": (7,)}  # as products are rounded
    assert found([["dear"]], inventory={"h100": 7.0}) == {} and found([["dear"]], inventory={"h100": 8.0})
    assert found([["dear"]], node_gpus=16, max_usd_per_hour=23.9) == {}  # a node of 16 at 1.50 USD/h each
    assert found([["dear"]], node_gpus=16, max_usd_per_hour=24.0) == {"dear": (4,)}
    one = solve._Chosen(Ranked("dear", (0,), 1.0), trials["dear"], (9,))
    question = SimpleNamespace(limits=Limits(10.0, {}, 1, math.inf), margins=Margins(spare_count=1))
    assert solve._on_whole(one, "requests", question).smallest == (4,)
    few = SimpleNamespace(limits=Limits(9.0, {}, 1, math.inf), margins=Margins(spare_count=1))
    assert solve._on_whole(one, "requests", few) is None
    assert one.parts(question) == [("h100", 10, 2)] and solve._order(one) == (27.0, 1)


def test_the_gpus_of_a_plan_by_replays_count_its_spare_instances():
    """Pools of 2 and of 4 GPUs an instance, 5 and 6 of them by the closed forms without the spare, 3 and 4 in the
    replay, 7 and 8 for the next stretch; each pool has one to spare."""
    answer = SimpleNamespace(best=SimpleNamespace(gpus=50), question=SimpleNamespace(margins=Margins(spare_count=1)))
    first = solve._Chosen(None, asked(2, guess=(5, 6), gpus=(2, 4)), (3, 4))
    told = solve._told(answer, first, SimpleNamespace(gpus=30), ensure.Sizes((7, 8), 0, 0))
    assert (told.formula_gpus, told.same_formula_gpus) == (50, 2 * 6 + 4 * 7)
    assert (told.smallest_gpus, told.gpus, told.next_gpus) == (2 * 4 + 4 * 5, 30, 2 * 8 + 4 * 9)


@pytest.mark.parametrize("slow", [1.5, 1e9])
def test_the_ends_of_a_fleets_interval_have_its_margin_and_its_spares(slow, monkeypatch):
    """Ten instances hold, and two are spare; there are fifteen, a quarter more. With steps 0.8 and 1.5 times as long
    eight and fifteen hold, also where there are no more than ten now; with far longer ones no number of them does."""
    sure = Confidence((0.8, slow), (0.7, 1.5), "made")
    made = lambda priced, found, at: asked(1, least=(9,), most=(10,))._replace(life_s=float(at.slowdown[0]))

    def by_steps(trial, requests):
        need = 10 * trial.life_s
        assert requests == "grown"
        return (max(round(need), trial.least[0]),) if need <= trial.most[0] else None

    fakes = {"_sized_for": made, "fewest": by_steps}
    fakes["_confidences"] = lambda *given: [sure] if given == (priced, one.found) else None
    fakes["_grown"] = lambda *given: "grown" if given == ("day", priced.question) else None
    for name, fake in fakes.items():
        monkeypatch.setattr(solve, name, fake)
    priced = SimpleNamespace(question=SimpleNamespace(margins=Margins(spare_count=2)))
    one = solve._Chosen(None, asked(1, gpus=(2,)), (10,))
    low, high = solve._span(priced, one, (15,), "day")
    assert low == 2 * round(10 * 15 / 12) and high == (2 * round(17 * 15 / 12) if slow < 2 else math.inf)


def test_what_replays_are_tried_on_are_the_cheapest_of_each_kind(monkeypatch):
    """Of one pool three layouts, of pools beside each other or in turn two schemes; and the one that costs least with
    no more instances than keep up, and those to spare."""
    kinds = [(Kind.ONE_POOL, (0,)), *((Kind.TWO_POOLS, (k, k + 1)) for k in (1, 3, 5)), (Kind.SPLIT, (7, 8))]
    schemes = [Scheme(kind, f"scheme {k}", stages) for k, (kind, stages) in enumerate(kinds)]
    rng = np.random.default_rng(4)
    stable = rng.permutation(45).reshape(5, 9) + 1.0
    sized = stable + rng.permutation(45).reshape(5, 9)
    sized[int(np.argmin(stable[:, 0])), 0] = np.inf  # however many: what keeps up by fewest is late
    question = SimpleNamespace(
        limits=Limits(math.inf, {}, 1, math.inf),
        node_gpus=1,
        margins=Margins(spare_count=3),
        gpus={"a": SimpleNamespace(price_usd_per_hour=2.0)},
    )
    nothing = dict.fromkeys(("admitted", "cells", "calibration", "strain"))
    layouts, late = [Layout("a", tp=1, ep=k) for k in range(5)], SimpleNamespace(ttft_s=np.zeros((5, 9)))
    monkeypatch.setattr(Priced, "as_sized", property(lambda self: late))
    priced = Priced(
        question, layouts=layouts, stages=[], schemes=schemes, instances=sized, stable_instances=stable, **nothing
    )
    costs = lambda instances, scheme: sorted(
        (2.0 * sum(instances[row, stage] for row, stage in zip(rows, scheme.stages, strict=True)), rows)
        for rows in itertools.product(range(5), repeat=len(scheme.stages))
    )
    told = lambda found: [(one.usd_per_hour, one.rows) for one in found]
    assert told(solve._candidates(priced, Kind.ONE_POOL)) == costs(sized, schemes[0])[:3]
    for kind, count in ((Kind.TWO_POOLS, 2), (Kind.SPLIT, 1)):
        each = sorted(costs(sized, scheme)[0] for scheme in schemes if scheme.kind == kind)
        assert told(solve._candidates(priced, kind)) == each[:count]
    holds = np.where(np.isfinite(sized), stable + 3.0, np.inf)
    for kind in Kind:
        least = min(costs(holds, scheme)[0] for scheme in schemes if scheme.kind == kind)
        assert told(solve._leanest(priced, kind)) == [least]


def test_slos_that_no_number_of_instances_keeps_in_words(monkeypatch):
    late = {"one pool": [("TTFT", 3.0, 1.0), ("TPOT", 0.05, 0.1)], "two pools": [("TTFT", 0.5, 1.0)]}
    day = SimpleNamespace(source="day.csv")
    fakes = {"recording": lambda asked: None, "_grown": lambda found, asked: day, "most_tried": lambda trial: 99}
    fakes |= {"_ranked": lambda free, one: one.name, "_sized_for": lambda priced, ranked: ranked}
    fakes["Verdict"] = lambda trial, requests: SimpleNamespace(
        late=lambda most: late[trial] if (requests, most) == (day, 99) else []
    )
    for name, fake in fakes.items():
        monkeypatch.setattr(solve, name, fake)
    (fell,) = solve._late(
        SimpleNamespace(question=None, priced=None, kinds=[SimpleNamespace(name=name) for name in late])
    )
    assert (fell.layout, fell.binding) == ("one pool, however many instances", "TTFT in the replay of day.csv")
    assert (fell.have, fell.need) == ("3,000 ms", "at most 1,000 ms")


def test_how_much_the_rate_may_grow_in_the_replay():
    """To a fiftieth, and as much as the fleet is sized for: ten instances bear 1.05 times the rate."""
    ten = SimpleNamespace(pools=[SimpleNamespace(instances=10)])
    for bears, sized_for, room in ((1.05, 0.0, 0.04), (1.05, 0.045, 0.045), (0.5, 0.0, 0.0), (9.0, 0.0, 1.22)):
        assert solve._headroom(asked(1), ten, Quarters([bears]), sized_for) == pytest.approx(room)


def test_what_one_instance_less_breaks_in_words():
    trial = asked(2, least=(1, 4))
    said = lambda k, counts: solve._binding(trial, k, counts, needing(3, 5))
    assert said(0, (1, 9)) == "all service" and said(1, (9, 4)) == "throughput" and said(1, (9, 3)) == "throughput"
    assert said(0, (3, 9)) == "TTFT and TPOT" and said(0, (4, 9)) == "" and said(1, (9, 5)) == "TTFT and TPOT"
    pools = lambda *counts: SimpleNamespace(pools=[SimpleNamespace(instances=n) for n in counts])
    assert solve._survives(trial, pools(4, 6), needing(3, 5)) and not solve._survives(trial, pools(4, 5), needing(3, 5))
    assert not solve._survives(trial, pools(1, 6), needing(0, 5))  # nothing is left of a pool of one
