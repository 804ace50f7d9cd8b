"""Parts of a plan by loops: the fleets it chooses from, priorities, saved plans, and the words for a layout."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.studies.plan import RequestClass, fleets
from dmodels.studies.plan.designs import TTFT_SHARES, Kind, Layout, Scheme
from dmodels.studies.plan.limits import Limits
from dmodels.studies.plan.margins import Margins
from dmodels.studies.plan.memory_use import MemoryUse
from dmodels.studies.servers import priorities, saved_plan
from dmodels.studies.servers.saved_plan import of_plan, read_plan

PRICES = {"a": 2.0, "b": 3.0}
LAYOUTS = [Layout("a", tp=1), Layout("a", tp=2), Layout("b", tp=4)]


def behaves(cell, n):
    """(TTFT, seconds a token, tokens a second, flag) of n instances of a cell, all of them numbers of its own."""
    stable = 1 + cell % 3
    flag = int(Flag.OVERLOAD) if n < stable else int(Flag.SLO_MISS) if n < 2 * stable else 0
    return (1.0 + cell % 5) / n, 0.01 * (1 + cell % 4) + 0.02 / n, (100.0 + 7 * cell) / n, flag


def looked_at(limits, monkeypatch, margins=None):
    """Three layouts by five stages: one pool, two beside each other, two in turn; no size of one keeps up."""
    cells = np.arange(15)

    def swept(asked, counts, rate, engine):
        assert (asked, rate, engine) == ("cells", 2.5, "engine")
        rows = np.array([[behaves(c, n) for n in row] for c, row in zip(cells, counts, strict=True)])
        ttft, tpot, tokens, flags = np.moveaxis(rows, -1, 0)
        return Record(ttft_s=ttft, tpot_mean_s=tpot, tokens_per_s=tokens, flags=flags.astype(int))

    monkeypatch.setattr(fleets, "sweep_instances", swept)
    stable = (1.0 + cells % 3).reshape(3, 5)
    stable[1, 0] = np.inf
    priced = Record(
        question=Record(
            limits=limits,
            engine="engine",
            margins=margins or Margins(),
            gpus={name: Record(price_usd_per_hour=price) for name, price in PRICES.items()},
        ),
        stages=range(5),
        layouts=LAYOUTS,
        stable_instances=stable,
        instances=2 * stable,
        cells="cells",
        rate_rps=2.5,
        strain="strain",
        instance_gpus=np.array([x.gpus for x in LAYOUTS], float),
        gpu_prices_usd_per_hour=np.array([PRICES[x.gpu] for x in LAYOUTS]),
        schemes=[
            Scheme(Kind.ONE_POOL, "one", (0,)),
            Scheme(Kind.TWO_POOLS, "two", (1, 2)),
            Scheme(Kind.SPLIT, "split", (3, 4)),
        ],
    )
    return fleets.fleets(priced), fleets.points_count(priced)


def front_of(points):
    """Those that no other is below, the quickest first."""
    kept = []
    for x, y in sorted(set(points)):
        if not kept or y < kept[-1][1]:
            kept.append((x, y))
    return kept


@pytest.mark.parametrize(
    "limits",
    [
        Limits(np.inf, {}, 1, np.inf),
        Limits(24.0, {}, 1, np.inf),
        Limits(np.inf, {"b": 16.0}, 1, 40.0),
        Limits(np.inf, {}, 4, 60.0),
    ],
)
def test_fleets_and_their_fronts_by_looking_at_each(limits, monkeypatch):
    found, points = looked_at(limits, monkeypatch)
    one, node = found.one_pool, limits.node_gpus
    assert points == 15 * 64 == sum(x.size for x in [one["instances"]] * 5)
    every = {}
    for row, layout in enumerate(LAYOUTS):
        for stage in range(5):
            cell, kept = 5 * row + stage, []
            stable = 1.0 if (row, stage) == (1, 0) else float(1 + cell % 3)
            sizes = sorted([*(math.ceil(stable * s - 1e-12) for s in np.geomspace(1, 12, 63)), 2 * stable])
            for k, n in enumerate(sizes):
                ttft, tpot, tokens, flag = behaves(cell, n)
                whole = node * math.ceil(n / max(node // layout.gpus, 1)) * math.ceil(layout.gpus / node)
                cost, never = whole * PRICES[layout.gpu], (row, stage) == (1, 0)
                if stage == 0 and not never:
                    told = (one[x][row, k] for x in ("instances", "gpus", "usd_per_hour", "ttft_s", "flags"))
                    assert tuple(told) == pytest.approx((n, n * layout.gpus, cost, ttft, flag))
                    assert one["user_tokens_per_s"][row, k] == pytest.approx(1 / tpot)
                    assert one["gpu_tokens_per_s"][row, k] == pytest.approx(tokens / layout.gpus)
                fits = whole <= limits.of(layout.gpu) and cost <= limits.max_usd_per_hour
                if flag == 0 and fits and not never:
                    kept.append((ttft, cost, n * layout.gpus, layout.gpu))
                if stage == 0:
                    assert one["meets"][row, k] == (flag == 0 and fits and not never)
                    assert one["usable"][row, k] == (n >= stable and not never)
            every.setdefault(stage, []).extend(kept)
    fronts = {Kind.ONE_POOL: front_of([x[:2] for x in every[0]])}
    for kind, (a, b), times in ((Kind.TWO_POOLS, (1, 2), max), (Kind.SPLIT, (3, 4), lambda x, y: x + y)):
        pairs = []
        for t, usd, n, gpu in every[a]:
            for u, more, m, other in every[b]:
                together = node * math.ceil((n + m) / node) if gpu == other else math.inf
                apart = node * (math.ceil(n / node) + math.ceil(m / node))
                gpus = together if gpu == other else apart
                cost = together * PRICES[gpu] if gpu == other and node > 1 else usd + more
                room = limits.of(gpu) if gpu == other else limits.max_gpus
                if gpus <= room and cost <= limits.max_usd_per_hour:
                    pairs.append((times(t, u), cost))
        fronts[kind] = front_of(pairs)
    for kind, wanted in fronts.items():
        assert (kind in found.fronts) == bool(wanted)
        if wanted:
            told = found.fronts[kind]
            np.testing.assert_allclose(np.stack([told.ttft_s, told.usd_per_hour], 1), wanted)
    whole = front_of([tuple(p) for x in found.fronts.values() for p in zip(x.ttft_s, x.usd_per_hour, strict=True)])
    np.testing.assert_allclose(np.stack([found.front.ttft_s, found.front.usd_per_hour], 1), whole)
    yields = [
        list(zip(-one["user_tokens_per_s"][which], -one["gpu_tokens_per_s"][which], strict=True))
        for which in (one["usable"], one["throughput_front"])
    ]
    assert sorted(yields[1]) == front_of(yields[0])


def test_with_margins_a_fleet_has_to_keep_them_too(monkeypatch):
    """Here none of the small ones does; what is not asked for is not looked at."""

    def flags(cells, counts, *more):
        assert cells == "cells" and more == (2.5, "engine", Margins(spare_count=1), "strain")
        return np.where(counts < 9, 2, 0)

    monkeypatch.setattr(fleets, "margin_flags", flags)
    free = Limits(np.inf, {}, 1, np.inf)
    strict = looked_at(free, monkeypatch, Margins(spare_count=1))[0].one_pool
    loose = looked_at(free, monkeypatch)[0].one_pool
    assert (strict["meets"] == (loose["meets"] & (loose["instances"] >= 9))).all()
    assert (strict["flags"] == loose["flags"]).all() and strict["meets"].sum() < loose["meets"].sum()


def test_cost_of_the_cheapest_within_a_time():
    front = fleets.Front(np.array([1.0, 2.0, 4.0]), np.array([9.0, 7.0, 3.0]))
    assert front.cost_within(np.array([0.9, 1.0, 1.9, 2.0, 3.9, 4.0, 99.0])).tolist() == [np.inf, 9, 9, 7, 7, 3, 3]


def test_layouts_in_words():
    wide = Layout("h200_sxm", dp=8, ep=8, weights="fp8")
    assert str(wide) == "h200_sxm tp1pp1dp8ep8 w=fp8 kv=as published" and wide.degrees == "dp8 ep8"
    assert str(Layout("l40s", tp=2, pp=3)) == "l40s tp2pp3dp1ep1" and Layout("l40s", tp=2, pp=3).gpus == 6
    assert (
        str(Layout("l40s", kv="fp8")) == "l40s tp1pp1dp1ep1 w=as published kv=fp8" and Layout("l40s").degrees == "tp1"
    )
    parallel = Layout("x", tp=2, pp=3, dp=5, ep=10).as_parallel
    assert (parallel.tp, parallel.pp, parallel.dp, parallel.ep) == (2, 3, 5, 10)
    assert list(TTFT_SHARES) == sorted(TTFT_SHARES) and 0.5 <= TTFT_SHARES[0] and TTFT_SHARES[-1] < 1


def test_parts_of_a_gpus_memory_have_their_own_names():
    use = MemoryUse(None, 63.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 9.0, 9.0)
    parts = {"weights": 32, "activations": 16, "runtime": 8, "KV in use": 4, "KV free": 2, "left over": 1}
    assert use.parts == parts and list(use.parts) == list(parts) and sum(use.parts.values()) == use.gpu_bytes


# --- one fleet for several classes ---


def test_all_together_keep_the_loosest_bounds():
    classes = [RequestClass("a", SLO(1.0, 0.1, 9.0, 0.99)), RequestClass("b", SLO(3.0, 0.05, 4.0, 0.9))]
    told = priorities.loosest(classes)
    assert (told.ttft_s, told.tpot_s, told.e2e_s, told.percentile) == (3.0, 0.1, 9.0, 0.9)


@dataclass(frozen=True)
class Server:
    instances: int = 1


def sized_of(monkeypatch, guess, needed, limits=None, spare=0, most=math.inf, node=1):
    """Instances of two GPUs at 2.5 dollars each, of which `needed` keep every class's SLOs."""
    monkeypatch.setattr(priorities, "_server", lambda priced, layout: Server())
    tried = []
    played = Record(
        keeps=lambda one, by_priority: tried.append(one.instances) or (by_priority and one.instances >= needed)
    )
    limits = limits or Limits(np.inf, {}, node, np.inf)
    priced = Record(
        question=Record(margins=Margins(spare_count=spare), limits=limits),
        layouts=[Layout("a", tp=2)],
        prices_usd_per_hour=[5.0],
    )
    found = priorities._sized(priced, 0, guess, played, most)
    assert all(1 <= n for n in tried)
    return found


