"""KV memory: the numbers that planners know by heart, to the byte, and what must hold for every model."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import Model, stack
from dmodels.catalog import model, models
from dmodels.models.memory import (
    kv,
    kv_bytes,
    kv_bytes_per_token,
    kv_reserved_bytes,
    sequences_that_fit,
    stage,
    state_bytes,
    with_kv_dtype,
)

MIB, GIB = 2.0**20, 2.0**30


@pytest.mark.parametrize(
    ("name", "tp", "per_token", "mib_8k", "gib_128k"),
    [
        ("llama-3.1-70b", 1, 327_680, 2560, 40),
        ("llama-3.1-70b", 2, 163_840, 1280, 20),
        ("llama-3.1-70b", 4, 81_920, 640, 10),
        ("llama-3.1-70b", 8, 40_960, 320, 5),
        ("llama-3.1-70b", 16, 40_960, 320, 5),
        ("qwen3-235b-a22b", 1, 192_512, 1504, 23.5),
        ("qwen3-235b-a22b", 4, 48_128, 376, 5.875),
        ("qwen3-235b-a22b", 8, 48_128, 376, 5.875),
        ("qwen3-32b", 1, 262_144, 2048, 32),
        ("qwen3-32b", 8, 32_768, 256, 4),
        *(("deepseek-v3", tp, 70_272, 549, 8.578125) for tp in (1, 2, 8, 16)),
    ],
)
def test_bytes_per_token_and_per_sequence(name, tp, per_token, mib_8k, gib_128k):
    m = model(name)
    assert float(kv_bytes_per_token(m, tp)) == per_token
    assert float(kv_bytes(m, 8192, tp)) == mib_8k * MIB
    assert float(kv_bytes(m, 131_072, tp)) == gib_128k * GIB
    assert float(kv_reserved_bytes(m, 8192, tp)) == mib_8k * MIB


def test_sliding_layers_of_gpt_oss():
    m = model("gpt-oss-120b")
    assert float(kv_bytes(m, 128)) / 128 == 73_728
    assert float(kv_bytes(m, 1129) - kv_bytes(m, 1128)) == 36_864
    assert float(kv_bytes(m, 8192)) / MIB == 292.5
    assert float(kv_reserved_bytes(m, 8192)) / MIB == pytest.approx(576.6, abs=0.05)
    assert float(kv_bytes(m, 131_072)) / GIB == pytest.approx(4.504, abs=5e-4)
    assert float(kv_reserved_bytes(m, 131_072)) / GIB == pytest.approx(4.786, abs=5e-4)


def test_sliding_layers_of_gemma_3():
    m = model("gemma-3-27b")
    assert float(kv_bytes(m, 1024)) / 1024 == 507_904
    assert float(kv_bytes_per_token(m)) == 81_920
    assert float(kv_bytes(m, 8192)) / MIB == 1056
    assert float(kv_bytes(m, 131_072)) / GIB == pytest.approx(10.406, abs=5e-4)
    assert float(kv_reserved_bytes(m, 131_072)) / GIB == pytest.approx(13.663, abs=5e-4)


def test_one_long_sequence_is_twenty_gibibytes():
    m = Model(80, 8, 128, weight_bytes=141e9)
    assert float(kv_bytes(m, 65_536)) == 5 * 2**32
    in_float32_scope = jax.jit(kv_bytes)(m, 65_536.0)
    assert float(in_float32_scope) == 5 * 2**32  # int32 would wrap to 0


def test_four_heads_on_eight_gpus_are_stored_twice():
    """arXiv:2604.09613 §4.7 divides 4 heads by 8: 24,064 B, 676 and 169 sequences; half of that fits."""
    m = model("qwen3-235b-a22b")
    free = 133.4e9
    assert int(sequences_that_fit(free, 24_064 * 8192.0)) == 676
    assert [int(sequences_that_fit(free, kv_bytes(m, n, tp=8))) for n in (8192, 32_768)] == [338, 84]


def test_sparse_mla_in_fp8_keeps_656_bytes_and_an_index_key_of_132():
    m = model("deepseek-v3.2")
    assert float(kv_bytes_per_token(m)) == 61 * (576 * 2 + 132)
    assert float(kv_bytes_per_token(with_kv_dtype(m, "fp8"))) == 61 * (656 + 132)
    assert float(kv_bytes_per_token(with_kv_dtype(model("deepseek-v3"), "fp8"))) == 61 * 576


def test_kv_dtype_is_independent_of_the_weights():
    m = with_kv_dtype(model("llama-3.1-70b"), "fp8")
    assert float(kv_bytes_per_token(m)) == 163_840
    assert float(m.attention_dtype_bytes) == 2.0
    assert float(kv_bytes_per_token(with_kv_dtype(m, "bf16"))) == 327_680


def test_gated_delta_net_keeps_a_state_of_fixed_size():
    m = model("qwen3-next-80b-a3b")
    state = 36 * (32 * 128 * 128 * 2 + 3 * 8192 * 2)  # heads x d_v x d_k, and 3 columns of the convolution, in BF16
    assert float(state_bytes(m)) == state
    assert float(kv_bytes(m, 1000) - kv_bytes(m, 0)) == 1000 * 12 * 2 * 2 * 256 * 2
    assert float(state_bytes(m, 8)) == state / 8
    assert float(state_bytes(m, 64)) == state / 32  # 32 heads: one per GPU is the least


def test_a_stage_holds_its_own_layers():
    llama, gemma = model("llama-3.1-70b"), model("gemma-3-27b")
    assert float(kv_bytes_per_token(stage(llama, 4))) == 327_680 / 4
    assert float(kv_bytes_per_token(stage(model("deepseek-v3"), 4))) == 16 * 1152  # 61 layers: 16, 15, 15, 15
    assert (float(stage(gemma, 2).n_full_layers), float(stage(gemma, 2).n_sliding_layers)) == (5, 26)
    for pp in (1.0,):
        same = jax.tree.map(lambda a, b: bool(np.all(np.asarray(a) == np.asarray(b))), stage(llama, pp), llama)
        assert all(jax.tree.leaves(same))


CATALOGUE = stack(*(model(name) for name in models()))


@given(n=st.integers(1, 2_000_000), tp=st.sampled_from([1, 2, 3, 4, 7, 8, 16, 64]), block=st.sampled_from([1, 16, 128]))
def test_what_holds_for_every_model_and_length(n, tp, block):
    least = np.asarray(kv_bytes(CATALOGUE, float(n), float(tp)))
    reserved = np.asarray(kv_reserved_bytes(CATALOGUE, float(n), float(tp), float(block)))
    alone = np.asarray(kv_bytes(CATALOGUE, float(n)))
    assert np.all(np.isfinite(least)) and np.all(least > 0)
    assert np.all(reserved >= least)  # a reservation holds at least the sequence
    assert np.all(least <= alone)  # splitting never makes a GPU hold more
    assert np.all(least * tp >= alone * (1 - 1e-12))  # and all GPUs together never less than the whole
    longer = np.asarray(kv_bytes(CATALOGUE, float(n + 1), float(tp)))
    assert np.all(longer >= least)


def test_a_catalogue_maps_like_its_models():
    together = np.asarray(jax.vmap(lambda m: kv_bytes(m, 8192.0, 8.0))(CATALOGUE))
    for i, name in enumerate(models()):
        assert together[i] == float(kv_bytes(model(name), 8192, 8))


def test_states_of_layers_without_heads_are_split_evenly():
    """Ten layers with 8 bytes of state each: 80 bytes on one GPU, 20 on each of four."""
    model = Model(10, 8, 64, n_linear_layers=10, linear_state_bytes=8.0)
    assert [float(kv.state_bytes(model, tp)) for tp in (1.0, 4.0)] == [80.0, 20.0]


def test_states_with_heads_are_split_by_whole_heads():
    """Six heads on four GPUs: the fullest holds two of them, a third of the state."""
    model = Model(10, 8, 64, n_linear_layers=10, linear_state_bytes=8.0, n_linear_heads=6.0)
    assert float(kv.state_bytes(model, 4.0)) == pytest.approx(80 / 3)


def test_heads_per_gpu():
    assert [float(kv.heads_per_gpu(h, tp)) for h, tp in ((0.0, 8.0), (8.0, 16.0), (8.0, 3.0))] == [0.0, 1.0, 3.0]


def test_one_stage_is_the_model_and_two_keep_the_fuller_end():
    model = Model(10, 8, 64, weight_bytes=100.0, embedding_params=7.0, head_params=5.0)
    one, two = kv.stage(model, 1.0), kv.stage(model, 2.0)
    assert (float(one.embedding_params), float(one.head_params), float(one.weight_bytes)) == (7.0, 5.0, 100.0)
    assert (float(two.embedding_params), float(two.head_params), float(two.weight_bytes)) == (0.0, 7.0, 50.0)


def test_one_kv_head_is_held_by_every_gpu():
    """Multi-query attention: nothing to split."""
    assert [float(kv.heads_per_gpu(1.0, tp)) for tp in (1.0, 8.0)] == [1.0, 1.0]


def test_one_head_of_a_linear_layer_is_held_whole():
    model = Model(10, 8, 64, n_linear_layers=10, linear_state_bytes=8.0, n_linear_heads=1.0)
    assert [float(kv.state_bytes(model, tp)) for tp in (1.0, 4.0)] == [80.0, 80.0]


def test_a_window_and_a_whole_chunk_and_the_block_in_which_it_starts():
    """Window 18, chunks of 16, blocks of 16: 33 tokens may be needed at once, in three blocks and one begun before."""
    model = Model(1, 0, 0, n_sliding_layers=1, sliding_window_tokens=18, sliding_kv_heads=1, sliding_head_dim=1)
    assert float(kv.kv_reserved_bytes(model, 1000.0, 1.0, 16.0, 16.0)) == 64 * 4


def test_two_stages_hold_half_of_what_layers_hold():
    model = Model(10, 8, 64, attention_params=100.0, replicated_params=60.0, dense_params=40.0)
    half = kv.stage(model, 2.0)
    assert (float(half.attention_params), float(half.replicated_params), float(half.dense_params)) == (50, 30, 20)


def test_a_stated_latent_is_taken_as_it_is():
    model = Model(1, n_mla_layers=1, kv_lora_rank=512, qk_rope_head_dim=64, latent_bytes_per_token=0.5)
    assert float(kv.mla_layer_bytes(model)) == 0.5
