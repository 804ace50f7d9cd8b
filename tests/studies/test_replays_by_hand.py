"""What replays and fleets that run say, and the laws that they are played by, on toy fleets whose times are known."""

from __future__ import annotations

import math
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO, Trace, Workload
from dmodels.core.flags import Flag
from dmodels.core.hardware import Parallel
from dmodels.core.precision import Precision
from dmodels.core.routing import RoutingPolicy
from dmodels.formats.serving import Server, ServerPool, Serving
from dmodels.sim.batching import TokenLaw
from dmodels.sim.deployments import ServingFleet, ServingPool
from dmodels.sim.estimate import batch_quantile
from dmodels.sim.recordings import Recording
from dmodels.sim.requests import Requests, Served
from dmodels.studies.plan import ensure, existing, forecast, machines, reach, replaying
from dmodels.studies.plan.designs import Kind, Layout, Role, Stage
from dmodels.studies.plan.forecast import Latency
from tests.studies.test_answers_by_hand import fleet, pool

METRICS = ("TTFT", "TPOT", "E2E")


def column(value, of):
    return np.full(of.size, float(value))


def recording(times, period_s, inputs=100.0, outputs=3.0):
    times = np.asarray(times, float)
    return Recording(times, inputs + 0.0 * times, outputs + 0.0 * times, 0.0 * times, period_s, "made by hand")


# --- a replay ---


@pytest.fixture
def played(monkeypatch):
    """A fleet of two pools with a replay of it: a request a second, every other one long. Short ones are answered after
    a second, long ones after two, and 0.1 s a token later; those of the first five minutes far later."""
    told = Record()

    def serve(k, own, instances, policy, key):
        told.served = instances, policy, key
        first = own.arrival_s + 1.0 + k + 500.0 * (own.arrival_s < 300.0)
        return Served(own.arrival_s, own.arrival_s, first, first + 0.1 * (own.output_tokens - 1), own.output_tokens)

    def own(requests):
        long = requests.input_tokens > 1000
        return [requests.at(~long), requests.at(long)]

    def made(priced, *asked):
        told.made = asked
        return Record(parts=("short", "long"), own=own, serve=serve)

    def by_recursion(fleet, ready, *asked):
        told.recursion = (ready.warm_s, *asked)
        return [{name: Latency(0.0, 10.0 * k + j) for j, name in enumerate(METRICS)} for k in (1, 2)]

    monkeypatch.setattr(replaying, "serving_fleet", made)
    monkeypatch.setattr(replaying, "by_recursion", by_recursion)
    short = pool("short", layout=Layout("l40s", tp=2), instances=5, e2e_s=9.0, ttft_s=0.7)
    told.long = pool("long", instances=3, e2e_s=300.0, tpot_s=0.05)
    told.fleet = fleet(short, told.long, kind=Kind.TWO_POOLS)
    least = np.full((3, 2), 99.0)
    least[2, 1], least[0, 0] = 5.0, 3.0
    told.priced = Record(
        layouts=[told.long.layout, None, short.layout],
        stages=[told.long.stage, short.stage],
        question=Record(slo=SLO(1.5, 0.2, 9.0, percentile=0.75), trace=None),
        stable_instances=least,
    )
    return told


def test_a_replay_says_what_was_played_and_what_became_of_it(played):
    times = np.arange(1200.0)
    requests = recording(times, 1200.0, inputs=np.where(times % 2, 3000.0, 100.0))
    found = replaying.replay(played.priced, played.fleet, requests)
    assert (found.name, found.instances, found.gpus_each) == ("a fleet", (5, 3), (2, 4))
    assert (found.source, found.policy) == ("made by hand", str(RoutingPolicy.SHORTEST_QUEUE))
    assert (found.requests_count, found.period_s, found.window_s, found.percentile) == (1200, 1200.0, 60.0, 0.75)
    assert not found.overloaded and (found.held_count, found.days_count) == (0, 0) and not found.holds
    assert played.made == ([2, 0], [1, 0], False)
    assert played.served == ((5, 3), RoutingPolicy.SHORTEST_QUEUE, None)
    # the longest lives are five minutes, a quarter of the recording: its end is played first, and does not count
    rows = [(p.pool, p.metric, p.bound_s, p.measured_s, p.mean_s, p.kept_frac, p.holds) for p in found.promises]
    seconds = [("short", 1.0), ("long", 2.0)]
    assert rows == [
        (name, metric, bound, pytest.approx(s), pytest.approx(s), float(s <= bound), s <= bound)
        for name, first in seconds
        for metric, bound, s in (("TTFT", 1.5, first), ("TPOT", 0.2, 0.1), ("E2E", 9.0, first + 0.2))
    ]
    ends = [(p.low_s, p.high_s) for p in found.promises]  # each takes as long as any other
    assert ends == [(pytest.approx(p.measured_s), pytest.approx(p.measured_s)) for p in found.promises]
    assert [p.predicted_s for p in found.promises] == [0.7, 0.03, 9.0, 0.5, 0.05, 300.0]  # by the closed forms
    assert replaying.replay(played.priced, played.fleet, recording(times[:300], 300.0)).window_s == 30.0


