"""What can be bought, and what a fleet keeps in hand, against plain arithmetic and against plans of other questions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import SLO, Workload, catalog
from dmodels.core.errors import InputError
from dmodels.models.traffic.trace import Trace, with_prefix_hits
from dmodels.studies.plan import (
    Margins,
    Tail,
    at_limit,
    by_formula,
    costly,
    plan,
    question,
    solved,
    suggestions,
    tails,
)
from dmodels.studies.plan.limits import Limits
from dmodels.studies.plan.margins import factor
from dmodels.studies.plan.reverse import _serves
from dmodels.studies.plan.robust import alike, harder, premium, ratio_sd, simplest, told_apart
from dmodels.studies.plan.sizing import price


def asked(rate_rps=20.0, gpus=("h100", "l40s"), **options):
    chat = catalog.workload("azure-conv", rate_rps)
    few = {"tp": (2, 4, 8), "thresholds_tokens": (1024.0, 4096.0)} | options
    return question("llama-3.1-70b", list(gpus), chat, SLO(2.0, 0.08), **few)


@pytest.fixture(scope="module")
def free():
    return by_formula(asked())


def packed(sizes: list[int], node: int) -> int:
    """GPUs of the nodes that instances of these sizes take, the largest first into the first node with room."""
    nodes: list[int] = []
    for size in sorted(sizes, reverse=True):
        if size > node:
            nodes += [0] * math.ceil(size / node)
            continue
        for i, room in enumerate(nodes):
            if room >= size:
                nodes[i] -= size
                break
        else:
            nodes.append(node - size)
    return node * len(nodes)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 4, 8, 16])), min_size=1, max_size=2),
    st.sampled_from([1, 2, 4, 8]),
)
def test_whole_nodes_hold_the_instances(pools, node):
    bought = Limits(np.inf, {}, node, np.inf).bought([("h100", n, g) for n, g in pools])
    assert bought == {"h100": packed([g for n, g in pools for _ in range(n)], node)}


@given(st.integers(1, 20), st.integers(1, 9), st.sampled_from([8, 12]))
def test_instances_of_odd_sizes_are_not_spread_over_nodes(count, size, node):
    bought = Limits(np.inf, {}, node, np.inf).bought([("h100", count, size)])
    assert bought["h100"] == packed([size] * count, node)


def cheapest_by_hand(found, node=1, max_gpus=np.inf, inventory=None, budget=np.inf):
    """USD/h of the cheapest fleet within the limits: every scheme with every layout."""
    priced, best = found.priced, np.inf
    prices = {name: float(gpu.price_usd_per_hour) for name, gpu in found.question.gpus.items()}
    for scheme in priced.schemes:
        for rows in itertools.product(range(len(priced.layouts)), repeat=len(scheme.stages)):
            counts = [priced.instances[r, s] for r, s in zip(rows, scheme.stages, strict=True)]
            if not np.isfinite(counts).all():
                continue
            sizes: dict[str, list[int]] = {}
            for r, n in zip(rows, counts, strict=True):
                sizes.setdefault(priced.layouts[r].gpu, []).extend([priced.layouts[r].gpus] * int(n))
            bought = {gpu: packed(own, node) for gpu, own in sizes.items()}
            cost = sum(count * prices[gpu] for gpu, count in bought.items())
            there = all(count <= (inventory or {}).get(gpu, np.inf) for gpu, count in bought.items())
            if there and sum(bought.values()) <= max_gpus and cost <= budget:
                best = min(best, cost)
    return best


@pytest.mark.parametrize(
    "limits",
    [
        {"node_gpus": 8},
        {"inventory": {"h100_sxm": 4}},
        {"inventory": {"h100_sxm": 8, "l40s": 8}, "node_gpus": 8},
        {"max_usd_per_hour": 25.0},
        pytest.param({"max_gpus": 8.0, "node_gpus": 4}, marks=pytest.mark.slow),
        pytest.param({"inventory": {"h100_sxm": 0}}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_of_what_can_be_bought_the_cheapest(free, limits):
    found = plan(asked(**limits), ensure=False)
    names = {"node_gpus": "node", "max_usd_per_hour": "budget"}
    by_hand = cheapest_by_hand(free, **{names.get(key, key): value for key, value in limits.items()})
    if not np.isfinite(by_hand):
        assert found.best is None and {"GPU budget", "money"} & {r.binding for r in found.rejections}
        return
    assert found.cheapest.usd_per_hour == pytest.approx(by_hand)
    assert found.best.usd_per_hour <= (1.0 + premium(found.cheapest, found.best)) * by_hand + 1e-9
    for fleet in (found.best, found.cheapest, *found.kinds, *found.by_gpu):
        assert found.question.limits.allow(fleet.parts, fleet.usd_per_hour)
        assert fleet.bought_gpus >= fleet.gpus


def test_a_bound_that_is_tightened_is_kept_by_whom_it_is_kept_when_asked_for():
    plain = asked(max_gpus=16.0, gpus=("h100",), split=False, tp=(4,), thresholds_tokens=())
    priced, kept = price(plain), []
    for name, by in (("ttft_s", 0.9), ("ttft_s", 0.02), ("tpot_s", 0.9), ("tpot_s", 0.1)):
        tight = replace(plain, slo=plain.slo.replace(**{name: by * float(getattr(plain.slo, name))}))
        kept.append(_serves(priced, 1.0, name, by))
        assert kept[-1] == (by_formula(tight).best is not None)
    assert kept == [True, False, True, False]


def test_too_little_money_says_how_much_more():
    found = by_formula(asked(max_usd_per_hour=1.0))
    assert found.best is None and found.indistinguishable() == [] and found.baseline is None
    fix = next(rejection.fix for rejection in found.rejections if rejection.binding == "money")
    more = float(fix.removeprefix("$").removesuffix("/h more"))
    assert by_formula(asked(max_usd_per_hour=1.0 + more)).best is not None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"node_gpus": 0}, "node_gpus = 0"),
        ({"max_usd_per_hour": -1.0}, "max_usd_per_hour = -1"),
        ({"inventory": {"h200": 8}}, "inventory of h200"),
        ({"inventory": {"h100": -1}}, "inventory of h100_sxm = -1"),
        ({"margins": Margins(headroom_frac=-0.1)}, "headroom = -0.1"),
        ({"margins": Margins(headroom_frac=10.1)}, "headroom = 10.1: accepted are shares of the rate from 0 to 10"),
        ({"margins": Margins(spare_count=1.5)}, "spare = 1.5"),
        ({"margins": Margins(spare_count=1001)}, "spare = 1001: accepted are whole numbers from 0 to 1000"),
        ({"margins": Margins(confidence=0.99)}, "confidence = 0.99"),
    ],
    ids=str,
)
def test_limits_that_mean_nothing_name_themselves(options, says):
    with pytest.raises(InputError, match=says):
        asked(**options)
    most = Margins(headroom_frac=10.0, spare_count=1000, confidence=0.975)
    assert asked(max_gpus=1.0, node_gpus=1, inventory={"h100": 0.0}, margins=most).margins == most  # the ends are in


def instances(found):
    return found.priced.instances


def test_headroom_is_a_plan_of_the_greater_rate(free):
    grown = by_formula(asked(margins=Margins(headroom_frac=0.25)))
    np.testing.assert_array_equal(instances(grown), price(asked(25.0)).instances)
    assert grown.headroom_frac >= 0.25 - 1e-9
    assert (instances(free) <= instances(grown)).all()
    assert grown.best.pools[0].ttft_s <= 2.0


def test_spare_instances_may_be_lost(free):
    two = by_formula(asked(margins=Margins(spare_count=2)))
    np.testing.assert_array_equal(instances(two), instances(free) + 2.0)
    assert two.survives_loss
    assert all(pool.instances > 2 for pool in two.best.pools)


def test_a_confidence_is_the_share_of_errors_that_the_fleet_bears(free):
    """With things as slow as the upper end of the 80 % interval, which one error in ten exceeds."""
    wanted = by_formula(asked(margins=Margins(confidence=0.9)))
    assert (instances(free) <= instances(wanted)).all()
    assert wanted.sure_frac >= 0.9 - 0.025 - 1e-9  # looked for in steps of 0.025
    assert all(fleet.gpus_low <= fleet.gpus <= fleet.gpus_high for fleet in wanted.kinds)
    assert all(
        pool.ttft_s * pool.confidence.ttft[1] <= 2.0 * 1.05 for pool in wanted.best.pools if not wanted.best.in_turn
    )
    assert all(pool.tpot_s * pool.confidence.tpot[1] <= 0.08 * 1.0001 for pool in wanted.best.pools)


@given(st.floats(0.5, 0.975), st.floats(0.5, 0.975), st.floats(0.8, 3.0))
def test_more_confidence_never_counts_on_faster_steps(one, other, high):
    low, top = sorted((one, other))
    assert 1.0 - 1e-12 <= factor(low, high) <= factor(top, high) + 1e-12


@pytest.mark.parametrize("rate_rps", [20.0, *(pytest.param(x, marks=pytest.mark.slow) for x in (3.0, 60.0))])
def test_the_headline_is_the_simplest_of_what_cannot_be_told_apart(rate_rps):
    found = by_formula(asked(rate_rps, gpus=("h100", "h200", "mi300x")))
    best, cheapest = found.best, found.cheapest
    assert cheapest.usd_per_hour == min(d.usd_per_hour for d in (*found.kinds, *found.by_gpu, cheapest))
    near = lambda fleet: (1.0 + premium(cheapest, fleet)) * cheapest.usd_per_hour
    assert best.usd_per_hour <= near(best) + 1e-9 and near(best) <= 1.25 * cheapest.usd_per_hour + 1e-9
    for other in (*found.kinds, *found.by_gpu, cheapest):
        if len(other.pools) < len(best.pools):  # a simpler one is dearer than the error explains
            assert other.usd_per_hour > near(other)
            assert not alike(cheapest, other) or other.usd_per_hour > 1.25 * cheapest.usd_per_hour
    assert found.kinds[0] is best


def test_a_measured_fleet_of_as_many_gpus_is_named_beside_an_assumed_one():
    """One L40S or one A100 for an 8B model: the intervals of both overlap, and each is one pool of one GPU."""
    chat, one_pool = catalog.workload("azure-conv", 5.0), {"tp": (1,), "split": False, "thresholds_tokens": ()}
    found = by_formula(question("llama-3.1-8b", ["l40s", "a100_80gb"], chat, SLO(2.0, 0.08), **one_pool))
    one, other = found.by_gpu
    assert (found.best.pools, one.gpus, other.gpus) == (one.pools, 1, 1) and alike(one, other)
    assert other in found.indistinguishable() and one not in found.indistinguishable()


def test_nobody_signs_for_a_single_instance_to_save_less_than_a_second_costs():
    """A split's only decode instance costs 7 beside 22 for prefill: one pool of three instances may cost up to 36, but
    never a quarter more than the split; where one pool is a single instance, nothing stands in for it, either."""

    def fleet(*pools):
        made = [
            SimpleNamespace(
                instances=n,
                usd_per_hour=cost,
                layout=SimpleNamespace(gpu="h100"),
                confidence=SimpleNamespace(provenance="calibrated", shared_frac=1.0),
            )
            for n, cost in pools
        ]
        total = sum(cost for _, cost in pools)
        return SimpleNamespace(pools=made, gpus_low=4, gpus_high=8, usd_per_hour=float(total))

    split = fleet((2, 22), (1, 7))
    for dollars, instances, signed in ((28, 1, True), (32, 3, True), (36, 3, True), (37, 3, False), (32, 1, False)):
        one = fleet((instances, dollars))
        assert (simplest([split, one]) is one) == signed
        assert told_apart(split, one) == (dollars > 29)
    assert simplest([fleet((2, 22), (1, 10)), fleet((3, 41))]).usd_per_hour == 32.0


def test_errors_that_two_fleets_share_do_not_hide_which_is_cheaper():
    """The spread of the ratio of two costs, beside two million draws of the layouts' errors."""
    rng, shared = np.random.default_rng(0), 0.35

    def fleet(low, high, **pools):
        made = [
            SimpleNamespace(
                layout=SimpleNamespace(gpu=gpu, tp=tp),
                usd_per_hour=cost,
                confidence=SimpleNamespace(shared_frac=shared),
            )
            for (gpu, tp), cost in pools["pools"].items()
        ]
        return SimpleNamespace(pools=made, gpus_low=low, gpus_high=high, usd_per_hour=sum(pools["pools"].values()))

    h100, h100_wide, h200 = ("h100", 4), ("h100", 8), ("h200", 4)
    common = rng.standard_normal(2_000_000)
    draw = lambda: rng.standard_normal(common.size)
    on_h100 = lambda: math.sqrt(shared) * common + math.sqrt(1.0 - shared) * draw()
    errors = {h100: on_h100(), h100_wide: on_h100(), h200: draw()}
    fleets = [
        fleet(8, 12, pools={h100: 10.0}),
        fleet(7, 12, pools={h100: 11.0}),
        fleet(8, 14, pools={h100_wide: 11.0}),
        fleet(8, 12, pools={h200: 10.5}),
        fleet(9, 12, pools={h100: 6.0, h200: 4.0}),
    ]

    def drawn(one):
        sd = math.log(one.gpus_high / one.gpus_low) / (2.0 * 1.2816)
        keys = [(p.layout.gpu, p.layout.tp) for p in one.pools]
        shares = [p.usd_per_hour / one.usd_per_hour for p in one.pools]
        return sd * sum(w * errors[key] for w, key in zip(shares, keys, strict=True))

    for one, other in itertools.combinations(fleets, 2):
        assert ratio_sd(one, other) == pytest.approx((drawn(one) - drawn(other)).std(), rel=3e-3, abs=1e-3)
    assert not alike(fleets[0], fleets[1]) and alike(fleets[0], fleets[3])
    for pool in fleets[2].pools:
        pool.confidence = SimpleNamespace(shared_frac=0.9)  # of which the others share no more than they have
    for one in fleets[:2]:
        for both in (ratio_sd(one, fleets[2]), ratio_sd(fleets[2], one)):
            assert both == pytest.approx((drawn(one) - drawn(fleets[2])).std(), rel=3e-3)


