"""Parameters of the token mixers: attention, multi-head latent attention, linear attention and state space."""

from __future__ import annotations

from .shape import Part, Shape, linear_sizes, vector


def attention(s: Shape, sliding: bool = False) -> list[Part]:
    """Multi-head or grouped-query attention, full or over a window, whose heads may have sizes of their own."""
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
    return [*parts, vector("attention", "self_attn.bias", extra)]


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


def latent_attention(s: Shape) -> list[Part]:
    """Multi-head latent attention; the down-projections and the indexer are whole on every rank."""
    f, h = s.f, s.hidden
    rank, rope = f.count("kv_lora_rank"), f.count("qk_rope_head_dim")
    nope, v, q_rank = f.count("qk_nope_head_dim"), f.count("v_head_dim"), f.count("q_lora_rank", 0, least=0)
    q = s.heads * (nope + rope)
    parts = [
        Part("attention", "self_attn.kv_a_proj_with_mqa", h * (rank + rope), every_rank=True),
        Part("attention", "self_attn.kv_b_proj", rank * s.heads * (nope + v)),
        Part("attention", "self_attn.o_proj", s.heads * v * h),
        vector("attention", "self_attn.kv_a_layernorm", rank + q_rank),
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
            vector("attention", "self_attn.indexer.k_norm", 2 * d),
        ]
    return parts


def linear_attention(s: Shape) -> list[Part]:
    """Gated delta net (Qwen3-Next, Qwen3.5), Mamba-2 (Nemotron-H), or lightning attention (MiniMax-Text-01)."""
    h, size = s.hidden, linear_sizes(s)
    if size.kind == "gated_delta_net":
        keys, values = size.groups * size.state, size.heads * size.head_dim
        return [
            Part("attention", "linear_attn.in_proj_qkvz", h * (2 * keys + 2 * values)),
            Part("attention", "linear_attn.in_proj_ba", h * 2 * size.heads),
            Part("attention", "linear_attn.out_proj", values * h),
            Part("attention", "linear_attn.conv1d", size.conv_channels * size.conv_kernel, matrix=False),
            vector("attention", "linear_attn.norm", 2 * size.heads + size.head_dim),
        ]
    inner = size.heads * size.head_dim
    if size.kind == "lightning":
        return [
            Part("attention", "self_attn.qkv_proj", h * 3 * inner),
            Part("attention", "self_attn.output_gate", h * inner),
            Part("attention", "self_attn.out_proj", inner * h),
            vector("attention", "self_attn.norm", inner),
        ]
    bias = int(s.f.flag("use_conv_bias", True))
    projections = int(s.f.flag("mamba_proj_bias", False)) * (inner + size.conv_channels + size.heads + h)
    return [
        Part("attention", "mixer.in_proj", h * (inner + size.conv_channels + size.heads)),
        Part("attention", "mixer.out_proj", inner * h),
        Part("attention", "mixer.conv1d", size.conv_channels * (size.conv_kernel + bias), matrix=False),
        vector("attention", "mixer.norm", inner + 3 * size.heads + projections),
    ]
