"""Small models tensor by tensor, as the families' own code builds them; layers by the families' rules; formats by hand.

Every size is a prime of its own, so that no two products are alike.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest

from dmodels.catalog.hf import read_config
from dmodels.core.errors import ConfigError

#: h hidden, q queries, k keys, d a head, w inner width, n experts, m width of one, s of the shared ones.
SIZES = {"h": 211, "d": 7, "q": 11 * 7, "k": 1 * 7, "w": 193, "m": 31, "n": 13, "s": 59}
LAYERS, VOCAB = 5, 409
BASE = {
    **{"num_hidden_layers": LAYERS, "hidden_size": 211, "num_attention_heads": 11, "num_key_value_heads": 1},
    **{"head_dim": 7, "intermediate_size": 193, "vocab_size": VOCAB},
}
ATTENTION, GATED, UNGATED = "hq hk hk qh", "hw hw wh", "hw wh"
#: Family: more of its config, attention (matrices, vectors with norms), feed-forward block (matrices, vectors), the
#: final norm. From modeling_*.py of transformers.
DENSE = {
    "llama": ({}, ATTENTION, "h h", GATED, "", "h"),
    "llama biased": ({"attention_bias": True, "mlp_bias": True}, ATTENTION, "q k k h h h", GATED, "w w h", "h"),
    "qwen2": ({}, ATTENTION, "q k k h h", GATED, "", "h"),
    "qwen2 plain": ({"qkv_bias": False}, ATTENTION, "h h", GATED, "", "h"),
    "qwen3": ({}, ATTENTION, "d d h h", GATED, "", "h"),
    "gemma": ({}, ATTENTION, "h h", GATED, "", "h"),
    "gemma2": ({}, ATTENTION, "h h h h", GATED, "", "h"),
    "gemma3_text": ({}, ATTENTION, "d d h h h h", GATED, "", "h"),
    "glm4": ({"attention_bias": True}, ATTENTION, "q k k h h h h", GATED, "", "h"),
    "olmo2": ({}, ATTENTION, "q k h h", GATED, "", "h"),
    "cohere2": ({}, ATTENTION, "h", GATED, "", "h"),
    "phi": ({}, ATTENTION, "q k k h h h", UNGATED, "w h", "h h"),
    "starcoder2": ({}, ATTENTION, "q k k h h h h h", UNGATED, "w h", "h h"),
    "gpt2": ({}, ATTENTION, "q k k h h h h h", UNGATED, "w h", "h h"),
    "nemotron": ({}, ATTENTION, "h h h h", UNGATED, "", "h h"),
}
EXPERTS = {"num_experts": 13, "num_experts_per_tok": 4, "moe_intermediate_size": 31}
SHARED = {"n_shared_experts": 3}
#: The same of mixtures of experts: attention's vectors, one expert, what every token passes beside them (matrices and
#: vectors together: none is cut by tensor parallelism), the widest way through the layer.
MIXED = {
    "mixtral": ({}, "h h", "hm hm mh", "hn", 4 * 31),
    "qwen3_moe": ({}, "d d h h", "hm hm mh", "hn", 4 * 31),
    "qwen2_moe": ({"shared_expert_intermediate_size": 59}, "q k k h h", "hm hm mh", "hn hs hs sh h", 4 * 31),
    "glm4_moe": (SHARED, "h h", "hm hm mh", "hn n hmmm hmmm mmmh", 4 * 31),
    "gpt_oss": ({"attention_bias": True}, "q k k h h h H", "hm hm mh m m h", "hn n", 4 * 31),
    "phimoe": ({"attention_bias": True}, "q k k h h h h h", "hm hm mh", "hn", 4 * 31),
    "olmo3": (
        {"moe_shared_expert_intermediate_size": 59, "n_shared_experts": 1},
        "q k h h",
        "hm hm mh",
        "hn hs hs sh",
        4 * 31,
    ),
    "minimax_m2": ({"num_experts_per_tok": 5}, "q k h h", "hm hm mh", "hn n", 5 * 31),
}


def count(words: str) -> int:
    """'hw h' is a matrix of h x w and a vector; a letter three times in a word is one side of three parts."""
    sizes = SIZES | {"H": 11}
    total = 0
    for word in words.split():
        total += math.prod(sizes[letter] * len(list(group)) for letter, group in itertools.groupby(word))
    return total


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("tied", [False, True])
def test_dense_families(name, tied):
    more, matrices, vectors, block, biases, norm = DENSE[name]
    family = name.split()[0]
    told = SimpleNamespace(**read_config(BASE | more | {"model_type": family, "tie_word_embeddings": tied}))
    whole = LAYERS * count(vectors) + count(norm)
    assert told.attention_params == LAYERS * count(matrices) + whole and told.replicated_params == whole
    assert told.dense_params == LAYERS * (count(block) + count(biases)) and told.expert_params == 0
    assert told.head_params == VOCAB * 211 + (VOCAB if family == "phi" else 0)
    assert told.embedding_params == (0 if tied else VOCAB * 211) and told.ffn_size == 193
    assert (told.n_moe_layers, told.n_experts, told.n_active_experts, told.n_expert_groups) == (0, 0, 0, 0)
    assert (told.hidden_size, told.n_q_heads, told.n_kv_heads, told.head_dim) == (211, 11, 1, 7)
    assert told.kv_dtype_bytes == told.dense_dtype_bytes == told.embedding_dtype_bytes == 2.0


@pytest.mark.parametrize("name", MIXED)
def test_families_of_experts(name):
    """Two dense layers before three of experts, where the family's config can say so."""
    more, vectors, expert, beside, widest = MIXED[name]
    config = BASE | EXPERTS | more | {"model_type": name, "first_k_dense_replace": 2, "n_group": 4, "topk_group": 2}
    told = SimpleNamespace(**read_config(config))
    whole = LAYERS * count(vectors) + count("h h" if name == "phimoe" else "h")
    assert told.attention_params == LAYERS * count(ATTENTION) + whole and told.replicated_params == whole
    assert told.dense_params == 2 * count(GATED) + 3 * count(beside) and told.expert_params == count(expert)
    assert (told.n_moe_layers, told.n_experts, told.ffn_size) == (3, 13, max(193, widest))
    assert (told.n_active_experts, told.n_expert_groups, told.n_active_groups) == (config["num_experts_per_tok"], 4, 2)
    assert told.head_params == VOCAB * 211 + (VOCAB if name == "phimoe" else 0)
    only = SimpleNamespace(**read_config(config | {"first_k_dense_replace": 0}))
    assert (only.n_moe_layers, only.ffn_size) == (5, widest) and only.n_active_groups == 2
    assert read_config(config | {"topk_group": None})["n_active_groups"] == 4


