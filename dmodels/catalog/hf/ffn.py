"""Parameters of the feed-forward blocks: dense, and mixtures of experts with shared experts and routers."""

from __future__ import annotations

from .layers import Layer
from .shape import Part, Shape, vector

#: Families whose feed-forward blocks have no gate: up and down only.
UNGATED = ("phi", "gpt2", "gpt_bigcode", "gpt_neox", "falcon", "bloom", "starcoder2", "nemotron", "nemotron_h")


def dense(s: Shape, layer: Layer) -> list[Part]:
    """One feed-forward block that every token passes."""
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
    return [*parts, vector("dense", f"{module}.bias", bias * ((n - 1) * width + s.hidden))]


def _matrices(s: Shape) -> int:
    """Matrices of a feed-forward block: gate, up and down, or up and down only."""
    return 2 if s.family in UNGATED or s.f.text("mlp_hidden_act") == "relu2" else 3


def expert_width(s: Shape) -> int:
    """Inner width of one routed expert."""
    return s.f.count("moe_intermediate_size", s.intermediate)


def mixture(s: Shape) -> list[Part]:
    """Routed experts with their router, and the shared experts beside them."""
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
        parts.append(vector("expert", "mlp.experts.bias", experts * ((n - 1) * width + ports)))
        parts.append(vector("dense", "mlp.gate.bias", experts))
    if _routing_bias(s):
        parts.append(vector("dense", "mlp.gate.e_score_correction_bias", experts))
    if s.family.startswith("gemma4"):
        parts.append(vector("dense", "mlp.gate.scale", h + experts))
    if shared := _shared_width(s, width):
        parts.append(Part("dense", "mlp.shared_experts.up_proj", (n - 1) * h * shared))
        parts.append(Part("dense", "mlp.shared_experts.down_proj", shared * h))
    if f.count("shared_expert_intermediate_size", 0, least=0):  # Qwen: a gate for the shared expert
        parts.append(Part("dense", "mlp.shared_expert_gate", h, matrix=False, every_rank=True))
    return parts


def _routing_bias(s: Shape) -> bool:
    """A learnt offset per expert (loss-free balancing)."""
    known = (
        "deepseek_v3",
        "deepseek_v32",
        "kimi_k2",
        "kimi_k25",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "nemotron_h",
    )
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
