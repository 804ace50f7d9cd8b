"""What a plan is asked, table by table: what each is where it is left out, where it ends, and the calls it makes."""

from __future__ import annotations

import math

import pytest

from dmodels.cli import place_scenario, plan_inputs
from dmodels.cli.calls import call
from dmodels.cli.plan_inputs import (
    BoundsTable,
    ClassTable,
    GpuTable,
    MarginTable,
    MeasuredTable,
    PlanInputs,
    PlanWorkload,
    RegionTable,
    SloTable,
    SpaceTable,
    engine_call,
    trace_call,
    traffic_call,
)
from dmodels.cli.schema import EngineTable, WorkloadTable
from dmodels.core.errors import InputError

INF = math.inf


def test_every_table_of_a_plan_is_this_where_it_is_left_out():
    none = {"name": None, "trace": None, "input_tokens": None, "output_tokens": None, "telemetry": None}
    workload = none | {"name": "azure-conv", "prefix_hits": False, "cached_share": 0.0, "repair": False}
    space = {"tp": [1, 2, 4, 8], "pp": [1], "wide_ep": [16, 32], "weights": ["as published"], "kv": ["as published"]}
    space |= {"checkpoint": None, "thresholds": None, "split": True, "max_gpus": INF, "budget": None}
    gpu = {"name": ["h100_sxm", "h200_sxm"], "file": None, "price": {}, "inventory": {}, "node": 1, "regions": []}
    asked = PlanInputs().model_dump()
    assert asked == {
        "model": {"name": "llama-3.1-70b"},
        "gpu": gpu,
        "workload": workload,
        "traffic": {"rate": None},
        "slo": {"ttft": 2.0, "tpot": 0.08, "e2e": None, "percentile": 0.99, "classes": []},
        "space": space,
        "margin": {"headroom": 0.0, "spare": 0, "confidence": 0.5, "size_for": "trace"},
        "engine": {"backend": "vllm", "max_num_seqs": 256, "max_num_batched_tokens": 8192},
        "measured": {"calibration": None, "files": [], "tp": 0, "tuned": False},
    }
    assert [*asked] == ["model", "gpu", "workload", "traffic", "slo", "space", "margin", "engine", "measured"]
    kind = ClassTable(name="a").model_dump()
    bounds = {"ttft": None, "tpot": None, "e2e": None, "percentile": None}
    assert kind == {"name": "a", "low": 0.0, "high": INF, "of": "", **bounds, "priority": 0}
    assert RegionTable(name="us", inventory={}).model_dump() == {"name": "us", "inventory": {}, "price": {}}


@pytest.mark.parametrize(
    ("table", "field", "accepted", "refused"),
    [
        (GpuTable, "node", [1, 8], [0, -1]),
        (GpuTable, "inventory", [{"a": 0}, {}], [{"a": -1}]),
        (PlanWorkload, "cached_share", [0.0], [-0.01, 1.0]),
        (BoundsTable, "percentile", [0.5, 0.999, "50 %"], [0.49, 1.0, "100 %"]),
        (ClassTable, "low", [], [-1]),
        (ClassTable, "from", [0, 0.5], [-1]),
        (ClassTable, "to", [0.5, INF], [0, -1]),
        (ClassTable, "of", ["", "team=x", "a b=c d"], ["team", "=x", "team=", "a=b=c"]),
        (ClassTable, "percentile", [0.5, 0.999, None, "95 %"], [0.49, 1.0]),
        (ClassTable, "priority", [-1000, 1000, 0], [-1001, 1001, 0.5]),
        (ClassTable, "ttft", [1e-9, "2 s", None], [0]),
        (SpaceTable, "max_gpus", [1, INF], [0.99, 0]),
        (SpaceTable, "budget", [1e-9, "2 $/h", None], [0]),
        (SpaceTable, "thresholds", [None, "0.5,2"], ["0"]),
        (MarginTable, "headroom", [0, 10, "20 %"], [-0.01, 10.01]),
        (MarginTable, "spare", [0, 1000], [-1, 1001]),
        (MarginTable, "confidence", [0.5, 0.975, "90 %"], [0.49, 0.976]),
        (MarginTable, "size_for", ["trace", "next"], ["never", "Trace"]),
        (MeasuredTable, "tp", [0, 8], [-1]),
    ],
)
def test_a_field_of_a_plan_ends_where_it_means_nothing(table, field, accepted, refused):
    needed = {"name": "a"} if table is ClassTable else {}
    for value in accepted:
        table.model_validate(needed | {field: value})
    for value in refused:
        with pytest.raises(ValueError, match=field):
            table.model_validate(needed | {field: value})


