r"""Time of attention kernels on one GPU: prompts (with a cached prefix, causal, windowed) and single new tokens.

A prompt of s new tokens after a prefix of c attends to $\sum_{i=1}^{s} \min(c+i, W)$ pairs of positions per head; its
arithmetic is $2 (d_{qk} + d_v)$ FLOPs per pair, plus the softmax, which costs the same for every head dimension.
Blocks of 128 queries of one head run on one multiprocessor each, and the longest of them is waited for; a prompt of
few tokens fills a block of at least `tile_rows` rows:

$$t = t_0 + \Big(\big(\tfrac{F}{P f} + \omega\,\tfrac{F_\text{longest}}{P f / S}\big)^p
        + \big(\tfrac{\text{bytes}}{\beta b}\big)^p\Big)^{1/p}$$

A new token reads its sequence's whole cache (or its window, and a share of the rest where a kernel masks what it does
not skip); the cache is cut into parts, `most_parts` at most, so that few sequences still fill the multiprocessors.
Heads that share a KV head are one tile of at least `tile_rows` rows. What fits into the last-level cache is read from
there in a benchmark's loop (`formats.cached_gain`).

MLA is the same with the expanded heads for prompts ($d_{qk} = 192$, $d_v = 128$) and with the latent for new tokens
($576$ and $512$, one KV head for all query heads). Source: FlashAttention-2 (arXiv:2307.08691) and Flash-Decoding.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import GPU
from dmodels.core.records import Real

from .constants import Constant, both, steps
from .formats import Format, cached_gain, multiprocessors, peak_flop_per_s

#: `prefix` cached tokens before `isl` new ones; `window` 0: full attention; `qk_dim`, `v_dim` per head; `causal` 1 or
#: 0; `cache_bytes` of one element; `shared_latent` 1: keys and values are one latent per token (MLA), stored once.
FIELDS = (
    "batch_size",
    "isl",
    "prefix",
    "num_heads",
    "num_key_value_heads",
    "qk_dim",
    "v_dim",
    "window",
    "causal",
    "cache_bytes",
    "shared_latent",
)
CONTEXT_CONSTANTS = (
    Constant("launch_us", 0.5, 1000.0, 10.0, "start and end of the kernel; of the whole call where no graph is used"),
    Constant("compute_frac", 0.02, 1.0, 0.6, "of the data sheet's peak, head dimension 128"),
    Constant("softmax_flop", 1.0, 2000.0, 100.0, "softmax of one pair, in FLOPs of the matrix units"),
    Constant("wave_frac", 0.003, 4.0, 0.5, "share of the longest block of queries that is waited for"),
    Constant("masked_tokens", 1.0, 600.0, 64.0, "masked positions that a block of queries computes nevertheless"),
    Constant("dim_power", 0.3, 3.0, 1.0, "1: arithmetic in proportion to the head dimension; below: small heads waste"),
    Constant("bandwidth_frac", 0.02, 1.0, 0.6, "of the memory's data sheet"),
    Constant("passes", 0.2, 20.0, 1.2, "passes over queries and outputs"),
    Constant("prompt_us", 0.0005, 20.0, 0.05, "cost of a prompt"),
    Constant("block_us", 0.001, 50.0, 1.0, "start and end of a block of queries on its multiprocessor"),
    Constant("unskipped_frac", 1e-4, 1.0, 0.01, "share of the pairs outside a window that is computed nevertheless"),
    Constant("tile_rows", 0.5, 256.0, 8.0, "queries of one head that a block has rows for"),
    Constant("cache_gain", 0.001, 20.0, 0.05, "extra bandwidth of tensors that stay in the last-level cache"),
    Constant("cache_share", 0.1, 1.5, 0.5, "share of the last-level cache that they can have"),
    Constant("overlap_power", 1.02, 40.0, 2.5, "how far memory and arithmetic hide each other"),
)
GENERATION_CONSTANTS = (
    Constant("launch_us", 0.5, 1000.0, 7.0, "start and end of the kernel; of the whole call where no graph is used"),
    Constant("bandwidth_frac", 0.03, 1.0, 0.75, "of the memory's data sheet"),
    Constant("compute_frac", 0.01, 1.0, 0.3, "of the data sheet's peak"),
    Constant("tile_rows", 1.0, 128.0, 12.0, "query heads that a tile has rows for"),
    Constant("pass_rows", 1.0, 2048.0, 256.0, "query heads of a KV head that one pass over the cache serves"),
    Constant("part_tokens", 16.0, 8192.0, 256.0, "shortest part that a sequence's cache is split into"),
    Constant("most_parts", 1.0, 1024.0, 64.0, "parts that a sequence's cache is split into at most"),
    Constant("unskipped_frac", 1e-4, 1.0, 0.01, "share of the cache outside a window that is read nevertheless"),
    Constant("passes", 1.0, 60.0, 1.5, "passes over queries and outputs, those of the parts included"),
    Constant("launch_power", 1.02, 20.0, 1.2, "1: the kernel waits for its launch; above: the host launches ahead"),
    Constant("loop_ns", 0.01, 200.0, 2.0, "latency of one cached token in a part's loop"),
    Constant("tile_tokens", 0.5, 512.0, 16.0, "cached tokens that a part computes at least"),
    Constant("wave_frac", 0.003, 1.0, 0.4, "share of a part-filled wave that is waited for"),
    Constant("merge_us", 0.01, 50.0, 1.5, "joining the parts of a sequence"),
    Constant("sequence_us", 0.0003, 5.0, 0.01, "cost of a sequence"),
    Constant("block_us", 0.001, 50.0, 1.0, "start and end of a part on its multiprocessor"),
    Constant("cache_gain", 0.001, 20.0, 0.05, "extra bandwidth of a KV cache that stays in the last-level cache"),
    Constant("cache_share", 0.1, 1.5, 0.5, "share of the last-level cache that it can have"),
    Constant("overlap_power", 1.02, 40.0, 2.5, "how far memory and arithmetic hide each other"),
)
#: Queries of one block.
BLOCK = 128.0


def pairs(isl: Real, prefix: Real, window: Real, causal: Real) -> Real:
    """Pairs of positions of one head and prompt, exactly.

    >>> float(pairs(3.0, 0.0, 0.0, 1.0)), float(pairs(3.0, 10.0, 0.0, 1.0)), float(pairs(3.0, 0.0, 2.0, 1.0))
    (6.0, 36.0, 5.0)
    """
    reach = jnp.where(window > 0, window, jnp.inf)
    whole = jnp.clip(reach - prefix, 0.0, isl)  # queries that see everything before them
    cut = jnp.where(window > 0, window, 0.0)
    causal_pairs = whole * prefix + whole * (whole + 1.0) / 2.0 + (isl - whole) * cut
    return jnp.where(causal > 0, causal_pairs, isl * (prefix + isl))


def seen(shape: dict[str, Real]) -> Real:
    """Positions that the last new token attends to."""
    length = shape["prefix"] + shape["isl"]
    return jnp.where(shape["window"] > 0, jnp.minimum(length, shape["window"]), length)


def _ends(shape: dict[str, Real]) -> Real:
    """Bytes of the new queries and outputs, once."""
    return shape["batch_size"] * shape["isl"] * shape["num_heads"] * (shape["qk_dim"] + shape["v_dim"]) * 2.0


def work(shape: dict[str, Real], form: Format) -> tuple[Real, Real]:
    """(FLOPs, bytes that must move): the pairs' products; new queries and outputs, and what is read of the cache."""
    del form
    b, s = shape["batch_size"], shape["isl"]
    dims = shape["qk_dim"] + shape["v_dim"]
    flops = 2.0 * b * shape["num_heads"] * dims * pairs(s, shape["prefix"], shape["window"], shape["causal"])
    stored = shape["num_key_value_heads"] * jnp.where(shape["shared_latent"] > 0, shape["qk_dim"], dims)
    reach = jnp.where(shape["window"] > 0, jnp.minimum(shape["prefix"], shape["window"]), shape["prefix"])
    return flops, b * (reach + s) * stored * shape["cache_bytes"] + _ends(shape)


