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
    engine_memory,
    kv_budget_bytes,
    precision,
    runtime_bytes,
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
    np.testing.assert_allclose(alone.total_bytes - alone.prepared_bytes, weight_bytes(CATALOGUE), rtol=1e-14)


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
    held = weight_bytes_per_gpu(CATALOGUE, p)
    per_gpu = np.asarray(held.total_bytes - held.prepared_bytes)
    assert np.all(per_gpu > 0) and np.all(np.asarray(held.prepared_bytes) >= 0)
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
    """Llama-3.1-8B with 8,192 batched tokens and 256 sequences: vLLM 0.6 logs 1.26 GiB at the peak."""
    assert float(activation_bytes(model("llama-3.1-8b"))) / GIB == pytest.approx(1.26, rel=0.1)
    all_models = np.asarray(activation_bytes(CATALOGUE, Parallel(8.0))) / GIB
    assert np.all(all_models > 0.2) and np.all(all_models < 4)


def test_weights_activations_and_runtime_leave_the_budget():
    m, g, p = model("llama-3.1-70b"), gpu("h100"), Parallel(tp=8)
    held = weight_bytes_per_gpu(m, p).total_bytes + activation_bytes(m, p) + runtime_bytes(g, p)
    assert float(kv_budget_bytes(m, g, p)) == pytest.approx(0.9 * float(g.memory_bytes) - float(held))


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
    """A token: two hidden states, and 32 queries and outputs with 8 keys and values, of 128."""
    model = Model(1, 8, 128, hidden_size=4096, n_q_heads=32, vocab_size=1000)
    assert float(activation_bytes(model, Parallel(), 100.0, 0.0)) == 2 * 100 * (2 * 4096 + 80 * 128)
    wide = model.replace(ffn_size=14336)  # its block with gate and product, over two GPUs
    assert float(activation_bytes(wide, Parallel(2.0), 100.0, 0.0)) == 2 * 100 * (2 * 4096 + 3 * 14336 / 2)


def test_activations_are_those_of_the_sampler_where_it_takes_more():
    """A hidden state of each of 100 tokens, and 6 bytes of 1,000 words for 1,000 sequences."""
    model = Model(1, 8, 128, hidden_size=4096, n_q_heads=32, vocab_size=1000)
    sampler = 2 * 100 * 4096 + 6 * 1000 * 1000
    assert float(activation_bytes(model, Parallel(), 100.0, 1000.0, engine_memory("trtllm"))) == sampler


def test_activations_of_routed_experts():
    """16 tokens of a mixture with 4 of 8 experts of width 64 (hidden size 256) over two GPUs, by half or whole.

    A token: three hidden states; before and after each expert the wider of 256 and 2 x 32, and the product of 32.
    """
    mixture = {"n_moe_layers": 1, "n_experts": 8, "n_active_experts": 4, "expert_params": 3 * 256 * 64}
    model = Model(1, hidden_size=256, ffn_size=256, **mixture)
    assert float(activation_bytes(model, Parallel(2.0), 16.0, 0.0)) == 2 * 16 * (3 * 256 + 4 * (256 + 32))
    whole = activation_bytes(model, Parallel(2.0, ep=2.0), 16.0, 0.0)
    assert float(whole) == 2 * 16 * (3 * 256 + 4 * (256 + 64))


def test_latent_attention_expands_a_cached_prefix():
    """65,536 latents of 576 and, of 16 of 128 heads, keys and values of 128 each, as vLLM's workspace."""
    alone = activation_bytes(model("deepseek-r1"), Parallel(8.0), 0.0, 0.0)
    assert float(alone) == 2 * 65536 * (576 + 16 * 256)


def test_padding_of_mxfp4_experts():
    """gpt-oss on one GPU: 2,880 becomes 3,072 in the hidden size and 2,944 in the width; over two GPUs 1,440, 1,536."""
    gpt = model("gpt-oss-120b")
    added = lambda p: float(weight_bytes_per_gpu(gpt, p).prepared_bytes / weight_bytes_per_gpu(gpt, p).expert_bytes)
    assert added(Parallel()) == pytest.approx(3072 * 2944 / 2880**2 - 1)
    assert added(Parallel(2.0)) == pytest.approx(3072 * 1536 / (2880 * 1440) - 1)
    assert float(weight_bytes_per_gpu(model("qwen3-235b-a22b")).prepared_bytes) == 0.0