@pytest.mark.parametrize("row, stage, overloaded", [(2, 1, True), (0, 0, True), (1, 0, False)])
def test_a_fleet_with_fewer_instances_than_keep_up_is_overloaded(played, row, stage, overloaded):
    played.priced.stable_instances[row, stage] += 1.0
    assert replaying.replay(played.priced, played.fleet, recording(np.arange(90.0), 90.0)).overloaded == overloaded


def test_of_a_trace_the_recursion_predicts_where_loads_route(played):
    played.priced.question.trace = "a trace"
    requests = recording(np.arange(90.0), 90.0, inputs=np.where(np.arange(90) % 2, 3000.0, 100.0))
    told = replaying.replay(played.priced, played.fleet, requests)
    assert [p.predicted_s for p in told.promises] == [10.0, 11.0, 12.0, 20.0, 21.0, 22.0]
    assert played.recursion == (270.0, (5, 3), [0.75, 0.75])
    told = replaying.replay(played.priced, played.fleet, requests, RoutingPolicy.RANDOM, "key")
    assert [p.predicted_s for p in told.promises][:2] == [0.7, 0.03] and told.policy == str(RoutingPolicy.RANDOM)
    assert played.served[1:] == (RoutingPolicy.RANDOM, "key")


def test_the_worst_window_of_a_promise_is_told_from_the_first_request_on():
    """The first second is late; a stretch that begins later has a start of its own."""
    came = 1000.0 + np.arange(20.0)
    late = np.where(np.arange(20) // 5 == 2, 4.0, 1.0)
    served = Served(came, came, came + late, came + late, np.ones(20))
    ttft, e2e = replaying._promises("p", served, SLO(2.0, 1.0), 5.0, dict.fromkeys(METRICS, Latency(1.0, 2.0)))
    for one in (ttft, e2e):
        assert (one.worst_s, one.worst_start_s, one.pool) == (4.0, 10.0, "p") and math.isnan(one.low_s)
    assert e2e.bound_s == math.inf and e2e.holds and not ttft.holds and ttft.kept_frac == 0.75


def test_a_promise_is_as_sure_as_its_twentieths_agree():
    """From two requests in each on; a time is never below 0."""
    close = lambda k: 2.0 + 0.1 * np.sin(k**2)
    fast_later = lambda k: np.where(k < 0.45 * k.size, 100.0, 1.0)
    for taken, percentile, count in ((close, 0.99, 39), (close, 0.99, 40), (close, 0.9, 400), (fast_later, 0.5, 400)):
        came, late = np.arange(1.0 * count), taken(np.arange(count))
        served = Served(came, came, came + late, came + late, np.ones(count))
        slo = SLO(5.0, percentile=percentile)
        told, _ = replaying._promises("p", served, slo, 5.0, dict.fromkeys(METRICS, Latency(1.0, 2.0)))
        half = batch_quantile(late, percentile, 20).half_width if count > 39 else math.nan
        assert told.high_s == pytest.approx(told.measured_s + half, nan_ok=True)
        assert told.low_s == pytest.approx(0.0 if taken is fast_later else told.measured_s - half, nan_ok=True)
        assert told.measured_s == pytest.approx(np.quantile(late, percentile))
        assert told.mean_s == pytest.approx(late.mean()) and told.kept_frac == np.mean(late <= 5.0)


# --- latencies before a replay ---


def test_closed_forms_of_each_pool_and_of_both_stages_of_a_split():
    one, two = pool("short", ttft_mean_s=0.1), pool("long", e2e_s=20.0, tpot_s=0.06)
    each = forecast.by_forms([one, two])
    assert [[tuple(x) for x in own.values()] for own in each] == [
        [(0.1, 0.5), (0.02, 0.03), (pytest.approx(math.nan, nan_ok=True), 9.0)],
        [(0.2, 0.5), (0.02, 0.06), (pytest.approx(math.nan, nan_ok=True), 20.0)],
    ]
    assert [list(own) for own in each] == [list(METRICS)] * 2
    first = pool("prefill", stage=Stage("prefill", Role.PREFILL), tpot_s=7.0, tpot_mean_s=7.0)
    second = pool("decode", stage=Stage("decode", Role.DECODE), ttft_s=0.25, ttft_mean_s=0.125, tpot_s=0.06)
    assert forecast.in_turn([first, second]) and not forecast.in_turn([one, two]) and not forecast.in_turn([first])
    (both,) = forecast.by_forms([first, second])
    assert tuple(both["TTFT"]) == pytest.approx((0.325, 0.75)) and tuple(both["TPOT"]) == (0.02, 0.06)
    assert both["E2E"].percentile_s == 18.0 and math.isnan(both["E2E"].mean_s) and list(both) == ["TTFT", "E2E", "TPOT"]


def test_the_recursion_counts_what_comes_after_the_warm_up_part_by_part():
    def backlog(k, own, instances):
        assert instances == (3, 4)
        first = own.arrival_s * (2.0 + k)
        return Served(own.arrival_s, own.arrival_s, first, first + 8.0, np.array([1.0, 5.0, 1.0, 9.0]))

    own = Record(arrival_s=np.array([1.0, 2.0, 3.0, 4.0]))
    fleet = Record(own=lambda requests: [own, own] if requests == "all" else [], backlog=backlog)
    found = forecast.by_recursion(fleet, Record(requests=lambda: "all", warm_s=2.0), (3, 4), [0.5, 1.0])
    wanted = [
        {"TTFT": (3.0, 3.0), "TPOT": (1.5, 1.5), "E2E": (11.0, 11.0)},
        {"TTFT": (6.0, 8.0), "TPOT": (1.5, 2.0), "E2E": (14.0, 16.0)},
    ]
    assert [{name: tuple(x) for name, x in one.items()} for one in found] == wanted


@pytest.fixture
def reached(monkeypatch):
    """Two pools whose TTFT the recursion puts at 0.6 and 0.55 s where the closed form says 0.5."""
    told = Record(seen={"short": 0.6, "long": 0.55}, calls=[])

    def by_recursion(fleet, ready, *asked):
        told.calls.append((ready, *asked))
        return [
            form | {"TTFT": Latency(0.2, told.seen[name])} for name, form in zip(fleet.parts, told.forms, strict=True)
        ]

    def made(priced, rows, stages, turn):
        assert priced is told.priced
        told.calls.append((rows, stages, turn))
        return Record(parts=told.parts)

    source = lambda name: Record(
        sampled=lambda count: told.calls.append((name, count)) or Record(warm=lambda life_s: (name, life_s))
    )
    monkeypatch.setattr(reach, "by_recursion", by_recursion)
    monkeypatch.setattr(reach, "serving_fleet", made)
    monkeypatch.setattr(reach, "drawn", lambda *asked: told.calls.append(asked) or source("drawn"))
    monkeypatch.setattr(reach, "recording", lambda one: source("the trace") if one is asked else None)
    monkeypatch.setattr(reach, "_why", lambda one, pools: f" (as {len(pools)} pools are)" if one is asked else None)
    told.source = source
    told.pools = [pool("short", instances=2, e2e_s=4.0, layout=Layout("l40s")), pool("long", instances=7)]
    told.forms, told.parts = forecast.by_forms(told.pools), ("short", "long")
    engine = Record(max_num_batched_tokens=8192.0)
    asked = Record(trace=None, slo=SLO(0.53), engine=engine, admitted=Record(workload="requests"))
    slo = Record(percentile=np.array([[0.9], [0.95], [0.99]]))
    told.priced = Record(
        question=asked,
        layouts=[told.pools[1].layout, told.pools[0].layout],
        stages=[told.pools[0].stage, told.pools[1].stage],
        cells=Record(slo=slo),
        cell_of=lambda pool: 1 if pool is told.pools[0] else 2,
    )
    return told


def test_how_far_closed_forms_go_is_told_pool_by_pool(reached):
    """By a drawn stream three quarters of a difference tell; of a trace itself all of it, 15 % of the percentile."""
    found = reach.reach(reached.priced, reached.pools)
    said = "pool short: TTFT P95 600 ms by recursion over the arrivals (500 by the formula) (as 2 pools are)"
    assert found.outside == (said,) and not found.breaks
    assert reached.calls == [
        ("requests", 1, 100_000),
        ("drawn", 100_000),
        ([1, 0], [0, 1], False),
        (("drawn", 9.0), [2, 7], [0.95, 0.99]),
    ]
    reached.seen = {"short": 0.57, "long": 0.61}  # 12.3 % and 18 % off
    assert [one[:10] for one in reach.reach(reached.priced, reached.pools).outside] == ["pool short", "pool long:"]
    given = reach.reach(reached.priced, reached.pools, reached.source("given"))
    assert len(given.outside) == 2 and given.breaks and reached.calls[-3] == ("given", 100_000)  # 0.61 > 1.15 x 0.53
    reached.priced.question.trace = "a trace"
    assert [one[:10] for one in reach.reach(reached.priced, reached.pools).outside] == ["pool long:"]
    assert reached.calls[-3] == ("the trace", 100_000)
    assert len(reach.reach(reached.priced, reached.pools, reached.source("given")).outside) == 2


def test_a_split_is_told_as_a_whole_at_the_percentile_of_its_slo(reached):
    first = pool("prefill", stage=Stage("prefill", Role.PREFILL), ttft_s=0.25)
    reached.pools = [first, pool("decode", stage=Stage("decode", Role.DECODE), ttft_s=0.25)]
    reached.priced.layouts, reached.priced.stages = [first.layout], [one.stage for one in reached.pools]
    reached.priced.question.slo = SLO(1.0, percentile=0.875)
    reached.seen, reached.parts, reached.forms = {"all": 1.0}, ("all",), forecast.by_forms(reached.pools)
    found = reach.reach(reached.priced, reached.pools)
    said = "TTFT mean 200 ms by recursion over the arrivals (400 by the formula) (as 2 pools are)"
    reached.seen = {"all": 0.5}
    assert reach.reach(reached.priced, reached.pools).outside == (said,)
    assert found.outside[0].startswith("TTFT P87.5 1,000 ms by recursion over the arrivals (500 by the formula)")
    assert reached.calls[2] == ([0, 0], [0, 1], True) and reached.calls[3][2] == [0.875]


def test_bursts_are_looked_for_in_windows_about_the_time_scale_of_the_queue(monkeypatch):
    """From a tenth of it to a hundred times it, as long as the trace has fifty of them; the greatest index counts."""
    seen = []

    def burstiness(when, windows):
        seen.append(windows)
        return Record(dispersion_count=np.where(np.arange(windows.size) == 4, 7.0, 2.0))

    monkeypatch.setattr(reach, "burstiness", burstiness)
    trace = Trace("t", np.arange(2001.0), np.full(2001, 9.0), np.full(2001, 9.0))
    work = Record(arrival_cv=1.5)
    asked = lambda trace, rate_rps=2.0: Record(trace=trace, rate_rps=rate_rps, workload=work)
    found = reach.dispersion(asked(trace, trace.rate_rps), 1.0)
    (windows,) = seen
    assert windows.tolist() == pytest.approx([10 ** (k / 4 - 1) for k in range(11)])  # 31.6 s, and 56 are too long
    assert found == (7.0, pytest.approx(1.0))
    seen.clear()
    assert reach.dispersion(asked(trace, 2.0 * trace.rate_rps), 0.1) == (7.0, pytest.approx(0.1))
    assert len(seen[0]) == 13 and seen[0][[0, -1]] == pytest.approx([0.01, 10.0])
    late = Trace("l", np.append(np.arange(2000.0), 2812.0), np.full(2001, 9.0), np.full(2001, 9.0))
    reach.dispersion(asked(late, late.rate_rps), 1.0)
    assert len(seen[1]) == 12  # to its last request there are fifty of 56 s, too
    volley = Trace("v", np.zeros(9), np.full(9, 9.0), np.full(9, 9.0))
    for none, scale in ((None, 1.0), (volley, 1.0), (trace, 1e9)):
        assert reach.dispersion(asked(none), scale) == (2.25, 0.0)


# --- what a fleet is asked for ---


def test_a_slower_fleet_has_slower_steps_and_less_time_to_the_first_token():
    """Steps of each pool by its own factor; a TTFT that is slower still has to be so much shorter."""
    law = TokenLaw(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.0, 8.0]))
    served = ServingFleet((ServingPool("a", law, 1, 8, fixed_s=1.0, token_s=2.0), ServingPool("b", law, 1, 8)))
    plain = ensure.Trial(served, SLO(6.0, 0.5, 9.0), (1, 2), (3, 4), (5, 6), (1.0, 1.0), (1, 1), ("x", "y"), 7.0)
    slow = plain.slower([2.0, 3.0], 1.5)
    assert [one.law.times_s.tolist() for one in slow.fleet.pools] == [[[2, 4], [6, 8]], [[3, 6], [9, 12]]]
    assert (slow.fleet.pools[0].fixed_s, slow.fleet.pools[0].token_s) == (2.0, 4.0)
    assert [float(x) for x in (slow.slo.ttft_s, slow.slo.tpot_s, slow.slo.e2e_s)] == [4.0, 0.5, 9.0]
    assert slow[2:] == plain[2:] and plain.parts((8, 9)) == [("x", 8, 1), ("y", 9, 1)]


