"""The step of an instance: its operators add up, none beats the data sheet, and the maximum is one."""

from __future__ import annotations

from types import SimpleNamespace as Record

import jax
import numpy as np
import pytest

from dmodels import Parallel, catalog
from dmodels.core.errors import InputError
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
    found = step_module._operator("output head", Part(2.0, 3.0, 4.0, 0.5), 8.0, machine)
    assert (found.seconds, found.share_frac, found.roofline_frac, found.bytes, found.flop) == (
        2.0,
        0.25,
        0.25,
        3.0,
        4.0,
    )


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
    most = maximum_throughput(*place, efficiency=e, engine=engine_memory("vllm"))  # the program of `step_times`
    tokens = jax.jit(jax.vmap(lambda n: serve(*place, concurrency=n, efficiency=e).tokens_per_s))
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
