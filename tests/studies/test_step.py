"""The step of an instance: its operators add up, none beats the data sheet, and the maximum is one."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace as Record

import jax
import numpy as np
import pytest

from dmodels import Parallel, catalog
from dmodels.core.errors import InputError
from dmodels.core.programs import at_once
from dmodels.core.records import float64
from dmodels.fit.calibration import efficiency_for
from dmodels.models.latency import Part, maximum_throughput, serve
from dmodels.models.memory import engine_memory
from dmodels.studies import step as step_module
from dmodels.studies.size import size
from dmodels.studies.step import step_times

LENGTHS = {"input_tokens": 2000.0, "output_tokens": 500.0}


def times(model="llama-3.1-70b", gpu="h100_sxm", parallel=None, **asked):
    named = {"name": model, "architecture": catalog.architecture(model), "gpu_name": gpu}
    place = catalog.model(model), catalog.gpu(gpu), Parallel(tp=4.0) if parallel is None else parallel
    return step_times(*place, **(LENGTHS | named | asked))


@pytest.mark.parametrize("model", ["llama-3.1-70b", "gpt-oss-120b"])
def test_operators_add_up_and_none_beats_the_data_sheet(model):
    found = times(model)
    assert sum(o.seconds for o in found.operators) == pytest.approx(found.step_s)
    assert sum(o.share_frac for o in found.operators) == pytest.approx(1.0)
    assert all(0.0 <= o.roofline_frac <= 1.0 for o in found.operators)
    assert found.step_s == pytest.approx(found.tpot_s, rel=1e-3)  # requests decode one token a step
    in_flight = found.tokens_per_s / 500 * (found.ttft_s + 499 * found.tpot_s)  # Little's law, at 99 % of the rate
    assert in_flight == pytest.approx(found.concurrency, rel=0.02)
    names = [o.name for o in found.operators]
    assert ("routed experts" in names) == (model == "gpt-oss-120b") and "expert exchange" not in names


@pytest.mark.parametrize("model", ["gpt-oss-120b", "deepseek-v3"])
def test_what_an_operators_time_rests_on_is_its_own_kind_of_kernel(model, monkeypatch):
    """Matrices on the law of matrices, experts on that of experts, attention on that of the model's attention; what
    serving adds rests on serving points."""
    monkeypatch.setattr(step_module, "label", lambda machine, kind: kind)
    found = {one.name: one for one in times(model, "h200_sxm", Parallel(tp=8.0)).operators}
    latent = "mla" if model == "deepseek-v3" else "attention"
    own = {"attention of decodes": f"generation_{latent}", "attention of prompts": f"context_{latent}"}
    own |= dict.fromkeys(("attention projections", "dense feed-forward", "output head"), "gemm")
    own |= {"routed experts": "moe", "all-reduce": "all_reduce"}
    assert {name: one.source for name, one in found.items()} == {n: own.get(n, "serving points") for n in found}
    assert found["all-reduce"].binds in ("link", "launches")
    assert [name for name, one in found.items() if one.binds == "host"] in ([], ["host per request"])


def test_a_message_is_bound_by_its_link_where_the_wire_takes_most_of_it(monkeypatch):
    """Matrices by memory where their bytes at its whole rate take as long as the data sheet says; what takes none of
    it waits for the host or for launches."""
    monkeypatch.setattr(step_module, "label", lambda machine, kind: kind)
    machine = Record(gpu=Record(hbm_bytes_per_s=1e12), model=Record(n_mla_layers=0.0))
    binds = lambda name, **part: step_module._operator(name, Part(2.0, **part), 8.0, machine).binds
    for name in ("all-reduce", "expert exchange"):
        assert [binds(name, least_s=least) for least in (0.9, 1.0, 1.1)] == ["launches", "launches", "link"]
    assert binds("output head", least_s=1.0, bytes=1e12) == "memory"
    assert binds("output head", least_s=1.0, bytes=0.99e12) == "arithmetic"
    assert (binds("host per request"), binds("output head")) == ("host", "launches")
    rests_on = lambda name: step_module._operator(name, Part(2.0), 8.0, machine).source
    assert [rests_on(name) for name in ("output head", "routed experts", "all-reduce")] == ["gemm", "moe", "all_reduce"]
    assert rests_on("host per request") == rests_on("expert exchange") == "serving points"
    for layers, kind in ((0.0, "attention"), (1.0, "mla")):
        machine.model.n_mla_layers = layers
        own = [rests_on(f"attention of {what}") for what in ("decodes", "prompts")]
        assert own == [f"generation_{kind}", f"context_{kind}"] and rests_on("attention projections") == "gemm"
    found = step_module._operator("output head", Part(2.0, 3.0, 4.0, 0.5), 8.0, machine)
    assert (found.seconds, found.share_frac, found.roofline_frac, found.bytes, found.flop) == (
        2.0,
        0.25,
        0.25,
        3.0,
        4.0,
    )


def test_a_mean_step_weighs_those_with_prompts_by_their_share(monkeypatch):
    """Of four requests that decode and answer 100 tokens, 0.04 prompts begin in a step; a quarter of the steps have 50
    tokens of them. What takes less than a hundred-thousandth of the step is left out."""
    asked = []

    def steps(*place, **more):
        asked.append((place, more))
        plain, mixed = (
            {"output head": Part(second, 8.0, 40.0, second / 2), "sampling": Part(other)}
            for second, other in ((1.0, tiny), (3.0, tiny))
        )
        told = {(4.0, 0.0): plain, (4.0, 50.0): mixed}
        return share, told

    monkeypatch.setattr(step_module, "MixedSteps", steps)
    monkeypatch.setattr(step_module, "_shared", lambda steps, rate: (steps[0], 50.0) if rate == 0.04 else None)
    monkeypatch.setattr(step_module, "_parts", lambda steps, *load: steps[1][load])
    machine = Record(model="model", gpu="gpu", parallel=Record(dp=2.0))
    e = Record(prefill_batch_tokens=512.0)
    for share, tiny, wanted in ((0.25, 1.0, 1.5), (0.25, 1.51e-5, 1.5), (0.25, 1.49e-5, 1.5), (1.5, 1.0, 3.0)):
        prompts, busy, parts = step_module._mean_step(machine, e, 300.0, 100.0, 4.0)
        assert (prompts, busy) == (50.0 * min(share, 1.0), min(share, 1.0))
        assert parts["output head"] == pytest.approx((wanted, 8.0, 40.0, wanted / 2))
        assert ("sampling" in parts) == (tiny > 1.5e-5)
    place, more = asked[0]
    assert place == ("model", "gpu", machine.parallel, 350.0, 300.0, 150.0)  # half of the answer is there in the mean
    assert more == {"budget_tokens": 1024.0, "efficiency": e}


def test_an_answer_on_a_step_is_put_together(monkeypatch):
    """At the maximum, or at the requests in flight that were asked about; of a model that does not fit nothing is."""
    parallel, seen = Parallel(tp=2.0), {}
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm")
    at = Record(resident_max_count=8.0, decode_count=6.0, ttft_s=0.5, tpot_s=0.02)
    most = Record(at=at, tokens_per_s=900.0, concurrency=40.0)
    other = Record(resident_max_count=1.0, decode_count=3.0, ttft_s=0.25, tpot_s=0.01)
    parts = {"output head": Part(0.03, least_s=0.02), "sampling": Part(0.01)}

    def kept(name, given):
        def part(*asked, **more):
            seen[name] = (asked, more)
            return given

        monkeypatch.setattr(step_module, name, part)

    for name, given in (
        ("efficiencies_of", ["e"]),
        ("engine_memory", "memory"),
        ("_most", most),
        ("_serve", other),
        ("_mean_step", (70.0, 0.25, parts)),
        ("deployment_measured", "measured"),
        ("interval", {"tpot": {"80": Record(low=0.75, high=1.5)}}),
        ("label", "rows"),
    ):
        kept(name, given)
    lengths = {"input_tokens": 300.0, "output_tokens": 100.0}
    named = {"name": "mine", "architecture": "llama", "gpu_name": "h100_sxm", "backend": "sglang", "effects": "own"}
    found = step_times(model, gpu, parallel, **lengths, **named)
    first, second = found.operators
    assert (first.name, first.share_frac, second.name, second.share_frac) == ("output head", 0.75, "sampling", 0.25)
    told = {x.name: getattr(found, x.name) for x in fields(found) if x.name != "operators"}
    assert told == {
        **{"step_s": 0.04, "decode_count": 6.0, "prompt_tokens": 70.0, "mixed_frac": 0.25, "tokens_per_s": 900.0},
        **{"concurrency": 40.0, "ttft_s": 0.5, "tpot_s": 0.02, "tpot_80": (0.75, 1.5), "fits": True},
    }
    ((machine,), precisions, architecture), more = seen["efficiencies_of"]
    assert machine == (model, gpu, "h100_sxm", "sglang", parallel)
    assert (precisions, architecture, more) == (["bf16"], "llama", {"effects": "own"})
    place = (model, gpu, parallel, 300.0, 100.0)
    assert seen["_most"] == (place, {"efficiency": "e", "engine": "memory"}) and "_serve" not in seen
    assert seen["engine_memory"] == (("sglang",), {}) and seen["_mean_step"][0] == (machine, "e", 300.0, 100.0, 6.0)
    assert seen["deployment_measured"][0] == (machine, "bf16", "llama")
    assert seen["interval"] == (("h100_sxm", "sglang", "mine"), {"architecture": "llama", "deployment": "measured"})
    there = step_times(model, gpu, parallel, **lengths, concurrency=4.0)
    assert seen["_serve"] == (place, {"concurrency": 4.0, "efficiency": "e", "engine": "memory"})
    assert (there.decode_count, there.ttft_s, there.tpot_s, there.fits) == (3.0, 0.25, 0.01, True)
    assert (there.tokens_per_s, there.concurrency) == (900.0, 40.0)
    other.resident_max_count = 0.99
    none = step_times(model, gpu, parallel, **lengths, concurrency=4.0)
    assert (none.fits, none.decode_count, none.concurrency) == (False, 1.0, 0.0)


def test_ranks_of_attention_compute_their_prompts_at_a_time():
    """A step of two takes what each of their requests waits for a token; prompts in it are those of both."""
    found = times("gpt-oss-120b", parallel=Parallel(dp=2.0, ep=2.0), input_tokens=6000.0, output_tokens=100.0)
    assert found.step_s == pytest.approx(found.tpot_s, rel=1e-3)
    assert found.prompt_tokens == pytest.approx(found.decode_count / 100 * 6000, rel=1e-3)


def test_an_instance_that_holds_one_request_fits_it():
    """By `size`, which says how long one sequence may be: a request a little shorter fits, and a longer one not."""
    model, gpu, one = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), Parallel(tp=2.0)
    longest = size(model, gpu, one, 1024.0, max_sequences=256).longest_context_tokens
    assert 1000 < longest < 100_000
    for share, fits in ((0.9, True), (1.2, False)):
        found = times(parallel=one, input_tokens=share * longest - 16.0, output_tokens=16.0)
        assert found.fits == fits
        assert not fits or 1.0 <= found.concurrency < 2.5


def test_weights_that_are_read_are_the_models():
    """70.6e9 parameters in 16 bits over four GPUs, without the input embedding: 34.8 GB a step."""
    read = {o.name: o.bytes for o in times(concurrency=1.0).operators}
    dense = read["attention projections"] + read["dense feed-forward"] + read["output head"]
    assert dense == pytest.approx((70_553_706_496 - 128_256 * 8192) * 2 / 4, rel=1e-3)


@float64
def test_no_concurrency_gives_more_than_the_maximum():
    place = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), Parallel(tp=4.0), 2000.0, 500.0
    e = efficiency_for("h100_sxm", "vllm", "", "llama-3.1-70b", parallel=Parallel(tp=4.0))
    most = at_once(maximum_throughput)(*place, efficiency=e, engine=engine_memory("vllm"))
    tokens = at_once(jax.vmap(lambda n: serve(*place, concurrency=n, efficiency=e).tokens_per_s))
    assert float(most.tokens_per_s) >= 0.999 * float(tokens(np.geomspace(1, 1500, 40)).max())
    there = float(tokens(np.full(40, float(most.concurrency)))[0])
    assert 0.98 * float(most.tokens_per_s) <= there <= float(most.tokens_per_s) * (1 + 1e-12)


def test_prompts_are_in_the_steps_that_littles_law_says():
    """n requests decode and 500 steps are an answer: n / 500 prompts of 2,000 tokens begin in a step."""
    found = times(concurrency=20.0)
    assert found.prompt_tokens == pytest.approx(found.decode_count / 500 * 2000)
    assert found.mixed_frac == pytest.approx(1 - np.exp(-found.decode_count / 500))
    assert times(concurrency=3000.0, input_tokens=8000.0, output_tokens=20.0).mixed_frac == 1.0  # and no more


def test_what_does_not_fit_has_no_throughput():
    found = times(parallel=Parallel())
    assert not found.fits and found.tokens_per_s == 0.0 == found.concurrency


def test_pipeline_stages_have_no_single_step():
    with pytest.raises(InputError, match="pp = 2: accepted is 1"):
        times(parallel=Parallel(pp=2.0))


def test_no_step_of_a_layout_that_no_engine_runs():
    with pytest.raises(InputError, match="tp 3, pp 1, dp 1, ep 1: no engine runs the layout: tp must divide"):
        times(parallel=Parallel(tp=3.0))