@pytest.mark.parametrize(
    "size, late, possible",
    [
        (50, range(2), True),
        (50, range(3), False),
        (3000, range(30), True),
        (3000, range(1, 3000, 50), False),
        (2000, range(1, 1000, 25), False),
    ],
)
def test_no_number_of_instances_holds_where_lone_requests_are_late(size, late, possible):
    """Each has an instance to itself; at most a thousand are looked at, of all lengths alike wherever they stand, and 2
    in their number more may be late than the SLO says."""
    asked = []

    def serve(part, own, instances):
        asked.append((part, own.arrival_s.size, instances))
        assert (np.diff(own.arrival_s) > 0).all()
        first = own.arrival_s + np.where(own.input_tokens > 500, 3.0, 1.0)
        return Served(own.arrival_s, own.arrival_s, first, first + own.output_tokens - 1, own.output_tokens)

    inputs = np.where(np.isin(np.arange(size), late), 900, 100)
    own = Requests.checked(np.arange(float(size)), inputs, np.full(size, 2))
    fleet = Record(in_turn=False, own=lambda requests: [None, own], serve=serve, pools=[None] * 3)
    made = Record(warm_s=0.0, requests=lambda: None)
    trial = Record(fleet=fleet, slo=SLO(2.0, 1.0, percentile=0.99), life_s=4.0)
    verdict = ensure.Verdict(trial, Record(warm=lambda life_s: made if life_s == 4.0 else None))
    assert verdict.possible(1) == possible and asked == [(1, min(size, 1000), [min(size, 1000)] * 3)]