def test_latent_attention():
    """DeepSeek-V2's and V3.2's, with and without a rank of the queries; down-projections are whole on every rank."""
    config = BASE | {"model_type": "deepseek_v3", "kv_lora_rank": 23, "qk_rope_head_dim": 5, "qk_nope_head_dim": 17}
    config |= {"v_head_dim": 19, "q_lora_rank": 29}
    del config["head_dim"]
    plain = 211 * (23 + 5) + 23 * 11 * (17 + 19) + 11 * 19 * 211
    ranked = 211 * 29 + 29 * 11 * (17 + 5)
    whole = 211 * (23 + 5) + 211 * 29 + (23 + 29) + 2 * 211
    told = read_config(config)
    assert told["attention_params"] == LAYERS * (plain + ranked + 23 + 29 + 2 * 211) + 211
    assert told["replicated_params"] == LAYERS * whole + 211 and told["n_mla_layers"] == LAYERS
    assert (told["kv_lora_rank"], told["qk_rope_head_dim"], told["qk_nope_head_dim"], told["v_head_dim"]) == (
        23,
        5,
        17,
        19,
    )
    told = read_config(config | {"q_lora_rank": None})
    assert told["attention_params"] == LAYERS * (plain + 211 * 11 * 22 + 23 + 2 * 211) + 211
    assert told["replicated_params"] == LAYERS * (211 * (23 + 5) + 23 + 2 * 211) + 211
    sparse = read_config(config | {"index_topk": 37, "index_n_heads": 3, "index_head_dim": 41})
    indexer = 29 * 3 * 41 + 211 * 41 + 211 * 3 + 2 * 41
    assert sparse["attention_params"] == LAYERS * (plain + ranked + 23 + 29 + 2 * 211 + indexer) + 211
    assert sparse["replicated_params"] == LAYERS * (whole + indexer) + 211
    assert (sparse["index_topk_tokens"], sparse["n_index_heads"], sparse["index_head_dim"]) == (37, 3, 41)
    assert sparse["index_bytes_per_token"] == 41 + 4  # FP8 and a float32
    for family, heads in (("deepseek_v32", 64), ("glm_moe_dsa", 32)):  # where a config is silent
        silent = read_config(config | {"model_type": family})
        assert (silent["index_topk_tokens"], silent["n_index_heads"], silent["index_head_dim"]) == (2048, heads, 128)
    with pytest.raises(ConfigError, match="q_lora_rank is missing; with index_topk = 37"):
        read_config(config | {"index_topk": 37, "index_n_heads": 3, "index_head_dim": 41, "q_lora_rank": None})