def test_the_fewest_instances_that_keep_every_class(monkeypatch):
    (one,) = sized_of(monkeypatch, 5, 7)
    assert one == (Layout("a", tp=2), 7, 20, True, 35.0)
    (none,) = sized_of(monkeypatch, 5, 21)  # beyond four times the guess nothing is looked for
    assert (none.instances, none.most, none.holds, none.usd_per_hour) == (20, 20, False, 100.0)
    (spare,) = sized_of(monkeypatch, 5, 7, spare=2)  # which are bought beside those that serve
    assert (spare.instances, spare.most, spare.usd_per_hour) == (7, 20, 45.0)
    assert sized_of(monkeypatch, 5, 7, most=4.99) == [] and sized_of(monkeypatch, 5, 7, most=9.99, spare=1) == []
    (dear,) = sized_of(monkeypatch, 5, 7, most=30.0)
    assert (dear.instances, dear.most, dear.holds) == (6, 6, False)
    (few,) = sized_of(monkeypatch, 5, 7, Limits(13.0, {}, 1, np.inf))
    assert (few.most, few.holds) == (6, False)
    (poor,) = sized_of(monkeypatch, 5, 7, Limits(np.inf, {}, 1, 35.0))
    assert (poor.most, poor.instances, poor.holds) == (7, 7, True)
    (nodes,) = sized_of(monkeypatch, 5, 7, node=8)  # of four instances each
    assert (nodes.instances, nodes.usd_per_hour) == (7, 40.0)