def test_how_late_each_pool_is_where_it_has_requests():
    served = {0: (1.0, 0.5), 2: (3.0, 0.25)}

    def serve(part, own, instances, prefilled, give_up):
        assert instances == (7, 8, 9) and prefilled is give_up is None
        first, each = (own.arrival_s + x for x in served[part])
        return Served(own.arrival_s, own.arrival_s, first, first + (each - own.arrival_s) * 4.0, column(5.0, first))

    some, none = Record(arrival_s=np.arange(9.0)), Record(arrival_s=np.zeros(0))
    fleet = Record(in_turn=False, own=lambda requests: [some, none, some], serve=serve)
    trial = Record(fleet=fleet, slo=SLO(2.0, 0.4), life_s=1.0)
    verdict = ensure.Verdict(trial, Record(warm=lambda life_s: Record(warm_s=0.0, requests=lambda: None)))
    assert verdict.late((7, 8, 9)) == [
        ("TTFT", 1.0, 2.0),
        ("TPOT", pytest.approx(0.5), 0.4),
        ("TTFT", 3.0, 2.0),
        ("TPOT", pytest.approx(0.25), 0.4),
    ]


# --- a fleet that runs ---


class Busy:
    """Servers whose requests take so many seconds to the first token as there are requests a second for one of them,
    each second so much longer, and a tenth of that a token."""

    def __init__(self, name, each_s, low=0.0, high=math.inf, decodes=True):
        self.name, self.each_s, self.low, self.high, self.decodes = name, each_s, low, high, decodes

    def own(self, requests):
        total = requests.input_tokens + requests.output_tokens
        return requests.at((total > self.low) & (total <= self.high))

    def serve(self, own, instances, policy=None, key=None, *, give_up=None):
        span = own.arrival_s[-1] - own.arrival_s[0]
        ttft = self.each_s * (own.arrival_s.size - 1) / span / instances
        first = own.arrival_s + ttft
        outputs = own.output_tokens if self.decodes else np.ones_like(own.output_tokens)
        return Served(own.arrival_s, own.arrival_s, first, first + 0.1 * ttft * (outputs - 1), outputs)


