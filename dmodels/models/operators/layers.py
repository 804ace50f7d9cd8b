"""The operators of a decoder on one GPU, read from its record: which kernels run, on what shapes, in which format.

Projections and feed-forward blocks are two products each, of the mean width over the layers; what a model has of
unlike layers (dense first layers, shared experts) is spread evenly. A format is a list of names, best first: the first
that an engine was measured with is the one that it runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmodels.core.hardware import Parallel
from dmodels.core.model import Model
from dmodels.core.records import Floats

#: Layers of one kind attend with the same kernel, so one stands for all; tokens of a step at which laws are asked.
TOKENS: Floats = np.exp2(np.arange(15.0))
#: Sequences that decode, and their contexts.
SEQUENCES, CONTEXTS = (axis.ravel() for axis in np.meshgrid([1.0, 4.0, 16.0, 64.0, 256.0], [1024.0, 4096.0, 9000.0]))
#: Prompts.
PROMPTS: Floats = np.exp2(np.arange(9.0, 15.0))
#: Tokens and the shards of an instance's matrices and experts at which their laws are asked: the bytes of weights do
#: not grow with the tokens, so only narrower ones tell the time that bytes take from a launch's, and FLOPs from passes
#: over the tokens.
SHARD_TOKENS, SHARDS = (axis.ravel() for axis in np.meshgrid(TOKENS, [1.0, 2.0, 4.0]))
#: How unevenly tokens choose experts: the power law of exponent 1.01 that engines are benchmarked with.
SKEW = 1.0


#: Fields of a law, as numbers or at several shapes.
Shape = dict[str, Any]


class LayerKernels(NamedTuple):
    """Operators of one kind at several shapes; their seconds are added up over `layer_count` layers."""

    part: str  # of the step: "matrix", "expert", "decode", "prompt" or "collective"
    kind: str
    shape: Shape
    formats: tuple[str, ...]
    layer_count: float


def kernels(model: Model, parallel: Parallel, most_ranks: float = np.inf) -> list[LayerKernels]:
    """What one GPU runs for `TOKENS` of its own, and the attention of `SEQUENCES` and of one of `PROMPTS`.

    Matrices and experts are asked at every one of `SHARD_TOKENS` and `SHARDS`.

    most_ranks  of a collective, beyond which its law is not asked
    """
    m = {name: float(np.asarray(getattr(model, name))) for name in model.__dataclass_fields__}
    tp, dp, ep = (float(np.asarray(getattr(parallel, name))) for name in ("tp", "dp", "ep"))
    return [*_matrices(m, tp), *_experts(m, tp, dp, ep), *_attention(m, tp), *_collectives(m, min(tp, most_ranks))]


def formats(dtype_bytes: float, experts: bool = False) -> tuple[str, ...]:
    """Names of the formats that store a parameter in so many bytes.

    >>> formats(2.0), formats(0.5625)
    (('bfloat16',), ('nvfp4',))
    """
    for least, names in (
        (1.5, ("bfloat16",)),
        (1.0 + 1e-9, ("fp8_block", "fp8")),
        (0.75, ("fp8", "fp8_block")),
        (0.55, ("nvfp4",)),
        (0.525, ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4") if experts else ("nvfp4",)),
    ):
        if dtype_bytes > least:
            return names
    return ("int4_wo",)


def _matrices(m: dict[str, float], tp: float) -> list[LayerKernels]:
    layers, hidden, ranks = m["n_layers"], m["hidden_size"], tp * SHARDS
    width = m["attention_params"] / layers / hidden
    values = m["n_q_heads"] * (m["v_head_dim"] if m["n_mla_layers"] > 0 else m["head_dim"])
    out = min(max(values, 1.0), 0.7 * width)
    inner = m["dense_params"] / layers / hidden / 3.0
    products = [
        (m["attention_dtype_bytes"], np.maximum((width - out) / ranks, 64.0), hidden),
        (m["attention_dtype_bytes"], hidden, np.maximum(out / ranks, 64.0)),
    ]
    if 3.0 * inner > 0.02 * width:  # more than routers
        products += [
            (m["dense_dtype_bytes"], np.maximum(2.0 * inner / ranks, 32.0), hidden),
            (m["dense_dtype_bytes"], hidden, np.maximum(inner / ranks, 32.0)),
        ]
    return [
        LayerKernels("matrix", "gemm", {"m": SHARD_TOKENS, "n": n, "k": k}, formats(size), layers)
        for size, n, k in products
    ]


def _experts(m: dict[str, float], tp: float, dp: float, ep: float) -> list[LayerKernels]:
    if m["n_moe_layers"] == 0:
        return []
    shape: Shape = {
        "num_tokens": SHARD_TOKENS,
        "hidden_size": m["hidden_size"],
        "inter_size": m["expert_params"] / 3.0 / m["hidden_size"],
        "topk": m["n_active_experts"],
        "num_experts": m["n_experts"],
        "moe_tp_size": tp * dp / ep * SHARDS,
        "moe_ep_size": ep,
        "matrices": 3.0,
        "skew": SKEW,
    }
    return [LayerKernels("expert", "moe", shape, formats(m["expert_dtype_bytes"], True), m["n_moe_layers"])]


def _attention(m: dict[str, float], tp: float) -> list[LayerKernels]:
    """One layer with full attention, or with a latent (MLA); sliding and linear layers are taken as efficient."""
    cache = "bfloat16+fp8" if m["kv_dtype_bytes"] < 1.5 else "bfloat16+bfloat16"
    names, heads = (cache, "bfloat16+bfloat16"), max(m["n_q_heads"] / tp, 1.0)
    kv_heads = max((m["n_kv_heads"] or m["sliding_kv_heads"]) / tp, 1.0)
    dim = m["head_dim"] or m["sliding_head_dim"]
    common: Shape = {
        "window": 0.0,
        "causal": 1.0,
        "cache_bytes": m["kv_dtype_bytes"],
        "num_heads": heads,
    }
    decode = common | {"batch_size": SEQUENCES, "isl": 1.0, "prefix": CONTEXTS}
    prompt = common | {"batch_size": 1.0, "isl": PROMPTS, "prefix": 0.0, "shared_latent": 0.0}
    if m["index_topk_tokens"] > 0:
        return _sparse_attention(m, heads)
    if m["n_mla_layers"] > 0:
        rank, rope = m["kv_lora_rank"], m["qk_rope_head_dim"]
        decode |= {"num_key_value_heads": 1.0, "qk_dim": rank + rope, "v_dim": rank, "shared_latent": 1.0}
        prompt |= {
            "num_key_value_heads": heads,
            "qk_dim": m["qk_nope_head_dim"] + rope,
            "v_dim": m["v_head_dim"],
        }
        return [
            LayerKernels("decode", "generation_mla", decode, names, 1.0),
            LayerKernels("prompt", "context_mla", prompt, names, 1.0),
        ]
    decode |= {"num_key_value_heads": kv_heads, "qk_dim": dim, "v_dim": dim, "shared_latent": 0.0}
    prompt |= {"num_key_value_heads": kv_heads, "qk_dim": dim, "v_dim": dim}
    return [
        LayerKernels("decode", "generation_attention", decode, names, 1.0),
        LayerKernels("prompt", "context_attention", prompt, names, 1.0),
    ]


def _sparse_attention(m: dict[str, float], heads: float) -> list[LayerKernels]:
    """The indexer, and latent attention to what it selects: an attention block without its projections."""
    rank, rope = m["kv_lora_rank"], m["qk_rope_head_dim"]
    held = m["latent_bytes_per_token"] or (rank + rope) * m["kv_dtype_bytes"]
    common: Shape = {
        "num_heads": heads,
        "token_weights": 1.0,  # the products of weights are `_matrices`
        "head_weights": 0.0,
        "qk_dim": rank + rope,
        "v_dim": rank,
        "entry_bytes": held,
        "top_k": m["index_topk_tokens"],
        "index_dim": m["n_index_heads"] * m["index_head_dim"],
        "compress_ratio": 1.0,
    }
    caches = ("fp8", "bfloat16") if held < (rank + rope) * 1.5 else ("bfloat16", "fp8")
    names = tuple(f"{product}+{cache}" for cache in caches for product in ("fp8_block", "bfloat16"))
    decode = common | {"batch_size": SEQUENCES, "isl": 1.0, "prefix": CONTEXTS}
    prompt = common | {"batch_size": 1.0, "isl": PROMPTS, "prefix": 0.0}
    return [
        LayerKernels("decode", "dsa_generation_module", decode, names, 1.0),
        LayerKernels("prompt", "dsa_context_module", prompt, names, 1.0),
    ]


def _collectives(m: dict[str, float], ranks: float) -> list[LayerKernels]:
    if ranks == 1:
        return []
    shape: Shape = {"message_bytes": 2.0 * m["hidden_size"] * TOKENS, "ranks": ranks, "sends": 2.0}
    return [LayerKernels("collective", "all_reduce", shape, ("bfloat16",), 1.0)]
