"""Efficiencies from kernels: inside the data sheet, true to the laws that they stand for, and a fine-tune's own."""

from __future__ import annotations

import json
from functools import cache

import jax
import numpy as np
import pytest

from dmodels import Parallel, catalog
from dmodels.catalog.hf import read_architecture
from dmodels.core.records import float64
from dmodels.fit import hierarchy, silicon
from dmodels.fit.calibration import as_stated, efficiencies_of, efficiency_for
from dmodels.fit.kernels import Hosted, efficiencies, shipped
from dmodels.fit.rows import parse_row
from dmodels.models.latency import Efficiency, parts, terms
from dmodels.models.operators import Operator, layer_s

GPUS = ("h100_sxm", "b200_sxm", "mi300x")
MODELS = ("llama-3.1-70b", "gpt-oss-120b", "deepseek-r1")


@cache
def found():
    places = [(model, gpu) for model in MODELS for gpu in GPUS]
    machines = [Hosted(catalog.model(m), catalog.gpu(g), g, "vllm", Parallel(tp=4.0)) for m, g in places]
    return dict(zip(places, efficiencies(machines), strict=True))


def test_every_share_is_inside_the_data_sheet_and_every_launch_positive():
    for place, own in found().items():
        for name, value in own.items():
            assert np.isfinite(value) and value > 0, (place, name)
            if name in hierarchy.OF_PEAK:
                assert value <= 0.951, (place, name)
        assert ("expert_hbm_frac" in own) == (float(catalog.model(place[0]).n_moe_layers) > 0)


def test_a_ring_over_a_bus_keeps_the_rate_of_two():
    """The tables' L40S reach 20 GB/s of 32 with two ranks and 2 with eight, on a host whose ways are shared."""
    eight, two = efficiencies(
        [
            Hosted(catalog.model("llama-3.1-70b"), catalog.gpu("l40s"), "l40s", "trtllm", Parallel(tp))
            for tp in (8.0, 2.0)
        ]
    )
    assert 0.45 < eight["bus_frac"] < 0.7 and eight["bus_frac"] == two["bus_frac"]
    assert "link_frac" not in eight and "bus_frac" not in found()["llama-3.1-70b", "h100_sxm"]


def test_a_group_over_two_nodes_has_the_links_of_one():
    """What its messages take over the network is no share of NVLink."""
    for engine in ("sglang", "trtllm"):
        one, two = efficiencies(
            [
                Hosted(catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), "h100_sxm", engine, Parallel(tp))
                for tp in (8.0, 16.0)
            ]
        )
        assert (one["link_frac"], one["hop_us"]) == (two["link_frac"], two["hop_us"])


@pytest.mark.parametrize("gpu", ["h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm"])
def test_no_exchange_begins_faster_than_the_kernels_that_do_it(gpu, shared_data):
    """DeepEP's dispatch and combine of one token of 7,168 over eight GPUs, measured: 24 to 45 us."""
    import pyarrow.parquet

    (path,) = (shared_data / "operators" / gpu / "sglang").glob("wideep_deepep_ll@*.parquet")
    one = [("node_num", "=", 1), ("hidden_size", "=", 7168), ("num_token", "=", 1), ("num_topk", "=", 8)]
    table = pyarrow.parquet.read_table(path, filters=one)
    measured_us = sum(np.median(table[f"{name}_avg_t_us"]) for name in ("dispatch", "combine"))
    for engine in ("sglang", "trtllm"):
        e = efficiency_for(gpu, engine, "fp8", "deepseek-ai/DeepSeek-R1", parallel=Parallel(1.0, 1.0, 8.0, 8.0))
        assert float(e.exchange_us) > 0.8 * measured_us > 16