def test_regions_and_classes_are_read_from_a_line():
    region = GpuTable(regions=["us-east : h100_sxm = 32 at 2.1 $/h, l40s=16"]).regions[0]
    assert region.model_dump() == {
        "name": "us-east",
        "inventory": {"h100_sxm": 32, "l40s": 16},
        "price": {"h100_sxm": 2.1},
    }
    made = region.call()
    assert (made.target, made.arguments) == (
        "dmodels.studies.plan:Region",
        ("us-east", {"h100_sxm": 32, "l40s": 16}, {"h100_sxm": 2.1}),
    )
    free = RegionTable(name="us", inventory="l40s=1").call().arguments
    assert free == ("us", {"l40s": 1})  # at the catalogue's prices
    for wrong in ("us: l40s", ": l40s=1", "us", "l40s=1", "us: l40s at 2 $/h"):
        with pytest.raises(ValueError, match='like "us-east: h100_sxm=32 at'):
            GpuTable(regions=[wrong])
    read = lambda line: SloTable(classes=[line]).classes[0]
    chat = read("chat : from 5, to 8000,ttft 2 s, tpot 80 ms, e2e 9 s, percentile 95 %, priority -1")
    told = {"name": "chat", "low": 5, "high": 8000, "of": "", "ttft": 2.0, "tpot": 0.08, "e2e": 9.0}
    assert chat.model_dump() == told | {"percentile": 0.95, "priority": -1}
    assert read("late: team = nightly, ttft 60 s").of == "team = nightly"
    for wrong in ("chat", ": to 5", "chat: to", "chat:", "chat: to 5, ttft"):
        with pytest.raises(ValueError, match='like "chat: to 8000'):
            read(wrong)


def test_what_a_class_does_not_say_is_as_the_plan_has_it():
    others = BoundsTable(ttft=1.5, tpot=0.025, e2e=9.0, percentile=0.95)
    made = ClassTable(name="a", to=8000, ttft=3.0).call(others)
    name, slo, low, high = made.arguments
    assert (made.target, name, low, high, made.options) == (
        "dmodels.studies.plan:RequestClass",
        "a",
        0.0,
        8000.0,
        {},
    )
    assert slo.arguments == (3.0, 0.025, 9.0, 0.95) and slo.target == "dmodels:SLO"
    own = ClassTable(name="b", tpot=0.5, e2e=7.0, percentile=0.9, of="team= nightly ", priority=3).call(others)
    assert own.arguments[1].arguments == (1.5, 0.5, 7.0, 0.9)
    assert own.arguments[4] == "nightly" and own.options == {"priority": 3}
    assert BoundsTable().call().arguments == (2.0, 0.08, INF, 0.99)


def test_bounds_of_several_classes_are_the_tightest_for_one_fleet():
    traffic = call("dmodels:read_trace", "t.csv")
    plain, several = SloTable(), SloTable(classes=["a: to 5", "b: from 5"])
    assert plain.one_fleet(traffic).target == "dmodels:SLO"
    tightest = several.one_fleet(traffic)
    assert tightest.target == "dmodels.studies.plan:tightest"
    (classes,) = tightest.arguments
    named, of, slo = classes.arguments
    assert classes.target == "dmodels.studies.plan:with_others" and of is traffic
    assert [one.arguments[0] for one in named] == ["a", "b"] and slo.arguments == (2.0, 0.08, INF, 0.99)


def test_one_column_tells_classes_apart_and_gpus_are_those_that_there_are():
    label = lambda *of: SloTable(classes=[{"name": "a", "of": one} for one in of]).label
    assert (label(), label("", ""), label(" team =x", "team=y", "")) == ("", "", "team")
    with pytest.raises(InputError) as told:
        label("user=x", "team=y", "tier=z")
    assert str(told.value) == "--class by team and tier and user: one column is accepted"
    named = lambda **given: GpuTable.model_validate(given).name
    assert named() == ["h100_sxm", "h200_sxm"] and named(inventory="b=1, a=2") == ["b", "a"]
    assert named(inventory={"c": 1}, regions=["x: b=1, c=2", {"name": "y", "inventory": {"a": 3}}]) == ["c", "b", "a"]
    assert named(name="d", inventory="a=1") == ["d"] == GpuTable(name="d").name
    for wrong in ({"inventory": 3}, {"inventory": "a"}, {"regions": ["x"]}, {"regions": 3}):
        with pytest.raises(ValueError, match=r"inventory|regions"):
            named(**wrong)


def test_margins_are_a_call_where_there_are_some():
    assert MarginTable().call() is None is MarginTable(size_for="next").call()
    made = MarginTable(headroom=0.2, spare=3, confidence=0.9).call()
    assert (made.target, made.arguments) == ("dmodels.studies.plan:Margins", (0.2, 3, 0.9))
    assert all(one.call() is not None for one in (MarginTable(spare=1), MarginTable(confidence=0.6)))