def context_seconds(shape: dict[str, Real], c: dict[str, Real], gpu: GPU, form: Format, warm: float = 0.0) -> Real:
    """Seconds of attention over prompts."""
    b, s, prefix, heads = shape["batch_size"], shape["isl"], shape["prefix"], shape["num_heads"]
    dims = shape["qk_dim"] + shape["v_dim"]
    per_pair = 2.0 * 256.0 * (dims / 256.0) ** c["dim_power"] + c["softmax_flop"]
    per_pair = jnp.maximum(per_pair, 2.0 * dims)
    rate = peak_flop_per_s(gpu, form) * c["compute_frac"]
    reach = seen(shape)
    extra = jnp.minimum(c["masked_tokens"], prefix + BLOCK)
    inside = pairs(s, prefix, shape["window"], shape["causal"])
    outside = pairs(s, prefix, 0.0 * s, shape["causal"]) - inside
    filled = jnp.hypot(s, c["tile_rows"]) / s  # rows of blocks over queries
    computed = filled * (inside + c["unskipped_frac"] * outside + s * extra)
    block = jnp.minimum(jnp.maximum(s, 16.0), BLOCK) * (reach + extra)
    sms = multiprocessors(gpu)
    arithmetic = (b * heads * computed + c["wave_frac"] * sms * block) * per_pair / rate
    blocks = b * heads * jnp.maximum(s / BLOCK, 1.0)
    arithmetic = arithmetic + 1e-6 * c["block_us"] * blocks / sms
    ends = _ends(shape)
    flow = ends * c["passes"] + (work(shape, form)[1] - ends)
    memory = flow / (gpu.hbm_bytes_per_s * c["bandwidth_frac"] * cached_gain(gpu, flow, c, warm))
    return 1e-6 * (c["launch_us"] + c["prompt_us"] * b) + both(arithmetic, memory, c["overlap_power"])


