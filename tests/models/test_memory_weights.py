"""Weights per GPU, activations and the KV budget: conserved, monotone, and right where the answer is known."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import GPU, Model, Parallel, stack
from dmodels.catalog import gpu, model, models
from dmodels.core.errors import InputError
from dmodels.models.memory import (
    activation_bytes,
    kv_budget_bytes,
    kv_budget_of_free_bytes,
    non_kv_bytes,
    precision,
    weight_bytes,
    weight_bytes_per_gpu,
    weights,
    with_weight_dtype,
)

CATALOGUE = stack(*(model(name) for name in models()))
GIB = 2.0**30


def test_70b_in_bf16_is_141_gigabytes():
    assert float(weight_bytes(model("llama-3.1-70b"))) == 2 * 70_553_706_496
    assert float(weight_bytes(Model(80, 8, 128, weight_bytes=141e9))) == 141e9


def test_one_gpu_holds_everything():
    alone = weight_bytes_per_gpu(CATALOGUE, Parallel())
    np.testing.assert_allclose(alone.total_bytes, weight_bytes(CATALOGUE), rtol=1e-14)


def test_llama_over_eight_gpus_is_an_eighth_but_for_its_norms():
    m = model("llama-3.1-70b")
    norms = (2 * 80 + 1) * 8192
    per_gpu = weight_bytes_per_gpu(m, Parallel(tp=8)).total_bytes
    assert float(per_gpu) == 2 * ((70_553_706_496 - norms) / 8 + norms)


def test_beyond_the_kv_heads_their_projections_are_replicated():
    m = model("llama-3.1-70b")
    kv_projections = 80 * 2 * 8192 * 1024
    at8 = float(weight_bytes_per_gpu(m, Parallel(tp=8)).attention_bytes)
    at16 = float(weight_bytes_per_gpu(m, Parallel(tp=16)).attention_bytes)
    norms = (2 * 80 + 1) * 8192
    rest = float(m.attention_params) - kv_projections - norms
    assert at8 == 2 * ((kv_projections + rest) / 8 + norms)
    assert at16 == 2 * (kv_projections / 8 + rest / 16 + norms)


def test_experts_spread_over_ep_and_the_rest_splits_each():
    m = model("deepseek-v3")
    experts = 58 * 256 * 3 * 7168 * 2048 * (1 + 4 / 128**2)
    for p in (Parallel(tp=8), Parallel(tp=8, ep=8), Parallel(dp=8, ep=8), Parallel(dp=16, ep=4)):
        assert float(weight_bytes_per_gpu(m, p).expert_bytes) == pytest.approx(experts / float(p.gpus), rel=1e-12)
    uneven = weight_bytes_per_gpu(m, Parallel(dp=72, ep=72)).expert_bytes  # 256 experts on 72 GPUs: 4 on the fullest
    assert float(uneven) == pytest.approx(experts * 4 / 256, rel=1e-12)


def test_attention_data_parallelism_replicates_attention():
    m = model("deepseek-v3")
    whole = weight_bytes_per_gpu(m, Parallel()).attention_bytes
    assert float(weight_bytes_per_gpu(m, Parallel(dp=8, ep=8)).attention_bytes) == float(whole)


@given(
    tp=st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0]),
    pp=st.sampled_from([1.0, 2.0, 3.0, 8.0]),
    dp=st.sampled_from([1.0, 2.0, 8.0]),
    ep=st.sampled_from([1.0, 2.0, 8.0]),
)
def test_gpus_together_hold_at_least_the_model(tp, pp, dp, ep):
    p = Parallel(tp, pp, dp, min(ep, tp * dp))
    per_gpu = np.asarray(weight_bytes_per_gpu(CATALOGUE, p).total_bytes)
    assert np.all(per_gpu > 0)
    # the embedding stands on one stage only, so a stage count of the fullest may exceed the mean, never fall below
    assert np.all(per_gpu * float(p.gpus) >= np.asarray(weight_bytes(CATALOGUE)) * (1 - 1e-12))
    assert np.all(per_gpu <= np.asarray(weight_bytes(CATALOGUE)) * (1 + 1e-12))


def test_formats_shrink_the_weights_by_their_bits():
    m = model("qwen3-32b")
    matrices = float(m.attention_params + m.dense_params)
    rest = float(weight_bytes(m)) - 2 * matrices
    for dtype, size in {"fp8": 1.0, "fp4": 0.5625, "int4": 0.51953125, "bf16": 2.0}.items():
        assert float(weight_bytes(with_weight_dtype(m, dtype))) == pytest.approx(rest + size * matrices, rel=1e-12)
    back = with_weight_dtype(with_weight_dtype(m, "fp4"), "bf16")
    assert float(weight_bytes(back)) == float(weight_bytes(m))
    # what the publisher's own NVFP4 checkpoint comes to
    assert float(weight_bytes(with_weight_dtype(m, "fp4"))) == pytest.approx(
        float(weight_bytes(model("qwen3-32b-nvfp4"))), rel=1e-3
    )


def test_a_format_needs_a_known_name_and_parameter_counts():
    with pytest.raises(InputError, match="'fp3' is unknown"):
        with_weight_dtype(model("qwen3-8b"), "fp3")
    with pytest.raises(InputError, match="parameter counts"):
        with_weight_dtype(Model(80, 8, 128, weight_bytes=141e9), "fp8")


def test_activations_are_of_the_size_that_engines_log():
    """Llama-3.1-8B with 8,192 batched tokens: engines report about 1 GiB at the peak; stated error: a factor 2."""
    assert 0.5 < float(activation_bytes(model("llama-3.1-8b"))) / GIB < 2.0
    all_models = np.asarray(activation_bytes(CATALOGUE, 8.0)) / GIB
    assert np.all(all_models > 0.05) and np.all(all_models < 4)


def test_both_engines_budgets_split_the_same_memory():
    m, g, p = model("llama-3.1-70b"), gpu("h100"), Parallel(tp=8)
    other = float(non_kv_bytes(m, p))
    assert float(kv_budget_bytes(m, g, p, utilization=0.9)) == pytest.approx(0.9 * float(g.memory_bytes) - other)
    assert float(kv_budget_of_free_bytes(m, g, p, free_frac=0.9)) == pytest.approx(
        0.9 * (float(g.memory_bytes) - other)
    )


def test_the_papers_two_a100s_have_a_few_gigabytes_left():
    """arXiv:2604.09613 puts 16 sequences of 64K (343.6 GB) on two A100-80GB; 3 to 13 GB are left beside the weights."""
    m = Model(80, 8, 128, weight_bytes=141e9)
    left = 2 * float(kv_budget_bytes(m, GPU(80e9, 2e12, 312e12), Parallel(tp=2), utilization=0.95))
    assert 0 < left < 13e9 < 16 * 65_536 * 327_680


def test_budgets_have_gradients():
    m, p = model("llama-3.1-70b"), Parallel(tp=8)

    def budget(memory):
        return kv_budget_bytes(m, GPU(memory, 3e12, 1e15), p, utilization=0.9)

    assert float(jax.grad(budget)(80e9)) == pytest.approx(0.9)


def test_sparse_mla_is_smaller_in_fp8_alone():
    sparse = Model(61, index_bytes_per_token=132.0, kv_lora_rank=512, qk_rope_head_dim=64)
    stored = lambda dtype: float(precision.with_kv_dtype(sparse, dtype).latent_bytes_per_token)
    assert (stored("bf16"), stored("fp8")) == (0.0, 656.0)  # 0: by the formula, 1,152
    one = sparse.replace(index_bytes_per_token=0.5)
    assert float(precision.with_kv_dtype(one, "fp8").latent_bytes_per_token) == 656.0


def test_the_weights_in_another_format_are_counted_from_the_parameters():
    model = Model(1, attention_params=1e9)
    assert float(precision.with_weight_dtype(model, "fp8").weight_bytes) == 0.0
    assert float(precision.with_weight_dtype(model.replace(weight_bytes=5.0), "fp8").weight_bytes) == 0.0


def test_a_stated_total_scales_the_components():
    model = Model(10, 8, 64, weight_bytes=300.0, attention_params=50.0, dense_params=50.0)
    assert float(weights.weight_bytes_per_gpu(model).total_bytes) == pytest.approx(300.0)


def test_a_stated_total_without_components_is_split_evenly():
    """Nothing is known of its heads, so that none are held twice; 8 of them over 16 GPUs would be."""
    model = Model(10, 8, 64, hidden_size=1000, weight_bytes=1e9)
    assert float(weights.weight_bytes_per_gpu(model, Parallel(16.0)).total_bytes) == 1e9 / 16


def test_activations_of_a_model_whose_heads_are_widest():
    """A token: three hidden states, 32 + 2 x 8 heads of 128; a sequence: logits of 1,000 words in 2 + 4 bytes."""
    model = Model(1, 8, 128, hidden_size=4096, n_q_heads=32, vocab_size=1000)
    expected = 2 * 100 * (3 * 4096 + 48 * 128) + 6 * 10 * 1000
    assert float(weights.activation_bytes(model, 1.0, 100.0, 10.0)) == expected
    wide = model.replace(ffn_size=14336)  # its block with gate and product, over two GPUs
    assert float(weights.activation_bytes(wide, 2.0, 100.0, 0.0)) == 2 * 100 * (3 * 4096 + 3 * 14336 / 2)