def runs(monkeypatch, machines_of, slo, rate_rps, pools, threshold=None, context=(None, None)):
    """`existing` of servers, each of which is a toy."""
    made = iter(machines_of)
    servers = tuple(
        ServerPool(f"p{k}", Server("sglang", "m", role=role, tp=2, max_model_len_tokens=most), count, "h100_sxm")
        for k, ((role, count), most) in enumerate(zip(pools, context, strict=False))
    )
    seen = []

    def machine(asked, pool, stage):
        toy, share, life_s, overloaded = next(made)
        seen.append((pool.name, stage.name))
        toy.low, toy.high = stage.low_tokens, stage.high_tokens
        return existing._Machine(pool, Layout("h100_sxm", tp=2), toy, 7.0, share, life_s, overloaded)

    times = np.arange(601.0) / rate_rps
    inputs = np.where(np.arange(601) % 4 == 3, 3000.0, 97.0)
    requests = recording(times, float(times[-1]), inputs)
    monkeypatch.setattr(existing, "_machine", machine)
    monkeypatch.setattr(existing, "recording", lambda asked: Record(sampled=lambda most: requests))
    monkeypatch.setattr(existing, "nearest_model", lambda name: "a model" if name == "m" else None)
    work = Workload([100.0, 3000.0], [3.0, 3.0], [0.75, 0.25], rate_rps=rate_rps)
    taken = Record(workload=work, refused_frac=0.2, rate_rps=rate_rps)
    asked = Record(model_name="a model", served_name="", checkpoint="", admitted=taken, slo=slo, gpus={})
    found = existing.existing(asked, Serving("ours", servers, threshold))
    assert (found.name, found.engine, found.source, found.rate_rps) == ("ours", "sglang", "made by hand", rate_rps)
    return found, seen


