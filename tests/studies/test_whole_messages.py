"""What studies refuse, told in whole sentences: the name of what is wrong, its value, and what is accepted."""

from __future__ import annotations

import math
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels import SLO, Parallel, Trace, Workload, catalog
from dmodels.core.errors import InputError
from dmodels.formats.serving import Server, ServerPool, Serving
from dmodels.studies import sweep, watch
from dmodels.studies.place import Tier, place
from dmodels.studies.plan import Region, RequestClass, check, existing, plan_regions, question, regions, reverse, sizing
from dmodels.studies.plan.classes import which
from dmodels.studies.plan.designs import Kind
from dmodels.studies.plan.limits import Limits
from dmodels.studies.plan.limits import check as check_limits
from dmodels.studies.pools import pool_study
from dmodels.studies.servers import saved_plan

CHAT = Workload([300.0, 5000.0], [200.0, 300.0], [0.7, 0.3], rate_rps=4.0)
BOUNDS = SLO(2.0, 0.05)


def ask(**options):
    return question("llama-3.1-8b", ["h100_sxm", "h200_sxm"], CHAT, BOUNDS, **options)


GPUS = {name: catalog.gpu(name) for name in ("h100_sxm", "h200_sxm")}
FREE = Limits(math.inf, {}, 1, math.inf)
TYPES = Record(gpus=dict.fromkeys(GPUS))


def fleet(*pools):
    made = [ServerPool(f"p{k}", Server("vllm", "m", **own), 2, "") for k, own in enumerate(pools)]
    return Serving("ours", tuple(made))


def placed(*rows):
    ids, starts = np.array([b for row in rows for b in row], int), np.cumsum([0, *map(len, rows)])
    times = np.arange(1.0 * len(rows))
    return Trace("mine", times, np.full(len(rows), 600.0), np.full(len(rows), 9.0), 0.0, ids, starts)