def test_a_fleet_by_priority_beside_the_same_in_order(monkeypatch):
    monkeypatch.setattr(priorities, "_server", lambda priced, layout: Server())
    latency = {True: (0.5, 0.02), False: (2.0, 0.04)}

    def on(server, by_priority):
        return [(name, server.instances, by_priority) for name in ("chat", "jobs")]

    def values(seen, slo):
        name, instances, by_priority = seen
        scale = 1.0 if name == "chat" else 10.0
        ttft, tpot = (scale * x / instances for x in latency[by_priority])
        return [("TTFT", float(slo.ttft_s), ttft), ("TPOT", float(slo.tpot_s), tpot), ("E2E", float(slo.e2e_s), 0.0)]

    monkeypatch.setattr(priorities, "values", values)
    monkeypatch.setattr(priorities, "quantile", lambda x, share: x + share)
    classes = [
        Record(name="chat", priority=0, slo=SLO(1.0, 0.1, percentile=0.99)),
        Record(name="jobs", priority=1, slo=SLO(60.0, math.inf, percentile=0.5)),
    ]
    keeps = lambda server, by_priority: server.instances >= (2 if by_priority else 5)
    played = Record(on=on, keeps=keeps, classes=classes)
    priced = Record(question=Record(margins=Margins(spare_count=3)))
    found = priorities._Sized(LAYOUTS[1], 2, 8, True, 50.0)
    told = priorities._told(priced, found, played)
    assert (told.instances, told.in_order_instances, told.gpus, told.usd_per_hour) == (5, 8, 10, 50.0)
    assert told.holds and told.layout == LAYOUTS[1]
    rows = [(x.name, x.priority, x.metric, x.bound_s, x.by_priority_s, x.in_order_s) for x in told.kept]
    assert rows == [
        ("chat", 0, "TTFT", 1.0, pytest.approx(0.25 + 0.99), pytest.approx(1.0 + 0.99)),
        ("chat", 0, "TPOT", 0.1, pytest.approx(0.01 + 0.99), pytest.approx(0.02 + 0.99)),
        ("jobs", 1, "TTFT", 60.0, pytest.approx(2.5 + 0.5), pytest.approx(10.0 + 0.5)),
    ]
    few = priorities._told(priced, found._replace(most=4), played)
    assert few.in_order_instances is None