def test_what_a_running_fleet_serves_is_what_its_pools_bear(monkeypatch):
    """10 requests a second. Three in four are short: 7.5 a second on 3 servers take 2.5 x 0.02 s; long ones, 2.5 on 2
    servers, 1.25 x 0.08 s. Within 0.2 s short ones may come four times as fast, long ones twice."""
    pools = [("serve", 3), ("serve", 2)]
    toys = [(Busy("short", 0.02), 0.75, 1.0, False), (Busy("long", 0.08), 0.25, 2.0, False)]
    context = (2048, 4096)
    found, seen = runs(monkeypatch, toys, SLO(0.2, 0.5), 10.0, pools, 1000, context)
    assert seen == [("p0", "short"), ("p1", "long")] and found.refused_frac == pytest.approx(0.2)
    assert 20.0 / 1.01 <= found.serves_rps <= 20.0 and found.keeps_slo and found.gpus == 10
    assert found.usd_per_hour == 35.0
    near = lambda value: pytest.approx(value, rel=0.02)
    for one, (name, count, share, most, ttft) in zip(
        found.pools, (("p0", 3, 0.75, 30.0, 0.05), ("p1", 2, 0.25, 5.0, 0.1)), strict=True
    ):
        assert (one.name, str(one.layout), one.instances, one.gpus) == (name, "h100_sxm tp2pp1dp1ep1", count, 2 * count)
        assert (one.usd_per_hour, one.share_frac) == (7.0 * count, share)
        assert most / 1.012 <= one.serves_rps <= most * 1.002
        assert (one.ttft_s, one.ttft_mean_s) == (near(ttft), near(ttft))
        assert (one.tpot_s, one.tpot_mean_s) == (near(0.1 * ttft), near(0.1 * ttft))
        # each server's requests a second, times the two tokens that follow the first
        assert one.decode_count == near(10.0 * share / count * 2 * 0.1 * ttft)


def test_a_running_split_is_bounded_by_both_and_each_by_its_own(monkeypatch):
    """10 a second: prefill workers add 10/4 x 0.04 s, decoders 10/5 x 0.05; within 0.4 s both together bear twice the
    rate, and each alone, beside eight times the other, 0.4 / (0.1 + 0.1 / 8) = 3.56 times."""
    toys = [(Busy("prefill", 0.04, decodes=False), 1.0, 1.0, True), (Busy("decode", 0.05), 1.0, 2.0, False)]
    found, _ = runs(monkeypatch, toys, SLO(0.4, 0.5), 10.0, [("prefill", 4), ("decode", 5)])
    near = lambda value: pytest.approx(value, rel=0.02)
    assert 20.0 / 1.01 <= found.serves_rps <= 20.0 * 1.001
    prefill, decode = found.pools
    assert [one.serves_rps for one in found.pools] == [near(35.56), near(35.56)]
    assert prefill.ttft_s == prefill.ttft_mean_s == math.inf  # its machine is overloaded
    assert math.isnan(prefill.tpot_s) and math.isnan(prefill.tpot_mean_s) and prefill.decode_count == 0.0
    assert (decode.ttft_s, decode.ttft_mean_s, decode.tpot_s) == (near(0.1), near(0.1), near(0.01))
    assert decode.decode_count == near(10.0 / 5 * 2 * 0.01)


@pytest.mark.parametrize("bound_s, growth", [(1e-9, 0.0), (6e-5, 1.2e-3), (0.05, 1.0), (1e9, 1000.0)])
def test_a_fleet_bears_no_rate_or_at_most_a_thousand_times_it(monkeypatch, bound_s, growth):
    toys = [(Busy("all", 0.01), 1.0, 1.0, False)]
    found, _ = runs(monkeypatch, toys, SLO(bound_s * (1 + 1e-9), math.inf), 10.0, [("serve", 2)])
    assert found.serves_rps == pytest.approx(10.0 * growth, rel=0.01) and found.keeps_slo == (growth >= 1.0)


def test_the_longest_life_of_a_fleet_is_that_of_its_slowest_pool():
    made = [existing._Machine(None, None, f"pool {k}", 1.0, 1.0, life, False) for k, life in enumerate((3.0, 9.0, 5.0))]
    found = existing._running("slo", made, True)
    assert (found.life_s, found.slo, found.fleet) == (9.0, "slo", ServingFleet(("pool 0", "pool 1", "pool 2"), True))


