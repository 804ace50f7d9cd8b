"""Parameters of one decoder layer, matrix by matrix, with the module name under which a checkpoint stores each.

Counted as the reference implementations of the families build them (modeling_*.py of transformers and of the
models' own repositories). The names decide what a quantised checkpoint leaves in BF16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .ffn import dense, mixture
from .layers import Layer
from .mixers import attention, latent_attention, linear_attention
from .shape import Part, Shape, vector

MIXERS: dict[str, Callable[[Shape], list[Part]]] = {
    "full": attention,
    "sliding": partial(attention, sliding=True),
    "mla": latent_attention,
    "linear": linear_attention,
}


def layer_parts(s: Shape, layer: Layer) -> list[Part]:
    """All parameters of one layer."""
    parts = MIXERS[layer.mixer](s) if layer.mixer in MIXERS else []
    if layer.ffn in ("dense", "both"):
        parts += dense(s, layer)
    if layer.ffn in ("moe", "both"):
        parts += mixture(s)
    return [*parts, vector("attention", "norm", _norms(s, layer) * norm_params(s))]


def norm_params(s: Shape) -> int:
    """Parameters of one normalisation: a weight, and a bias where it is a LayerNorm."""
    return s.hidden * (2 if s.family in ("phi", "phimoe", "nemotron", "gpt2", "starcoder2") else 1)


def _norms(s: Shape, layer: Layer) -> int:
    if "none" in (layer.mixer, layer.ffn) or s.family in ("phi", "cohere", "cohere2"):
        return 1
    if s.family.startswith(("gemma2", "gemma3", "gemma4")):
        return 7 if layer.ffn == "both" else 4
    return 4 if s.family == "glm4" else 2
