"""What plans say of their pools, of requests that cost much, of what else could be, on records made by hand."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels import SLO, Workload, catalog
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.fit.calibration import interval, quantiles
from dmodels.fit.refit import OwnCalibration
from dmodels.studies.plan import calibration, forecast, reach, replaying, reverse, search, tail
from dmodels.studies.plan.calibration import Confidence, ModelId, calibrated, precision_name
from dmodels.studies.plan.deployment import Deployment, Pool
from dmodels.studies.plan.designs import Kind, Layout, Role, Stage
from dmodels.studies.plan.forecast import Latency
from dmodels.studies.plan.margins import Margins
from dmodels.studies.plan.promises import Promise, Replayed
from dmodels.studies.plan.tail import Tail, costly, long_tailed, without_longest

SURE = Confidence((0.8, 1.3), (0.7, 1.5), "calibrated on something", 0.1)
PROMISE = {
    "pool": "all",
    "metric": "TTFT",
    "bound_s": 1.0,
    "measured_s": 0.8,
    "low_s": 0.7,
    "high_s": 0.9,
    "mean_s": 0.3,
}
PROMISE |= {"kept_frac": 0.99, "predicted_s": 1.0, "worst_s": 2.0, "worst_start_s": 5.0, "holds": True}


def pool(name="all", **given):
    own = {"stage": Stage(name, high_tokens=math.inf), "layout": Layout("h100_sxm", tp=4), "instances": 3}
    own |= {"price_usd_per_hour": 2.5, "request_share_frac": 1.0, "longest_tokens": 5000.0, "context_tokens": math.inf}
    own |= {"ttft_s": 0.5, "ttft_mean_s": 0.2, "tpot_s": 0.03, "tpot_mean_s": 0.02, "e2e_s": 9.0, "decode_count": 7.0}
    own |= {"slots_count": 99.0, "tokens_per_s": 800.0, "binding": "TTFT", "confidence": SURE, "load_frac": 0.5}
    return Pool(**own | {"extrapolated": ()} | given)


def fleet(*pools, kind=Kind.ONE_POOL, **given):
    return Deployment(kind, "a fleet", tuple(pools), 10.0, 20.0, **given)


def test_figures_of_a_fleet_are_those_of_its_pools():
    one = pool("short", stage=Stage("short", high_tokens=2048.0), instances=2)
    two = pool("long", ttft_s=0.9, tpot_s=0.02, e2e_s=30.0, instances=5, tokens_per_s=100.0)
    both = fleet(one, two, kind=Kind.TWO_POOLS)
    assert (both.gpus, both.bought_gpus, both.usd_per_hour) == (28, 28, 70.0) and both.usd_per_year == 70.0 * 8760
    assert (both.ttft_s, both.tpot_s, both.e2e_s, both.tokens_per_s) == (0.9, 0.03, 30.0, 900.0)
    assert both.parts == [("h100_sxm", 2, 4), ("h100_sxm", 5, 4)] and one.usd_per_year == 20.0 * 8760
    assert both.router == {"policy": "token budget", "threshold_tokens": 2048.0, "spill_when_queue_exceeds_s": 0.1}
    assert both.decomposition() == (
        "28 GPUs = 2 x 4 h100_sxm (tp4pp1dp1ep1, short) + 5 x 4 h100_sxm (tp4pp1dp1ep1, long)"
    )
    turn = fleet(
        pool("prefill", stage=Stage("prefill", role=Role.PREFILL), tpot_s=9.9, e2e_s=0.5),
        pool("decode", stage=Stage("decode", role=Role.DECODE), ttft_s=0.1),
        kind=Kind.SPLIT,
    )
    assert turn.in_turn and (turn.ttft_s, turn.tpot_s, turn.e2e_s) == (pytest.approx(0.6), 0.03, 9.5)
    assert turn.router == {"policy": "least requests in flight"} and not both.in_turn
    whole = replace(both, node_gpus=8)
    assert (whole.gpus, whole.bought_gpus, whole.usd_per_hour) == (28, 32, 80.0)


def test_rows_of_a_plan_are_its_fleets_pool_by_pool():
    """Each fleet once, however often it is the best of something; what was replayed is told as it was."""
    one = fleet(pool(instances=7, binding="TPOT", load_frac=0.25))
    short = pool("short", layout=Layout("l40s", tp=2), instances=5, price_usd_per_hour=0.5, binding="memory")
    kept = Promise(**PROMISE | {"pool": "long", "measured_s": 0.75})
    seen = Replayed("a fleet", (5, 3), (2, 4), "a trace", "p", 9, 60.0, 6.0, 0.99, (kept,), False)
    two = fleet(short, pool("long"), kind=Kind.TWO_POOLS, replayed=seen)
    rows = search.Plan.records(SimpleNamespace(best=one, cheapest=two, by_gpu=(replace(one),), kinds=(one, two)))
    names = ("kind", "fleet", "fleet_gpus", "fleet_usd_per_hour", "recommended", "pool", "gpu", "layout", "instances")
    names += ("gpus", "usd_per_hour", "ttft_s", "tpot_s", "load_frac", "binding")
    h100, l40s = ("h100_sxm", "tp4pp1dp1ep1"), ("l40s", "tp2pp1dp1ep1")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("one pool", "a fleet", 28, 70.0, True, "all", *h100, 7, 28, 70.0, 0.5, 0.03, 0.25, "TPOT"),
        ("two pools", "a fleet", 22, 35.0, False, "short", *l40s, 5, 10, 5.0, 0.5, 0.03, 0.5, "memory"),
        ("two pools", "a fleet", 22, 35.0, False, "long", *h100, 3, 12, 30.0, 0.75, 0.03, 0.5, "TTFT"),
    ]
    assert all(set(row) == set(names) for row in rows)


@pytest.mark.parametrize(
    "top, longest, context, length",
    [
        (2048.0, 1.0, math.inf, 2048),
        (math.inf, 5000.0, math.inf, 5120),
        (math.inf, 5120.0, math.inf, 5120),
        (math.inf, 5121.0, math.inf, 6144),
        (8192.0, 1.0, 4000.0, 4000),
        (math.inf, 9000.0, 8500.5, 8500),
    ],
)
def test_the_context_to_configure(top, longest, context, length):
    own = pool(stage=Stage("x", high_tokens=top), longest_tokens=longest, context_tokens=context)
    assert own.max_model_len_tokens == length


def test_promises_as_they_were_kept():
    kept = Promise(**PROMISE)
    assert kept.error_frac == pytest.approx(0.25) and kept.sure and not replace(kept, high_s=1.1).sure
    broken = replace(kept, measured_s=1.5, low_s=1.1, high_s=2.0, holds=False)
    assert broken.sure and not replace(broken, low_s=0.9).sure and not replace(broken, low_s=1.0).sure
    assert math.isnan(replace(kept, measured_s=0.0).error_frac)
    promises = (kept, replace(kept, pool="long", measured_s=0.95), replace(kept, metric="TPOT", measured_s=0.04))
    seen = Replayed("a fleet", (2, 5), (4, 8), "a trace", "p", 9, 60.0, 6.0, 0.99, promises, False)
    assert seen.holds and seen.gpus == 48 and seen.at("TTFT") == 0.95 and math.isnan(seen.at("E2E"))
    assert not replace(seen, promises=(*promises, broken)).holds
    one, two = pool("all"), pool("long")
    told = fleet(one, two, kind=Kind.TWO_POOLS, replayed=seen)
    assert (told.ttft_s, told.tpot_s, told.e2e_s) == (0.95, 0.04, 9.0)  # as replayed, where it was
    assert (told.seen(two, "TTFT"), told.seen(two, "TPOT"), told.seen(one, "TPOT")) == (0.95, 0.03, 0.04)
    assert fleet(one).seen(one, "E2E") == 9.0


def sized(flags, ttft, tpot, e2e):
    """Two cells, whose columns are: as sized, with one instance less, and along the growths of the rate."""
    shape = (2, 2 + len(search.GROWTH))
    fill = lambda rows: np.array([[*row, *[row[-1]] * (shape[1] - len(row))] for row in rows], float)
    at = SimpleNamespace(flags=fill(flags).astype(int), ttft_s=fill(ttft), tpot_s=fill(tpot), e2e_s=fill(e2e))
    slo = SimpleNamespace(
        **{n: np.array([[b], [2 * b]]) for n, b in (("ttft_s", 1.0), ("tpot_s", 0.1), ("e2e_s", 9.0))}
    )
    priced = SimpleNamespace(
        cells=SimpleNamespace(slo=slo), question=SimpleNamespace(margins=Margins(0.2)), cell_of=lambda p: p
    )
    return SimpleNamespace(priced=priced, rows={0: 0, 1: 1}, at=at)


def test_what_breaks_first_with_one_instance_less():
    miss = int(Flag.SLO_MISS)
    late = sized([[0, miss], [0, miss]], [[0.5, 1.5], [0.5, 1.5]], [[0.05, 0.11], [0.05, 0.05]], [[1, 9.1], [1, 18.0]])
    assert search._binding(late, 0, 3) == "TTFT and TPOT and E2E" and search._binding(late, 1, 3) == "memory"
    assert search._binding(late, 0, 1) == "all service"
    some = sized(
        [[0, miss], [0, miss | int(Flag.OVERLOAD)]], [[0.5, 1.0], [9, 9]], [[0.05, 0.2], [9, 9]], [[1, 8], [9, 9]]
    )
    assert search._binding(some, 0, 2) == "TPOT" and search._binding(some, 1, 2) == "throughput"
    fine = sized([[0, 0], [0, 0]], [[0.5], [0.5]], [[0.1], [0.1]], [[1], [1]])
    assert search._binding(fine, 0, 2) == "a headroom of 20%"
    for margins, words in (
        (Margins(), "nothing"),
        (Margins(spare_count=1), "1 spare instance per pool"),
        (Margins(0.5, 2), "a headroom of 50% and 2 spare instances per pool"),
        (Margins(0.25, 3, 0.9), "a headroom of 25%, 3 spare instances per pool and a confidence of 0.9"),
    ):
        fine.priced.question.margins = margins
        assert search._binding(fine, 0, 2) == words


def test_room_to_grow_and_to_lose_an_instance(monkeypatch):
    monkeypatch.setattr(search, "_sure", lambda priced, found, at: at)
    miss = int(Flag.SLO_MISS)
    broken = sized([[0, 0, *[0] * 6, miss], [0, miss, *[0] * 20, miss]], [[0], [0]], [[0], [0]], [[0], [0]])
    cell = lambda number, instances: type("Cell", (int,), {"instances": instances})(number)
    step = search.GROWTH[1] - search.GROWTH[0]
    assert (search.GROWTH[0], search.GROWTH[-1], len(search.GROWTH)) == (1.0, 2.22, 62) and step == pytest.approx(0.02)
    broken.priced.question.margins = Margins()
    for pools, room, survives in (
        ([cell(0, 3)], 5 * step, True),
        ([cell(1, 3)], 19 * step, False),
        ([cell(1, 3), cell(0, 3)], 5 * step, False),
        ([cell(0, 1)], 5 * step, False),
    ):
        told = search._margins(broken, SimpleNamespace(pools=pools))
        assert told[:2] == (pytest.approx(room), survives) and told[2] == pools
    for asked_for, room in ((0.09, 5 * step), (0.115, 0.115)):  # between two steps it grows by what it is sized for
        broken.priced.question.margins = Margins(asked_for)
        assert search._margins(broken, SimpleNamespace(pools=[cell(0, 3)]))[0] == pytest.approx(room)
    whole = sized([[0, 0], [0, 0]], [[0], [0]], [[0], [0]], [[0], [0]])
    assert search._margins(whole, SimpleNamespace(pools=[cell(0, 2)]))[0] == pytest.approx(1.22)


def test_requests_without_the_longest_by_dropping_them_one_by_one():
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = int(rng.integers(1, 9))
        inputs, outputs = rng.integers(1, 6, n) * 100.0, rng.integers(1, 4, n) * 10.0
        weight = rng.dirichlet(np.ones(n))
        work = Workload(inputs, outputs, weight, 0.5 * inputs, rate_rps=4.0)
        share = float(rng.choice([0.05, 0.3, 0.6, 1.0]))
        total, left = inputs + outputs, 0.0
        longest = sorted(set(total), reverse=True)
        for length in longest:
            if left + weight[total == length].sum() > share * (1 + 1e-9):
                break
            left, cut = left + weight[total == length].sum(), length
        short, told, beyond = without_longest(work, share)
        if left == 0.0 or left > 1 - 1e-12:
            assert (short is work, told, beyond) == (True, 0.0, math.inf)
            continue
        keep = total < cut
        assert told == pytest.approx(left) and beyond == cut and float(short.rate_rps) == pytest.approx(4 * (1 - left))
        assert (
            short.input_tokens.tolist() == inputs[keep].tolist()
            and short.cached_tokens.tolist() == (0.5 * inputs[keep]).tolist()
        )
        np.testing.assert_allclose(short.weight_frac, weight[keep] / weight[keep].sum())
        tokens = (weight * total)[keep].sum() / (weight * total).sum()
        asked = SimpleNamespace(question=SimpleNamespace(admitted=SimpleNamespace(workload=work)))
        if share == 0.6 and left <= 0.02:
            assert long_tailed(asked) == (tokens <= 0.75)


@pytest.mark.parametrize("longest, told", [(15_900.0, False), (16_900.0, True)])
def test_a_long_tail_holds_a_quarter_of_all_tokens(longest, told):
    inputs, outputs = [490.0, 10.0], [510.0, longest - 10.0]  # whichever of the two a token is
    work = Workload(inputs, outputs, [0.98, 0.02], rate_rps=1.0)  # 980 of tokens, and 318 or 338
    asked = SimpleNamespace(question=SimpleNamespace(admitted=SimpleNamespace(workload=work)))
    assert long_tailed(asked) == told


def test_tails_ask_again_without_the_longest(monkeypatch):
    work = Workload([100.0, 900.0, 5000.0], [10.0] * 3, [0.93, 0.06, 0.01], rate_rps=10.0)
    seen = []

    def price(question):
        seen.append(question)
        return float(question.workload.rate_rps)

    monkeypatch.setattr(tail, "price", price)
    monkeypatch.setattr(tail, "least_usd_per_hour", lambda rate: 2.0 * rate)
    from dmodels.studies.plan import question

    asked = question("llama-3.1-8b", ["h100"], work, SLO(2.0, 0.1), thresholds_tokens=(500.0, 2000.0))
    answer = SimpleNamespace(best=object(), question=asked, formula_usd_per_hour=40.0, rejections=())
    found = tail.tails(answer)
    assert [(x.share_frac, x.from_tokens) for x in found] == [
        (pytest.approx(0.01), 5010.0),
        (pytest.approx(0.07), 910.0),
    ]
    assert [x.usd_per_hour for x in found] == pytest.approx([19.8, 18.6])
    assert [x.cost_frac for x in found] == pytest.approx([1 - 19.8 / 40, 1 - 18.6 / 40])
    assert [q.thresholds_tokens for q in seen] == [(500.0,), ()] and all(q.trace is None for q in seen)
    many = Workload([1.0, 2.0, 3.0, 4.0, 5.0], [10.0] * 5, [0.9, 0.05, 0.03, 0.01, 0.01], rate_rps=10.0)
    each = SimpleNamespace(
        best=object(), question=replace(asked, workload=many), formula_usd_per_hour=40.0, rejections=()
    )
    assert [x.share_frac for x in tail.tails(each)] == pytest.approx([0.01, 0.02, 0.05, 0.1])
    limit = SimpleNamespace(best=None, question=asked, rejections=(SimpleNamespace(is_limit=True),))
    assert tail.tails(limit) == []
    limit.rejections, limit.formula_usd_per_hour = (SimpleNamespace(is_limit=False),), math.inf
    assert [x.cost_frac for x in tail.tails(limit)] == [1.0, 1.0]


def test_what_costs_most_beyond_its_number():
    made = lambda share, usd, frac: Tail(share, 1000.0, usd, frac)
    few, some, many = made(0.01, 70.0, 0.3), made(0.02, 50.0, 0.5), made(0.1, 49.0, 0.51)
    assert costly([few, some, many]) is some and costly([few]) is few and costly([]) is None
    assert costly([made(0.01, 76.0, 0.24)]) is None and costly([made(0.06, 71.0, 0.29)]) is None
    assert costly([made(0.05, 75.0, 0.25)]).share_frac == 0.05
    near = [made(0.028, 43.0, 0.57), made(0.10, 40.0, 0.60)]  # 3 of 43 USD/h saved for 7.2 % more left out
    assert costly(near) is near[0] and costly([near[0], made(0.09, 40.0, 0.60)]).share_frac == 0.09


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_the_worst_window_is_found_by_looking_at_each(share):
    rng = np.random.default_rng(8)
    when, seconds = np.sort(rng.uniform(0.0, 300.0, 90)), rng.exponential(1.0, 90)
    for length in (7.0, 60.0, 400.0):
        starts = np.arange(0.0, 300.0, length)
        windows = [(start, seconds[(start <= when) & (when < start + length)]) for start in starts]
        each = [(float(np.quantile(own, share)), start) for start, own in windows if own.size]
        assert replaying._worst(when, seconds, share, length) == pytest.approx(max(each))
    assert replaying._worst(when, seconds, share, 0.0) == (pytest.approx(np.quantile(seconds, share)), 0.0)


def test_a_part_without_requests_has_no_latency_and_breaks_nothing():
    none = forecast._latency(np.zeros(0), 0.99)
    assert math.isnan(none.mean_s) and math.isnan(none.percentile_s)
    slow = Latency(1.0, 1.5)
    assert forecast.kept([{"TTFT": none}], SLO(1.0))
    assert not forecast.kept([{"TTFT": none}, {"TTFT": slow}], SLO(1.0))
    assert forecast.kept([{"TTFT": slow}], SLO(1.0), 1.5) and not forecast.kept([{"TTFT": slow}], SLO(1.0), 1.49)
    for name, bounds in (("TTFT", (1.0, 2.0, 2.0)), ("TPOT", (2.0, 1.0, 2.0)), ("E2E", (2.0, 2.0, 1.0))):
        one = dict.fromkeys(("TTFT", "TPOT", "E2E"), slow)
        assert not forecast.kept([one], SLO(*bounds)) and forecast.kept([one | {name: none}], SLO(*bounds))


def test_closed_forms_that_are_off_are_named_by_their_worst():
    form = {"TTFT": Latency(1.0, 2.0), "TPOT": Latency(0.010, 0.020), "E2E": Latency(5.0, 9.0)}
    seen = {"TTFT": Latency(1.05, 2.2), "TPOT": Latency(0.010, 0.0245), "E2E": Latency(6.0, 9.5)}
    assert reach._apart(form, seen, "P99", 1.0) == [
        "TPOT P99 24.5 ms by recursion over the arrivals (20 by the formula)",
        "E2E mean 6,000 ms by recursion over the arrivals (5,000 by the formula)",
    ]
    assert reach._apart(form, form, "P99", 0.0) == []
    assert reach._apart(form, {"TTFT": Latency(1.12, 2.0)}, "P99", 1.0)[0].startswith("TTFT mean 1,120 ms")
    assert reach._apart(form, {"TTFT": Latency(1.08, 2.0)}, "P99", 1.0) == []
    assert reach._apart(form, {"TTFT": Latency(1.09, 2.0)}, "P99", 0.75) and reach._ms(0.0996) == "99.6"


def test_chunks_that_nobody_checked_are_named_with_those_that_were(monkeypatch):
    for name, made in (("serving_fleet", SimpleNamespace(parts=[])), ("in_turn", False), ("by_forms", [])):
        monkeypatch.setattr(reach, name, lambda *_, made=made: made)
    for name in ("_percentiles", "by_recursion"):
        monkeypatch.setattr(reach, name, lambda *_: [])
    requests = SimpleNamespace(sampled=lambda count: requests, warm=lambda seconds: None)

    def told(tokens):
        engine = SimpleNamespace(max_num_batched_tokens=tokens)
        asked = SimpleNamespace(engine=engine, slo=SLO(1.0), trace=None)
        fleet = [SimpleNamespace(layout="a", stage="b", e2e_s=1.0, instances=1)]
        return reach.reach(SimpleNamespace(question=asked, layouts=["a"], stages=["b"]), fleet, requests).outside

    (said,) = told(64.0)
    low, high = re.fullmatch(r"chunks of 64 tokens, checked from ([\d,]+) to ([\d,]+)", said).groups()
    low, high = (float(end.replace(",", "")) for end in (low, high))
    assert 64.0 < low < high and told(low) == told(high) == ()
    assert told(low - 1.0)[0].startswith(f"chunks of {low - 1:,.0f} tokens")
    assert told(2.0 * high)[0].startswith(f"chunks of {2 * high:,.0f} tokens")


@pytest.mark.parametrize(
    "index, window, instances, why",
    [
        (9.0, 2.0, 3, "over 2 s vary 9 times"),
        (2.5, 0.0, 1, "over short times vary 2.5"),
        (2.0, 5.0, 3, "routed by loads"),
        (1.0, 0.0, 1, ""),
    ],
)
def test_why_they_are_off(monkeypatch, index, window, instances, why):
    monkeypatch.setattr(reach, "dispersion", lambda asked, scale: (index, window) if scale == 0.7 else None)
    pools = [pool(ttft_mean_s=0.7, instances=instances), pool(ttft_mean_s=0.1, instances=0)]
    said = reach._why(None, pools)
    assert why in said and bool(said) == bool(why)


def test_the_largest_factor_that_holds():
    rng = np.random.default_rng(0)

    def holds(factor, asked, limit):
        assert len(asked) < 100, "it goes on and on"
        asked.append(factor)
        return factor <= limit

    for limit in np.exp(rng.uniform(-13, 13, 40)):
        asked = []
        found = reverse._largest(partial(holds, asked=asked, limit=limit))
        assert found <= limit <= found * 1.0011 and len(asked) < 40
    assert reverse._largest(lambda f: f <= 1e-7) == 0.0 and reverse._largest(lambda f: True) >= 1e6
    assert reverse._largest(lambda f: f < 9.999995e-7) == 0.0 < reverse._largest(lambda f: f < 1.000001e-6)


def test_solving_for_a_bound_or_a_rate(monkeypatch):
    """Serves up to three times the rate, at the rate itself bounds down to a half; what more GPUs of a layout do."""
    from dmodels.studies.plan import question

    work = Workload([500.0], [100.0], [1.0], rate_rps=4.0)
    asked = question(
        "llama-3.1-8b", ["h100"], work, SLO(2.0, 0.1, 9.0), max_gpus=10.0, inventory={"h100": 12}, max_usd_per_hour=50.0
    )
    monkeypatch.setattr(reverse, "price", lambda one: one)
    by_forms = partial(reverse.at_limit, ensure=False)
    serves = lambda priced, growth, bound, by: (
        growth <= (1.0 if bound else 3.0) * priced.max_gpus / 10 and by >= {"": 1.0, "ttft_s": 0.5}.get(bound, 2.0)
    )
    monkeypatch.setattr(reverse, "_serves", serves)
    assert by_forms(asked, "rate").rate_rps == pytest.approx(12.0, rel=2e-3)
    assert float(by_forms(asked, "ttft").slo.ttft_s) == pytest.approx(1.0, rel=2e-3)
    assert float(by_forms(asked, "tpot").slo.tpot_s) == pytest.approx(0.2, rel=2e-3)
    monkeypatch.setattr(reverse, "_serves", lambda *asked: False)
    assert by_forms(asked, "rate") is asked and by_forms(asked, "e2e") is asked
    for odd, target, why in (
        (asked, "cost", "target"),
        (replace(asked, slo=SLO(2.0, 0.1)), "e2e", "e2e: there is no bound to tighten"),
        (replace(asked, max_gpus=math.inf, max_usd_per_hour=math.inf, inventory={}), "rate", "rate: without a limit"),
    ):
        with pytest.raises(InputError, match=why):
            by_forms(odd, target)
    stocked = replace(asked, max_gpus=math.inf, max_usd_per_hour=math.inf)
    assert by_forms(stocked, "rate") is stocked  # what is there is a limit, too
    monkeypatch.setattr(reverse, "_serves", serves)
    for node, more in ((1, 4), (8, 8)):
        answer = SimpleNamespace(best=fleet(pool()), question=replace(asked, node_gpus=node), ensured=None)
        told = reverse.solved(answer, "rate")
        assert (told.target, told.value, told.more_gpus) == ("rate", 4.0, more)
        assert told.more_value == pytest.approx(4.0 * 3 * (10 + more) / 10, rel=2e-3)
        assert told.worth_per_gpu == pytest.approx((told.more_value - 4.0) / more)
    # up to 30 req/s a whole plan has a fleet
    plans = lambda one, ensure: SimpleNamespace(best="a fleet" if ensure is None and one.rate_rps <= 30.0 else None)
    monkeypatch.setattr(reverse, "plan", plans)
    assert 30.0 / 1.02 < reverse.at_limit(asked, "rate", ensure=None).rate_rps <= 30.0
    assert reverse.at_limit(asked, "rate", ensure=True).rate_rps == pytest.approx(12.0, rel=2e-3)  # none of it holds
    # replays that serve 20 where the closed forms serve 12: what is more is in proportion
    ahead = SimpleNamespace(
        best=fleet(pool()), question=replace(asked, workload=work.at_rate(20.0)), ensured="by replays"
    )
    assert reverse.solved(ahead, "rate").more_value == pytest.approx(20.0 * 14 / 10, rel=4e-3)
    seen = []
    monkeypatch.setattr(reverse, "_by_forms", lambda one, target: seen.append(one) or one)
    assert reverse.solved(SimpleNamespace(best=fleet(pool()), question=asked, ensured=None), "tpot").value == 0.1
    (richer,) = seen
    assert (richer.max_gpus, richer.inventory, richer.max_usd_per_hour) == (14.0, {"h100_sxm": 16.0}, 60.0)


def test_whose_errors_a_layouts_are(monkeypatch):
    """One's own points of this pair; the calibration's where the GPU was measured; assumed for pipelines, for what
    spans nodes, and for GPUs that nobody measured."""
    monkeypatch.setattr(
        calibration,
        "efficiencies_of",
        lambda hosted, precisions, family, effects=None: (
            asked.append((hosted, precisions, family, effects)) or list(range(len(hosted)))
        ),
    )
    monkeypatch.setattr(
        calibration, "deployment_measured", lambda one, precision, family: float(one.parallel.tp) == 2.0
    )
    asked = []
    gpus = {name: catalog.gpu(name) for name in ("h200_sxm", "h100_sxm", "l40s")}
    gpus["ours"] = gpus["h200_sxm"]
    layouts = [
        Layout("h200_sxm", tp=1),
        Layout("h200_sxm", tp=2),
        Layout("h200_sxm", tp=4, pp=2),
        Layout("h200_sxm", tp=8, dp=2, ep=16),
    ]
    layouts += [Layout("h100_sxm", tp=1), Layout("l40s", tp=1), Layout("ours", tp=1)]
    model = catalog.model("llama-3.1-70b")
    told = calibrated(ModelId("llama-3.1-70b", "llama"), [model] * 7, layouts, gpus, "vllm")
    assert [told.efficiency(layout) for layout in layouts] == list(range(7))
    ((hosted, precisions, family, effects),) = asked
    assert precisions == ["bf16"] * 7 and family == "llama" and effects is None
    assert [one.gpu_name for one in hosted] == ["h200_sxm"] * 4 + ["h100_sxm", "l40s", ""]
    assert [float(one.parallel.tp) for one in hosted] == [1, 2, 4, 8, 1, 1, 1] and float(hosted[2].parallel.pp) == 1.0
    wide = hosted[3].parallel
    assert [float(x) for x in (wide.pp, wide.dp, wide.ep)] == [1.0, 2.0, 16.0]
    novelty = {0: "known", 1: "deployment", 4: "pair"}
    shared = {"known": 0.1, "deployment": 0.1, "pair": 0.35}
    words = {
        "known": "calibrated on this model and h200_sxm, in other deployments",
        "deployment": "calibrated on this model and h200_sxm",
        "pair": "calibrated on this architecture and on h100_sxm, not on this pair",
    }
    for k, layout in enumerate(layouts):
        said = told.confidences[layout]
        if k not in novelty:
            assert (said.tpot, said.ttft, said.shared_frac) == ((0.6, 1.7), (0.5, 2.5), 0.55)
            assert said.provenance == f"assumed: {layout} was not measured"
            continue
        wide = interval(layout.gpu, "vllm", "llama-3.1-70b", architecture="llama", deployment=k == 1)
        assert said.tpot == pytest.approx(tuple(wide["tpot"]["80"])) and said.ttft == pytest.approx(
            tuple(wide["ttft"]["80"])
        )
        assert (said.shared_frac, said.provenance) == (shared[novelty[k]], words[novelty[k]])
    assert "h100_sxm" in {gpu for _, gpu in quantiles().pairs} and "l40s" not in {gpu for _, gpu in quantiles().pairs}
    mine = OwnCalibration(
        "effects", {"ttft": (0.9, 1.2), "tpot": (0.95, 1.1)}, frozenset({("llama-3.1-70b", "l40s", "vllm")}), 7
    )
    told = calibrated(ModelId("llama-3.1-70b", "llama"), [model] * 7, layouts, gpus, "vllm", own=mine)
    said = told.confidences[layouts[5]]
    assert (said.tpot, said.ttft, said.shared_frac) == ((0.95, 1.1), (0.9, 1.2), 0.1) and asked[1][3] == "effects"
    assert said.provenance == "calibrated on 7 measured points of your own"
    assert told.confidences[layouts[0]].provenance == words["known"]
    strange = calibrated(ModelId("another", "of its own"), [model], [layouts[4]], gpus, "vllm").confidences[layouts[4]]
    assert (strange.provenance, strange.shared_frac) == ("calibrated on h100_sxm with other architectures", 0.55)
    with pytest.raises(InputError, match="backend"):
        calibrated(ModelId("llama-3.1-70b", "llama"), [model], layouts[:1], gpus, "tgi")


@pytest.mark.parametrize(
    "size, name", [(2.0, "bf16"), (1.03, "fp8"), (1.0, "fp8"), (0.5625, "fp4"), (0.53125, "fp4"), (0.515, "int4")]
)
def test_names_of_precisions(size, name):
    model = catalog.model("llama-3.1-8b").replace(dense_dtype_bytes=size)
    assert precision_name(model) == name
    experts = catalog.model("gpt-oss-120b").replace(dense_dtype_bytes=2.0, expert_dtype_bytes=size)
    assert precision_name(experts) == name
