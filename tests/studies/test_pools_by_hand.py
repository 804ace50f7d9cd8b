"""The points that a plan is made of, what margins ask of them, and the pools that are recommended, where each part
says what it is told to: which numbers of whose go where."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO
from dmodels.core.flags import Flag
from dmodels.models.instance import Operating
from dmodels.studies.plan import evaluate, margins, risks, search, sizing
from dmodels.studies.plan.designs import Kind, Layout, Scheme, Stage
from dmodels.studies.plan.margins import Margins, Strain
from dmodels.studies.plan.search import Sized
from dmodels.studies.plan.sizing import Priced, Ranked
from tests.studies.test_answers_by_hand import SURE, fleet, pool

OVER, MISS = int(Flag.OVERLOAD), int(Flag.SLO_MISS)


def with_fakes(monkeypatch, module, **fakes):
    for name, fake in fakes.items():
        monkeypatch.setattr(module, name, fake)


class Rows(Record):
    """A record of arrays that is replaced like a named tuple."""

    def _replace(self, **changes):
        return Rows(**vars(self) | changes)


# --- points ---


def test_the_smallest_pools_are_those_of_trying_every_number(monkeypatch):
    """Of 40 cells, in turns of eight: from one number of instances on each keeps up, from another on its SLO, too; of
    some no number does up to 2^22. What is no longer asked about is not computed."""
    rng = np.random.default_rng(0)
    keeps = np.round(2.0 ** rng.uniform(0, 20, 40))
    meets = np.round(keeps * rng.choice([1.0, 1.3, 4.0], 40))
    keeps[:4], meets[:4] = [1, 2.0**22, 2.0**22 + 1, 3], [1, 2.0**22, 2.0**22 + 1, 2.0**23]
    asked, rounds = [], []

    def at(program, instances, names, turns):
        assert len(rounds) < 12, "it goes on and on"
        assert names == ("flags",) and instances.shape == (40, 16) and (instances >= 1).all()
        flags = np.full(instances.shape, 77)
        rows = np.isin(np.arange(40) // 8, turns)
        rounds.append(rows.sum())
        late = np.where(instances < meets[:, None], MISS, 0)
        flags[rows] = np.where(instances < keeps[:, None], OVER | MISS, late)[rows]
        return {"flags": flags}

    made = Record(sizes=(40, 1), layout=Record(turn=8))
    with_fakes(monkeypatch, evaluate, _at=at, _asked=lambda *given: asked.append(given) or made)
    found = evaluate.fewest_instances("cells", 3.0, "engine", "slowdown")
    assert found.stable_instances.tolist() == [math.inf if n > 2**22 else n for n in keeps]
    assert found.instances.tolist() == [math.inf if n > 2**22 else n for n in meets]
    assert asked == [("cells", 3.0, "engine", "slowdown")] and rounds[0] == 40
    rounds.clear()
    evaluate.fewest_instances("cells", 3.0, "engine")
    assert asked[1][3] == 1.0


def test_a_pool_just_keeps_up_with_a_real_number_of_instances(monkeypatch):
    """To a ten-thousandth, from above; where there is no steady state work is more than time, or a wait endless."""
    rng = np.random.default_rng(1)
    least = rng.uniform(0.3, 90.0, 30)
    least[:3] = 1e-4, 0.02, 0.7
    rounds = []

    def swept(cells, counts, rate_rps, engine):
        rounds.append(counts)
        assert (cells, rate_rps, engine) == ("cells", 2.0, "engine") and counts.shape == (30, 64)
        over = counts < least[:, None]
        ends = np.arange(30)[:, None] % 2 == 0
        return Record(flags=np.where(over & ends, OVER | MISS, MISS), ttft_s=np.where(over & ~ends, math.inf, 1.0))

    monkeypatch.setattr(evaluate, "sweep_instances", swept)
    found = evaluate.saturating_instances("cells", np.ceil(least), 2.0, "engine")
    assert (found >= least).all() and (found <= least * (1 + 1e-4)).all() and len(rounds) == 3
    nan = Record(flags=np.array([0, OVER, MISS, 0]), ttft_s=np.array([1.0, 1.0, 1.0, math.nan]))
    assert evaluate.saturated(nan).tolist() == [False, True, False, True]


def test_pools_are_looked_at_by_as_many_rows_as_their_factors_fill(monkeypatch):
    """Of two pools a hundred factors each: the cell of each as often as it takes 64 columns."""
    asked = []

    def swept(cells, instances, rate_rps, engine):
        asked.append((cells.tolist(), instances.shape, rate_rps, engine))
        told = {name: 0.0 * instances for name in Operating._fields}
        return Operating(**told | {"ttft_s": instances, "tpot_s": cells[:, None] + 0.0 * instances})

    monkeypatch.setattr(risks, "sweep_instances", swept)
    cells = np.array([10.0, 11.0, 12.0, 13.0])
    priced = Record(cells=cells, cell_of=lambda one: one.at, rate_rps=5.0, question=Record(engine="engine"))
    factors = np.stack([np.linspace(1.0, 4.0, 100), np.linspace(2.0, 9.0, 100)])
    point = risks._at(priced, [Record(at=3, instances=6), Record(at=1, instances=2)], factors)
    assert asked == [([13.0, 13.0, 11.0, 11.0], (4, 64), 5.0, "engine")]
    np.testing.assert_allclose(point.ttft_s, np.array([[6.0], [2.0]]) / factors)
    assert point.tpot_s[:, 0].tolist() == [13.0, 11.0] and point.flags.shape == (2, 100)


# --- margins ---


def test_what_a_confidence_asks_of_steps_and_of_the_first_token():
    """At 0.9 the upper ends of the intervals, at one half the prediction; nothing is faster than predicted, and TTFT at
    least as slow as steps."""
    each = [Record(tpot=(0.9, 1.2), ttft=(0.8, 1.5)), Record(tpot=(0.9, 1.4), ttft=(0.8, 1.1))]
    each.append(Record(tpot=(0.5, 0.9), ttft=(0.5, 0.8)))
    sure = margins.strain(0.9, each)
    assert sure.slowdown == pytest.approx([1.2, 1.4, 1.0]) and sure.ttft == pytest.approx([1.25, 1.0, 1.0])
    for even in margins.strain(0.5, each):
        assert even == pytest.approx([1.0] * 3)


def test_margins_are_more_load_slower_steps_a_stricter_bound_and_spares(monkeypatch):
    asked = []

    def fewest(cells, rate_rps, engine, slowdown):
        asked.append((cells.slo.ttft_s.tolist(), rate_rps, engine, slowdown))
        return evaluate.Smallest(np.array([3.0, 4.0]), np.array([5.0, math.inf]))

    def swept(cells, counts, rate_rps, engine, slowdown):
        asked.append((cells.slo.ttft_s.tolist(), rate_rps, engine, slowdown))
        return Record(flags=np.where(counts < 1, 64, 8))

    with_fakes(monkeypatch, margins, fewest_instances=fewest, sweep_instances=swept)
    cells = Rows(slo=SLO(np.array([[2.0], [3.0]]), 0.1))
    at, kept = Strain("slow", np.array([1.0, 1.5])), Margins(0.5, 2, 0.8)
    found = margins.fewest(cells, 10.0, "engine", kept, at)
    assert found.stable_instances.tolist() == [3, 4] and found.instances.tolist() == [7, math.inf]
    flags = margins.flags(cells, np.array([[1.0, 2.0, 2.5, 4.0]]), 10.0, "engine", kept, at)
    assert flags.tolist() == [[OVER, OVER, 64, 8]]  # what is left once two are lost
    assert asked == [([[2.0], [2.0]], 15.0, "engine", "slow")] * 2


# --- pools of every cell ---


@pytest.mark.parametrize("given", [None, "known"])
@pytest.mark.parametrize("tuned, none", [(False, False), (True, False), (False, True)])
def test_every_layout_is_sized_for_every_stage_of_what_is_asked(given, tuned, none, monkeypatch):
    """Two layouts by three stages, of the model as each stores it; nothing is sized where no request is taken."""
    calls = {}

    def told(name, value):
        def fake(*args, **options):
            calls[name] = (*args, *options.values())
            return value

        return fake

    confidences = {"x": "sure of x", "y": "sure of y"}
    known = Record(efficiency="efficiency", confidences=confidences)
    found = margins.Smallest(np.arange(6.0), np.arange(10.0, 16.0))
    fakes = {"layouts": told("layouts", ["x", "y"]), "in_precision": lambda model, layout: f"{model} as {layout}"}
    fakes |= {"calibrated": told("calibrated", known), "tuned_calibration": told("tuned", known)}
    fakes |= {"instances": told("instances", "records"), "thresholds": lambda asked: [5.0]}
    fakes |= {
        "schemes": told("schemes", (["all", "short", "long"], "ways")),
        "compressed": lambda work: f"small {work}",
    }
    fakes |= {"cells": told("cells", "batch"), "strain": told("strain", "at"), "smallest_pools": told("fewest", found)}
    for name, fake in fakes.items():
        monkeypatch.setattr(sizing, name, fake)
    taken = Record(workload="work", rate_rps=3.0, none=none)
    asked = Record(
        **{"admitted": taken, "tp": "tp", "pp": "pp", "weights": "weights", "kv": "kv", "model": "m", "gpus": "gpus"},
        **{"wide_ep": "wide", "backend": "sglang", "model_name": "name", "architecture": "arch", "measured": "own"},
        **{"tuned": tuned, "split": "split", "slo": "slo", "engine": "engine", "memory": "memory"},
        margins=Margins(0.1, 2, 0.75),
    )
    priced = sizing.price(asked, None if given is None else known)
    assert calls["layouts"] == ("m", "gpus", "tp", "pp", "weights", "kv", "wide", "sglang")
    models = ["m as x", "m as y"]
    if given is None:
        assert calls["calibrated"] == (("name", "arch"), models, ["x", "y"], "gpus", "sglang", "own")
    assert ("calibrated" in calls) == (given is None) and ("tuned" in calls) == (tuned and given is None)
    assert calls["instances"] == (models, "gpus", ["x", "y"], "efficiency") and calls["schemes"] == ([5.0], "split")
    stages = ["all", "short", "long"]
    assert calls["cells"] == ("records", "work", "small work", stages, "slo", "engine", "memory")
    assert calls["strain"] == (0.75, ["sure of x"] * 3 + ["sure of y"] * 3)
    assert calls["fewest"] == ("batch", 3.0, "engine", asked.margins, "at")
    assert (priced.question, priced.admitted, priced.layouts, priced.stages, priced.schemes) == (
        *(asked, taken, ["x", "y"], stages),
        "ways",
    )
    assert (priced.cells, priced.calibration, priced.strain) == ("batch", known, "at")
    if none:
        assert np.isinf(priced.instances).all() and np.isinf(priced.stable_instances).all()
    else:
        assert priced.instances.tolist() == [[10, 11, 12], [13, 14, 15]]
        assert priced.stable_instances.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [priced.cell(row, stage) for row, stage in ((0, 0), (0, 2), (1, 1))] == [0, 2, 4]
    assert priced.cell_of(Record(layout="y", stage="long")) == 5 and priced.rate_rps == 3.0


def test_the_state_of_every_smallest_pool_is_that_of_its_cell(monkeypatch):
    """One instance stands for pools of which no number is enough."""

    def swept(cells, counts, rate_rps, engine):
        assert (cells, rate_rps, engine) == ("cells", 3.0, "engine")
        return Operating(*(k + 10.0 * counts for k in range(len(Operating._fields))))

    monkeypatch.setattr(sizing, "sweep_instances", swept)
    asked = Record(
        engine="engine", gpus={"l40s": Record(price_usd_per_hour=0.5), "h100_sxm": Record(price_usd_per_hour=2.0)}
    )
    nothing = dict.fromkeys(("stages", "schemes", "calibration", "stable_instances", "strain"))
    layouts = [Layout("l40s", tp=2), Layout("h100_sxm", tp=4)]
    priced = Priced(
        asked,
        Record(rate_rps=3.0),
        layouts=layouts,
        cells="cells",
        instances=np.array([[2.0, math.inf], [3.0, 4.0]]),
        **nothing,
    )
    for k, column in enumerate(priced.as_sized):
        assert column.tolist() == [[20.0 + k, 10.0 + k], [30.0 + k, 40.0 + k]]
    assert priced.gpu_prices_usd_per_hour.tolist() == [0.5, 2.0] and priced.prices_usd_per_hour.tolist() == [1.0, 8.0]
    assert priced.instance_gpus.tolist() == [2.0, 4.0] and priced.pool_gpus.tolist() == [[4.0, math.inf], [12.0, 16.0]]


# --- what is recommended ---


def looked_at(monkeypatch, **question_of):
    """Three layouts by two stages, of which some cells are looked at."""
    asked = []

    def fewest(cells, rate_rps, engine, margins, at):
        asked.append(("fewest", cells.tolist(), rate_rps, engine, margins, at))
        return Record(instances=100.0 * at.slowdown)

    def swept(cells, counts, rate_rps, engine):
        asked.append(("sweep", cells.tolist(), counts, rate_rps, engine))
        return "point"

    def saturating(cells, stable, rate_rps, engine):
        asked.append(("saturating", cells.tolist(), stable.tolist(), rate_rps, engine))
        return "saturating"

    with_fakes(monkeypatch, search, fewest=fewest, sweep_instances=swept, saturating_instances=saturating)
    layouts = [Layout("l40s", tp=1), Layout("h100_sxm", tp=2), Layout("h200_sxm", tp=4)]
    sure = {x: replace(SURE, tpot=(0.5 + k, 1.5 + k)) for k, x in enumerate(layouts)}
    gpus = {x.gpu: Record(price_usd_per_hour=1.0 + k) for k, x in enumerate(layouts)}
    priced = Record(
        question=Record(engine="engine", margins="margins", gpus=gpus, node_gpus=1, **question_of),
        instances=np.array([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]),
        stable_instances=np.array([[1.0, 2.0], [2.0, 3.0], [1.0, 5.0]]),
        cells=np.arange(20.0, 26.0),
        cell=lambda row, stage: 2 * row + stage,
        layouts=layouts,
        calibration=Record(confidences=sure),
        strain=Strain(np.zeros(6), np.arange(6.0)),
        rate_rps=7.0,
    )
    return priced, asked


def test_cells_are_looked_at_as_sized_with_one_less_grown_and_at_both_ends(monkeypatch):
    priced, asked = looked_at(monkeypatch)
    two = Ranked(Scheme(Kind.TWO_POOLS, "two", (0, 1)), (2, 0), 9.0)
    again = Ranked(Scheme(Kind.ONE_POOL, "one", (0,)), (2,), 9.0)
    found = search.sized(priced, [two, again])
    assert found.rows == {1: 0, 4: 1} and found.at == "point" and found.saturating_instances == "saturating"
    assert found.low_instances.tolist() == [50.0, 250.0] and found.high_instances.tolist() == [150.0, 350.0]
    for name, cells, *rest in asked:
        assert cells == [21.0, 24.0]
        if name == "fewest":
            assert rest[:3] == [7.0, "engine", "margins"] and rest[3].ttft.tolist() == [1.0, 4.0]
        elif name == "sweep":
            (counts, *rest) = rest
            assert rest == [7.0, "engine"] and counts[:, :2].tolist() == [[4.0, 3.0], [3.0, 2.0]]
            np.testing.assert_allclose(counts[:, 2:], np.array([[4.0], [3.0]]) / search.GROWTH)
        else:
            assert rest == [[2.0, 1.0], 7.0, "engine"]
    asked.clear()
    priced.instances[2, 0] = 1.0  # of one instance half of one is left
    search.sized(priced, [again])
    assert [one[2][:, :3].tolist() for one in asked if one[0] == "sweep"] == [[[1.0, 0.5, 1.0]]]


def test_a_pool_has_the_numbers_of_its_own_cell(monkeypatch):
    """Sixteen cells of a kind with numbers of their own; what an instance does in a second times their number."""
    priced, _ = looked_at(monkeypatch)
    columns = {name: np.array([[k + 0.5, 0.0], [k + 0.25, 0.0]]) for k, name in enumerate(Operating._fields)}
    by_cell = lambda first: first + np.arange(6.0)[:, None]
    requests = Record(share_frac=by_cell(0.125), longest_tokens=by_cell(900.0))
    priced.cells = Record(requests=requests)
    priced.admitted = Record(limit_tokens=4096.0)
    priced.longest_context_tokens = lambda row, stage: 1000.0 * (row + 1) + stage
    priced.stages = [Stage("one"), Stage("two")]
    sat = np.array([0.5, 4.5])
    made = Sized(priced, {1: 0, 5: 1}, Operating(**columns), np.array([3.0, 5.0]), np.array([4.0, 9.0]), sat)
    monkeypatch.setattr(search, "_beyond", lambda given, cell, load: (f"{cell} at {load:g}",) * (given is priced))
    monkeypatch.setattr(search, "_binding", lambda sized, cell, count: f"{cell} of {count}" * (sized.priced is priced))
    scheme = Scheme(Kind.TWO_POOLS, "two pools", (1, 1))
    found = search.deployment(made, Ranked(scheme, (2, 0), 9.0))
    names = Operating._fields
    now = {name: names.index(name) + 0.25 for name in names}
    wide, narrow = found.pools
    assert (wide.stage, wide.layout, wide.instances) == (priced.stages[1], priced.layouts[2], 6)
    assert (wide.price_usd_per_hour, wide.request_share_frac, wide.longest_tokens) == (3.0, 5.125, 905.0)
    assert (wide.context_tokens, narrow.context_tokens) == (3001.0, 1001.0)
    same = ("ttft_s", "ttft_mean_s", "tpot_s", "tpot_mean_s", "e2e_s", "decode_count", "slots_count")
    assert [getattr(wide, name) for name in same] == [now[name] for name in same]
    assert wide.tokens_per_s == 6 * now["tokens_per_s"] and wide.binding == "5 of 6"
    assert wide.confidence is priced.calibration.confidences[priced.layouts[2]]
    assert (wide.load_frac, wide.extrapolated) == (0.75, ("5 at 0.75",))
    assert (narrow.instances, narrow.load_frac, narrow.ttft_s) == (4, 0.125, 4.5)
    assert (found.kind, found.name, found.node_gpus) == (Kind.TWO_POOLS, "two pools", 1)
    assert found.gpus == 28 and (found.gpus_low, found.gpus_high) == (5 * 4 + 3, 9 * 4 + 4)
    priced.admitted.limit_tokens = 2000.0
    assert search.deployment(made, Ranked(scheme, (2, 0), 9.0)).pools[0].context_tokens == 2000.0
    for low, high, ends in ((99.0, 1.0, (28, 28)), (math.inf, math.inf, (28, math.inf))):
        odd = made._replace(low_instances=np.full(2, low), high_instances=np.full(2, high))
        told = search.deployment(odd, Ranked(scheme, (2, 0), 9.0))
        assert (told.gpus_low, told.gpus_high) == ends


@pytest.mark.parametrize("outputs, wanted", [(40.0, ("TTFT", "E2E")), (0.0, ())])
def test_latencies_are_vouched_for_up_to_a_load_of_their_own(outputs, wanted, monkeypatch):
    """At the slots of the memory or of the engine, over all ranks, whichever are fewer; prefill workers at any."""
    trusted = {"plan_ttft_p99": 0.5, "plan_tpot_p99": 0.625, "plan_e2e_p99": 0.25}
    asked = []
    monkeypatch.setattr(search, "trusted_load", lambda form, *rest: asked.append(rest) or trusted[form])
    requests = Rows(output_tokens=np.array([[9.0], [outputs]]), output_scv=np.array([[9.0], [4.0]]))
    monkeypatch.setattr(
        search, "jax", Record(tree=Record(map=lambda cut, found: Rows(**{k: cut(x) for k, x in vars(found).items()})))
    )
    cells = Record(requests=requests, slots_count=np.array([[9.0], [70.0]]), dp=np.array([[9.0], [2.0]]))
    priced = Record(cells=cells, question=Record(engine=Record(max_num_seqs_count=30.0)))
    assert search._beyond(priced, 1, 0.625) == wanted and asked in ([], [(60.0, 2.0)] * 3)
    cells.slots_count[1] = 50.0
    assert search._beyond(priced, 1, 0.626) == (*wanted[:1], "TPOT", *wanted[1:]) * (outputs > 0)
    assert asked[3:] in ([], [(50.0, 2.0)] * 3)


def test_how_sure_a_fleet_is_is_the_greatest_confidence_of_all_its_pools(monkeypatch):
    """One pool bears steps 1.3 times as slow as predicted, the other one only 1.1 times."""
    bears = np.array([0.0, 1.3, 0.0, 1.1])

    def flags(cells, counts, rate_rps, engine, kept, at):
        assert (rate_rps, engine, kept) == (7.0, "engine", Margins()) and counts.shape == (40, 1)
        assert (counts[:, 0] == np.where(cells == 1.3, 3.0, 5.0)).all()
        return np.where(at.slowdown > cells, MISS, 0)[:, None]

    monkeypatch.setattr(search, "flags", flags)
    one = pool(instances=3, confidence=replace(SURE, tpot=(0.8, 1.3)))
    two = pool(instances=5, confidence=replace(SURE, tpot=(0.8, 1.2)))
    priced = Record(cells=bears, rate_rps=7.0, question=Record(engine="engine"))
    levels = [c for c in np.linspace(0.5, 0.975, 20) if margins.factor(c, np.array([1.2]))[0] <= 1.1]
    assert search._sure(priced, fleet(one, two), [1, 3]) == pytest.approx(levels[-1]) and 3 < len(levels) < 17
    two = replace(two, confidence=replace(SURE, tpot=(0.8, 1.05)))
    levels = [c for c in np.linspace(0.5, 0.975, 20) if margins.factor(c, np.array([1.3]))[0] <= 1.3]
    assert search._sure(priced, fleet(one, two), [1, 3]) == pytest.approx(levels[-1])
    for bears[3], told in ((1.0, 0.5), (0.9, 0.0)):
        assert search._sure(priced, fleet(one, two), [1, 3]) == told