def test_linear_layers():
    """Gated delta nets, Mamba-2 and lightning attention: a state of heads x head x state numbers, and a convolution."""
    kinds = ["linear_attention", "full_attention"] * 2 + ["linear_attention"]
    gated = {"linear_num_value_heads": 6, "linear_value_head_dim": 5, "linear_num_key_heads": 2}
    gated |= {"linear_key_head_dim": 3, "linear_conv_kernel_dim": 4, "layer_types": kinds, "model_type": "qwen3_next"}
    told = read_config(BASE | gated)
    keys, values, channels = 2 * 3, 6 * 5, 2 * 2 * 3 + 6 * 5
    linear = 211 * (2 * keys + 2 * values) + 211 * 12 + values * 211 + channels * 4 + 12 + 5 + 2 * 211
    full = 2 * 211 * 77 + 2 * 211 * 7 + 77 * 211 + 2 * 7 + 2 * 211  # queries with a gate
    assert told["attention_params"] == 3 * linear + 2 * full + 211
    assert told["linear_state_bytes"] == 2 * (6 * 5 * 3) + 2 * channels * 3
    assert (told["n_linear_layers"], told["n_linear_heads"], told["n_layers"]) == (3, 6, 5)
    mamba = {"model_type": "nemotron_h", "mamba_num_heads": 6, "mamba_head_dim": 5, "n_groups": 2, "ssm_state_size": 3}
    mamba |= {"conv_kernel": 4, "mamba_ssm_dtype": "float32"}
    words = ["mamba", "attention", "mlp", "mamba", "mlp"]
    for more in ({"layers_block_type": words}, {"hybrid_override_pattern": "M*-M-"}):
        told = read_config(BASE | mamba | more)
        inner, channels = 6 * 5, 6 * 5 + 2 * 2 * 3
        linear = 211 * (inner + channels + 6) + inner * 211 + channels * (4 + 1) + inner + 18
        assert told["attention_params"] == 2 * linear + count(ATTENTION) + LAYERS * 211 + 211
        assert told["dense_params"] == 2 * count(UNGATED)
        assert told["linear_state_bytes"] == 4 * (6 * 5 * 3) + 2 * channels * 3
        assert (told["n_linear_layers"], told["n_cacheless_layers"], told["n_moe_layers"]) == (2, 2, 0)
    bare = read_config(BASE | mamba | {"layers_block_type": words, "use_conv_bias": False, "mamba_proj_bias": True})
    assert bare["attention_params"] == told["attention_params"] + 2 * (-channels + inner + channels + 6 + 211)
    experts = EXPERTS | {"moe_latent_size": 43, "moe_shared_expert_intermediate_size": 59, "n_shared_experts": 2}
    for more in ({"hybrid_override_pattern": "ME-ME"}, {"layers_block_type": ["mamba", "moe", "mlp", "mamba", "moe"]}):
        told = read_config(BASE | mamba | experts | more)
        assert told["expert_params"] == 2 * 43 * 31 and told["n_moe_layers"] == 2
        beside = 211 * 13 + 2 * 211 * 43 + 13 + 2 * 211 * 2 * 59
        assert told["dense_params"] == count(UNGATED) + 2 * beside and told["n_cacheless_layers"] == 3
    lightning = read_config(BASE | {"attn_type_list": [0, 1, 0, 0, 1], "model_type": "minimax"})
    assert lightning["attention_params"] == 3 * (5 * 211 * 77 + 77 + 422) + 2 * (count(ATTENTION) + 422) + 211
    assert lightning["linear_state_bytes"] == 2 * 11 * 7 * 7 and lightning["n_linear_layers"] == 3