def test_a_calibration_of_ones_own_is_read_or_made_of_what_was_measured():
    inputs = PlanInputs(gpu={"name": "l40s"}, model={"name": "m"}, engine={"backend": "trtllm"})
    assert MeasuredTable().call(inputs) is None
    read = MeasuredTable(calibration="c.json").call(inputs)
    assert (read.target, read.arguments, read.label) == ("dmodels.fit.refit:read_own", ("c.json",), "measured")
    made = MeasuredTable(files=["m.json"]).call(inputs)
    files, machine = made.arguments
    assert (made.target, files, made.label) == ("dmodels.fit.refit:own_calibration", ["m.json"], "measured")
    assert machine.options == {"model": "m", "gpu": "l40s", "engine": "trtllm"}
    assert MeasuredTable(files=["m.json"], tp=4).call(PlanInputs()).arguments[1].options == {
        "model": "llama-3.1-70b",
        "engine": "vllm",
        "tp": 4,
    }


def test_traffic_is_called_by_its_kind_and_named():
    """A trace by its file, telemetry by its file, a workload by its name, lengths by what they are."""
    named = lambda rate=None, **given: traffic_call(PlanWorkload(**given), rate)
    made, name = named(3.0, trace="a/t.csv", repair=True)
    assert (made.target, name) == ("dmodels:Workload.from_trace", "t.csv") and made.arguments[1] == 3.0
    assert made.arguments[0].arguments == ("a/t.csv",) and made.arguments[0].options == {"repair": True}
    made, name = named(telemetry="b/m.json")
    assert (made.target, made.arguments, name) == (
        "dmodels.formats.telemetry:read_workload",
        ("b/m.json",),
        "m.json",
    )
    made, name = named(name="mooncake", prefix_hits=True)
    assert (made.target, made.arguments, name) == ("dmodels:catalog.workload", ("mooncake", None, True), "mooncake")
    assert named(name="mooncake")[0].arguments == ("mooncake",)
    made, name = named(3.0, isl=1234, osl=56.5, cached_share=0.25)
    assert (made.target, name) == ("dmodels:Workload.fixed", "ISL 1234 / OSL 56.5")
    assert made.arguments == (1234.0, 56.5, 3.0, 308.5)
    assert named(3.0, isl=1234, osl=56)[0].arguments == (1234.0, 56.0, 3.0)
    plain = WorkloadTable(name="mooncake"), WorkloadTable(isl=10, osl=5)
    assert [traffic_call(one, 3.0)[0].arguments for one in plain] == [("mooncake", 3.0), (10.0, 5.0, 3.0)]
    with pytest.raises(InputError) as told:
        named(isl=10, osl=5)
    lacking = "--rate is missing: fixed lengths have no rate of their own (traffic.rate in a scenario)"
    assert str(told.value) == lacking


def test_a_trace_is_read_with_its_column_and_its_hits():
    read = trace_call(PlanWorkload(trace="t.csv"), "team")
    assert (read.target, read.options, read.label) == ("dmodels:read_trace", {"class_column": "team"}, "trace")
    hits = trace_call(PlanWorkload(trace="t.csv", prefix_hits=True))
    assert hits.target == "dmodels.models.traffic:with_prefix_hits" and hits.arguments[0].options == {}
    assert trace_call(WorkloadTable(name="x")) is None
    plain = trace_call(WorkloadTable(trace="t.csv"))
    assert (plain.target, plain.arguments, plain.options) == ("dmodels:read_trace", ("t.csv",), {})
    with pytest.raises(InputError) as told:
        trace_call(WorkloadTable(name="x"), "team")
    assert str(told.value) == "--class by team: needs a trace (--trace) with that column"


def test_an_engine_is_called_with_its_limits():
    made = engine_call(EngineTable(max_num_seqs=33, max_num_batched_tokens=4096))
    assert (made.target, made.arguments) == ("dmodels.models.instance:Engine", (33.0, 4096.0))


def test_a_question_of_defaults_leaves_to_the_library_what_is_its_own():
    made = PlanInputs().call()
    model, gpus, traffic, slo = made.arguments
    assert (made.target, made.label, model, gpus) == (
        "dmodels.studies.plan:question",
        "asked",
        "llama-3.1-70b",
        ["h100_sxm", "h200_sxm"],
    )
    assert traffic.arguments == ("azure-conv",) and slo.target == "dmodels:SLO"
    options = dict(made.options)
    assert options.pop("engine").arguments == (256.0, 8192.0)
    assert options == {
        "workload_name": "azure-conv",
        "tp": (1, 2, 4, 8),
        "pp": (1,),
        "wide_ep": (16, 32),
        "weights": ("as published",),
        "kv": ("as published",),
        "split": True,
        "backend": "vllm",
    }


