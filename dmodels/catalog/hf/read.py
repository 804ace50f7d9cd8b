"""From a Hugging Face `config.json` to the fields of `Model`: sizes, layer kinds, parameters, bytes.

The file is read, never downloaded. A config of an architecture that is not listed anywhere here is read as a
standard decoder if it has the standard fields. Not counted: vision and audio towers, multi-token-prediction layers.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from dmodels.core.errors import ConfigError, InputError
from dmodels.core.files import read_text
from dmodels.core.model import Model

from .context import context_tokens
from .ffn import expert_width
from .fields import Fields
from .layers import Layer, read_layers, window
from .params import layer_parts, norm_params
from .quant import Quantization, read_quantization
from .shape import Part, Shape, linear_sizes

#: What the families' configuration classes assume where a config.json is silent.
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 256, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 256, "tie_word_embeddings": True, "sliding_window": 4096, "sliding_window_pattern": 2},
    "gemma3": {
        "head_dim": 256,
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "vocab_size": 262208,
    },
    "gemma4": {
        "head_dim": 256,
        "tie_word_embeddings": True,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "vocab_size": 262144,
    },
    "cohere": {"tie_word_embeddings": True},
    "cohere2": {"tie_word_embeddings": True, "sliding_window_pattern": 4},
    "gpt2": {"tie_word_embeddings": True},
    "gpt_oss": {"sliding_window_pattern": 2},
    "starcoder2": {"tie_word_embeddings": True},
    "llama4": {"sliding_window_pattern": 4, "attention_chunk_size": 8192},
    "qwen3_next": {"full_attention_interval": 4},
    "qwen3_5": {"full_attention_interval": 4},
    "deepseek_v32": {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128},
    "glm_moe_dsa": {"index_topk": 2048, "index_n_heads": 32, "index_head_dim": 128},
}

#: Bytes per parameter as served; engines load float32 checkpoints in half precision.
DTYPE_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 2.0, "half": 2.0, "auto": 2.0,
               "float8_e4m3fn": 1.0, "float8_e5m2": 1.0}  # fmt: skip
STATE_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0}

#: The indexer of sparse MLA keeps an FP8 key per token, and one float32 scale for it.
INDEX_SCALE_BYTES = 4
#: Fields of designs that the layer kinds here do not describe; reading past them would give wrong numbers.
NOT_DESCRIBED = {
    "block_configs": "layers of different shapes",
    "compress_ratios": "compressed attention",
    "linear_attn_config": "Kimi delta attention",
    "attn_layer_period": "Jamba's Mamba-1 layers",
    "attn_layer_indices": "Bamba's layer list",
    "mamba_d_ssm": "attention and state space in one layer",
    "ssm_cfg": "Mamba-1 layers",
    "cross_attention_layers": "cross-attention layers",
    "use_cla": "cross-layer attention",
}


def read_model(config: str | PathLike[str] | Mapping[str, Any]) -> Model:
    """The model of a Hugging Face `config.json`: a path to it (or to its folder), or the parsed mapping.

    Raises `ConfigError`, one line that names the field, what it holds and what is accepted.
    """
    return Model(**read_config(config))


def read_config(config: str | PathLike[str] | Mapping[str, Any]) -> dict[str, float]:
    """The fields of `Model` from a config.json: a path to it, to its folder, or the parsed mapping.

    >>> read_config({"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16,
    ...              "vocab_size": 10})["head_dim"]
    4.0
    """
    raw, where = _load(config)
    text = _text_config(raw, where)
    family = _family(text, raw, where)
    f = Fields(text, _defaults(family), where)
    if f.raw("is_encoder_decoder") is True:
        raise f.wrong("is_encoder_decoder", True, "a decoder-only model (false)")
    for name, what in NOT_DESCRIBED.items():
        if f.raw(name):
            raise f.wrong(name, f.raw(name), f"none ({what}: not modelled)")
    shape = _shape(f, family)
    layers = read_layers(f, family)
    quantization = read_quantization(Fields({**_quantization_of(raw), **_quantization_of(text)}, where=where))
    fields = _cache(shape, layers, quantization) | _weights(shape, layers, quantization)
    return {name: float(value) for name, value in fields.items()}


def read_architecture(config: str | PathLike[str] | Mapping[str, Any]) -> str:
    """The `model_type` of a config.json: of the whole model, or of its text part where only that says; "" without.

    >>> read_architecture({"text_config": {"model_type": "qwen3"}})
    'qwen3'
    """
    raw, where = _load(config)
    text = Fields(_text_config(raw, where), where=where)
    return Fields(raw, where=where).text("model_type") or text.text("model_type")


def _load(config: str | PathLike[str] | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The parsed object and a name for it in messages."""
    if hasattr(config, "to_dict"):  # a configuration object of transformers
        config = config.to_dict()
    if isinstance(config, Mapping):
        return config, "config"
    if not isinstance(config, str | PathLike):
        raise ConfigError(f"config is {config!r:.60}; a path, or the mapping that a config.json holds, is accepted")
    path = Path(config)
    if len(path.name) < 256 and path.is_dir():
        path = path / "config.json"
    parsed = _json(path)
    beside = path.with_name("hf_quant_config.json")  # where Model Optimizer writes the formats
    if "quantization_config" not in parsed and path.name == "config.json" and beside.is_file():
        parsed = {**parsed, "quantization_config": _json(beside)}
    return parsed, path.name