def test_heads_of_other_sizes_in_full_layers():
    """Gemma 4: keys stand for values in full layers; later layers read an earlier one's cache and are twice as wide."""
    config = BASE | {
        "model_type": "gemma4",
        "global_head_dim": 3,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
    }
    config |= {"num_hidden_layers": 6, "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "num_key_value_heads": 1}
    told = read_config(config)  # five of six slide
    sliding, full = count(ATTENTION) + 14, 2 * 211 * 33 + 211 * 6 + 6
    assert told["attention_params"] == 5 * sliding + full + 6 * 4 * 211 + 211
    assert told["dense_params"] == (4 + 2 * 2) * count(GATED)
    assert (told["n_sliding_layers"], told["n_cacheless_layers"], told["sliding_window_tokens"]) == (4, 2, 512)
    assert (told["n_kv_heads"], told["head_dim"], told["sliding_kv_heads"], told["sliding_head_dim"]) == (2, 3, 1, 7)
    per = read_config(config | {"hidden_size_per_layer_input": 17, "vocab_size_per_layer_input": 101})
    assert per["dense_params"] - told["dense_params"] == 6 * (3 * 17 + 1) * 211
    assert per["embedding_params"] == 6 * 17 * 101  # the table of words is tied
    both = read_config(config | EXPERTS | {"enable_moe_block": True})
    assert both["dense_params"] == 8 * count(GATED) + 6 * (211 * 13 + 211 + 13) and both["n_moe_layers"] == 6
    assert both["attention_params"] - told["attention_params"] == 6 * 3 * 211  # three more norms
    assert both["ffn_size"] == 193


def kinds(**config) -> tuple[float, float, float, float]:
    """(sliding, linear, of experts, wide) of nine layers."""
    told = read_config(BASE | {"num_hidden_layers": 9} | EXPERTS | {"num_experts": 0} | config)
    return tuple(told.get(f"n_{kind}_layers", 0) for kind in ("sliding", "linear", "moe"))


@pytest.mark.parametrize("layers", range(1, 12))
@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_every_so_many_layers_one_sees_everything(layers, every):
    """Counting from the first layer, whatever is left at the end."""
    mamba = {"mamba_num_heads": 2, "mamba_head_dim": 3, "n_groups": 1, "ssm_state_size": 3, "conv_kernel": 2}
    seen = sum(number % every == 0 for number in range(1, layers + 1))
    for place, config in enumerate(({"sliding_window": 8, "sliding_window_pattern": every}, mamba)):
        config = config if place == 0 else config | {"full_attention_interval": every}
        assert kinds(num_hidden_layers=layers, **config)[place] == layers - seen


def test_which_layers_are_which():
    """Each rule counted out over nine layers."""
    window = {"sliding_window": 8}
    assert kinds(model_type="gemma2")[0] == 5  # the first, and every other one
    assert kinds(model_type="gemma3") == (8, 0, 0) and kinds(model_type="gemma3", sliding_window_pattern=3)[0] == 6
    assert kinds(model_type="cohere2", **window)[0] == 7 and kinds(model_type="cohere2")[0] == 0
    assert kinds(model_type="gpt_oss", **window)[0] == 5 and kinds(sliding_window_pattern="LLG", **window)[0] == 6
    assert kinds(model_type="llama4")[0] == 7 and kinds(attention_chunk_size=4)[0] == 9
    qwen = {"model_type": "qwen3", "use_sliding_window": True, **window}
    assert (
        kinds(**qwen, max_window_layers=2)[0] == 7
        and kinds(**qwen)[0] == 0
        and kinds(model_type="qwen3", **window)[0] == 0
    )
    words = ["sliding_attention", "local_attention", "chunked_attention", "full_attention", "attention"]
    words += ["global_attention", "deepseek_sparse_attention", "full_attention", "sliding_attention"]
    assert kinds(layer_types=words, **window)[0] == 4 and kinds(layer_types=words)[0] == 0
    mamba = {"mamba_num_heads": 2, "mamba_head_dim": 3, "n_groups": 1, "ssm_state_size": 3, "conv_kernel": 2}
    some = [*words[:6], "mamba", "mamba2", "linear_attention"]
    assert kinds(layer_types=some, **window, **mamba)[:2] == (3, 3)
    assert kinds(full_attention_interval=4, **mamba)[1] == 7 and kinds(attn_type_list=[1] * 7 + [0, 0])[1] == 2
    mixed = {"num_experts": 13}
    assert kinds(**mixed)[2] == 9 and kinds(**mixed, mlp_only_layers=[0, 5])[2] == 7
    assert kinds(**mixed, decoder_sparse_step=2)[2] == 4 and kinds(**mixed, interleave_moe_layer_step=2)[2] == 4
    assert kinds(**mixed, interleave_moe_layer_step=3)[2] == 3
    deep = {"model_type": "deepseek_v3", **mixed}
    assert kinds(**deep, first_k_dense_replace=3)[2] == 6 and kinds(**deep, moe_layer_freq=2)[2] == 5
    assert kinds(**deep, first_k_dense_replace=3, moe_layer_freq=2)[2] == 3
    wide = read_config(
        BASE | EXPERTS | {"intermediate_size_mlp": 401, "decoder_sparse_step": 2, "model_type": "llama4"}
    )
    assert wide["dense_params"] == 3 * 3 * 211 * 401 + 2 * (211 * 13 + 3 * 211 * 31)  # Llama 4 always shares one expert


def test_other_names_for_the_same_field():
    """Each in place of the usual one, and of the usual one where both stand there."""
    other = {
        **{"num_hidden_layers": "n_layer n_layers num_layers", "num_attention_heads": "n_head n_heads num_heads"},
        **{"num_key_value_heads": "num_kv_heads n_head_kv num_query_groups", "hidden_size": "n_embd d_model"},
        **{"intermediate_size": "n_inner ffn_hidden_size ffn_dim", "head_dim": "attention_head_dim"},
        "num_experts": "n_routed_experts num_local_experts moe_num_experts",
        "num_experts_per_tok": "top_k_experts num_experts_per_token moe_top_k moe_topk experts_per_token",
        "max_position_embeddings": "n_positions max_sequence_length seq_length model_max_length",
        "torch_dtype": "dtype",
    }
    usual = BASE | EXPERTS | {"max_position_embeddings": 1024, "torch_dtype": "float8_e4m3fn"}
    told = read_config(usual)
    assert told["max_context_tokens"] == 1024 and told["dense_dtype_bytes"] == 1.0 and told["kv_dtype_bytes"] == 2.0
    for name, others in other.items():
        for another in others.split():
            config = {another if key == name else key: value for key, value in usual.items()}
            assert read_config(config) == told, another


NVFP4, MXFP4 = 0.5 + 1 / 16, 0.5 + 1 / 32
FORMATS = [
    ({"quant_method": "fp8"}, 1.0),
    ({"quant_method": "FBGEMM_FP8"}, 1.0),
    ({"quant_method": "fp8", "weight_block_size": [64, 32]}, 1 + 4 / 2048),
    ({"quant_method": "nvfp4"}, NVFP4),
    ({"quant_method": "modelopt_fp4"}, NVFP4),
    ({"quant_method": "awq", "bits": 4, "group_size": 64}, 0.5 + 2.5 / 64),
    ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 1 + 3 / 32),
    ({"quant_method": "gptq", "bits": 3}, 3 / 8),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64),
    ({"quant_method": "bitsandbytes", "_load_in_4bit": True}, 0.5 + 4 / 64),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
    *(({"quant_algo": name}, 1.0) for name in ("FP8", "fp8_per_channel_per_token", "W8A8_SQ_PER_CHANNEL", "W8A16")),
    *(({"quant_algo": name}, NVFP4) for name in ("NVFP4", "W4A8_NVFP4_FP8")),
    *(({"quant_algo": name}, 0.5 + 2.5 / 128) for name in ("W4A16_AWQ", "W4A8_AWQ", "INT4_AWQ")),
    *(({"quant_algo": name}, MXFP4) for name in ("MXFP4", "W4A8_MXFP4_FP8")),
    ({"quant_algo": "FP8_PB_WO"}, 1 + 4 / 128**2),
    ({"num_bits": 4, "type": "float"}, NVFP4),
    ({"num_bits": 4, "type": "float", "group_size": 32}, 0.5 + 1 / 32),
    ({"num_bits": 8, "type": "float"}, 1.0),
    ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 64]}, 1 + 4 / 8192),
    ({"num_bits": 4, "group_size": 128}, 0.5 + 2 / 128),
    ({"num_bits": 4, "group_size": 128, "symmetric": False}, 0.5 + 2.5 / 128),
    ({"num_bits": 8, "group_size": -1, "symmetric": False}, 1.0),
]


