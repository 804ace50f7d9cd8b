"""Parameters of one decoder layer, matrix by matrix, with the module name under which a checkpoint stores each.

Counted as the reference implementations of the families build them (modeling_*.py of transformers and of the
models' own repositories). The names decide what a quantised checkpoint leaves in BF16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .config_fields import Fields
from .config_layers import Layer

#: Families whose feed-forward blocks have no gate: up and down only.
UNGATED = ("phi", "gpt2", "gpt_bigcode", "gpt_neox", "falcon", "bloom", "starcoder2", "nemotron", "nemotron_h")


class Part(NamedTuple):
    """Parameters that are stored together. `module` is relative to the layer; vectors are never quantised."""

    component: str  # attention, dense or expert
    module: str
    params: int
    matrix: bool = True
    every_rank: bool = False  # whole on every tensor-parallel rank


@dataclass(frozen=True)
class Shape:
    """Sizes and family habits that the counts need."""

    family: str
    hidden: int
    heads: int
    kv_heads: int  # of full layers
    head_dim: int  # of full layers
    sliding_kv_heads: int
    sliding_head_dim: int
    intermediate: int
    f: Fields


def layer_parts(s: Shape, layer: Layer) -> list[Part]:
    """All parameters of one layer."""
    mixer = {"full": _attention, "sliding": _attention, "mla": _mla, "linear": _linear, "none": lambda s, m: []}
    parts = mixer[layer.mixer](s, layer.mixer)
    if layer.ffn in ("dense", "both"):
        parts += _dense(s, layer)
    if layer.ffn in ("moe", "both"):
        parts += _moe(s)
    return [*parts, _vector("attention", "norm", _norms(s, layer) * norm_params(s))]


def norm_params(s: Shape) -> int:
    """Parameters of one normalisation: a weight, and a bias where it is a LayerNorm."""
    return s.hidden * (2 if s.family in ("phi", "phimoe", "nemotron", "gpt2", "starcoder2") else 1)


def _norms(s: Shape, layer: Layer) -> int:
    if "none" in (layer.mixer, layer.ffn) or s.family in ("phi", "cohere", "cohere2"):
        return 1
    if s.family.startswith(("gemma2", "gemma3", "gemma4")):
        return 7 if layer.ffn == "both" else 4
    return 4 if s.family == "glm4" else 2


def _attention(s: Shape, mixer: str) -> list[Part]:
    sliding = mixer == "sliding"
    kv_heads, d = (s.sliding_kv_heads, s.sliding_head_dim) if sliding else (s.kv_heads, s.head_dim)
    q, kv, h, f = s.heads * d, kv_heads * d, s.hidden, s.f
    gate = 2 if f.flag("attn_output_gate", s.family == "qwen3_next") else 1  # the query projection also makes a gate
    k_is_v = f.flag("attention_k_eq_v", False) and not sliding  # one projection for both (Gemma 4)
    parts = [
        Part("attention", "self_attn.q_proj", h * q * gate),
        Part("attention", "self_attn.k_proj", h * kv),
        Part("attention", "self_attn.v_proj", 0 if k_is_v else h * kv),
        Part("attention", "self_attn.o_proj", q * h),
    ]
    qkv_bias, o_bias = _biases(s)
    extra = qkv_bias * (q * gate + (1 if k_is_v else 2) * kv) + o_bias * h
    norm = _qk_norm(s)
    extra += {"head": 2 * d, "layer": q + kv, "": 0}[norm]
    extra += s.heads if s.family == "gpt_oss" else 0  # attention sinks
    return [*parts, _vector("attention", "self_attn.bias", extra)]


def _biases(s: Shape) -> tuple[bool, bool]:
    """Whether the q, k, v projections and the output projection have biases."""
    if s.family.startswith("qwen2"):
        return s.f.flag("qkv_bias", True), False
    if s.family in ("phi", "gpt2", "starcoder2"):
        return True, True
    bias = s.f.flag("attention_bias", s.family in ("gpt_oss", "phimoe"))
    return bias, bias and not s.family.startswith("glm")


def _qk_norm(s: Shape) -> str:
    """Normalisation of queries and keys: per head, over the whole layer, or none."""
    if s.family.startswith(("qwen3", "gemma3", "gemma4")):
        return "head"
    if s.family == "minimax_m2":
        return "layer" if s.f.flag("use_qk_norm", True) else ""
    if s.family in ("olmo2", "olmo3"):
        return "layer"
    return "head" if s.f.flag("use_qk_norm", False) else ""


def _mla(s: Shape, mixer: str) -> list[Part]:
    """Multi-head latent attention; the down-projections and the indexer are whole on every rank."""
    f, h = s.f, s.hidden
    rank, rope = f.count("kv_lora_rank"), f.count("qk_rope_head_dim")
    nope, v, q_rank = f.count("qk_nope_head_dim"), f.count("v_head_dim"), f.count("q_lora_rank", 0, least=0)
    q = s.heads * (nope + rope)
    parts = [
        Part("attention", "self_attn.kv_a_proj_with_mqa", h * (rank + rope), every_rank=True),
        Part("attention", "self_attn.kv_b_proj", rank * s.heads * (nope + v)),
        Part("attention", "self_attn.o_proj", s.heads * v * h),
        _vector("attention", "self_attn.kv_a_layernorm", rank + q_rank),
    ]
    if q_rank:
        parts += [
            Part("attention", "self_attn.q_a_proj", h * q_rank, every_rank=True),
            Part("attention", "self_attn.q_b_proj", q_rank * q),
        ]
    else:
        parts.append(Part("attention", "self_attn.q_proj", h * q))
    if topk := f.count("index_topk", 0, least=0):
        heads, d = f.count("index_n_heads"), f.count("index_head_dim")
        if not q_rank:
            raise f.wrong("q_lora_rank", None, f"with index_topk = {topk}, a whole number of at least 1")
        parts += [
            Part("attention", "self_attn.indexer.wq_b", q_rank * heads * d, every_rank=True),
            Part("attention", "self_attn.indexer.wk", h * d, every_rank=True),
            Part("attention", "self_attn.indexer.weights_proj", h * heads, matrix=False, every_rank=True),
            _vector("attention", "self_attn.indexer.k_norm", 2 * d),
        ]
    return parts


def _linear(s: Shape, mixer: str) -> list[Part]:
    """Gated delta net (Qwen3-Next, Qwen3.5), Mamba-2 (Nemotron-H), or lightning attention (MiniMax-Text-01)."""
    h, size = s.hidden, linear_sizes(s)
    if size.kind == "gated_delta_net":
        keys, values = size.groups * size.state, size.heads * size.head_dim
        return [
            Part("attention", "linear_attn.in_proj_qkvz", h * (2 * keys + 2 * values)),
            Part("attention", "linear_attn.in_proj_ba", h * 2 * size.heads),
            Part("attention", "linear_attn.out_proj", values * h),
            Part("attention", "linear_attn.conv1d", size.conv_channels * size.conv_kernel, matrix=False),
            _vector("attention", "linear_attn.norm", 2 * size.heads + size.head_dim),
        ]
    inner = size.heads * size.head_dim
    if size.kind == "lightning":
        return [
            Part("attention", "self_attn.qkv_proj", h * 3 * inner),
            Part("attention", "self_attn.output_gate", h * inner),
            Part("attention", "self_attn.out_proj", inner * h),
            _vector("attention", "self_attn.norm", inner),
        ]
    bias = int(s.f.flag("use_conv_bias", True))
    projections = int(s.f.flag("mamba_proj_bias", False)) * (inner + size.conv_channels + size.heads + h)
    return [
        Part("attention", "mixer.in_proj", h * (inner + size.conv_channels + size.heads)),
        Part("attention", "mixer.out_proj", inner * h),
        Part("attention", "mixer.conv1d", size.conv_channels * (size.conv_kernel + bias), matrix=False),
        _vector("attention", "mixer.norm", inner + 3 * size.heads + projections),
    ]


class LinearSizes(NamedTuple):
    """Sizes of a layer with a constant state of heads x head_dim x state numbers."""

    kind: str
    heads: int
    head_dim: int
    state: int
    groups: int
    conv_kernel: int
    conv_channels: int


def linear_sizes(s: Shape) -> LinearSizes:
    """What kind of linear layer the config describes, and its sizes."""
    f = s.f
    if f.raw("linear_num_value_heads") is not None:
        heads, d_v = f.count("linear_num_value_heads"), f.count("linear_value_head_dim")
        groups, d_k = f.count("linear_num_key_heads"), f.count("linear_key_head_dim")
        channels = 2 * groups * d_k + heads * d_v
        return LinearSizes("gated_delta_net", heads, d_v, d_k, groups, f.count("linear_conv_kernel_dim"), channels)
    if f.raw("attn_type_list") is not None:
        return LinearSizes("lightning", s.heads, s.head_dim, s.head_dim, s.heads, 1, 0)
    heads, d = f.count("mamba_num_heads"), f.count("mamba_head_dim")
    groups, state, kernel = f.count("n_groups"), f.count("ssm_state_size"), f.count("conv_kernel")
    return LinearSizes("mamba2", heads, d, state, groups, kernel, heads * d + 2 * groups * state)


def _dense(s: Shape, layer: Layer) -> list[Part]:
    width = s.intermediate
    if layer.ffn == "dense" and s.f.raw("intermediate_size_mlp") is not None:  # Llama 4
        width = s.f.count("intermediate_size_mlp")
    if s.f.flag("use_double_wide_mlp", False) and not layer.own_cache:  # Gemma 4's small models
        width *= 2
    n = _matrices(s)
    bias = s.f.flag("mlp_bias", s.family in ("phi", "gpt2", "starcoder2"))
    module = "mixer" if layer.mixer == "none" else "mlp"
    parts = [Part("dense", f"{module}.up_proj", (n - 1) * s.hidden * width)]
    parts.append(Part("dense", f"{module}.down_proj", width * s.hidden))
    return [*parts, _vector("dense", f"{module}.bias", bias * ((n - 1) * width + s.hidden))]


def _matrices(s: Shape) -> int:
    """Matrices of a feed-forward block: gate, up and down, or up and down only."""
    return 2 if s.family in UNGATED or s.f.text("mlp_hidden_act") == "relu2" else 3


def expert_width(s: Shape) -> int:
    """Inner width of one routed expert."""
    return s.f.count("moe_intermediate_size", s.intermediate)


def _moe(s: Shape) -> list[Part]:
    f, h, width, n = s.f, s.hidden, expert_width(s), _matrices(s)
    experts, latent = f.count("num_experts"), f.count("moe_latent_size", 0, least=0)
    ports = latent or h  # experts may work in a smaller space, with one pair of projections per layer
    parts = [
        Part("expert", "mlp.experts.0.up_proj", experts * (n - 1) * ports * width),
        Part("expert", "mlp.experts.0.down_proj", experts * width * ports),
        Part("dense", "mlp.gate", h * experts, matrix=False, every_rank=True),
    ]
    if latent:
        parts.append(Part("dense", "mlp.latent_proj", 2 * h * latent))
    if s.family == "gpt_oss":
        parts.append(_vector("expert", "mlp.experts.bias", experts * ((n - 1) * width + ports)))
        parts.append(_vector("dense", "mlp.gate.bias", experts))
    if _routing_bias(s):
        parts.append(_vector("dense", "mlp.gate.e_score_correction_bias", experts))
    if s.family.startswith("gemma4"):
        parts.append(_vector("dense", "mlp.gate.scale", h + experts))
    if shared := _shared_width(s, width):
        parts.append(Part("dense", "mlp.shared_experts.up_proj", (n - 1) * h * shared))
        parts.append(Part("dense", "mlp.shared_experts.down_proj", shared * h))
    if f.count("shared_expert_intermediate_size", 0, least=0):  # Qwen: a gate for the shared expert
        parts.append(Part("dense", "mlp.shared_expert_gate", h, matrix=False, every_rank=True))
    return parts


def _routing_bias(s: Shape) -> bool:
    """A learnt offset per expert (loss-free balancing)."""
    known = ("deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa",
             "nemotron_h")  # fmt: skip
    if s.family == "minimax_m2":
        return s.f.flag("use_routing_bias", True)
    return s.family in known or s.f.text("topk_method") == "noaux_tc"


def _shared_width(s: Shape, width: int) -> int:
    """Inner width of all shared experts of a layer together."""
    f = s.f
    for name in ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"):
        if f.raw(name) is not None:
            count = f.count("n_shared_experts", 1, least=0) if name.startswith("moe") else 1
            return count * f.count(name, 0, least=0)
    return width * (1 if s.family.startswith("llama4") else f.count("n_shared_experts", 0, least=0))


def _vector(component: str, module: str, params: int) -> Part:
    return Part(component, module, int(params), matrix=False, every_rank=True)