def generation_seconds(shape: dict[str, Real], c: dict[str, Real], gpu: GPU, form: Format, warm: float = 0.0) -> Real:
    """Seconds of attention of one new token per sequence (`isl` of them with speculation)."""
    b, kv_heads, reach = shape["batch_size"], shape["num_key_value_heads"], seen(shape)
    length = reach + c["unskipped_frac"] * (shape["prefix"] + shape["isl"] - reach)
    dims, sms = shape["qk_dim"] + shape["v_dim"], multiprocessors(gpu)
    rows = shape["num_heads"] / kv_heads * shape["isl"]
    passes = (1.0 + (rows / c["pass_rows"]) ** 4.0) ** 0.25
    rows = jnp.hypot(rows, c["tile_rows"]) / passes  # at least one tile
    lanes = b * kv_heads * passes
    parts = jnp.clip(sms / lanes, 1.0, jnp.clip(length / c["part_tokens"], 1.0, c["most_parts"]))
    waves = jnp.maximum(1.0, steps(lanes * parts / sms, c["wave_frac"]))
    per_sm = peak_flop_per_s(gpu, form) * c["compute_frac"] / sms
    per_token = 2.0 * dims * rows / per_sm + c["loop_ns"] * 1e-9
    arithmetic = waves * (jnp.hypot(length / parts, c["tile_tokens"]) * per_token + c["block_us"] * 1e-6)
    ends = _ends(shape)
    bytes_ = (work(shape, form)[1] - ends) * length / reach + ends * c["passes"]
    drawn = gpu.hbm_bytes_per_s * c["bandwidth_frac"] * cached_gain(gpu, bytes_, c, warm)
    memory = passes * bytes_ / drawn
    merge = c["merge_us"] * (1.0 - 1.0 / parts)
    kernel = 1e-6 * (c["sequence_us"] * b + merge) + both(arithmetic, memory, c["overlap_power"])
    return both(1e-6 * c["launch_us"], kernel, c["launch_power"])
