"""The shipped calibration holds what the least loss implies, and its files say what plans and predictions use."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from importlib.resources import files

import numpy as np
import pytest

from dmodels import catalog
from dmodels.core.hardware import Parallel
from dmodels.fit import hierarchy
from dmodels.fit.calibration import calibration as shipped
from dmodels.fit.calibration import efficiencies_of, efficiency_for, interval, table
from dmodels.fit.kernels import Hosted
from dmodels.models.latency import Efficiency

#: What the name of a level is made of, where it is not the level's own.
PARTS = {
    "run": "mode+gpu+backend+precision+family",
    "generation+run": "mode+generation+backend+precision+family",
    "release+family": "backend+release+family",
    "all": "",
}


def stored(name):
    return json.loads(files("dmodels.fit").joinpath(f"data/{name}.json").read_text("utf-8"))


def facts(kind, which):
    found = dict(zip(PARTS.get(kind, kind).split("+"), which.split("+"), strict=True))
    if "gpu" in found:
        gpu = catalog.gpu_facts(found["gpu"])  # its narrowest type with a unit of its own
        found["generation"] = next((t for t in ("fp4", "fp8") if gpu.get(f"peak_{t}_flop_per_s", 0.0) > 0), "bf16")
    return found


def test_effects_pull_as_their_parts_do():
    """Where the loss is least, an effect over its variance is what the rows of its level pull by, and every row is of
    one level of each kind: the pulls of all (GPU, engine) of an engine add up to the engine's, and so on."""
    effects, pulls = stored("calibration")["effects"], defaultdict(dict)
    for level, own in effects.items():
        kind, _, which = level.partition("=")
        for name in hierarchy.NAMES:
            if (spread := hierarchy.deviation(level, name)) > 0:
                pulls[kind, name][which] = own.get(name, 0.0) / spread**2
            else:
                assert kind == hierarchy.DEPLOYMENT or name not in own, (level, name)
    compared, clear = 0, set()
    for (fine, name), parts in pulls.items():
        told = {which: facts(fine, which) for which in parts if which}
        for (coarse, other), whole in pulls.items():
            by = [part for part in PARTS.get(coarse, coarse).split("+") if part]
            if other != name or coarse == fine or not told or not set(by) <= set(next(iter(told.values()))):
                continue
            summed = dict.fromkeys(whole, 0.0)
            for which, own in told.items():
                summed["+".join(own[part] for part in by)] += parts[which]
            a, b = (np.array([of[which] for which in whole]) for of in (summed, whole))
            size = max(np.linalg.norm(a), np.linalg.norm(b))
            slack = 1.6 if fine == "release+family" else 0.7  # 684 rows state no release
            assert np.linalg.norm(a - b) <= 0.15 * size + slack, (fine, coarse, name)
            compared += 1
            clear |= {(fine, name), (coarse, name)} if size > 1.0 else set()
    assert compared > 250 and len(clear) > 140


def linked(name, u):
    """An efficiency of u: what is a share of a rate or of anything has a logistic curve, 0.92 the most that a memory
    gives; an imbalance is 1 and more; all else is positive."""
    if name == "expert_imbalance":
        return 1.0 + math.exp(u)
    if not name.endswith("_frac") or name in ("burst_frac",):
        return math.exp(u)
    return (0.92 if name in ("hbm_frac", "kv_frac", "expert_hbm_frac") else 1.0) / (1.0 + math.exp(-u))


def start(name, value):
    """u of a value; a share of its bound is taken as 0.98 at most."""
    most = 0.92 if name in ("hbm_frac", "kv_frac", "expert_hbm_frac") else 1.0
    if linked(name, 0.0) == most / 2:
        share = min(value / most, 0.98)
        return math.log(share / (1 - share))
    return math.log(value - 1.0) if name == "expert_imbalance" else math.log(value)


