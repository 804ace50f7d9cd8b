"""Layouts that a plan tries: what suits the model, fits scale-up domains, and is what the engine starts."""

from __future__ import annotations

import pytest

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.precision import FORMAT_BYTES
from dmodels.models.memory import with_weight_dtype
from dmodels.studies.plan.calibration import precision_name
from dmodels.studies.plan.designs import Layout
from dmodels.studies.plan.layouts import layouts, placed


def tried(model, gpu, **options):
    found = layouts(catalog.model(model), {gpu: catalog.gpu(gpu)}, **options)
    assert len(set(found)) == len(found)
    return {x.degrees for x in found}


@pytest.mark.parametrize("model", ["deepseek-r1", "qwen3-235b-a22b", "gpt-oss-120b", "llama-4-maverick"])
def test_attention_ranks_of_every_width_for_latent_and_grouped_attention(model):
    ranks = {"dp2 ep2", "dp4 ep4", "dp8 ep8", "tp2 dp2 ep4", "tp2 dp4 ep8", "tp4 dp2 ep8"}
    assert ranks | {"tp1", "tp8", "tp8 ep8"} <= tried(model, "h200_sxm")


def test_a_dense_model_has_no_ranks():
    assert tried("llama-3.1-70b", "h200_sxm", wide_ep=(16, 32)) == {"tp1", "tp2", "tp4", "tp8"}


def test_beyond_a_node_experts_fill_whole_nodes_and_a_domain_of_72_holds_any():
    wide = {"wide_ep": (16, 24, 36, 128)}
    assert {"dp16 ep16", "dp24 ep24", "dp128 ep128"} <= tried("deepseek-r1", "h100_sxm", **wide)
    assert "dp36 ep36" not in tried("deepseek-r1", "h100_sxm", **wide)  # four and a half nodes
    nvl = tried("deepseek-r1", "gb200", **wide)
    assert "dp36 ep36" in nvl and "dp128 ep128" not in nvl  # not in whole domains
    assert "dp256 ep256" not in tried("gpt-oss-120b", "h100_sxm", wide_ep=(256,))  # 128 experts


def test_within_a_node_wide_experts_are_the_ranks_that_are_tried_anyway():
    assert tried("deepseek-r1", "h100_sxm", wide_ep=(2, 8, 16)) == tried("deepseek-r1", "h100_sxm", wide_ep=(16,))


def test_weights_and_cache_have_their_own_precision():
    model, gpus = catalog.model("llama-3.1-8b"), {"h100_sxm": catalog.gpu("h100_sxm")}
    found = layouts(model, gpus, tp=(1,), weights=("fp8",), kv=("bf16", "fp8"))
    assert found == [Layout("h100_sxm", weights="fp8", kv=kv) for kv in ("bf16", "fp8")]


def test_a_rank_of_tensorrt_llm_has_one_gpu():
    assert not {d for d in tried("deepseek-r1", "h100_sxm", backend="trtllm") if d.startswith("tp") and "dp" in d}


def test_degrees_asked_for_bound_what_is_tried():
    assert tried("qwen3-235b-a22b", "h200_sxm", tp=(4,)) == {"tp4", "tp4 ep4", "dp4 ep4"}
    with pytest.raises(InputError, match="accepted are up to the 8 GPUs of a node"):
        tried("qwen3-235b-a22b", "h200_sxm", tp=(16,))
    with pytest.raises(InputError, match="gpus a100_80gb: no layout fits a node and has units for the precisions"):
        tried("llama-3.1-8b", "a100_80gb", weights=("fp8",))  # Ampere has no FP8 units
    with pytest.raises(InputError, match="no layout fits a node and has units"):
        tried("llama-3.1-8b", "h100_sxm", weights=("fp4",))  # nor Hopper FP4 ones
    assert tried("llama-3.1-8b", "b200", weights=("fp4",), tp=(1,)) == {"tp1"}
    with pytest.raises(InputError, match=r"pp \[64\]: accepted are up to the model's 32 layers"):
        tried("llama-3.1-8b", "h100_sxm", pp=(64,))
    with pytest.raises(InputError, match=r"tp \[3\]: does not divide the model's 32 query heads"):
        tried("llama-3.1-8b", "h100_sxm", tp=(3,))


def test_a_stage_lies_in_a_node_and_whole_experts_fill_several():
    h100 = catalog.gpu("h100_sxm")
    assert placed(h100, 8, beyond=False) and not placed(h100, 16, beyond=False)
    assert placed(h100, 32, beyond=True) and not placed(h100, 12, beyond=True)
    assert not placed(h100.replace(nic_bytes_per_s_per_gpu_oneway=0.0), 16, beyond=True)


@pytest.mark.parametrize("dtype", FORMAT_BYTES)
def test_the_name_of_a_precision_is_that_of_its_arithmetic(dtype):
    stored = with_weight_dtype(catalog.model("llama-3.1-8b"), dtype)
    names = {"fp8_block": "fp8", "int8": "fp8", "mxfp4": "fp4"}
    assert precision_name(stored) == names.get(dtype, dtype)