@float64
def test_the_roofline_follows_the_laws_of_the_kernels():
    """Dense matrices of Llama-3.1-70B on four H100: the four products of a layer by their laws, and by the formula."""
    model, gpu = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm")
    own = found()["llama-3.1-70b", "h100_sxm"]
    e = Efficiency(hbm_frac=own["hbm_frac"], flop_frac=own["flop_frac"])
    products = [(10240 // 4, 8192), (8192, 8192 // 4), (2 * 28672 // 4, 8192), (8192, 28672 // 4)]
    tokens = np.array([1.0, 64.0, 512.0, 4096.0])
    operators = [Operator("gemm", {"m": tokens, "n": n, "k": k}, "bfloat16", 80.0) for n, k in products]
    wanted = jax.jit(lambda: layer_s(operators, gpu, shipped().at("h100_sxm", "vllm")))()
    step = jax.jit(lambda: parts(model, gpu, Parallel(tp=4.0), tokens, 1.0, 0.0, 0.0, e))()
    roof = step["attention projections"].seconds + step["dense feed-forward"].seconds
    launches = 80.0 * 1e-6 * own["layer_us"]  # of these products, and of attention
    assert np.all(0.85 * wanted - launches <= roof) and np.all(roof <= 1.1 * wanted)


@float64
def test_launches_are_told_from_the_bytes_of_weights():
    """The products of a layer of Llama-3.1-70B on one H100, and a quarter of each: the time that goes with the bytes is
    their bandwidth. One width alone would fit as well with all of it and longer launches."""
    gpu, at = catalog.gpu("h100_sxm"), shipped().at("h100_sxm", "trtllm")
    place = catalog.model("llama-3.1-70b"), gpu, "h100_sxm", "trtllm"
    own = efficiencies([Hosted(*place, Parallel(1.0))])[0]
    widths = (10_240, 8_192)
    of = lambda tp: [Operator("gemm", {"m": 1.0, "n": n / tp, "k": 8192.0}, "bfloat16") for n in widths]
    took = jax.jit(lambda: [layer_s(of(tp), gpu, at) for tp in (1.0, 4.0)])()
    secant = 0.75 * 2.0 * 8192 * (10240 + 8192) / 3.35e12 / float(took[0] - took[1])
    assert 0.7 < own["hbm_frac"] < 0.92 and own["hbm_frac"] == pytest.approx(secant, rel=0.05)
    assert own["flop_frac"] > 0.6 and terms.PASSES <= own["pass_count"] < 30


def test_a_plan_asks_for_the_kernels_that_its_calibrations_rows_state():
    """Rows of MiniMax-M2 under vLLM say "fp8" of a checkpoint that is scaled by blocks: their effects are beside the
    kernels of FP8 per tensor, 2.6 times slower in experts on H100, and add up to nonsense with any others."""
    row = {"id": "a", "model_path": "MiniMaxAI/MiniMax-M2.5", "system": "h100_sxm", "backend": "vllm"}
    row |= {"precision": "fp8", "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8", "isl": "1", "osl": "2"}
    asked = parse_row(row | {"batch_size": "1", "tp_size": "4"}, measured=False)
    stated = silicon._machine(asked, asked.decode)
    published = stated._replace(model=catalog.model("minimax-m2.5").replace(kv_dtype_bytes=1.0))
    assert float(published.model.expert_dtype_bytes) > float(stated.model.expert_dtype_bytes) == 1.0
    planned, judged = (efficiencies_of([one], ["fp8"], "minimax_m2")[0] for one in (published, stated))
    for name in hierarchy.OF_KERNELS:  # routers are BF16 in the published record: 1 % of the matrices' work
        assert getattr(planned, name) == pytest.approx(getattr(judged, name), rel=0.03), name
    elsewhere = published.model  # no row of this architecture under this engine: as published
    assert as_stated(elsewhere, "trtllm", "minimax_m2") is elsewhere


def test_a_better_gpu_of_a_generation_is_not_slower():
    """H200 has H100's arithmetic and 1.4 times its bandwidth."""
    for model in MODELS:
        slow, fast = (
            float(
                sum(
                    p.seconds
                    for p in parts(catalog.model(model), catalog.gpu(g), Parallel(8.0), n, 4000.0, 0, 0, e).values()
                )
            )
            for g, n, e in ((g, 64.0, efficiency_for(g, "vllm", "", model)) for g in ("h100_sxm", "h200_sxm"))
        )
        assert fast <= slow * 1.02, model


def test_gpus_of_one_die_share_their_kernels():
    """GB300 has B300's dies and links, and messages of megabytes, which its short table leaves out, take as long; no
    Hopper multiplies MXFP8, so an H200 NVL runs gpt-oss with the kernels of the H200 SXM."""

    def of(gpu, model, engine, tp):
        return efficiencies([Hosted(catalog.model(model), catalog.gpu(gpu), gpu, engine, Parallel(tp=tp))])[0]

    for engine in ("vllm", "sglang"):
        shares = [of(gpu, "llama-3.1-70b", engine, 4.0)["link_frac"] for gpu in ("b300_sxm", "gb300")]
        assert shares[1] == pytest.approx(shares[0], rel=0.15), engine
    shares = [of(gpu, "gpt-oss-120b", "sglang", 1.0)["expert_flop_frac"] for gpu in ("h200_sxm", "h200_nvl")]
    assert shares[1] == pytest.approx(shares[0], rel=0.5)


def test_a_fine_tune_has_its_architectures_calibration(tmp_path):
    """The same shape with 64 more tokens in the vocabulary: nothing about its speed is unknown."""
    config = dict(catalog.model_config("llama-3.1-8b"))
    config["vocab_size"] += 64
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert catalog.architecture(tmp_path / "config.json") == catalog.architecture("llama-3.1-8b") == "llama"
    from dmodels import SLO
    from dmodels.studies.plan import by_formula, question

    traffic = catalog.workload("azure-conv", 20.0)
    ask = lambda model: question(model, ["h100_sxm"], traffic, SLO(1.0, 0.05), split=False, thresholds_tokens=())
    tuned, base = by_formula(ask(tmp_path / "config.json")), by_formula(ask("llama-3.1-8b"))
    assert tuned.best.gpus == base.best.gpus
    assert tuned.best.pools[0].confidence.provenance.startswith("calibrated on this architecture")


def test_the_architecture_of_a_multimodal_config_is_the_whole_models():
    assert read_architecture({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}) == "gemma3"
    assert read_architecture({}) == ""


def test_an_unknown_gpu_has_what_kernels_share():
    gpu = catalog.gpu("h100_sxm").replace(hbm_bytes_per_s=4e12)
    own = efficiencies([Hosted(catalog.model("llama-3.1-8b"), gpu, "", "vllm", Parallel())])[0]
    assert all(0.02 <= own[name] <= 0.951 for name in ("hbm_frac", "flop_frac", "kv_frac"))


def test_kernels_that_nobody_measured_are_labelled_so():
    labels = shipped()
    assert labels.label("gemm", "h100_sxm", "vllm", "fp8") == "kernels measured"
    assert labels.label("gemm", "mi300x", "vllm", "fp8") == "relatives"
    assert labels.label("moe", "h100_sxm", "some-engine", "bfloat16") == "relatives"
    with pytest.raises(KeyError):
        labels.kinds["no kind"]