def test_an_efficiency_is_the_sum_of_its_effects_by_hand():
    effects, plain = stored("calibration")["effects"], Efficiency()
    for gpu, engine, precision in (
        ("h200_sxm", "vllm", "fp8"),
        ("b200_sxm", "trtllm", "fp4"),
        ("a100_sxm", "sglang", "bf16"),
        ("mi300x", "nobody", ""),
        ("", "vllm", "fp8"),
    ):
        kind = {"h200_sxm": "fp8", "b200_sxm": "fp4", "a100_sxm": "bf16", "mi300x": "fp8", "": ""}[gpu]
        names = ["all", f"generation={kind}", f"gpu={gpu}", f"backend={engine}", f"precision={precision}"]
        names += [f"generation+backend={kind}+{engine}", f"gpu+backend={gpu}+{engine}", "mode=agg"]
        names += [f"generation+precision={kind}+{precision}", f"mode+gpu+backend=agg+{gpu}+{engine}"]
        found = efficiency_for(gpu, engine, precision)
        for name in hierarchy.NAMES:
            added = sum(effects.get(level, {}).get(name, 0.0) for level in names)
            wanted = linked(name, start(name, float(getattr(plain, name))) + added)
            if name == "dp_wait_steps" and engine != "trtllm":
                wanted = 0.0  # of TensorRT-LLM's ranks alone one waits for the others' prompts
            assert float(getattr(found, name)) == pytest.approx(wanted, rel=1e-9), (gpu, name)
        if gpu and precision:
            (row,) = table(shipped(), [(gpu, engine, precision)])
            assert (row["gpu"], row["backend"], row["precision"]) == (gpu, engine, precision)
            assert {name: row[name] for name in hierarchy.NAMES} == pytest.approx(
                {name: float(getattr(found, name)) for name in hierarchy.NAMES}
            )


def test_a_machine_has_its_kernels_efficiencies_and_what_serving_adds(monkeypatch):
    """Kernels of a known answer: what they say takes the place of the defaults, and all effects come on top."""
    told = {"hbm_frac": 0.91, "flop_frac": 0.6, "moe_layer_us": 11.0, "pass_count": 9.0, "layer_us": 3.0}
    asked = []
    monkeypatch.setattr("dmodels.fit.kernels.efficiencies", lambda machines: asked.extend(machines) or [dict(told)])
    effects, plain = stored("calibration")["effects"], Efficiency()
    model, layout = catalog.model("llama-3.1-70b"), Parallel(4.0)
    one = Hosted(model, catalog.gpu("h200_sxm"), "h200_sxm", "vllm", layout)
    (found,) = efficiencies_of([one], ["fp8"], "llama")
    run = "agg+h200_sxm+vllm+fp8+llama"
    names = ["all", "generation=fp8", "gpu=h200_sxm", "backend=vllm", "precision=fp8", "mode=agg", f"run={run}"]
    names += ["generation+backend=fp8+vllm", "gpu+backend=h200_sxm+vllm", "generation+precision=fp8+fp8"]
    names += [
        "family=llama",
        "family+generation=llama+fp8",
        "family+backend=llama+vllm",
        "mode+gpu+backend=agg+h200_sxm+vllm",
    ]
    names += ["generation+run=agg+fp8+vllm+fp8+llama", f"deployment={run}+80x8192+4x1x1"]
    assert set(names) <= set(effects)
    assert float(found.dp_wait_steps) == 0.0  # vLLM's ranks do not wait for each other's prompts
    for name in set(hierarchy.NAMES) - {"dp_wait_steps"}:
        origin = told[name] if name in told and name != "layer_us" else float(getattr(plain, name))  # a host's time
        wanted = linked(name, start(name, origin) + sum(effects.get(level, {}).get(name, 0.0) for level in names))
        assert float(getattr(found, name)) == pytest.approx(wanted, rel=1e-9), name
    assert asked == [one]  # of 16 bits, as stated
    named = efficiency_for("H200", "vllm", "fp8", "meta-llama/Llama-3.1-70B-Instruct", parallel=layout)
    assert float(named.flop_frac) == pytest.approx(float(found.flop_frac)) and asked[1].gpu_name == "h200_sxm"
    assert float(asked[1].model.dense_dtype_bytes) == pytest.approx(1.0, abs=0.01) and asked[1].parallel is layout


def test_intervals_are_the_narrowest_groups_of_the_file():
    said = stored("intervals")
    measured = {tuple(pair) for pair in said["pairs"]}
    assert ("llama-3.1-70b", "h200_sxm") in measured and ("llama-3.1-8b", "l40s") not in measured
    kind = "{0}/agg/stated/{1}/{2} {0}/agg/stated/{2} {0}/agg/stated".format
    for asked, names in (
        (("h200_sxm", "vllm", "llama-3.1-70b"), kind("known", "h200_sxm", "vllm")),
        (("l40s", "vllm", "llama-3.1-8b"), "pair/agg/stated pair/agg pair"),
        (("l40s", "vllm", "nobody/nothing", "disagg"), "model/disagg/stated model/disagg model"),
        (("l40s", "vllm", "", "agg", "llama"), "pair/agg/stated pair/agg pair"),
        (("H200", "trtllm", "llama-3.1-70b", "agg", "", True), kind("deployment", "h200_sxm", "trtllm")),
    ):
        group = next(said["groups"][name] for name in names.split() if name in said["groups"])
        found = interval(*asked)
        for metric in ("ttft", "tpot"):
            for level in ("80", "95"):
                told = found[metric][level]
                assert (told.low, told.high) == pytest.approx(tuple(map(math.exp, group[metric][level])))
