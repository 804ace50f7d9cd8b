"""Where a config.json is silent, the family's configuration class of transformers speaks; sections inside sections."""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np
import pytest

from dmodels import catalog
from dmodels.catalog import agreement
from dmodels.catalog.hf import read_architecture, read_config
from dmodels.catalog.workloads import totals_cdf
from dmodels.core.errors import ConfigError, InputError

BASE = {
    **{"num_hidden_layers": 12, "hidden_size": 192, "num_attention_heads": 6, "num_key_value_heads": 3},
    **{"intermediate_size": 101, "vocab_size": 409},
}
#: configuration_*.py of transformers: (head_dim, words tied, window, layers of twelve that slide).
ASSUMED = {
    "llama": (32, False, 0, 0),
    "gemma": (256, True, 0, 0),
    "gemma2": (256, True, 4096, 6),
    "gemma3_text": (256, True, 4096, 10),
    "gemma4_text": (256, True, 512, 10),
    "cohere": (32, True, 0, 0),
    "cohere2": (32, True, 0, 0),
    "gpt2": (32, True, 0, 0),
    "starcoder2": (32, True, 0, 0),
    "llama4_text": (32, False, 8192, 9),
    "qwen2": (32, False, 0, 0),
    "qwen3": (32, False, 0, 0),
}


@pytest.mark.parametrize("family", ASSUMED)
def test_what_a_family_assumes(family):
    told = read_config(BASE | {"model_type": family})
    head_dim, tied, window, slide = ASSUMED[family]
    assert (told["head_dim"], told["embedding_params"]) == (head_dim, 0 if tied else 409 * 192)
    assert told.get("sliding_window_tokens", 0) == window and told.get("n_sliding_layers", 0) == slide
    assert read_config(BASE | {"model_type": family, "head_dim": 7})["head_dim"] == 7  # what is said counts


def test_words_and_windows_that_only_a_window_brings():
    silent = {name: value for name, value in BASE.items() if name != "vocab_size"}
    assert read_config(silent | {"model_type": "gemma3_text"})["vocab_size"] == 262_208
    assert read_config(silent | {"model_type": "gemma4"})["vocab_size"] == 262_144
    with pytest.raises(ConfigError, match="vocab_size is missing"):
        read_config(silent | {"model_type": "gemma2"})
    for family, slide in (("cohere2", 9), ("gpt_oss", 6), ("mistral", 12)):
        told = read_config(BASE | {"model_type": family, "sliding_window": 50})
        assert (told["n_sliding_layers"], told["sliding_window_tokens"]) == (slide, 50)


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5", "qwen3_5_moe_text"])
def test_every_fourth_layer_of_qwens_hybrids_sees_everything(family):
    sizes = {"linear_num_value_heads": 2, "linear_value_head_dim": 4, "linear_num_key_heads": 2}
    sizes |= {"linear_key_head_dim": 4, "linear_conv_kernel_dim": 4}
    assert read_config(BASE | sizes | {"model_type": family})["n_linear_layers"] == 9


@pytest.mark.parametrize("family", ["gpt2", "gpt_bigcode", "falcon", "bloom", "llama"])
def test_the_oldest_families_are_four_times_as_wide_inside(family):
    config = {name: value for name, value in BASE.items() if name != "intermediate_size"} | {"model_type": family}
    if family == "llama":
        with pytest.raises(ConfigError, match="intermediate_size or n_inner or ffn_hidden_size or ffn_dim is missing"):
            read_config(config)
        return
    biases = 12 * (4 * 192 + 192) if family == "gpt2" else 0
    assert read_config(config)["dense_params"] == 12 * 2 * 192 * 768 + biases


@pytest.mark.parametrize("family", ["gpt_bigcode", "gpt_neox", "falcon", "bloom", "nemotron", "nemotron_h", "relu2"])
def test_blocks_without_a_gate(family):
    more = {"mlp_hidden_act": "relu2"} if family == "relu2" else {"model_type": family}
    assert read_config(BASE | more)["dense_params"] == 12 * 2 * 192 * 101


def test_one_head_of_keys_for_all_queries():
    assert read_config(BASE | {"model_type": "falcon", "multi_query": True})["n_kv_heads"] == 1
    assert read_config(BASE | {"multi_query": True, "new_decoder_architecture": True})["n_kv_heads"] == 3
    assert read_config(BASE | {"num_key_value_heads": None})["n_kv_heads"] == 6


BALANCED = [
    "deepseek_v3",
    "deepseek_v32",
    "kimi_k2",
    "kimi_k25",
    "glm4_moe",
    "glm4_moe_lite",
    "nemotron_h",
    "minimax_m2",
]