def quantised(section: dict, **more) -> SimpleNamespace:
    if "num_bits" in section:
        section = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": section}}}
    return SimpleNamespace(**read_config(BASE | {"quantization_config": section | more}))


@pytest.mark.parametrize("section, bytes_each", FORMATS, ids=lambda of: str(of)[:60])
def test_bytes_of_a_weight(section, bytes_each):
    """Of matrices; norms and tables stay in 16 bits."""
    told, vectors = quantised(section), LAYERS * 2 * 211 + 211
    assert told.dense_dtype_bytes == pytest.approx(bytes_each) and told.embedding_dtype_bytes == 2.0
    mean = (bytes_each * LAYERS * count(ATTENTION) + 2 * vectors) / (LAYERS * count(ATTENTION) + vectors)
    assert told.attention_dtype_bytes == pytest.approx(mean) and told.kv_dtype_bytes == 2.0


@pytest.mark.parametrize(
    "section, bytes_each",
    [
        *(({"kv_cache_quant_algo": name}, each) for name, each in (("FP8", 1.0), ("int8", 1.0), ("NVFP4", NVFP4))),
        *(({"kv_cache_scheme": {"num_bits": bits}}, each) for bits, each in ((16, 2.0), (8, 1.0), (4, NVFP4))),
        ({"kv_cache_quant_algo": None}, 2.0),
    ],
)
def test_bytes_of_the_cache(section, bytes_each):
    assert quantised({"quant_method": "fp8"} | section).kv_dtype_bytes == bytes_each
    if section["kv_cache_quant_algo"] if "kv_cache_quant_algo" in section else True:
        only = quantised(section)  # the weights stay as they are
        assert (only.kv_dtype_bytes, only.dense_dtype_bytes) == (bytes_each, 2.0)


PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
#: What a checkpoint may leave out -> the layers and modules that it means. Of gate and up either stands for both.
LEFT = [
    ("lm_head", lambda i, m: False),
    ("q_proj", lambda i, m: m == "self_attn.q_proj"),
    ("self_attn", lambda i, m: m.startswith("self_attn")),
    ("model.layers.3", lambda i, m: i == 3),
    ("model.layers.3.", lambda i, m: False),
    ("model.layers.1.self_attn", lambda i, m: i == 1 and m.startswith("self_attn")),
    ("layers.1.self_attn", lambda i, m: False),  # a path is one from the top
    ("model.layers.*.self_attn.o_proj", lambda i, m: m == "self_attn.o_proj"),
    ("model.layers.2.self_attn.k*", lambda i, m: i == 2 and m == "self_attn.k_proj"),
    ("model.layers.[02].mlp", lambda i, m: i in (0, 2) and m.startswith("mlp")),
    ("language_model.model.layers.4", lambda i, m: i == 4),
    ("model.language_model.layers.4", lambda i, m: i == 4),
    ("language_model.layers.4", lambda i, m: False),
    ("re:.*layers\\.[13]\\..*proj", lambda i, m: i in (1, 3)),
    ("re:.*down", lambda i, m: m == "mlp.down_proj"),
    ("re:down", lambda i, m: False),  # from the beginning on
    ("mlp*", lambda i, m: m.startswith("mlp")),
]


