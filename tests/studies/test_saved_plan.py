"""The servers of a saved plan are those that it says: each number of its pools arrives at a server of its own."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

from dmodels import catalog
from dmodels.cli import simulate_server
from dmodels.core.errors import InputError
from dmodels.studies.servers import of_plan, saved_plan

INPUTS = {
    "model": "llama-3.1-8b",
    "backend": "sglang",
    "max_num_seqs_count": 48,
    "max_num_batched_tokens": 4096,
    "asked": {"gpu": {"file": None}},
}


def pool(name, **more):
    known = {"name": name, "role": "serve", "gpu": "h100_sxm", "layout": "tp2pp1dp4ep8", "pool_instances": 3}
    return known | {"weights": "as published", "kv": "as published"} | more


def answer(*pools, router=None, **inputs):
    best = {"pools": list(pools), "router": router or {"policy": "least requests in flight"}}
    return {"command": "plan", "result": {"recommended": best}, "inputs": INPUTS | inputs}


@pytest.mark.parametrize(("given", "rate"), [(None, 5.0), (8.0, 8.0)])
def test_a_saved_plan_is_simulated_on_its_own_traffic_at_the_rate_that_is_given(tmp_path, given, rate):
    """The requests of its trace where it has one; else those of its lengths, which know their rate."""
    file = tmp_path / "plan.json"

    def told(workload):
        saved = answer(pool("all"), asked={"workload": workload, "traffic": {"rate": 5.0}})
        file.write_text(json.dumps(saved))
        asked = SimpleNamespace(server=SimpleNamespace(plan=str(file)), rate_rps=given)
        pools, traffic, own = simulate_server._planned(asked)
        assert "of_plan" in pools.python("x") and str(file) in pools.python("x")
        return traffic.python("x"), own

    text, own = told({"trace": "own.csv", "name": None})
    assert "read_trace" in text and "own.csv" in text and own == rate
    text, own = told({"input_tokens": 300.0, "output_tokens": 20.0, "trace": None})
    assert "300" in text and f"{rate:g}" in text and own is None


@pytest.fixture
def made(monkeypatch):
    """Instead of servers, what they would be made of."""
    monkeypatch.setattr(saved_plan, "server", lambda model, gpu, parallel, **more: (model, gpu, parallel, more))


def test_each_pool_has_its_own_numbers(made):
    short, long = of_plan(
        answer(
            pool("short", weights="fp8", kv="bf16"),
            pool("long", gpu="h200_sxm", layout="tp8pp1dp1ep1", pool_instances=5),
            router={"threshold_tokens": 2048},
            asked={"gpu": {"file": "own.csv"}},
        )
    )
    assert (short.label, short.low_tokens, short.high_tokens) == ("short", 0.0, 2048)
    assert (long.label, long.low_tokens, long.high_tokens) == ("long", 2048, math.inf)
    model, gpu, parallel, more = short.server
    assert (model, gpu) == ("llama-3.1-8b", "h100_sxm")
    assert [float(getattr(parallel, name)) for name in ("tp", "pp", "dp", "ep")] == [2, 1, 4, 8]
    assert more == {
        "backend": "sglang",
        "max_num_seqs": 48,
        "max_num_batched_tokens": 4096,
        "instances": 3,
        "weight_dtype": "fp8",
        "kv_dtype": "bf16",
        "gpu_file": "own.csv",
    }
    _, gpu, parallel, more = long.server
    assert (gpu, float(parallel.tp), more["instances"]) == ("h200_sxm", 8, 5)
    assert (more["weight_dtype"], more["kv_dtype"]) == (None, None)
    (alone,) = of_plan(answer(pool("all")))
    assert (alone.label, alone.low_tokens, alone.high_tokens) == ("all", 0.0, math.inf)
    assert "gpu_file" not in alone.server[3]


@pytest.mark.parametrize(("kv", "bytes_"), [("as published", 2), ("fp8", 1)])
def test_a_split_sends_the_cache_of_each_gpu_over_its_own_nic(made, kv, bytes_):
    """Keys and values of 32 layers, 8 heads of 128, half of them on each of two GPUs; of the GPUs that prefill."""
    pools = pool("decode", role="decode"), pool("prefill", role="prefill", gpu="h200_sxm", layout="tp2pp1dp1ep1", kv=kv)
    (whole,) = of_plan(answer(*pools))
    prefill, decode = whole.server.parts
    assert (prefill[1], decode[1], whole.label) == ("h200_sxm", "h100_sxm", "all")
    nic = float(catalog.gpu("h200_sxm").nic_bytes_per_s_per_gpu_oneway)
    assert whole.server.transfer_s_per_token == pytest.approx(2 * 32 * 8 * 128 * bytes_ / 2 / nic)


def test_files_that_hold_no_answer_are_told_by_their_names(tmp_path):
    file = tmp_path / "plan.json"
    accepted = "accepted is what `dmodels plan --json` printed"
    for text, why in (
        ("{'a'", "not JSON (Expecting "),
        ("[]", "no answer of a command"),
        ('{"result": 1}', "no answer"),
    ):
        file.write_text(text)
        with pytest.raises(InputError) as told:
            saved_plan.read_plan(file)
        assert str(told.value).startswith(f"{file}: {why}") and str(told.value).endswith(f"; {accepted}")
    file.write_text('{"result": {"a": 1}}')
    assert saved_plan.read_plan(file) == {"result": {"a": 1}}


def test_what_is_no_plan_is_refused(made):
    for wrong in ({}, answer() | {"command": "size"}, answer() | {"result": {"recommended": None}}):
        with pytest.raises(InputError, match="no answer of `dmodels plan --json`"):
            of_plan(wrong)
    with pytest.raises(InputError, match="layout 'tp8'"):
        of_plan(answer(pool("all", layout="tp8")))