# --- plans that were saved ---

POOL = {"gpu": "h100_sxm", "layout": "tp2pp3dp4ep8", "weights": "as published", "kv": "as published", "role": "serve"}


def saved(*pools, router=None, **asked):
    inputs = {"model": "m", "backend": "sglang", "max_num_seqs_count": 77.0, "max_num_batched_tokens": 999.0}
    best = {"pools": [POOL | own for own in pools], "router": router or {}}
    return {"command": "plan", "result": {"recommended": best}, "inputs": inputs | {"asked": {"gpu": asked}}}


def test_the_servers_of_a_saved_plan(monkeypatch):
    """Each with its own layout and precisions, in the limits that the plan was computed with."""
    monkeypatch.setattr(saved_plan, "server", lambda *given, **options: (given, options))
    one = {"name": "all", "pool_instances": 5, "weights": "FP8"}
    (pool,) = of_plan(saved(one))
    (model, gpu, parallel), options = pool.server
    assert (pool.label, pool.low_tokens, pool.high_tokens) == ("all", 0.0, math.inf)
    assert (model, gpu) == ("m", "h100_sxm")
    assert [float(x) for x in (parallel.tp, parallel.pp, parallel.dp, parallel.ep)] == [2, 3, 4, 8]
    assert options == {
        **{"backend": "sglang", "max_num_seqs": 77, "max_num_batched_tokens": 999, "instances": 5},
        **{"weight_dtype": "FP8", "kv_dtype": None},
    }
    short, long = of_plan(
        saved(
            {"name": "short", "pool_instances": 1, "kv": "FP8"},
            {"name": "long", "pool_instances": 2},
            router={"threshold_tokens": 4096.0},
            file="mine.csv",
        )
    )
    assert [(p.label, p.low_tokens, p.high_tokens) for p in (short, long)] == [
        ("short", 0.0, 4096.0),
        ("long", 4096.0, math.inf),
    ]
    assert short.server[1]["kv_dtype"] == "FP8" and short.server[1]["gpu_file"] == "mine.csv"
    (told,) = of_plan(saved(one), kv_dtype="bf16", block_tokens=32)  # what is asked for now counts
    assert (told.server[1]["kv_dtype"], told.server[1]["block_tokens"]) == ("bf16", 32)
    with pytest.raises(InputError, match="layout 'tp2'; accepted are names like tp8pp1dp1ep1"):
        of_plan(saved(one | {"layout": "tp2"}))