def test_why_the_cheapest_is_not_the_headline_is_what_is_harder_about_it():
    def fleet(*pools):
        made = [
            SimpleNamespace(
                instances=n, layout=SimpleNamespace(gpu=gpu), confidence=SimpleNamespace(provenance=provenance)
            )
            for n, gpu, provenance in pools
        ]
        return SimpleNamespace(pools=made, usd_per_hour=1.0)

    one, two = fleet((2, "h100", "calibrated")), fleet((2, "h100", "calibrated"), (3, "h100", "calibrated"))
    mixed = fleet((2, "h100", "calibrated"), (3, "h200", "calibrated"))
    lone = fleet((2, "h100", "calibrated"), (1, "h100", "calibrated"))
    guess = fleet((2, "h200", "assumed: not measured"))
    assert "more pools" in harder(two, one) and "types of GPU" in harder(mixed, two)
    assert "one instance" in harder(lone, two) and "nobody measured" in harder(guess, two)
    assert harder(one, guess) == ""


@pytest.mark.parametrize(
    "target", ["rate", pytest.param("ttft", marks=pytest.mark.slow), pytest.param("tpot", marks=pytest.mark.slow)]
)
def test_the_limit_is_where_it_stops_to_be_feasible(target):
    there = {"max_gpus": 16.0, "gpus": ("h100",), "split": False, "tp": (4,), "thresholds_tokens": ()}
    limit = at_limit(asked(**there), target, ensure=False)
    assert by_formula(limit).best is not None
    if target == "rate":
        beyond = replace(limit, workload=limit.workload.at_rate(1.002 * limit.rate_rps))
    else:
        name = f"{target}_s"
        beyond = replace(limit, slo=limit.slo.replace(**{name: getattr(limit.slo, name) / 1.002}))
    assert by_formula(beyond).best is None
    if target == "rate":
        worth = solved(by_formula(limit), "rate")
        assert worth.value == limit.rate_rps and worth.more_value > worth.value
        assert worth.worth_per_gpu == pytest.approx((worth.more_value - worth.value) / worth.more_gpus)


