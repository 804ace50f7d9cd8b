"""Which kind each decoder layer is: how it mixes tokens, and which feed-forward block follows.

The sources, in the order in which they count: `layers_block_type` or `hybrid_override_pattern` (Nemotron-H),
`attn_type_list` (MiniMax), `layer_types`, `full_attention_interval`, `sliding_window_pattern`, and last
`sliding_window` alone, which then means every layer. A window counts only where `use_sliding_window` is not false.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .fields import Fields

#: What `layer_types` may hold -> the token mixer it means.
MIXERS = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "deepseek_sparse_attention": "full",
}
#: A letter of `hybrid_override_pattern`, a word of `layers_block_type` -> (mixer, feed-forward block).
BLOCKS = {
    "M": ("linear", "none"),
    "*": ("full", "none"),
    "-": ("none", "dense"),
    "E": ("none", "moe"),
    "mamba": ("linear", "none"),
    "attention": ("full", "none"),
    "mlp": ("none", "dense"),
    "moe": ("none", "moe"),
}


class Layer(NamedTuple):
    """One decoder layer: mixer full, sliding, mla, linear or none; ffn dense, moe, both or none."""

    mixer: str
    ffn: str
    own_cache: bool = True  # False: attends to the cache of an earlier layer (Gemma 3n and 4, `num_kv_shared_layers`)


def read_layers(f: Fields, family: str) -> list[Layer]:
    """The layers of the model, in order."""
    n = f.count("num_hidden_layers")
    if blocks := _blocks(f, n):
        return blocks
    mixers = _mixers(f, n, family)
    if f.count("kv_lora_rank", 0, least=0):
        mixers = ["linear" if m == "linear" else "mla" for m in mixers]
    experts = _moe_layers(f, n, family)
    both = f.flag("enable_moe_block", False)
    shared = f.count("num_kv_shared_layers", 0, least=0)
    if shared >= n:
        raise f.wrong("num_kv_shared_layers", shared, f"a whole number below num_hidden_layers = {n}")
    ffn = [("both" if both else "moe") if moe else "dense" for moe in experts]
    return [Layer(m, x, i < n - shared) for i, (m, x) in enumerate(zip(mixers, ffn, strict=True))]


def _blocks(f: Fields, n: int) -> list[Layer] | None:
    """Nemotron-H: each layer is one mixer or one feed-forward block."""
    name = "hybrid_override_pattern" if f.raw("hybrid_override_pattern") is not None else "layers_block_type"
    if name == "hybrid_override_pattern":
        items: list[Any] = list(f.text(name))
        if len(items) != n:
            raise f.wrong(name, f.raw(name), f"a string of {n} letters, one per layer")
    else:
        found = f.items(name, n)
        if found is None:
            return None
        items = found
    for item in items:
        if not isinstance(item, str) or item not in BLOCKS:
            raise f.wrong(name, item, f"{', '.join(BLOCKS)}")
    return [Layer(*BLOCKS[item]) for item in items]


def _mixers(f: Fields, n: int, family: str) -> list[str]:
    if (types := f.items("attn_type_list", n)) is not None:
        for kind in types:
            if kind not in (0, 1):
                raise f.wrong("attn_type_list", kind, "0 (linear) or 1 (full)")
        return ["full" if kind else "linear" for kind in types]
    if (types := f.items("layer_types", n)) is not None:
        for kind in types:
            if not isinstance(kind, str) or kind not in MIXERS:
                raise f.wrong("layer_types", kind, ", ".join(MIXERS))
        mixers = [MIXERS[kind] for kind in types]
        return mixers if _windowed(f, family) else ["full" if m == "sliding" else m for m in mixers]
    if interval := f.count("full_attention_interval", 0, least=0):
        return ["linear" if (i + 1) % interval else "full" for i in range(n)]
    if not _windowed(f, family):
        return ["full"] * n
    if family.startswith("qwen2") or family == "qwen3":  # the first `max_window_layers` layers see everything
        first = f.count("max_window_layers", n, least=0)
        return ["sliding" if i >= first else "full" for i in range(n)]
    return _pattern(f, n)


def _pattern(f: Fields, n: int) -> list[str]:
    pattern = f.raw("sliding_window_pattern")
    if pattern is None:
        return ["sliding"] * n
    if isinstance(pattern, str):
        if not pattern or set(pattern) - {"L", "G"}:
            raise f.wrong("sliding_window_pattern", pattern, "a whole number, or letters L (local) and G (global)")
        return ["sliding" if pattern[i % len(pattern)] == "L" else "full" for i in range(n)]
    every = f.count("sliding_window_pattern")
    return ["sliding" if (i + 1) % every else "full" for i in range(n)]


def _windowed(f: Fields, family: str) -> bool:
    """Whether any layer may slide: there is a window, and it is not switched off."""
    default = not family.startswith(("qwen2", "qwen3"))  # their switch is off unless the config turns it on
    return window(f) > 0 and f.flag("use_sliding_window", default)


def window(f: Fields) -> int:
    """Tokens in the window of a sliding (or chunked) layer; 0: none."""
    return f.count("sliding_window", 0, least=0) or f.count("attention_chunk_size", 0, least=0)


def _moe_layers(f: Fields, n: int, family: str) -> list[bool]:
    if not f.count("num_experts", 0, least=0):
        return [False] * n
    first = f.count("first_k_dense_replace", 0, least=0)
    every = f.count("moe_layer_freq" if isinstance(f.raw("moe_layer_freq"), int) else "decoder_sparse_step", 1)
    if step := f.raw("interleave_moe_layer_step"):  # Llama 4
        every = f.count("interleave_moe_layer_step") if step else 1
    dense = f.items("mlp_only_layers") or []
    if not all(isinstance(i, int) for i in dense):
        raise f.wrong("mlp_only_layers", dense, "a list of layer numbers")
    offset = 0 if family.startswith("deepseek") or first else 1
    return [i >= first and (i + offset) % every == 0 and i not in set(dense) for i in range(n)]