@pytest.mark.parametrize(
    "answer", [{}, {"command": "route"}, {"command": "plan", "result": {}}, saved() | {"command": "x"}]
)
def test_what_is_no_saved_plan(answer, tmp_path):
    with pytest.raises(InputError, match="plan: no answer of `dmodels plan --json` with a recommended fleet"):
        of_plan(answer)
    file = tmp_path / "a.json"
    for text in ("{", "[1]", '{"result": 3}', "[" * 5000):
        file.write_text(text)
        with pytest.raises(InputError, match="accepted is what `dmodels plan --json` printed"):
            read_plan(file)
    good = saved({"name": "all"})
    file.write_text(json.dumps(good))
    assert read_plan(file) == good


@dataclass(frozen=True)
class Asked:
    slo: SLO
    split: bool = True
    thresholds_tokens: tuple[float, ...] = (9.0,)


def test_the_cheapest_fleet_that_holds_of_the_three_cheapest_layouts(monkeypatch):
    """By the closed forms, in one stage each; the next may cost no more than the best that held."""
    layouts = [Layout("a"), Layout("b"), Layout("c", pp=2), Layout("d"), Layout("e"), Layout("f")]
    pools = [Record(kind=Kind.TWO_POOLS, stages=(0, 1)), Record(kind=Kind.ONE_POOL, stages=(1,))]
    costs = np.array([[1.0, 5.0], [9.0, 4.0], [1.0, 1.0], [1.0, 3.0], [1.0, math.inf], [1.0, 6.0]])
    priced = Record(layouts=layouts, schemes=pools, costs_usd_per_hour=costs, instances=np.arange(12).reshape(6, 2))
    asked, tried = Asked(SLO(2.0, 0.1)), []

    def sized(given, row, guess, played, most):
        tried.append((row, guess, most))
        return {3: [priorities._Sized(layouts[3], 1, 9, False, 2.0)], 1: [], 0: []}.get(row) or made(row)

    made = lambda row: [priorities._Sized(layouts[row], 1, 9, True, {1: 8.0, 0: 7.0}[row])]
    monkeypatch.setattr(priorities, "by_formula", lambda whole: Record(priced=whole_of(whole)))
    whole_of = lambda whole: seen.append((float(whole.slo.ttft_s), whole.split, whole.thresholds_tokens)) or priced
    seen = []
    monkeypatch.setattr(priorities, "_Played", lambda *given: "played")
    monkeypatch.setattr(priorities, "_sized", sized)
    monkeypatch.setattr(priorities, "_told", lambda given, best, played: (best.layout.gpu, best.holds, played))
    classes = [RequestClass("a", SLO(1.0, 0.1)), RequestClass("b", SLO(3.0, 0.1))]
    assert priorities.plan_together(asked, classes, 50.0) == ("a", True, "played")
    assert tried == [(3, 7, 50.0), (1, 3, 50.0), (0, 1, 8.0)] and seen == [(3.0, False, ())]
    made = lambda row: []
    assert priorities.plan_together(asked, classes) == ("d", False, "played") and tried[-1] == (0, 1, math.inf)
    costs[:] = math.inf
    assert priorities.plan_together(asked, classes) is None


def test_an_instance_for_all_classes_runs_what_its_question_says(monkeypatch):
    """As many sequences and tokens as the engine may, of the layout's precision, on its own GPU."""
    made = []
    monkeypatch.setattr(priorities, "hosted_server", lambda *given, **limits: made.append((*given, limits)))
    monkeypatch.setattr(priorities, "in_precision", lambda model, layout: f"{model} in {layout.weights}")
    asked = Record(model="llama", gpus={"a": "an a", "b": "a b"}, backend="sglang")
    asked.engine = Record(max_num_seqs_count=48.0, max_num_batched_tokens=4096.0)
    own = Layout("b", tp=2, weights="fp8")
    calibration = Record(efficiency=lambda layout: f"as {layout.gpu} does")
    priorities._server(Record(question=asked, calibration=calibration), own)
    ((name, place, efficiency, limits),) = made
    assert (name, efficiency) == (str(own), "as b does") and float(place.parallel.tp) == 2.0
    assert (place.model, place.gpu, place.gpu_name, place.engine) == ("llama in fp8", "a b", "b", "sglang")
    assert limits == {"max_num_seqs": 48, "max_num_batched_tokens": 4096}