@pytest.mark.parametrize("family", [*BALANCED, "glm_moe_dsa", "mixtral", "deepseek_v2", "qwen3_moe"])
def test_routers_with_a_learnt_offset_for_each_expert(family):
    """Loss-free balancing has one number more an expert; others say so by `topk_method`."""
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "model_type": family}
    sparse = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4}
    experts |= sparse if family in ("deepseek_v32", "glm_moe_dsa") else {}
    offset = 8 if family in (*BALANCED, "glm_moe_dsa") else 0
    assert read_config(BASE | experts)["dense_params"] == 12 * (192 * 8 + offset)
    if family != "minimax_m2":
        assert read_config(BASE | experts | {"topk_method": "noaux_tc"})["dense_params"] == 12 * (192 * 8 + 8)
    elif family == "minimax_m2":
        assert read_config(BASE | experts | {"use_routing_bias": False})["dense_params"] == 12 * 192 * 8


@pytest.mark.parametrize(
    "dtype, weight, cache",
    [
        *((name, 2, 2) for name in ("bfloat16", "float16", "half", "auto", "float32", None)),
        *((name, 1, 2) for name in ("float8_e4m3fn", "float8_e5m2")),
    ],
)
def test_bytes_of_a_type(dtype, weight, cache):
    told = read_config(BASE | {"torch_dtype": dtype})
    assert (told["dense_dtype_bytes"], told["kv_dtype_bytes"], told["embedding_dtype_bytes"]) == (weight, cache, 2)


MAMBA = {"model_type": "nemotron_h", "mamba_num_heads": 6, "mamba_head_dim": 5, "n_groups": 2, "ssm_state_size": 3}
MAMBA |= {"conv_kernel": 4, "hybrid_override_pattern": "M" * 12}


@pytest.mark.parametrize("field", ["mamba_ssm_dtype", "mamba_ssm_cache_dtype"])
@pytest.mark.parametrize("dtype, each", [("float32", 4), ("bfloat16", 2), ("float16", 2), (None, 2)])
def test_bytes_of_a_state(field, dtype, each):
    told = read_config(BASE | MAMBA | {field: dtype})
    assert told["linear_state_bytes"] == each * 6 * 5 * 3 + 2 * (6 * 5 + 2 * 2 * 3) * 3
    with pytest.raises(ConfigError, match="'int8'; bfloat16, float16, float32 is accepted"):
        read_config(BASE | MAMBA | {field: "int8"})


@pytest.mark.parametrize(
    "field, why",
    [
        ("block_configs", "layers of different shapes"),
        ("compress_ratios", "compressed attention"),
        ("linear_attn_config", "Kimi delta attention"),
        ("attn_layer_period", "Mamba-1"),
        ("attn_layer_indices", "layer list"),
        ("mamba_d_ssm", "attention and state space in one layer"),
        ("ssm_cfg", "Mamba-1"),
        ("cross_attention_layers", "cross-attention"),
        ("use_cla", "cross-layer"),
    ],
)
def test_designs_that_are_not_described_are_refused(field, why):
    with pytest.raises(ConfigError, match=rf"{field} is 3; none \(.*{why}.*: not modelled\)"):
        read_config(BASE | {field: 3})
    assert read_config(BASE | {field: 0}) == read_config(BASE)


@pytest.mark.parametrize(
    "field, value, accepted",
    [
        ("hybrid_override_pattern", "MM", "a string of 12 letters, one per layer"),
        ("layers_block_type", ["mamba"] * 11 + ["?"], "M, "),
        ("layer_types", ["full_attention"] * 11 + [3], "full_attention, "),
        ("attn_type_list", [1] * 11 + [2], "0 (linear) or 1 (full)"),
        ("mlp_only_layers", ["first"], "a list of layer numbers"),
    ],
)
def test_what_is_not_accepted_is_told_by_name_value_and_what_is(field, value, accepted):
    more = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    kind = {"model_type": "nemotron_h"} if field in ("hybrid_override_pattern", "layers_block_type") else more
    with pytest.raises(ConfigError) as refused:
        read_config(BASE | kind | {field: value})
    said, _, rest = str(refused.value).partition("; ")
    told = value if field in ("hybrid_override_pattern", "mlp_only_layers") else value[-1]
    assert said == f"config: {field} is {told!r}" and rest.startswith(accepted)