def _json(path: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(read_text(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except InputError as error:
        raise ConfigError(f"{path}: not JSON ({str(error).partition(': ')[2]})") from None
    except (ValueError, RecursionError) as error:
        line = " ".join(str(error).split())
        raise ConfigError(f"{path.name}: not JSON ({line})") from None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{path.name}: holds {type(parsed).__name__}; a JSON object is accepted")
    return parsed


def _text_config(raw: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The language model's own section of a multimodal config."""
    for name in ("text_config", "language_config", "llm_config"):
        section = Fields(raw, where=where).section(name)
        if section:
            outer = ("dtype", "torch_dtype", "tie_word_embeddings", "model_type")
            return {**{k: raw[k] for k in outer if raw.get(k) is not None}, **section}
    return raw


def _quantization_of(config: Mapping[str, Any]) -> dict[str, Any]:
    return {k: config[k] for k in ("quantization_config",) if config.get(k)}


def _family(text: Mapping[str, Any], raw: Mapping[str, Any], where: str) -> str:
    family = Fields(text, where=where).text("model_type") or Fields(raw, where=where).text("model_type")
    return family.lower().replace("-", "_").removesuffix("_text")


def _defaults(family: str) -> dict[str, Any]:
    """Defaults of the longest family name that `family` begins with (qwen3_5_moe: those of qwen3_5)."""
    names = [name for name in DEFAULTS if family == name or family.startswith(f"{name}_")]
    return DEFAULTS[max(names, key=len)] if names else {}


def _shape(f: Fields, family: str) -> Shape:
    hidden, heads = f.count("hidden_size"), f.count("num_attention_heads")
    one_kv_head = f.flag("multi_query", False) and not f.flag("new_decoder_architecture", False)
    kv_heads = 1 if one_kv_head else f.count("num_key_value_heads", heads)
    if kv_heads > heads:
        raise f.wrong("num_key_value_heads", kv_heads, f"at most num_attention_heads = {heads}")
    if f.raw("head_dim") is None and not f.raw("kv_lora_rank") and hidden % heads:
        raise f.wrong("hidden_size", hidden, f"without head_dim, a multiple of num_attention_heads = {heads}")
    head_dim = f.count("head_dim", max(hidden // heads, 1))
    width = f.raw("intermediate_size")
    if width is None and f.raw("num_experts") and f.raw("moe_intermediate_size") is not None:
        intermediate = f.count("moe_intermediate_size")  # every layer is a mixture of experts
    elif width is None and family in ("gpt2", "gpt_bigcode", "falcon", "bloom"):
        intermediate = 4 * hidden
    else:
        intermediate = f.count("intermediate_size")
    full_kv = f.count("num_global_key_value_heads", kv_heads)
    return Shape(
        family=family,
        hidden=hidden,
        heads=heads,
        kv_heads=full_kv,
        head_dim=f.count("global_head_dim", head_dim),
        sliding_kv_heads=kv_heads,
        sliding_head_dim=head_dim,
        intermediate=intermediate,
        f=f,
    )


def _cache(s: Shape, layers: list[Layer], quantization: Quantization | None) -> dict[str, float]:
    """What the layers keep per token and per sequence."""
    f = s.f
    kinds = Counter(layer.mixer if layer.own_cache or layer.mixer == "linear" else "none" for layer in layers)
    base = _dtype_bytes(f)
    fields: dict[str, float] = {
        "n_layers": len(layers),
        "n_kv_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "kv_dtype_bytes": (quantization.kv_bytes if quantization else None) or max(base, 2.0),
        "n_cacheless_layers": kinds["none"],
        "hidden_size": s.hidden,
        "n_q_heads": s.heads,
        "max_context_tokens": context_tokens(f, s.family),
    }
    if kinds["sliding"]:
        fields |= {
            "n_sliding_layers": kinds["sliding"],
            "sliding_window_tokens": window(f),
            "sliding_kv_heads": s.sliding_kv_heads,
            "sliding_head_dim": s.sliding_head_dim,
        }
    if kinds["mla"]:
        fields |= {
            "n_mla_layers": kinds["mla"],
            "kv_lora_rank": f.count("kv_lora_rank"),
            "qk_rope_head_dim": f.count("qk_rope_head_dim"),
            "qk_nope_head_dim": f.count("qk_nope_head_dim"),
            "v_head_dim": f.count("v_head_dim"),
        }
        if topk := f.count("index_topk", 0, least=0):  # the indexer keeps an FP8 key and its scale per token
            fields |= {
                "index_topk_tokens": topk,
                "n_index_heads": f.count("index_n_heads"),
                "index_head_dim": f.count("index_head_dim"),
                "index_bytes_per_token": f.count("index_head_dim") + INDEX_SCALE_BYTES,
            }
    if kinds["linear"]:
        size = linear_sizes(s)
        name = f.text("mamba_ssm_dtype") or f.text("mamba_ssm_cache_dtype")
        if name and name not in STATE_BYTES:
            raise f.wrong("mamba_ssm_dtype", name, ", ".join(STATE_BYTES))
        state = size.heads * size.head_dim * size.state * STATE_BYTES.get(name, max(base, 2.0))
        convolution = size.conv_channels * (size.conv_kernel - 1) * max(base, 2.0)
        fields |= {
            "n_linear_layers": kinds["linear"],
            "linear_state_bytes": state + convolution,
            "n_linear_heads": size.heads,
        }
    return fields


def _weights(s: Shape, layers: list[Layer], quantization: Quantization | None) -> dict[str, float]:
    """Parameters of each component, and the mean bytes per parameter as stored."""
    f, base = s.f, _dtype_bytes(s.f)
    vocab = f.count("vocab_size")
    params: defaultdict[str, float] = defaultdict(float, attention=norm_params(s))  # the final normalisation
    stored: defaultdict[str, float] = defaultdict(float, attention=norm_params(s) * base)
    whole = norm_params(s)  # of attention, on every rank
    parts_of = {layer: layer_parts(s, layer) for layer in set(layers)}
    for i, layer in enumerate(layers):
        for part in parts_of[layer]:
            params[part.component] += part.params
            stored[part.component] += part.params * _stored_bytes(part, i, quantization, base)
            whole += part.params if part.every_rank and part.component == "attention" else 0
    n_moe = sum(layer.ffn in ("moe", "both") for layer in layers)
    experts = f.count("num_experts") if n_moe else 0
    active = f.count("num_experts_per_tok") if n_moe else 0
    if active > experts:
        raise f.wrong("num_experts_per_tok", active, f"at most the number of experts, {experts},")
    groups = f.count("n_group", 0, least=0) if n_moe else 0
    limit = f.count("topk_group", groups, least=0) if groups else 0
    if limit > groups:
        raise f.wrong("topk_group", limit, f"at most the number of groups, {groups},")
    tied = f.flag("tie_word_embeddings", False)
    per_layer = f.count("hidden_size_per_layer_input", 0, least=0)  # Gemma 3n and 4: an embedding for each layer,
    ports = (3 * per_layer + 1) * s.hidden * len(layers) if per_layer else 0  # its projections, gates and norms
    params["dense"] += ports
    stored["dense"] += ports * base
    tables = per_layer * len(layers) * f.count("vocab_size_per_layer_input", vocab)
    head_bias = vocab if s.family in ("phi", "phimoe") else 0
    return {
        "attention_params": params["attention"],
        "replicated_params": whole,
        "dense_params": params["dense"],
        "expert_params": params["expert"] / (n_moe * experts) if n_moe else 0,
        "n_experts": experts,
        "n_active_experts": active,
        "n_expert_groups": groups,
        "n_active_groups": limit,
        "n_moe_layers": n_moe,
        "embedding_params": tables + (0 if tied else vocab * s.hidden),
        "head_params": vocab * s.hidden + head_bias,
        "attention_dtype_bytes": _mean(stored, params, "attention", base),
        "dense_dtype_bytes": _mean(stored, params, "dense", base),
        "expert_dtype_bytes": _mean(stored, params, "expert", base),
        "embedding_dtype_bytes": max(base, 2.0),
        "vocab_size": vocab,
        "ffn_size": _ffn_size(s, layers, active),
    }


def _stored_bytes(part: Part, i: int, quantization: Quantization | None, base: float) -> float:
    if quantization is None or not part.matrix or quantization.keeps(f"model.layers.{i}.{part.module}"):
        return base
    return quantization.weight_bytes


def _mean(stored: Mapping[str, float], params: Mapping[str, float], component: str, base: float) -> float:
    return stored[component] / params[component] if params[component] else base


def _ffn_size(s: Shape, layers: list[Layer], active: int) -> int:
    """Inner width of the widest feed-forward block that a token passes: dense, or all its experts together."""
    dense = s.intermediate if any(layer.ffn in ("dense", "both") for layer in layers) else 0
    return max(dense, active * expert_width(s) if active else 0, 1)


def _dtype_bytes(f: Fields) -> float:
    name = f.text("dtype", "bfloat16").removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise f.wrong("dtype", name, ", ".join(DTYPE_BYTES))
    return DTYPE_BYTES[name]
