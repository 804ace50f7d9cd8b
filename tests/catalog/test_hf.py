"""config.json -> Model: counts to the parameter, layer kinds, formats; and every bad file gives one line."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import Model
from dmodels.catalog import model, model_config, models
from dmodels.catalog.hf import read_config
from dmodels.core.errors import ConfigError

LLAMA = dict(
    model_type="llama",
    num_hidden_layers=80,
    hidden_size=8192,
    num_attention_heads=64,
    num_key_value_heads=8,
    intermediate_size=28672,
    vocab_size=128256,
    torch_dtype="bfloat16",
)

#: Totals that the publishers' checkpoints state (the sum of their tensors), without multi-token-prediction layers.
PUBLISHED = {
    "llama-3.1-70b": 70_553_706_496,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-coder-480b-a35b": 480_154_875_392,
    "qwen3-next-80b-a3b": 79_674_391_296,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "mistral-7b": 7_248_023_552,
    "mistral-large-2": 122_610_069_504,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "nemotron-3-nano-30b-a3b": 31_577_940_288,
    "nemotron-h-8b": 8_100_852_736,
    "llama-4-scout": 107_769_861_120,
    "phi-4": 14_659_507_200,
}


@pytest.mark.parametrize(("name", "params"), PUBLISHED.items())
def test_parameters_are_those_of_the_published_checkpoint(name, params):
    assert int(model(name).params_count) == params


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("qwen3-235b-a22b", 235e9, 22e9),
        ("deepseek-v3", 671e9, 37e9),
        ("gpt-oss-120b", 117e9, 5.1e9),
        ("kimi-k2", 1026e9, 32e9),
        ("glm-4.5", 355e9, 32e9),
        ("glm-4.5-air", 106e9, 12e9),
        ("minimax-m2.5", 230e9, 10e9),
        ("minimax-text-01", 456e9, 45.9e9),
        ("qwen3.5-397b-a17b", 397e9, 17e9),
        ("nemotron-4-340b", 341e9, 336e9),
        ("gemma-4-26b-a4b", 25.2e9, 3.8e9),
        ("glm-5", 744e9, 40e9),
        ("llama-4-maverick", 400e9, 17e9),
    ],
)
def test_total_and_active_parameters_are_those_of_the_model_card(name, total, active):
    m = model(name)
    assert float(m.params_count) == pytest.approx(total, rel=0.01)
    assert float(m.active_params_count) == pytest.approx(active, rel=0.08)


@pytest.mark.parametrize(
    ("name", "checkpoint_gb", "rel"),
    [
        ("gpt-oss-120b", 65.2, 0.01),  # model.safetensors of openai/gpt-oss-120b
        ("gpt-oss-20b", 13.8, 0.01),
        ("deepseek-v3", 673, 0.01),  # 688.6 GB with the 15 GB of its MTP layer
        ("kimi-k2.5", 595, 0.01),
        ("qwen3-235b-a22b-fp8", 236.5, 0.01),
    ],
)
def test_quantised_checkpoints_are_as_large_as_published(name, checkpoint_gb, rel):
    from dmodels.models.memory import weight_bytes

    assert float(weight_bytes(model(name))) / 1e9 == pytest.approx(checkpoint_gb, rel=rel)


def test_layer_kinds():
    def kinds(name):
        m = model(name)
        return tuple(
            int(x)
            for x in (m.n_full_layers, m.n_sliding_layers, m.n_mla_layers, m.n_linear_layers, m.n_cacheless_layers)
        )

    assert kinds("llama-3.1-70b") == (80, 0, 0, 0, 0)
    assert kinds("gemma-3-27b") == (10, 52, 0, 0, 0)
    assert kinds("gpt-oss-120b") == (18, 18, 0, 0, 0)
    assert kinds("gemma-2-9b") == (21, 21, 0, 0, 0)
    assert kinds("deepseek-v3") == (0, 0, 61, 0, 0)
    assert kinds("qwen3.5-397b-a17b") == (15, 0, 0, 45, 0)
    assert kinds("minimax-text-01") == (10, 0, 0, 70, 0)
    assert kinds("nemotron-h-8b") == (4, 0, 0, 24, 24)
    assert kinds("gemma-4-31b") == (10, 50, 0, 0, 0)


@pytest.mark.parametrize("base", [{}, {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}])
def test_a_count_of_nothing_is_as_if_it_were_not_stated(base):
    """Exporters write the fields of a whole family, with 0 or null where a model has no such part."""
    parts = ["sliding_window", "attention_chunk_size", "first_k_dense_replace", "n_shared_experts", "kv_lora_rank"]
    parts += ["q_lora_rank", "index_topk", "n_group", "moe_latent_size", "shared_expert_intermediate_size"]
    parts += ["num_kv_shared_layers", "full_attention_interval", "hidden_size_per_layer_input"]
    parts += [] if base else ["num_experts"]
    for part in parts:
        for nothing in (0, None):
            assert read_config(LLAMA | base | {part: nothing}) == read_config(LLAMA | base), part


def test_a_window_counts_only_where_it_is_switched_on():
    mistral = LLAMA | {"model_type": "mistral", "sliding_window": 4096}
    for nothing in ({"sliding_window": 0}, {"sliding_window": None}, {"sliding_window": 0, "attention_chunk_size": 0}):
        told = read_config(mistral | nothing)
        assert (told.get("n_sliding_layers", 0), told.get("sliding_window_tokens", 0)) == (0, 0)
    assert read_config(mistral)["n_sliding_layers"] == 80
    assert read_config(mistral | {"use_sliding_window": False}).get("n_sliding_layers", 0) == 0
    qwen = LLAMA | {"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 70}
    assert read_config(qwen).get("n_sliding_layers", 0) == 0
    assert read_config(qwen | {"use_sliding_window": True})["n_sliding_layers"] == 10


@pytest.mark.parametrize(
    ("config", "tokens"),
    [  # as the model cards and vLLM's start-up line say
        ({"max_position_embeddings": 8192}, 8192),  # Llama 3
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),  # 3.1
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 8.0}}, 32768),  # LLaMA-2-7B-32K
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {  # Qwen2.5 as its card extends it
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                },
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {  # DeepSeek V3
                    "type": "yarn",
                    "factor": 40,
                    "original_max_position_embeddings": 4096,
                },
            },
            163840,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_parameters": {  # gpt-oss as transformers 5 writes it
                    "rope_type": "yarn",
                    "factor": 32.0,
                    "original_max_position_embeddings": 4096,
                },
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {  # Phi-3 128K
                    "type": "longrope",
                    "long_factor": [1.0],
                    "original_max_position_embeddings": 4096,
                },
            },
            131072,
        ),
        (
            {
                "model_type": "gemma3_text",
                "head_dim": 128,
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            131072,
        ),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "mrope", "factor": None}}, 4096),
        ({}, 0),
    ],
)
def test_the_context_is_what_an_engine_accepts(config, tokens):
    without = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    assert read_config(without | config)["max_context_tokens"] == tokens


def test_head_dim_is_the_configs_own_where_it_states_one():
    assert read_config(LLAMA)["head_dim"] == 128
    assert read_config(LLAMA | {"head_dim": 64})["head_dim"] == 64


def test_tied_embeddings_are_stored_once():
    tied, untied = read_config(LLAMA | {"tie_word_embeddings": True}), read_config(LLAMA)
    assert untied["embedding_params"] - tied["embedding_params"] == 128256 * 8192


def test_an_unknown_architecture_with_the_usual_fields_is_a_standard_decoder():
    assert read_config(LLAMA | {"model_type": "brand_new"}) == read_config(LLAMA)


def test_folder_file_and_mapping_are_read_alike(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    of_mapping = read_config(LLAMA)
    assert read_config(tmp_path) == of_mapping == read_config(str(tmp_path / "config.json"))
    quantised = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quantised))
    beside = read_config(tmp_path)
    assert beside["kv_dtype_bytes"] == 1.0
    assert beside["dense_dtype_bytes"] == pytest.approx(0.5625)
    assert beside["embedding_dtype_bytes"] == 2.0


def quantised(**section):
    return read_config(LLAMA | {"quantization_config": section})


def test_formats_with_their_scales():
    assert quantised(quant_method="fp8", weight_block_size=[128, 128])["dense_dtype_bytes"] == 1 + 4 / 128**2
    assert quantised(quant_method="awq", bits=4, group_size=128)["dense_dtype_bytes"] == 0.5 + 2.5 / 128
    assert quantised(quant_method="gptq", bits=8, group_size=-1)["dense_dtype_bytes"] == 1.0
    group = {"weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}}
    ct = quantised(quant_method="compressed-tensors", config_groups={"group_0": group})
    assert ct["dense_dtype_bytes"] == 0.5 + 2 / 32


def test_modules_left_in_bf16_are_counted_in_bf16():
    by_glob = quantised(quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head", "model.layers.*.self_attn*"])
    assert by_glob["attention_dtype_bytes"] == 2.0
    assert by_glob["dense_dtype_bytes"] == 0.5625
    by_regex = quantised(quant_method="modelopt", quant_algo="FP8", ignore=["re:.*mlp\\.down_proj.*"])
    assert by_regex["dense_dtype_bytes"] == pytest.approx((2 * 1 + 2) / 3)  # gate and up in FP8, down in BF16
    one_layer = quantised(quant_method="modelopt", quant_algo="FP8", ignore=["model.layers.7.mlp"])
    assert one_layer["dense_dtype_bytes"] == pytest.approx((79 * 1 + 2) / 80)


def test_gpt_oss_quantises_its_experts_only():
    m = read_config(model_config("gpt-oss-120b"))
    assert m["attention_dtype_bytes"] == 2.0
    assert m["expert_dtype_bytes"] == pytest.approx(0.53125, abs=0.001)  # but for the BF16 biases


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_attention_heads": 0}, ["num_attention_heads", "0"]),
        ({"num_hidden_layers": -3}, ["num_hidden_layers", "-3"]),
        ({"hidden_size": "big"}, ["hidden_size", "'big'"]),
        ({"hidden_size": float("nan")}, ["hidden_size", "nan"]),
        ({"vocab_size": None}, ["vocab_size", "missing"]),
        ({"num_key_value_heads": 65}, ["num_key_value_heads", "at most"]),
        ({"head_dim": True}, ["head_dim", "True"]),
        ({"layer_types": ["full_attention"]}, ["layer_types", "80"]),
        ({"layer_types": ["conv"] * 80}, ["layer_types", "'conv'", "full_attention"]),
        ({"num_local_experts": 4, "num_experts_per_tok": 8}, ["num_experts_per_tok", "8"]),
        ({"num_local_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 4}, ["topk_group", "4"]),
        ({"quantization_config": {"quant_method": "magic"}}, ["quant_method", "'magic'", "fp8"]),
        ({"quantization_config": [1]}, ["quantization_config"]),
        ({"torch_dtype": "int3"}, ["torch_dtype", "'int3'", "bfloat16"]),
        ({"kv_lora_rank": 512}, ["qk_rope_head_dim", "missing"]),
        ({"is_encoder_decoder": True}, ["is_encoder_decoder"]),
        ({"compress_ratios": [0, 4]}, ["compress_ratios", "not modelled"]),
        ({"block_configs": [{}]}, ["block_configs", "not modelled"]),
    ],
)
def test_what_is_wrong_is_named_in_one_line(change, words):
    with pytest.raises(ConfigError) as caught:
        read_config(LLAMA | change)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    for word in words:
        assert word in message


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "3", '"x"', "[" * 5000, "\x00\x01"])
def test_files_that_are_no_config(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_config(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not JSON"):
        read_config(path)


@pytest.mark.parametrize("thing", [None, 3, [1], b"x", "x" * 5000, "\0"])
def test_what_is_neither_path_nor_mapping(thing):
    with pytest.raises(ConfigError):
        read_config(thing)


def test_a_configuration_object_is_read_as_its_mapping():
    class Config:
        def to_dict(self):
            return LLAMA

    assert read_config(Config()) == read_config(LLAMA)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        read_config(tmp_path / "nowhere" / "config.json")


small = st.integers(-2, 300)
scalars = st.none() | st.booleans() | small | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars, lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=8), x, max_size=4), max_leaves=12
)
REAL = {name: model_config(name) for name in models()}
KEYS = sorted({k for c in REAL.values() for part in (c, c.get("text_config", {})) for k in part} | {"rope_scaling"})


def read_or_complain(config):
    """Either a model whose numbers are all finite and make sense, or a ConfigError of one line."""
    try:
        fields = read_config(config)
    except ConfigError as error:
        assert "\n" not in str(error)
        return
    assert all(math.isfinite(v) and v >= 0 for v in fields.values()), fields
    m = Model(**fields)
    assert float(m.n_full_layers) >= 0
    assert float(m.params_count) > 0


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), values, max_size=12))
def test_arbitrary_objects_give_a_model_or_one_line(config):
    read_or_complain(config)


changed = st.tuples(st.sampled_from(KEYS), small | values)


@given(st.sampled_from(sorted(REAL)), st.lists(changed, min_size=1, max_size=3))
def test_mutated_configs_give_a_model_or_one_line(name, changes):
    config = dict(REAL[name])
    inner = dict(config["text_config"]) if "text_config" in config else config
    for key, value in changes:
        inner[key] = value
    if inner is not config:
        config["text_config"] = inner
    read_or_complain(config)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "quant_method": st.sampled_from(["fp8", "awq", "gptq", "modelopt", "compressed-tensors", "mxfp4"]) | values,
            "quant_algo": st.sampled_from(["NVFP4", "FP8"]) | values,
            "bits": values,
            "group_size": values,
            "weight_block_size": values,
            "config_groups": values | st.fixed_dictionaries({"g": st.fixed_dictionaries({"weights": values})}),
            "ignore": values | st.lists(st.text(max_size=6).map(lambda s: "re:" + s), max_size=3),
            "kv_cache_scheme": values,
            "kv_cache_quant_algo": values,
        },
    )
)
def test_arbitrary_quantisation_gives_a_model_or_one_line(section):
    read_or_complain(LLAMA | {"quantization_config": section})


@given(st.sampled_from(sorted(REAL)), st.integers(0, 400))
def test_truncated_files_give_one_line(tmp_path_factory, name, at):
    text = json.dumps(REAL[name])
    path = tmp_path_factory.mktemp("cut") / "config.json"
    path.write_text(text[: min(at, len(text) - 1)])
    with pytest.raises(ConfigError):
        read_config(path)