def test_a_server_as_the_simulators_take_it(monkeypatch):
    """Idle: on a thousand times as many servers; at the rate asked about too few may keep up."""
    named = ServerPool("p", Server("trtllm", "org/model", tp=2, quantization="fp8"), 5, "h100_sxm")
    calls = []
    fakes = {"calibrated": lambda *asked, own: calls.append((asked, own)) or Record(efficiency=lambda layout: "eff")}
    fakes |= {"in_precision": lambda model, layout: f"{model} as {layout.weights}", "compressed": lambda work: "small"}
    fakes["instances"] = lambda models, gpus, layouts, efficiency: ("records", models, layouts, efficiency(None))
    fakes["engine_memory"] = lambda engine: f"memory of {engine}"

    def cells(*asked, memory):
        calls.append((asked, memory))
        return Record(requests=Record(share_frac=np.array([[0.25]])))

    def swept(batch, counts, rate_rps, engine):
        calls.append((counts.tolist(), rate_rps))
        flags = np.array([[int(Flag.OVERLOAD | Flag.SLO_MISS), int(Flag.SLO_MISS)]])
        return Record(e2e_s=np.array([[90.0, 4.0]]), ttft_s=np.array([[9.0, 1.0]]), flags=flags)

    fakes |= {"cells": cells, "sweep_instances": swept}
    fakes["pool_of"] = lambda one, stage, cell, engine: (one.model, float(one.parallel.tp), one.efficiency, stage)
    fakes["jax"] = Record(tree=Record(map=lambda function, tree: "cell"))
    for name, fake in fakes.items():
        monkeypatch.setattr(existing, name, fake)
    asked = Record(
        gpus={"h100_sxm": Record(price_usd_per_hour=2.5)},
        checkpoint="",
        weights=(),
        model="model",
        model_name="name",
        architecture="arch",
        measured="mine",
        engine=Record(max_num_seqs_count=64.0, max_num_batched_tokens=512.0),
        admitted=Record(workload="work", rate_rps=6.0),
        slo="slo",
    )
    stage = Stage("all")
    found = existing._machine(asked, named, stage)
    assert (found.price, found.share_frac, found.life_s, found.overloaded) == (5.0, 0.25, 4.0, True)
    assert found.layout == Layout("h100_sxm", tp=2, weights=Precision.FP8) and found.pool is named
    assert found.serving == ("model as fp8", 2.0, "eff", stage)
    (calibrated, own), (given, memory), swept_at = calls
    assert (calibrated[0], calibrated[1], calibrated[4], own) == (("name", "arch"), ["model as fp8"], "trtllm", "mine")
    assert given[1:5] == ("work", "small", [stage], "slo") and memory == "memory of trtllm"
    assert (float(given[5].max_num_seqs_count), float(given[5].max_num_batched_tokens)) == (64.0, 512.0)
    assert swept_at == ([[5.0, 5000.0]], 6.0)


# --- what a pool is played by ---


def test_a_lone_prompt_takes_what_the_mean_one_does_and_rises_like_a_step():
    """Steps of 2 s and 0.1 s a token up to 100 tokens; prompts that fill nine tenths of that take so much a token."""
    tokens = np.linspace(0.0, 100.0, 5)
    law = TokenLaw(np.array([2.0 + 0.1 * tokens, 9.0 + tokens]), tokens)
    for mean_tokens, mean_s, told in (
        (50.0, 7.0, (2.0, 0.1)),
        (50.0, 9.0, (4.0, 0.1)),
        (50.0, 3.0, (0.0, 0.06)),  # never less than nothing for the first
        (89.0, 12.0, (3.1, 0.1)),
        (90.0, 18.0, (0.0, 0.2)),
        (500.0, 55.0, (0.0, 0.11)),
    ):
        assert machines._of_a_prompt(law, mean_tokens, mean_s) == pytest.approx(told)