def test_a_question_of_a_trace_is_of_its_requests_at_the_rate_that_is_given(tmp_path):
    asked = {"workload": {"trace": "t.csv"}, "traffic": {"rate": 3.0}, "gpu": {"name": "a", "node": 8, "file": "f"}}
    asked["gpu"] |= {"price": {"a": "2 $/h"}, "inventory": {"a": 3}}
    more = {"max_gpus": 7, "budget": 5.0, "thresholds": "10,20", "checkpoint": "c", "wide_ep": "0,4", "split": False}
    made = PlanInputs(**asked, space=more, margin={"size_for": "next", "spare": 1}).call()
    options = {name: value for name, value in made.options.items() if name not in ("engine", "margins")}
    assert made.arguments[2].target == "dmodels:read_trace" and made.options["margins"].arguments == (0.0, 1, 0.5)
    assert options == {
        "rate_rps": 3.0,
        "gpu_file": "f",
        "prices_usd_per_hour": {"a": 2.0},
        "workload_name": "t.csv",
        "tp": (1, 2, 4, 8),
        "pp": (1,),
        "wide_ep": (4,),
        "weights": ("as published",),
        "kv": ("as published",),
        "checkpoint": "c",
        "thresholds_tokens": (10.0, 20.0),
        "split": False,
        "backend": "vllm",
        "max_gpus": 7.0,
        "inventory": {"a": 3},
        "node_gpus": 8,
        "max_usd_per_hour": 5.0,
        "size_for": "next",
    }
    file = tmp_path / "s.toml"
    file.write_text('model.name = "m"\n')
    assert plan_inputs.from_scenario(file).model.name == "m"


def test_tiers_of_a_placement_are_this_where_they_are_left_out():
    """US dollars per GiB, and how late a block comes: microseconds by DRAM, a millisecond from elsewhere."""
    given = {"size": 1.0, "bandwidth": 2.0}
    assert place_scenario.HbmTable(size=1.0).price == 375.0 == place_scenario.PRICES["hbm"]
    for table, price, late in (("DramTable", 5.0, 20e-6), ("SsdTable", 0.12, 100e-6), ("RemoteTable", 0.0, 1e-3)):
        made = getattr(place_scenario, table)(**given)
        assert (made.price, made.latency) == (price, pytest.approx(late))
    assert place_scenario.RemoteTable(bandwidth=2.0).size is None
    tables = (place_scenario.ParallelTable(), place_scenario.TraceTable(), place_scenario.TargetTable())
    assert [one.model_dump() for one in tables] == [
        {"tp": 1},
        {"file": None, "repair": False},
        {"hit_rate": None, "first_token": None},
    ]
    assert place_scenario.SharingTable().model_dump() == {"workers": 1, "link": None}
    assert place_scenario.PolicyTable().decay == 60.0
    target = place_scenario.TargetTable
    assert (target(hit_rate=0).hit_rate, target(hit_rate=1, first_token=1e-9).hit_rate) == (0, 1)
    for wrong in ({"hit_rate": -0.01}, {"hit_rate": 1.01}, {"first_token": 1.0}, {"hit_rate": 1, "first_token": 0}):
        with pytest.raises(ValueError, match=r"hit_rate|first_token"):
            target(**wrong)


def test_a_placement_asks_for_its_tiers_from_fast_to_slow():
    tiers = {"hbm": {"size": 1.0}, "remote": {"bandwidth": 4.0}, "dram": {"size": 2.0, "bandwidth": 3.0}}
    parts = {"model": {"name": "m"}, "gpu": {"name": "g", "file": "f"}, "parallel": {"tp": 2}, "tiers": tiers}
    made = place_scenario.PlaceAsked(**parts, trace={"file": "t"}).call()
    read, model, gpu, parallel, found = made.arguments
    assert (read.arguments, read.options, model.arguments, gpu.arguments) == (("t",), {}, ("m",), ("g", "f"))
    assert parallel.options == {"tp": 2} and made.options == {"workers": 1, "decay_s": 60.0}
    hbm, dram, remote = (one.arguments for one in found)
    assert (hbm[:2], hbm[3:], dram[:3], remote[:3]) == (
        ("HBM", 1.0),
        (0.0, 375.0),
        ("DRAM", 2.0, 3.0),
        ("remote", INF, 4.0),
    )
    rate = hbm[2]
    assert (rate.target, rate.arguments[1], rate.arguments[0].arguments[0].owner) == ("operator:mul", 2, gpu)
    assert rate.arguments[0].arguments[0].target == "hbm_bytes_per_s"
