r"""Time of a whole attention block: projections, norms, indexer and (sparse) attention, as engines' modules time it.

The parts follow each other and each has its own share of the roofline:

- projections of N = b s new tokens: FLOPs at the peak of the weights' format, or the weights through the memory;
- the indexer (DeepSeek Sparse Attention and its kind) scores every earlier position, at 8 bits:
  $2 n_I d_I$ FLOPs per pair, and selects the best k;
- attention over the selected positions (all of them without an indexer), of a cache that keeps one entry per
  `compress_ratio` tokens.

Source: DeepSeek-V3.2 (arXiv:2512.02556) for the indexer; `attention` for pairs.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import GPU
from dmodels.core.records import Real

from .attention import pairs
from .constants import Constant, both
from .formats import FORMATS, Format, peak_flop_per_s

#: `token_weights`: weights that every rank multiplies with each token; `head_weights`: those of one query head;
#: `qk_dim` and `v_dim` of the attention as computed; `entry_bytes` of one cached entry; `top_k` 0: no selection;
#: `index_dim`: heads x dimension of the indexer, 0 without it.
FIELDS = (
    "batch_size",
    "isl",
    "prefix",
    "num_heads",
    "token_weights",
    "head_weights",
    "qk_dim",
    "v_dim",
    "entry_bytes",
    "top_k",
    "index_dim",
    "compress_ratio",
)
CONSTANTS = (
    Constant("launch_us", 2.0, 4000.0, 60.0, "start and end of all its kernels"),
    Constant("projection_frac", 0.02, 1.0, 0.5, "of the peak, projections"),
    Constant("weights_frac", 0.03, 1.0, 0.5, "of the memory's bandwidth, projections' weights"),
    Constant("token_ns", 0.01, 2000.0, 5.0, "norms, rotary embedding and cache writes of a token"),
    Constant("head_ns", 0.001, 200.0, 0.3, "the same of a token's head"),
    Constant("attention_frac", 0.003, 1.0, 0.3, "of the 16-bit peak, attention"),
    Constant("cache_frac", 0.01, 1.0, 0.4, "of the memory's bandwidth, attention's cache"),
    Constant("rows", 1.0, 256.0, 32.0, "query heads that a tile of the attention has rows for"),
    Constant("index_frac", 0.002, 1.0, 0.2, "of the 8-bit peak, indexer"),
    Constant("select_ps", 0.01, 3000.0, 5.0, "choosing among one earlier position for one token"),
    Constant("length_ns", 0.001, 100.0, 0.3, "latency of an earlier position, whatever the batch"),
    Constant("overlap_power", 1.02, 40.0, 2.5, "how far memory and arithmetic hide each other"),
)


def _pairs(shape: dict[str, Real]) -> tuple[Real, Real]:
    """(all pairs of a head and sequence, those that attention computes)."""
    ratio = shape["compress_ratio"]
    every = pairs(shape["isl"], shape["prefix"], 0.0 * ratio, 1.0 + 0.0 * ratio) / ratio
    few = pairs(shape["isl"], shape["prefix"] / ratio, shape["top_k"], 1.0 + 0.0 * ratio)
    return every, jnp.where(shape["top_k"] > 0, jnp.minimum(every, few), every)


def work(shape: dict[str, Real], form: Format) -> tuple[Real, Real]:
    """(FLOPs, bytes that must move): the projections alone, which every kernel has to do at the weights' format."""
    weights = shape["token_weights"] + shape["num_heads"] * shape["head_weights"]
    return 2.0 * shape["batch_size"] * shape["isl"] * weights, weights * form.weight_bytes


def seconds(shape: dict[str, Real], c: dict[str, Real], gpu: GPU, form: Format, warm: float = 0.0) -> Real:
    """Seconds of the block on one rank, without communication."""
    del warm
    b, s, prefix, heads = shape["batch_size"], shape["isl"], shape["prefix"], shape["num_heads"]
    bandwidth, power = gpu.hbm_bytes_per_s, c["overlap_power"]
    flops, weights = work(shape, form)
    projections = both(
        flops / (peak_flop_per_s(gpu, form) * c["projection_frac"]), weights / (bandwidth * c["weights_frac"]), power
    )
    every, few = _pairs(shape)
    rows = jnp.hypot(heads, c["rows"])
    dims = shape["qk_dim"] + shape["v_dim"]
    wide = peak_flop_per_s(gpu, FORMATS["bfloat16"]) * c["attention_frac"]
    read = jnp.minimum((prefix + s) / shape["compress_ratio"], few)  # distinct entries of a sequence at most
    cache = b * read * shape["entry_bytes"] / (bandwidth * c["cache_frac"])
    attention = both(2.0 * b * rows * dims * few / wide, cache, power)
    eight = peak_flop_per_s(gpu, FORMATS["fp8"]) * c["index_frac"]
    indexed = jnp.where(shape["index_dim"] > 0, b * every, 0.0)
    index = indexed * (2.0 * shape["index_dim"] / eight + 1e-12 * c["select_ps"])
    serial = 1e-9 * c["length_ns"] * (few / s + jnp.where(shape["index_dim"] > 0, every / s, 0.0) / 16.0)
    tokens = 1e-9 * b * s * (c["token_ns"] + c["head_ns"] * heads)
    return 1e-6 * c["launch_us"] + projections + attention + index + serial + tokens