@pytest.mark.parametrize("role", list(Role))
def test_a_pool_is_played_by_the_law_of_its_cell(role, monkeypatch):
    """Two stages of a pipeline: what computes prompts sends each through a further one, the host's time and the
    transfer beside; a step and a half late, of which half are in the simulator's own steps."""
    tokens = np.linspace(0.0, 1000.0, 3)
    law = TokenLaw(np.array([1.0 + 0.01 * tokens]), tokens)
    asked = []
    monkeypatch.setattr(machines, "_law", lambda roofline, slots, chunk: asked.append((roofline, slots, chunk)) or law)
    monkeypatch.setattr(machines, "Roofline", lambda *given: given)
    requests = Record(prefill_tokens=400.0)
    cell = Record(steps=Record(extra_s=np.array([6.0, 99.0])), requests=requests, dp=2.0, slots_count=90.5, pp=2.0)
    cell.prompt_s, cell.transfer_s_per_token, cell.wait_steps = 0.25, 0.125, 1.5
    one = Record(model="model", gpu="gpu", parallel=Parallel(dp=2), efficiency="efficiency")
    engine = Record(max_num_batched_tokens=500.0, max_num_seqs_count=45.0)
    stage = Stage("own", role, 10.0, 20.0)
    told = machines.pool_of(one, stage, cell, engine)
    ((roofline, slots, chunk),) = asked
    assert roofline == ("model", "gpu", one.parallel, requests, "efficiency", 500.0)
    assert (slots, chunk) == (90, 1000) == (told.slots, told.chunk_tokens)  # of both ranks
    assert (told.name, told.law, told.low_tokens, told.high_tokens) == ("own", law, 10.0, 20.0)
    assert (told.prefills, told.decodes) == (role != Role.DECODE, role != Role.PREFILL)
    prompt = (0.25, 0.125) if role == Role.DECODE else (0.25 + 2.0, 0.125 + 0.01)
    assert (told.fixed_s, told.token_s, told.late_steps) == (*map(pytest.approx, prompt), 1.0)
    cell.slots_count, requests.prefill_tokens = 0.5, 0.0
    few = machines.pool_of(one, stage, cell, Record(max_num_batched_tokens=500.0, max_num_seqs_count=3.0))
    assert few.slots == 1 and math.isfinite(few.token_s)
    cell.slots_count, cell.dp, requests.prefill_tokens = 90.5, 1.0, 400.0
    alone = machines.pool_of(one, stage, cell, engine)  # without ranks a step has its budget, and the engine's slots
    assert (alone.chunk_tokens, alone.slots) == (500, 45)
    cell.dp, requests.prefill_tokens = 2.0, 0.0
    assert machines.pool_of(one, stage, cell, Record(max_num_batched_tokens=5.0, max_num_seqs_count=3.0)).slots == 6


@pytest.mark.parametrize("slots", [1, 7, 40, 300])
@pytest.mark.parametrize("prompts", [True, False])
def test_a_law_is_tabulated_for_every_number_of_requests(slots, prompts, monkeypatch):
    """Of steps that are linear in both, exactly; a decoder's prompts are computed elsewhere, and cost it nothing."""
    shapes = []

    def grid(roofline, counts, tokens):
        shapes.append(counts.shape)
        return 1.0 + 2.0 * counts[:, None] + 3.0 * tokens[None]

    monkeypatch.setattr(machines, "_grid", grid)
    found = machines._law(Record(requests=Record(prefill_tokens=50.0 * prompts)), slots, 640)
    counts = np.arange(slots + 1.0)
    assert found.decodes and found.tokens.tolist() == [5.0 * k for k in range(129)]
    wanted = 1.0 + 2.0 * counts[:, None] + 3.0 * found.tokens[None] * prompts
    np.testing.assert_allclose(found.times_s, wanted)
    assert shapes == [(64,)]  # one program for all


def test_each_pool_of_a_fleet_is_that_of_its_layout_and_stage(monkeypatch):
    with_its = lambda one, stage, cell, engine: (one.model, one.gpu, one.parallel, one.efficiency, stage, cell, engine)
    monkeypatch.setattr(machines, "pool_of", with_its)
    monkeypatch.setattr(machines, "in_precision", lambda model, layout: f"{model} on {layout.gpu}")
    layouts = [Record(gpu="a", as_parallel="tp1"), Record(gpu="b", as_parallel="tp2")]
    asked = Record(model="m", gpus={"a": "A", "b": "B"}, engine="engine")
    priced = Record(question=asked, layouts=layouts, stages=["s", "t"], cell=lambda row, stage: 2 * row + stage)
    priced.calibration, priced.cells = (
        Record(efficiency=lambda x: f"as {x.gpu}"),
        np.array([[5.0], [6.0], [7.0], [8.0]]),
    )
    found = machines.serving_fleet(priced, [1, 0], [0, 1], True)
    wide, small = ("m on b", "B", "tp2", "as b", "s", 7.0, "engine"), ("m on a", "A", "tp1", "as a", "t", 6.0, "engine")
    assert found == ((wide, small), True)


def test_what_is_replayed_is_the_trace_or_requests_that_are_drawn(monkeypatch):
    monkeypatch.setattr(machines, "drawn", lambda *given: given)
    monkeypatch.setattr(machines, "recorded", lambda *given: given)
    asked = Record(trace=None, admitted=Record(workload="work"))
    assert machines.recording(asked) == ("work", 0, 20_000) and machines.recording(asked, 3, 50) == ("work", 3, 50)
    trace = Trace("t", np.arange(3.0), np.full(3, 9.0), np.full(3, 9.0))
    known = Record(trace=trace, rate_rps=5.0, model=Record(max_context_tokens=64.0))
    assert machines.recording(known) == (trace, 5.0, 64.0, 0) and machines.recording(known, seed=7)[3] == 7