@pytest.mark.parametrize("section", ["text_config", "language_config", "llm_config"])
def test_the_language_models_own_section(section):
    """What is said inside counts; type, ties and kind are taken from outside where the section is silent."""
    own = BASE | {"model_type": "gemma2"}
    outside = {"model_type": "seen", section: own, "num_hidden_layers": 3, "vocab_size": 5}
    assert read_config(outside) == read_config(own)
    assert read_config(outside | {"torch_dtype": "float8_e4m3fn"}) == read_config(
        own | {"torch_dtype": "float8_e4m3fn"}
    )
    assert read_config(outside | {"tie_word_embeddings": False}) == read_config(own | {"tie_word_embeddings": False})
    assert read_config({"model_type": "gemma2", section: BASE}) == read_config(own)
    packed = {"quantization_config": {"quant_method": "fp8"}}
    assert read_config(outside | packed) == read_config(own | packed) == read_config({section: own | packed})
    inner = {"quantization_config": {"quant_method": "nvfp4"}}
    assert read_config({section: own | inner} | packed) == read_config(own | inner)
    assert read_architecture(outside) == "seen" and read_architecture({section: own}) == "gemma2"
    assert read_architecture({section: BASE}) == ""


@pytest.mark.parametrize("first, slide", [(0, 12), (1, 11), (12, 0), (None, 0)])
def test_qwens_first_layers_see_everything(first, slide):
    """As many as `max_window_layers` says, which may be none; where it says nothing, all of them."""
    window = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 50, "max_window_layers": first}
    assert read_config(BASE | window).get("n_sliding_layers", 0) == slide


def test_layers_that_share_a_cache_are_fewer_than_all():
    assert read_config(BASE | {"num_kv_shared_layers": 11})["n_cacheless_layers"] == 11
    with pytest.raises(ConfigError, match="num_kv_shared_layers is 12; a whole number below num_hidden_layers = 12"):
        read_config(BASE | {"num_kv_shared_layers": 12})


@pytest.mark.parametrize("name", ["azure-conv", "mooncake"])
def test_a_bundled_workload_is_its_file(name):
    """Lengths with their weights, and the numbers of the remarks; nothing is cached unless asked for."""
    text = files("dmodels.catalog").joinpath("data", "workloads", f"{name}.csv").read_text("utf-8").splitlines()
    rows = list(csv.DictReader(line for line in text if not line.startswith("#")))
    said = dict(line[1:].strip().split(" = ") for line in text if line.startswith("#") and " = " in line)
    weight = np.array([float(row["weight_frac"]) for row in rows])
    mean = lambda column: float(np.average([float(row[column]) for row in rows], weights=weight))
    w = catalog.workload(name)
    assert float(np.sum(w.weight_frac)) == pytest.approx(1.0)
    assert (float(w.mean_input_tokens), float(w.mean_output_tokens)) == pytest.approx(
        (mean("input_tokens"), mean("output_tokens"))
    )
    assert (float(w.rate_rps), float(w.arrival_cv)) == (float(said["rate_rps"]), float(said["arrival_cv"]))
    assert not np.any(w.cached_tokens) and float(catalog.workload(name, 3.0).rate_rps) == 3.0
    if name == "mooncake":
        hits = catalog.workload(name, prefix_hits=True)
        assert float(np.average(hits.cached_tokens, weights=weight)) == pytest.approx(mean("cached_tokens"))
    assert catalog.workload_source(name) in text[0]


def test_what_a_workload_does_not_have_is_said_with_those_that_have_it():
    with pytest.raises(InputError, match="CDF 'mooncake' is unknown; known are azure-paper, lmsys, lmsys-paper"):
        totals_cdf("mooncake")
    with pytest.raises(InputError, match="'azure-paper' has no prefix data; with prefix hits accepted are "):
        catalog.workload("azure-paper", prefix_hits=True)
    with pytest.raises(InputError, match="workload 'azure' is unknown; "):
        catalog.workload("azure")


def test_a_limit_is_the_lowest_of_its_measured_neighbours(monkeypatch):
    """On a table of limits that all differ: between points, on them, and outside; a CV of 1 where none is said."""
    slots, cvs = (4.0, 16.0, 64.0), (0.5, 1.0, 2.0)
    table = {(s, c): (7 * i + 3 * j) % 11 / 20 for i, s in enumerate(slots) for j, c in enumerate(cvs)}
    monkeypatch.setattr(agreement, "_table", lambda: {"form": table})
    below = lambda x, known: max([k for k in known if k <= x], default=known[0])
    above = lambda x, known: min([k for k in known if k >= x], default=known[-1])
    near = lambda x, known: {below(x, known), above(x, known)}
    for s in (1.0, 4.0, 5.0, 16.0, 40.0, 64.0, 1e4):
        for c in (0.1, 0.5, 0.7, 1.0, 1.5, 2.0, 9.0):
            told = agreement.trusted_load("form", s, c)
            assert told == min(table[a, b] for a in near(s, slots) for b in near(c, cvs))
        assert agreement.trusted_load("form", s) == agreement.trusted_load("form", s, 1.0)