def test_the_next_gpus_are_paid_for(free, monkeypatch):
    """What they are worth is asked with an instance more of each limit: of the GPUs, and of the money for them."""
    there = {"max_gpus": 40.0, "max_usd_per_hour": 100.0, "inventory": {"h100_sxm": 32.0, "l40s": 16.0}}
    limited = replace(free, question=replace(free.question, **there))
    asked_again = []
    monkeypatch.setattr(
        "dmodels.studies.plan.reverse._by_forms", lambda asked, target: asked_again.append(asked) or asked
    )
    more = solved(limited, "rate").more_gpus
    (richer,), pool = asked_again, free.best.pools[0]
    each = pool.usd_per_hour / pool.gpus
    assert more == pool.gpus // pool.instances > 1 and richer.max_gpus == 40 + more
    assert richer.max_usd_per_hour == pytest.approx(100.0 + more * each)
    grown = {gpu: count - there["inventory"][gpu] for gpu, count in richer.inventory.items()}
    assert grown == {gpu: more * (gpu == pool.layout.gpu) for gpu in grown}


@pytest.mark.parametrize(
    ("options", "target", "says"),
    [({}, "rate", "without a limit"), ({"max_gpus": 8.0}, "gpus", "target 'gpus'"), ({}, "e2e", "no bound to tighten")],
)
def test_a_limit_that_is_none_is_refused(options, target, says):
    with pytest.raises(InputError, match=says):
        at_limit(asked(**options), target)


