"""From a table's columns to the fields of its operator's shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dmodels.catalog.expert_tiles import tuned_shapes
from dmodels.models.operators import LAWS
from dmodels.models.operators.choice import feature, listed
from dmodels.models.operators.collective import SENDS
from dmodels.models.operators.laws import BLOCKS as BLOCK_KINDS

from .blocks import BLOCKS, Block, block

Columns = dict[str, Any]
Rows = tuple[str, dict[str, Any]]

#: Experts without a gate (two matrices): (hidden, expert width) of the Nemotron-H families, squared ReLU.
NOT_GATED = {(2688, 1856), (4096, 2688), (1024, 2688), (8192, 5120), (2048, 5120)}
SKEW = {"balanced": 0.0, "power_law_1.01": 1.0, "power_law_1.2": 2.0}
#: Kernels of experts that are compiled by Triton with the tiles of `_expert_kernel`.
SGLANG_TRITON = "sglang_fused_moe_triton"
TRITON_EXPERTS = (
    SGLANG_TRITON,
    "vllm_fused_moe",
    "vllm_fp8moe_triton_tritonexperts",
    "vllm_unquantizedfusedmoe_triton_tritonexperts",
)
ALIGNED = 16
#: (hidden, expert width) of models whose EP was measured with a SGLang that computed all pairs of every token that has
#: one on the rank: 2 ranks take as long as 1.
WHOLE_TOKENS = {(4096, 14336), (6144, 16384), (2816, 704)}
#: By which these are told apart, beside what is tuned.
TOKENS_PER_EXPERT, WIDTH_REST = "num_tokens*moe_ep_size/num_experts", f"inter_size/moe_tp_size%{ALIGNED}"
GENERATION = "generation_attention"
#: Query heads of a KV head up to which TensorRT-LLM's XQA kernels decode; beyond, measured times jump 3 to 30 times.
XQA_GROUP = 32.0
FLASH_2 = ("vllm_flash_attn_fa2", "vllm_flash_attn")
#: MLA of DeepSeek: query-key and value dimensions of the expanded heads, and of the latent.
EXPANDED, LATENT = (192.0, 128.0), (576.0, 512.0)

#: Sizes of a linear-attention layer, by table.
_DELTA = ("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")
RECURRENT = {"gdn": _DELTA, "kda": _DELTA, "mamba2": ("d_state", "nheads", "head_dim", "n_groups")}
COLLECTIVES = {"alltoall": "all_to_all"}

TEXT = {
    "kernel_source",
    "gemm_dtype",
    "moe_dtype",
    "attn_dtype",
    "kv_cache_dtype",
    "mla_dtype",
    "distribution",
    "model",
    "gemm_type",
    "phase",
    "op_name",
    "nccl_dtype",
    "allreduce_dtype",
}
_ATTENTION = ("kernel_source", "batch_size", "isl", "num_heads", "attn_dtype", "head_dim", "latency")
_MLA = ("kernel_source", "mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "isl", "step", "latency")
NEEDED: dict[str, tuple[str, ...]] = {
    "gemm": ("kernel_source", "gemm_dtype", "m", "n", "k", "latency"),
    "moe": (
        "kernel_source",
        "moe_dtype",
        "num_tokens",
        "hidden_size",
        "inter_size",
        "topk",
        "num_experts",
        "moe_tp_size",
        "moe_ep_size",
        "distribution",
        "latency",
    ),
    "context_attention": (*_ATTENTION, "num_key_value_heads", "kv_cache_dtype", "step"),
    "generation_attention": (*_ATTENTION, "num_key_value_heads", "kv_cache_dtype", "step"),
    "encoder_attention": _ATTENTION,
    "context_mla": _MLA,
    "generation_mla": _MLA,
    **{
        f"{name}_{phase}_module": (*_MLA, "model", "gemm_type")
        for name in BLOCK_KINDS
        for phase in ("context", "generation")
    },
    **{
        name: ("kernel_source", "phase", "batch_size", "seq_len", *sizes, "latency")
        for name, sizes in RECURRENT.items()
    },
    **{
        name: ("kernel_source", "op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
        for name in ("nccl", "oneccl")
    },
    "custom_allreduce": ("kernel_source", "allreduce_dtype", "num_gpus", "message_size", "latency"),
}


def required(kind: str) -> list[tuple[str, bool]]:
    """(column, whether it holds numbers) that a table of that kind must have."""
    return [(name, name not in TEXT) for name in NEEDED[kind]]


def _gemm(t: Columns) -> Iterator[Rows]:
    yield "gemm", {"m": t["m"], "n": t["n"], "k": t["k"], "dtype": t["gemm_dtype"], **_common(t)}


def _moe(t: Columns) -> Iterator[Rows]:
    plain = _among(t, NOT_GATED)
    skew = np.array([SKEW.get(name, np.nan) for name in t["distribution"]])
    known = np.isfinite(skew)
    rows = {name: t[name] for name in LAWS["moe"].fields if name in t}
    rows |= {"matrices": np.where(plain, 2.0, 3.0), "skew": skew, "dtype": t["moe_dtype"], **_common(t)}
    rows["kernel"] = _expert_kernel(t)
    yield "moe", {name: np.asarray(values)[known] for name, values in rows.items()}


def _among(t: Columns, sizes: set[tuple[int, int]]) -> np.ndarray:
    """Whether (hidden, expert width) is one of these."""
    pairs = zip(t["hidden_size"].astype(int), t["inter_size"].astype(int), strict=True)
    return np.array([pair in sizes for pair in pairs], bool)


def _expert_kernel(t: Columns) -> np.ndarray:
    """The kernel that ran, where Triton compiles several by one name.

    A width that is no multiple of `ALIGNED` elements is loaded piecemeal. An (experts, width) of a rank that its engine
    lists has tiles of its own; others have the default, which in SGLang's 16-bit kernel is 16 x 32 up to as many tokens
    as experts and 64 x 64 beyond (sglang, fused_moe_triton_config.py, `get_default_config`). `WHOLE_TOKENS` are apart.
    """
    names, dtypes = np.asarray(t["kernel_source"]).astype(str), np.asarray(t["moe_dtype"]).astype(str)
    tiles = np.full(len(names), "", object)
    for dtype in np.unique(dtypes):
        tiles[listed(t, tuned_shapes(t["engine"], t["gpu"], str(dtype))) & (dtypes == dtype)] = " tuned"
    sglang = names == SGLANG_TRITON
    tiles[sglang & (t["moe_ep_size"] > 1) & _among(t, WHOLE_TOKENS)] = " whole tokens"
    tiles[sglang & (feature(t, TOKENS_PER_EXPERT) <= 1.0) & (dtypes == "bfloat16")] = " few tokens"
    tiles[feature(t, WIDTH_REST) > 0] = " unaligned"
    return np.where(np.isin(names, TRITON_EXPERTS), np.char.add(names, tiles.astype(str)), names)


def _attention(kind: str) -> Callable[[Columns], Iterator[Rows]]:
    def reader(t: Columns) -> Iterator[Rows]:
        heads, dim = t["num_heads"], t["head_dim"]
        zero = np.zeros(len(heads))
        encoder = kind == "encoder_attention"
        cache = t["attn_dtype"] if encoder else t["kv_cache_dtype"]
        # a table that writes 0 KV heads means as many as query heads
        kv = heads if encoder else np.where(t["num_key_value_heads"] > 0, t["num_key_value_heads"], heads)
        window = np.asarray(t.get("window_size", zero), np.float64)
        yield (
            kind,
            {
                "batch_size": t["batch_size"],
                "isl": t["isl"],
                "prefix": zero if encoder else t["step"],
                "num_heads": heads,
                "num_key_value_heads": kv,
                "qk_dim": dim,
                "v_dim": dim,
                "window": np.where(np.isfinite(window), window, 0.0),
                "causal": zero + (0.0 if encoder else 1.0),
                "cache_bytes": _cache_bytes(cache),
                "shared_latent": zero,
                "dtype": _pair(t["attn_dtype"], cache),
                **_common(t),
                "kernel": _attention_kernel(kind, t, heads / kv, window),
            },
        )

    return reader


def _attention_kernel(kind: str, t: Columns, group: Any, window: Any) -> np.ndarray:
    """The kernel that ran, where a table names several by one name.

    Triton compiles one per head dimension, and with a window another. TensorRT-LLM (`torch_flow`) decodes with XQA
    kernels from 2 to `XQA_GROUP` query heads of a KV head; masked multi-head attention, which reads the cache for each
    of them, serves the rest (tensorrt_llm, decoderXQARunner): bound by memory for one head, by arithmetic for many, it
    counts as two. FlashAttention-2 puts the heads of a KV head into one tile but where there is a window
    (flash_api.cpp, `seqlenq_ngroups_swapped`).
    """
    names = np.asarray(t["kernel_source"]).astype(str)
    windowed = np.where(np.asarray(window) > 0, np.char.add(names, " windowed"), names)
    if kind == GENERATION:
        masked = np.where(group > XQA_GROUP, " masked", np.where(group <= 1.0, " masked, one head", ""))
        named = np.where(names == "torch_flow", np.char.add(names, masked), names)
        return np.where(np.isin(names, FLASH_2), windowed, named)
    sizes = np.char.add(" ", np.asarray(t["head_dim"]).astype(int).astype(str))
    return np.where(names == "triton", np.char.add(windowed, sizes), names)


def _mla(kind: str) -> Callable[[Columns], Iterator[Rows]]:
    def reader(t: Columns) -> Iterator[Rows]:
        zero = np.zeros(len(t["num_heads"]))
        latent = kind == "generation_mla"
        qk, v = LATENT if latent else EXPANDED
        yield (
            kind,
            {
                "batch_size": t["batch_size"],
                "isl": t["isl"],
                "prefix": t["step"],
                "num_heads": t["num_heads"],
                "num_key_value_heads": zero + 1.0 if latent else t["num_heads"],
                "qk_dim": zero + qk,
                "v_dim": zero + v,
                "window": zero,
                "causal": zero + 1.0,
                "cache_bytes": _cache_bytes(t["kv_cache_dtype"]),
                "shared_latent": zero + latent,
                "dtype": _pair(t["mla_dtype"], t["kv_cache_dtype"]),
                **_common(t),
            },
        )

    return reader


def _block(kind: str) -> Callable[[Columns], Iterator[Rows]]:
    def reader(t: Columns) -> Iterator[Rows]:
        names, of = np.unique(np.asarray(t["model"]).astype(str), return_inverse=True)
        sizes = [block(name) for name in names]
        known = np.array([size is not None for size in sizes])[of]
        held = [size or next(iter(BLOCKS.values())) for size in sizes]
        generation = "generation" in kind

        def each(value: Callable[[Block], float]) -> np.ndarray:
            return np.array([value(size) for size in held], float)[of]

        sparse = not kind.startswith(("mla", "dsv4_hca"))
        expanded = kind == "mla_context_module"
        skips = np.char.endswith(np.asarray(t.get("op_name", t["model"])).astype(str), "skip_indexer")
        arithmetic = np.asarray(t["mla_dtype"]).astype(str)
        middle = np.where(arithmetic == "bfloat16", "", np.char.add("+", arithmetic))
        ratio = np.asarray(t.get("compress_ratio", np.ones(len(of))), float)
        rows = {
            "batch_size": t["batch_size"],
            "isl": np.ones(len(of)) if generation else t["isl"],
            "prefix": t["step"],
            "num_heads": t["num_heads"],
            "token_weights": each(lambda m: m.token_weights),
            "head_weights": each(lambda m: m.head_weights),
            "qk_dim": each(lambda m: (m.expanded if expanded else m.latent)[0]),
            "v_dim": each(lambda m: (m.expanded if expanded else m.latent)[1]),
            "entry_bytes": each(lambda m: m.entries) * _cache_bytes(t["kv_cache_dtype"]),
            "top_k": each(lambda m: m.top_k) if sparse else np.zeros(len(of)),
            "index_dim": np.where(skips, 0.0, each(lambda m: m.index_dim)) if sparse else np.zeros(len(of)),
            "compress_ratio": np.maximum(ratio, 1.0),
            "dtype": np.char.add(
                np.asarray(t["gemm_type"]).astype(str),
                np.char.add(np.char.add(middle, "+"), np.asarray(t["kv_cache_dtype"]).astype(str)),
            ),
            **_common(t),
        }
        yield kind, {name: np.asarray(values)[known] for name, values in rows.items()}

    return reader


def _recurrent(kind: str) -> Callable[[Columns], Iterator[Rows]]:
    def reader(t: Columns) -> Iterator[Rows]:
        if kind == "mamba2":
            heads, key, value = t["nheads"], t["d_state"], t["head_dim"]
            channels = heads * value + 2.0 * t["n_groups"] * key
        else:
            heads, key, value = t["num_v_heads"], t["head_k_dim"], t["head_v_dim"]
            channels = heads * value + 2.0 * t["num_k_heads"] * key
        conv = np.char.find(np.asarray(t["kernel_source"]).astype(str), "conv1d") >= 0
        rows = {
            "batch_size": t["batch_size"],
            "seq_len": t["seq_len"],
            "channels": channels,
            "heads": heads,
            "key_dim": key,
            "value_dim": value,
            "conv": conv.astype(float),
            "dtype": np.full(len(conv), "bfloat16"),
            **_common(t),
        }
        prompts = np.asarray(t["phase"]).astype(str) == "context"
        for name, part in (
            ("conv", conv & prompts),
            ("recurrence", ~conv & prompts),
            ("conv_step", conv & ~prompts),
            ("step", ~conv & ~prompts),
        ):
            if part.any():
                yield f"{kind}_{name}", {k: np.asarray(v)[part] for k, v in rows.items()}

    return reader


def _collective(t: Columns) -> Iterator[Rows]:
    held = t.get("nccl_dtype", t.get("allreduce_dtype"))
    element = np.where(np.asarray(held).astype(str) == "int8", 1.0, 2.0)
    kernels = np.asarray(t["kernel_source"]).astype(str)
    # timed in CUDA graphs and without: engines serve from graphs
    eager = (np.char.find(kernels, "eager") >= 0) & np.any(np.char.find(kernels, "graph") >= 0)
    names = np.asarray(t.get("op_name", np.full(len(element), "all_reduce"))).astype(str)
    for name in np.unique(names):
        kind, mine = COLLECTIVES.get(name, name), names == name
        mine &= (t["num_gpus"] > 1) & ~eager  # a single rank sends nothing
        if kind in SENDS and mine.any():
            rows = {
                "message_bytes": t["message_size"] * element,
                "ranks": t["num_gpus"],
                "sends": np.full(len(mine), SENDS[kind]),
                "dtype": np.full(len(mine), "bfloat16"),
                **_common(t),
            }
            yield kind, {k: np.asarray(v)[mine] for k, v in rows.items()}


def _common(t: Columns) -> dict[str, Any]:
    return {"kernel": t["kernel_source"], "seconds": np.asarray(t["latency"], np.float64) * 1e-3}


def _cache_bytes(names: Any) -> np.ndarray:
    return np.where(np.char.startswith(np.asarray(names).astype(str), "fp8"), 1.0, 2.0)


def _pair(arithmetic: Any, cache: Any) -> np.ndarray:
    return np.char.add(np.char.add(np.asarray(arithmetic).astype(str), "+"), np.asarray(cache).astype(str))


READERS: dict[str, Callable[[Columns], Iterator[Rows]]] = {
    "gemm": _gemm,
    "moe": _moe,
    **{kind: _attention(kind) for kind in ("context_attention", "generation_attention", "encoder_attention")},
    **{kind: _mla(kind) for kind in ("context_mla", "generation_mla")},
    **{kind: _block(kind) for kind in NEEDED if kind.endswith("_module")},
    **{kind: _recurrent(kind) for kind in RECURRENT},
    "nccl": _collective,
    "oneccl": _collective,
    "custom_allreduce": _collective,
}
