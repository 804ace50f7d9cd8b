"""Which layouts are cheapest, which class a request is of, and why a layout is no answer, by trying and counting."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels import SLO, Trace, Workload, catalog
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.studies.plan import RequestClass, by_formula, question, rejections, tightest, with_others
from dmodels.studies.plan.classes import which
from dmodels.studies.plan.designs import Kind, Layout, Scheme
from dmodels.studies.plan.limits import Limits
from dmodels.studies.plan.rejections import (
    _beyond_context,
    _more_gpus,
    _rounded_up_ms,
    _short_of_memory,
    _slow_without_load,
    beyond_limits,
)
from dmodels.studies.plan.sizing import Priced, cheapest, least_usd_per_hour
from dmodels.studies.servers.playing import PoolOf, play

PRICES = {"a": 2.0, "b": 3.0}


def packed(sizes, node):
    """GPUs of the nodes that instances of these sizes take, the largest first into the first node with room."""
    rooms = []
    for size in sorted(sizes, reverse=True):
        if size >= node:
            rooms += [0] * -(-size // node)
        elif found := [i for i, room in enumerate(rooms) if room >= size]:
            rooms[found[0]] -= size
        else:
            rooms.append(node - size)
    return node * len(rooms)


def priced_of(rng, limits):
    """Layouts of two GPU types, powers of two wide, and pools of one, of two side by side, and of two in turn."""
    layouts = [Layout(gpu, tp=tp) for gpu in PRICES for tp in (1, 2, 4)]
    schemes = [
        Scheme(Kind.ONE_POOL, "one pool", (0,)),
        Scheme(Kind.TWO_POOLS, "two pools", (1, 2)),
        Scheme(Kind.SPLIT, "a split", (3, 4)),
    ]
    instances = rng.integers(1, 12, (len(layouts), 5)).astype(float)
    instances[rng.random(instances.shape) < 0.2] = np.inf
    asked = SimpleNamespace(
        limits=limits,
        node_gpus=limits.node_gpus,
        gpus={name: SimpleNamespace(price_usd_per_hour=price) for name, price in PRICES.items()},
    )
    nothing = dict.fromkeys(("admitted", "cells", "calibration", "stable_instances", "strain"))
    return Priced(
        question=asked, layouts=layouts, stages=list(range(5)), schemes=schemes, instances=instances, **nothing
    )


def with_limits(priced, limits):
    asked = SimpleNamespace(limits=limits, node_gpus=limits.node_gpus, gpus=priced.question.gpus)
    return replace(priced, question=asked)


def by_trying(priced, scheme, ttft):
    """(cost, sum of TTFT) of the best layouts of a scheme that can be bought."""
    limits, best = priced.question.limits, (math.inf, math.inf)
    for rows in itertools.product(range(len(priced.layouts)), repeat=len(scheme.stages)):
        counts = [priced.instances[row, stage] for row, stage in zip(rows, scheme.stages, strict=True)]
        if math.inf in counts:
            continue
        sizes = {}
        for row, count in zip(rows, counts, strict=True):
            layout = priced.layouts[row]
            sizes.setdefault(layout.gpu, []).extend([layout.gpus] * int(count))
        bought = {gpu: packed(own, limits.node_gpus) for gpu, own in sizes.items()}
        cost = sum(count * PRICES[gpu] for gpu, count in bought.items())
        there = all(count <= limits.inventory.get(gpu, math.inf) for gpu, count in bought.items())
        if there and sum(bought.values()) <= limits.max_gpus and cost <= limits.max_usd_per_hour:
            times = [ttft[row, stage] for row, stage in zip(rows, scheme.stages, strict=True)]
            best = min(best, (cost, sum(times)))
    return best


@pytest.mark.parametrize("node", [1, 4, 8])
def test_the_cheapest_layouts_of_each_scheme_by_trying_all(node):
    """Of equal cost the quicker; fewer pools first among equals; within GPUs, types, nodes and money, of which
    what a fleet costs is enough to rounding."""
    rng, seen, alike = np.random.default_rng(node), 0, 0
    for _ in range(60):
        inventory = {"a": float(rng.integers(4, 40))} if rng.random() < 0.5 else {}
        most = float(rng.choice([math.inf, 24.0, 40.0]))
        limits = Limits(most, inventory, node, float(rng.choice([math.inf, 60.0, 90.0])))
        priced = priced_of(rng, limits)
        ttft = rng.integers(1, 9, priced.instances.shape).astype(float)
        told = cheapest(priced, priced.costs_usd_per_hour, ttft)
        best = {scheme.name: by_trying(priced, scheme, ttft) for scheme in priced.schemes}
        assert {one.scheme.name for one in told} == {name for name, (cost, _) in best.items() if cost < math.inf}
        for one in told:
            cost, late = best[one.scheme.name]
            assert one.usd_per_hour == pytest.approx(cost)
            times = [ttft[row, stage] for row, stage in zip(one.rows, one.scheme.stages, strict=True)]
            assert sum(times) == late
            for money, enough in ((math.nextafter(cost, 0.0), True), (cost - 0.01, False)):
                poor = with_limits(priced, limits._replace(max_usd_per_hour=money))
                left = {x.scheme: x.usd_per_hour for x in cheapest(poor, poor.costs_usd_per_hour, ttft)}
                assert left.get(one.scheme) == (one.usd_per_hour if enough else None)
        order = []
        for one in told:
            times = [ttft[row, stage] for row, stage in zip(one.rows, one.scheme.stages, strict=True)]
            order.append((one.usd_per_hour, len(one.rows), (sum if one.scheme.in_turn else max)(times)))
        assert order == sorted(order)
        alike += len({one[:2] for one in order}) < len(order)
        assert least_usd_per_hour(priced) == (order[0][0] if order else math.inf)
        seen += len(told)
    assert 60 < seen < 180 and alike > 1


def test_every_request_is_of_the_class_that_has_it():
    rng = np.random.default_rng(0)
    total, labels = rng.integers(1, 400, 300).astype(float), rng.choice(["web", "batch"], 300)
    kinds = [
        RequestClass("short", SLO(1.0, 0.1), 0.0, 100.0),
        RequestClass("web", SLO(3.0, 0.05, percentile=0.9), 100.0, math.inf, "web"),
        RequestClass("batch", SLO(9.0, 0.2, 30.0), 100.0, math.inf, "batch"),
    ]
    place = which(kinds, total, labels)
    assert place.tolist() == [0 if t <= 100 else 1 if l == "web" else 2 for t, l in zip(total, labels, strict=True)]
    every = tightest(kinds)
    assert [float(x) for x in (every.ttft_s, every.tpot_s, every.e2e_s, every.percentile)] == [1.0, 0.05, 30.0, 0.99]
    counts = total > 100
    partly = which(kinds[1:], total, labels, counts)
    assert partly.tolist() == [-1 if t <= 100 else 0 if l == "web" else 1 for t, l in zip(total, labels, strict=True)]
    doubled = [*kinds, RequestClass("again", SLO(1.0, 1.0), 50.0, 60.0)]
    first = int(np.flatnonzero((total > 50) & (total <= 60))[0])
    with pytest.raises(
        InputError, match=f"a request of {total[first]:.0f} tokens of '{labels[first]}' is of 2 classes"
    ):
        which(doubled, total, labels)
    with pytest.raises(InputError, match="a request of 500 tokens is of 0 classes"):
        which(kinds[:1], np.array([90.0, 500.0]), None)
    for count, odd in ((np.array([True, False]), "web"), (True, "web")):
        with pytest.raises(InputError, match=f"class {odd}: no request is of it"):
            which(kinds[:2], np.array([50.0, 60.0]), np.array(["web", "web"]), count)
    trace = Trace("t", np.arange(3.0), np.array([90.0, 400.0, 9.0]), np.array([9.0, 9.0, 1.0]))
    (short, others) = with_others(kinds[:1], trace, SLO(7.0, 0.7))
    assert short is kinds[0] and others.has(trace.input_tokens + trace.output_tokens, None).tolist() == [
        False,
        True,
        False,
    ]
    assert (others.name, float(others.slo.ttft_s), others.priority) == ("others", 7.0, 0)
    every = np.array([150.0, 400.0, 9.0])
    labelled = replace(trace, input_tokens=every, labels=np.array(["web", "batch", "web"]))
    assert with_others(kinds, labelled, SLO(7.0, 0.7)) == kinds  # each is of one of them
    weightless = Workload([50.0, 900.0], [1.0, 1.0], [1.0, 0.0], rate_rps=1.0)
    assert with_others(kinds[:1], weightless, SLO(1.0, 1.0)) == kinds[:1]  # nobody sends the long one


def test_what_is_missing_of_a_fleet_that_cannot_be_bought():
    """The most exceeded limit is named, all that is missing is the fix, rounded up."""
    gpus = {"h100": SimpleNamespace(price_usd_per_hour=2.505), "l4": SimpleNamespace(price_usd_per_hour=0.5)}
    say = lambda parts, **limits: beyond_limits(
        SimpleNamespace(
            gpus=gpus,
            limits=Limits(
                **({"max_gpus": math.inf, "inventory": {}, "node_gpus": 1, "max_usd_per_hour": math.inf} | limits)
            ),
        ),
        "x",
        parts,
    )
    told = say([("h100", 3, 4), ("l4", 2, 1)], max_gpus=10.0, inventory={"h100": 8.0})
    assert (told.binding, told.have, told.need, told.excess) == ("GPU budget", "8 h100 GPUs", "12 h100 GPUs", 1.5)
    assert told.fix == "4 more GPUs and 4 more h100 GPUs" and told.is_limit and told.layout == "x"
    told = say([("h100", 3, 4)], max_gpus=11.0, max_usd_per_hour=30.0)
    assert (told.have, told.need, told.fix) == ("11 GPUs", "12 GPUs", "1 more GPU and $0.06/h more")
    told = say([("h100", 3, 4)], max_usd_per_hour=30.0)
    assert (told.binding, told.have, told.need, told.fix) == ("money", "$30.00/h", "$30.06/h", "$0.06/h more")
    assert told.excess == pytest.approx(12 * 2.505 / 30) and told.is_limit
    told = say([("h100", 3, 3)], node_gpus=8, inventory={"h100": 0.0})
    assert (told.have, told.need, told.excess) == ("0 h100 GPUs", "16 h100 GPUs", 16.0)
    just = math.nextafter(12 * 2.505, 0.0)  # what is there to the last GPU, or to rounding, is not missing
    told = say([("h100", 3, 4)], max_gpus=12.0, inventory={"h100": 8.0}, max_usd_per_hour=just)
    assert (told.have, told.need, told.fix) == ("8 h100 GPUs", "12 h100 GPUs", "4 more h100 GPUs")
    assert say([("h100", 3, 4)], max_gpus=12.0, max_usd_per_hour=30.0).binding == "money"
    assert say([("l4", 1, 2)], inventory={"l4": 1.5}).fix == "1 more l4 GPU"


def test_cents_are_missing_beyond_what_rounding_makes():
    """Of 3 x 2.79, which is a little over 8.37 in floating point."""
    missing = lambda dollars: Limits(math.inf, {}, 1, dollars).missing_cents(3 * 2.79)
    assert 3 * 2.79 > 8.37 and [missing(x) for x in (math.inf, 8.37, 8.365, 8.36, 8.0)] == [0, 0, 1, 1, 37]


def priced_at(idle, slo, cells=None):
    layouts = [Layout("h100_sxm", tp=tp) for tp in (1, 2, 4)] + [
        Layout("h100_sxm", tp=8, kv="fp8"),
        Layout("l40s", tp=2),
    ]
    return SimpleNamespace(
        question=SimpleNamespace(slo=slo), layouts=layouts, stages=[0, 1], cells=cells, cell=lambda r, s: 2 * r + s
    )


def test_what_is_slow_without_load_and_the_bound_that_would_do():
    idle = SimpleNamespace(ttft_s=0.33333, tpot_s=0.0205, e2e_s=2.0)
    said = _slow_without_load(priced_at(idle, SLO(0.2, 0.02, 9.0)), 1, idle)
    assert (said.binding, said.have, said.need) == ("TTFT without load", "333.3 ms", "at most 200 ms")
    assert said.fix == "a TTFT SLO of 340 ms and a TPOT SLO of 21 ms, or more GPUs per instance"
    assert said.excess == pytest.approx(0.33333 / 0.2) and str(said.layout).startswith("h100_sxm tp2")
    assert _slow_without_load(priced_at(idle, SLO(0.33333, 0.0205, 2.0)), 1, idle) is None
    near = _slow_without_load(priced_at(idle, SLO(0.333329, 1.0)), 0, idle)
    assert (near.have, near.need) == ("333.33 ms", "at most 333.329 ms") and near.binding == "TTFT without load"
    third = SimpleNamespace(**vars(idle) | {"ttft_s": 1 / 3})  # no more digits than it takes
    nearer = _slow_without_load(priced_at(third, SLO(0.333332, 1.0)), 0, third)
    assert (nearer.have, nearer.need) == ("333.333 ms", "at most 333.332 ms")
    late = _slow_without_load(priced_at(idle, SLO(1.0, 1.0, 0.5)), 0, idle)
    assert (late.binding, late.have, late.need) == ("E2E without load", "2,000 ms", "at most 500 ms")
    alone = _slow_without_load(priced_at(idle, SLO(1.0, 0.02)), 1, SimpleNamespace(**vars(idle) | {"ttft_s": math.inf}))
    assert alone.fix == "fewer GPUs per instance, or links between them"  # no SLO would do, however slow
    assert [_rounded_up_ms(s) for s in (0.0123, 0.012, 1.234, 9.99e-4)] == pytest.approx([13.0, 12.0, 1300.0, 1.0])


def test_what_is_missing_of_memory_and_the_fewest_gpus_that_have_it():
    gib = 2**30
    budget = np.repeat([[2.0 * gib], [8.0 * gib], [20.0 * gib], [40.0 * gib], [30.0 * gib]], 2, axis=0)
    longest = np.full((10, 1), 10.0 * gib)
    tokens = SimpleNamespace(longest_tokens=np.full((10, 1), 131_072.0))
    cells = SimpleNamespace(budget_bytes=budget, longest_bytes=longest, requests=tokens)
    no_fit = SimpleNamespace(flags=np.int32(Flag.NO_FIT))
    said = _short_of_memory(priced_at(None, None, cells), 0, no_fit)
    assert (said.binding, said.have) == ("memory for KV", "2.0 GiB per GPU after weights")
    assert said.need == "10.0 GiB for a request of 131,072 tokens" and said.excess == 5.0
    assert said.fix == "4 GPUs per instance, or FP8 KV" and not said.is_limit
    assert _short_of_memory(priced_at(None, None, cells), 0, SimpleNamespace(flags=np.int32(0))) is None
    assert _more_gpus(priced_at(None, None, cells), 4) == "2 GPUs per instance"  # of its own type
    longest[:] = 50.0 * gib
    assert _more_gpus(priced_at(None, None, cells), 0) == "pipeline stages (--pp) or a GPU with more memory"
    longest[:] = 10.0 * gib
    longest[0] = 0.5 * gib
    assert _short_of_memory(priced_at(None, None, cells), 0, no_fit).excess == 1.0


def test_what_weights_lack_is_the_room_of_a_gpu_and_what_they_need_there(monkeypatch):
    gib = 2.0**30
    cells = SimpleNamespace(
        budget_bytes=np.repeat([[-20.0], [8.0], [20.0], [40.0], [30.0]], 2, axis=0) * gib,
        longest_bytes=np.full((10, 1), 10.0 * gib),
    )
    short = priced_at(None, None, cells)
    engine = SimpleNamespace(max_num_batched_tokens=8192.0)
    short.question = SimpleNamespace(gpus={"h100_sxm": "a GPU"}, engine=engine, memory="rules")

    def of(gpu, parallel, budget, batched, rules):
        assert (gpu, float(parallel.tp), batched, rules) == ("a GPU", 1.0, 8192.0, "rules")
        return 70.0 * gib, 70.0 * gib - budget

    monkeypatch.setattr(rejections, "room_and_need_bytes", of)
    said = _short_of_memory(short, 0, None)
    assert (said.binding, said.have, said.need) == ("memory for weights", "70.0 GiB per GPU", "90.0 GiB per GPU")
    assert said.fix == "4 GPUs per instance, or narrower weights" and said.excess == pytest.approx(9 / 7)
    cells.budget_bytes[2] = 0.0  # of which nothing is left, not for one request
    monkeypatch.setattr(rejections, "room_and_need_bytes", lambda *place: (70.0 * gib, 70.0 * gib))
    said = _short_of_memory(short, 1, None)
    assert (said.binding, said.need, said.excess) == ("memory for weights", "70.0 GiB per GPU", 1.0)


def test_the_shortest_request_tells_that_none_fits_the_context():
    work = SimpleNamespace(input_tokens=np.array([500.0, 9000.0, 12_000.0]), weight_frac=[0.0, 0.75, 0.25])
    fell = lambda none: _beyond_context(
        SimpleNamespace(
            admitted=SimpleNamespace(none=none, limit_tokens=8192.0),
            question=SimpleNamespace(workload=work),
            layouts=["first", "second"],
        ),
        1,
    )
    said = fell(True)
    assert (said.layout, said.binding, said.have) == ("second", "the model's context", "8,192 tokens")
    assert (said.need, said.fix) == ("over 9,000 tokens", "a model with a longer context") and fell(False) is None
    assert said.excess == pytest.approx(9000 / 8192)


def test_switches_of_a_question_are_switches():
    ask = lambda **given: question(
        "llama-3.1-8b", ["h100"], catalog.workload("azure-conv", 1.0), SLO(1.0, 0.1), **given
    )
    for name in ("tuned", "split"):
        assert getattr(ask(**{name: True}), name) is True
        for odd in (1, "yes", None):
            with pytest.raises(InputError, match=f"{name} = .*accepted are True and False"):
                ask(**{name: odd})
    for options, why in (
        ({"kv": 5}, "kv = 5: accepted are names of precisions"),
        ({"kv": "fp4"}, "kv fp4: accepted are"),
        ({"thresholds_tokens": (-1.0,)}, "thresholds_tokens"),
        ({"tp": (0,)}, "tp"),
        ({"prices_usd_per_hour": 3.0}, "prices_usd_per_hour = 3.0: accepted is a number for each GPU type"),
        ({"prices_usd_per_hour": {"l40s": 3.0}}, "gpu.price.l40s: accepted are prices of h100_sxm"),
        ({"split_": True}, "option 'split_' is unknown; the nearest are split"),
    ):
        with pytest.raises(InputError, match=why):
            ask(**options)
    one = ask(kv="fp8", tp=4, thresholds_tokens=2048.0, inventory={"H100": 9}, prices_usd_per_hour={"h100": 1.25})
    assert (one.kv, one.tp, one.thresholds_tokens) == (("fp8",), (4,), (2048.0,)) and one.inventory == {"h100_sxm": 9.0}
    assert float(one.gpus["h100_sxm"].price_usd_per_hour) == 1.25 and one.limits.of("h100_sxm") == 9.0
    assert (one.served_name, one.architecture) == ("meta-llama/Llama-3.1-8B-Instruct", "llama")
    folder = Path(__file__).parents[2] / "examples" / "data" / "our-model"
    own = question(
        folder / "config.json", "h100, h200", catalog.workload("azure-conv", 1.0), SLO(1.0, 0.1), rate_rps=7.0
    )
    assert own.served_name == str(folder) and list(own.gpus) == [
        "h100_sxm",
        "h200_sxm",
    ]  # an engine is given the folder
    assert own.rate_rps == 7.0 and own.trace is None and own.inventory == {}


def test_twenty_thousand_requests_are_drawn_where_nobody_says_how_many():
    class Instant:
        def serve(self, arrival_s, input_tokens, output_tokens):
            from dmodels.sim.requests import Served

            restarts = np.zeros(arrival_s.size, int)
            restarts[::100] = 2
            return Served(arrival_s, arrival_s, arrival_s + 0.1, arrival_s + 0.5, output_tokens, restarts)

    work = Workload([200.0], [11.0], [1.0], rate_rps=4.0)
    told = play([PoolOf("all", Instant())], work)
    assert told.requests_count == 20_000 and told.restarts_count == 400
    assert told.rate_rps == pytest.approx(4.0, rel=0.03) and 0 < told.cut_count < 20_000
    assert told.pools[0]["e2e_mean_s"].value == pytest.approx(0.5)
    whole = play([PoolOf("all", Instant())], work, stationary=False, count=50)
    assert whole.cut_count == 0 and whole.pools[0]["requests_count"].value == 50
    ((_, done),) = whole.served
    assert done.arrival_s[0] > 0 and whole.rate_rps == pytest.approx(1.0 / np.diff(done.arrival_s).mean(), rel=1e-9)


def test_each_threshold_costs_what_it_would_alone():
    """Two pools at 600 and at 1,500 tokens in total, each asked for by itself."""
    traffic = Workload([200.0, 1000.0, 3000.0], [100.0, 200.0, 500.0], [0.5, 0.3, 0.2], rate_rps=40.0)

    def two_pools(*thresholds):
        options = {"tp": (1,), "split": False, "thresholds_tokens": thresholds}
        found = by_formula(question("llama-3.1-8b", ["h100"], traffic, SLO(2.0, 0.08), **options))
        return dict(found.by_threshold), {d.kind: d.usd_per_hour for d in found.kinds}

    every, _ = two_pools(600.0, 1500.0)
    assert set(every) == {600.0, 1500.0}
    for threshold, cost in every.items():
        alone, of_kind = two_pools(threshold)
        assert alone == {threshold: pytest.approx(cost)} and of_kind[Kind.TWO_POOLS] == pytest.approx(cost)