def test_requests_that_cost_far_more_than_their_share_are_named():
    """Two in a hundred requests of 100,000 tokens beside short ones: a plan without them costs what it costs."""
    short = Workload([1000.0, 100_000.0], [200.0, 200.0], [0.98, 0.02], rate_rps=5.0)
    found = by_formula(replace(asked(gpus=("h200",), split=False), workload=short, thresholds_tokens=None))
    most = costly(tails(found))
    assert most.share_frac == pytest.approx(0.02) and most.from_tokens == 100_200.0
    alone = replace(found.question, workload=Workload([1000.0], [200.0], [1.0], rate_rps=4.9))
    assert most.usd_per_hour == pytest.approx(by_formula(alone).cheapest.usd_per_hour)
    assert costly(tails(by_formula(alone))) is None
    assert tails(by_formula(replace(alone, max_gpus=1.0))) == []  # of too few GPUs no length is the reason


@pytest.mark.parametrize(("share", "cost", "named"), [(0.1, 0.4, False), (0.1, 0.6, True), (0.01, 0.2, False)])
def test_requests_that_cost_little_beyond_their_number_are_not_named(share, cost, named):
    """A tenth that costs two fifths is long, as every traffic's; and a hundredth that costs a fifth is no quarter."""
    some = Tail(share, 30_000.0, 50.0 * (1 - cost), cost)
    assert costly([some]) == (some if named else None)