def place_on(*tiers, trace=None, **options):
    given = placed([1, 2], [1]) if trace is None else trace
    return place(given, catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm"), Parallel(), tiers, **options)


HBM = Tier("HBM", 2.0**30, 1e12)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ask(kv="fp4"), "kv fp4: accepted are as published, bf16, fp8, which engines can be started with"),
        (lambda: ask(kv=7), "kv = 7: accepted are names of precisions, like 'fp8'"),
        (lambda: ask(tuned="no"), "tuned = 'no': accepted are True and False"),
        (
            lambda: ask(prices_usd_per_hour={"l40s": 1.0}),
            "gpu.price.l40s: accepted are prices of h100_sxm, h200_sxm",
        ),
        (
            lambda: ask(inventory={"l40s": 1}),
            "inventory of l40s: accepted are the GPU types asked about, h100_sxm, h200_sxm",
        ),
        (lambda: ask(inventory={"h200": -1}), "inventory of h200_sxm = -1: accepted are numbers from 0"),
        (lambda: ask(max_gpus=0.5), "max_gpus = 0.5: accepted are numbers from 1"),
        (lambda: ask(node_gpus=1.5), "node_gpus = 1.5: accepted are whole numbers from 1"),
        (lambda: ask(max_usd_per_hour=0.0), "max_usd_per_hour = 0: accepted are positive prices"),
        (lambda: check(CHAT.at_rate(0.0), BOUNDS), "rate 0 req/s: accepted are positive numbers"),
        (
            lambda: check(CHAT, SLO(1.0, 1.0, percentile=0.4)),
            "percentile 0.4: accepted are shares from 0.5 to below 1, like 0.99",
        ),
        (
            lambda: check(CHAT.replace(output_tokens=np.zeros(2)), BOUNDS),
            "workload: no request generates a token; accepted are traces with output lengths",
        ),
        (
            lambda: sizing.thresholds(Record(admitted=Record(workload=CHAT), thresholds_tokens=(100.4, 9e9))),
            "threshold 100 tokens: leaves a pool empty; accepted are 500 to below 5,300",
        ),
        (
            lambda: RequestClass("jobs", BOUNDS, label="a").has(np.ones(2), None),
            "class jobs of 'a': accepted with a trace whose requests carry labels",
        ),
        (
            lambda: which([RequestClass("jobs", BOUNDS, 0.0, 100.0)], np.array([50.0, 1200.0]), None),
            "classes: a request of 1,200 tokens is of 0 classes; accepted are classes of which each request has one",
        ),
        (
            lambda: which([RequestClass("jobs", BOUNDS), RequestClass("b", BOUNDS, 9.0)], np.array([5.0]), None),
            "class b: no request is of it; accepted are classes with requests",
        ),
        (
            lambda: regions.in_region(TYPES, Region("east", {"l40s": 4})),
            "region east: l40s: accepted are the types asked about, h100_sxm, h200_sxm",
        ),
        (
            lambda: regions.in_region(TYPES, Region("east", {})),
            "region east: names no GPUs; accepted are types with how many there are",
        ),
        (
            lambda: plan_regions(TYPES, [Region("east", {"h100": 1}), Region("east", {})]),
            "regions east, east: accepted are regions, each once",
        ),
        (
            lambda: reverse.at_limit(ask(), "rate"),
            "rate: without a limit any can be served; give GPUs (max_gpus, inventory) or a budget",
        ),
        (
            lambda: existing._ordered(list(fleet({"role": "serve"}, {"role": "decode"}).pools), Kind.SPLIT),
            "--from-deployment: roles decode, serve; a split has prefill and decode",
        ),
        (
            lambda: existing._gpu(TYPES, fleet({}).pools[0]),
            "--from-deployment: pool p0 names no GPU; --gpu NAME (one) adds it",
        ),
        (
            lambda: existing._same_model(Record(model_name="x", served_name="", checkpoint=""), fleet({})),
            "--from-deployment serves m; accepted is a plan of it: --model m",
        ),
        (
            lambda: sweep._workload(sweep.Scenario({}), None, 100.0, None),
            "input_tokens and output_tokens: accepted are both or neither",
        ),
        (
            lambda: sweep._workload(sweep.Scenario({}), None, None, None),
            "workload is missing; accepted are a bundled one, a trace, or input_tokens with output_tokens",
        ),
        (
            lambda: pool_study(CHAT, context_tokens=5299.0),
            "context_tokens = 5299: accepted is at least 5,300, the longest request",
        ),
        (lambda: pool_study(CHAT, rate_rps=-1.0), "rate_rps = -1: accepted are positive rates"),
        (
            lambda: saved_plan._parallel({"layout": "tp8"}),
            "plan: layout 'tp8'; accepted are names like tp8pp1dp1ep1",
        ),
        (lambda: place_on(), "tiers: none given; accepted: at least one"),
        (
            lambda: place_on(HBM, trace=placed([], [])),
            "mine: its requests have no prefix block; accepted: at least one",
        ),
        (lambda: place_on(HBM, target_hit_frac=-0.5), "target_hit_frac = -0.5: accepted are numbers from 0 to 1"),
        (
            lambda: place_on(HBM, Tier("net", math.inf, 1.0), Tier("disk", 1.0, 1.0)),
            "tiers: accepted is at most one unlimited tier, the last, behind limited ones",
        ),
        (
            lambda: place_on(HBM, Tier("disk", 1.0, -2.0)),
            "tiers.disk.read_bytes_per_s = -2.0: accepted is above 0",
        ),
        (
            lambda: check_limits(FREE, {"l40s": Record(price_usd_per_hour=0.0)}),
            "price of l40s = 0: accepted are positive prices in USD/h; where you know none, the same for each type "
            "compares GPUs",
        ),
    ],
)
def test_a_refusal_is_a_whole_sentence(call, says):
    with pytest.raises(InputError) as told:
        call()
    assert str(told.value) == says


def test_a_fleet_that_is_read_has_one_gpu_type_where_its_files_name_none(monkeypatch):
    one = Record(gpus={"l40s": None})
    assert existing._gpu(one, fleet({}).pools[0]) == "l40s"
    assert existing._gpu(TYPES, ServerPool("p", Server("vllm", "m"), 1, "h200_sxm")) == "h200_sxm"
    for known in ({"served_name": "m"}, {"checkpoint": "m"}):
        existing._same_model(Record(**{"model_name": "x", "served_name": "", "checkpoint": ""} | known), fleet({}))
    bare = Record(model_name="x", served_name="m", checkpoint="", gpus={"l40s": None})
    with pytest.raises(InputError) as told:
        existing.existing(bare, fleet({}, {}, {"role": "serve"}))
    assert str(told.value) == (
        "--from-deployment ours: 3 pools; accepted are one, two with a threshold on tokens, or a prefill/decode split"
    )
    monkeypatch.setattr(watch, "observe", lambda files, hours: "seen")
    monkeypatch.setattr(watch, "read_deployment", lambda files: fleet({}))
    with pytest.raises(InputError) as told:
        watch.watch([], ["run.sh"])
    assert str(told.value) == "--from-deployment names no GPU; --gpu NAME adds it"