@pytest.mark.parametrize("field", ["ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"])
@pytest.mark.parametrize("entry, means", LEFT, ids=[entry for entry, _ in LEFT])
def test_modules_that_a_checkpoint_leaves_out(entry, means, field):
    told = quantised({"quant_method": "fp8"}, **{field: [entry, "nothing.at.all"]})
    sizes = dict(zip(PROJECTIONS, map(count, ATTENTION.split()), strict=True))
    block = {"mlp.up_proj": 2 * 211 * 193, "mlp.down_proj": 211 * 193}
    stored = lambda parts: sum((2 if means(i, m) else 1) * n for i in range(LAYERS) for m, n in parts.items())
    vectors = LAYERS * 2 * 211 + 211
    assert told.dense_dtype_bytes == pytest.approx(stored(block) / (LAYERS * count(GATED)))
    whole = LAYERS * count(ATTENTION) + vectors
    assert told.attention_dtype_bytes == pytest.approx((stored(sizes) + 2 * vectors) / whole)


def test_mxfp4_is_of_experts_alone():
    told = SimpleNamespace(**read_config(BASE | EXPERTS | {"quantization_config": {"quant_method": "mxfp4"}}))
    assert told.attention_dtype_bytes == told.dense_dtype_bytes == 2.0
    assert told.expert_dtype_bytes == pytest.approx(MXFP4)


@pytest.mark.parametrize(
    "section, why",
    [
        ({"quant_algo": "FP7"}, "quant_algo is 'FP7'; FP8, FP8_PB_WO"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 5}}, "num_bits of 4, 8 or 16"),
        ({"quant_method": "gptq", "bits": 17}, "bits is 17; at most 16"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "positive whole numbers"),
        ({"quant_method": "fp8", "weight_block_size": [True]}, "positive whole numbers"),
        ({"quant_method": "fp8", "ignore": [3]}, "a list of module names is accepted"),
        ({"quant_method": "fp8", "ignore": ["re:("]}, "globs, or re: patterns"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {}}}, "groups that state their weights"),
        ({"kv_cache_scheme": None}, "quant_method is missing"),
    ],
)
def test_formats_that_are_none(section, why):
    with pytest.raises(ConfigError, match=why.replace("(", r"\(")):
        quantised(section)


@pytest.mark.parametrize(
    "field, most",
    [
        ("max_position_embeddings", 2**48),
        ("vocab_size", 2**28),
        ("intermediate_size", 2**24),
        ("num_hidden_layers", 4096),
        ("num_experts", 65_536),
    ],
)
def test_counts_up_to_what_no_model_has(field, most):
    config = BASE | (EXPERTS if field == "num_experts" else {})
    assert read_config(config | {field: most})
    with pytest.raises(ConfigError, match=f"{field} is {most + 1}; a whole number from . to {most} is accepted"):
        read_config(config | {field: most + 1})