def test_what_pays_is_what_a_plan_with_it_costs(free):
    found = suggestions(free)
    eight_bit = next(entry for entry in found if "weights" in entry.what)
    asked_so = by_formula(asked(weights=("fp8",), kv=("fp8",)))
    assert eight_bit.usd_per_hour == pytest.approx(asked_so.cheapest.usd_per_hour)
    assert eight_bit.saves_frac == pytest.approx(1.0 - eight_bit.usd_per_hour / free.cheapest.usd_per_hour)
    assert all(entry.saves_frac >= 0.05 for entry in found)
    assert not any("FP8" in entry.what for entry in suggestions(asked_so))


def test_prefix_caching_is_suggested_to_who_has_none():
    """Half of every prompt is shared: it pays to cache, unless hits are counted already."""
    blocks = np.array([[1, 2, 3, 4, *(10 * k + np.arange(5, 9))] for k in range(200)])
    trace = Trace(
        "shared",
        time_s=np.arange(200.0),
        input_tokens=np.full(200, 4096.0),
        output_tokens=np.full(200, 64.0),
        block_ids=blocks.ravel(),
        block_starts=np.arange(0, 8 * 201, 8),
    )
    plain = asked(gpus=("h100",), tp=(4,), split=False)
    without = replace(plain, trace=trace, workload=Workload.from_trace(trace, 20.0), thresholds_tokens=())
    named = lambda of: {entry.what for entry in suggestions(by_formula(of))}
    assert "prefix caching" in named(without)
    cached = with_prefix_hits(trace)
    counted = replace(without, trace=cached, workload=Workload.from_trace(cached, 20.0))
    assert "prefix caching" not in named(counted)


def test_of_several_budgets_of_a_step_the_best_is_suggested():
    few = replace(
        asked(gpus=("h100",), tp=(4,), split=False, thresholds_tokens=()), workload=Workload.fixed(4000.0, 30.0, 120.0)
    )
    few = replace(few, slo=SLO(1.2, 0.1), engine=few.engine.replace(max_num_batched_tokens=512.0))
    found = by_formula(few)
    every = suggestions(found)
    saved = [entry.saves_frac for entry in every]
    assert len(set(saved)) > 1 and saved == sorted(saved, reverse=True)
    (budget,) = (entry for entry in every if "budget" in entry.what)
    costs = {}
    for tokens in (2048.0, 4096.0, 16384.0):
        other = by_formula(replace(few, engine=few.engine.replace(max_num_batched_tokens=tokens)))
        costs[f"--max-num-batched-tokens {tokens:.0f}"] = other.cheapest.usd_per_hour
    assert budget.usd_per_hour == pytest.approx(min(costs.values())) == costs[budget.flags]
    assert budget.saves_frac == pytest.approx(1.0 - min(costs.values()) / found.cheapest.usd_per_hour)
    assert len({cost for cost in costs.values() if cost < 0.95 * found.cheapest.usd_per_hour}) == 3


def test_a_fleet_that_may_be_infeasible_is_alike_only_where_its_least_cost_is_in_reach():
    """At the slow end of its steps nothing serves; at the fast end it costs 20 or 90 where the other costs 10 to 25."""
    sure = SimpleNamespace(gpus=4, gpus_low=4.0, gpus_high=10.0, usd_per_hour=10.0)
    near, far = (SimpleNamespace(gpus=10, gpus_low=low, gpus_high=math.inf, usd_per_hour=100.0) for low in (2.0, 9.0))
    assert alike(sure, near) and not alike(sure, far) and alike(near, sure) and not alike(far, sure)
