r"""Time of the routed experts of one layer on one rank: grouped products over the experts that tokens reach.

Of T tokens that enter the rank's layer, each chooses K of E experts; the rank holds $E_l = E/e$ of them whole (EP of e)
and $1/p$ of their width (TP of p). The fullest rank, for which all wait, gets

$$P = \min\!\big(T K e^{\gamma E_l^{-\delta} - 1},\; T \min(K, E_l)\big)$$

token-expert pairs; $\gamma = 0$ if routing is balanced, and $\delta$ says how far the loads of a rank's experts even
out. With x = P / E_l pairs per expert, the experts that have any are $A = \min(E_l, P)$ if balanced, else
$E_l (1 - (1 + x/\alpha)^{-\alpha})$: tokens per expert are then gamma-Poisson with shape $\alpha$. Weights of A
experts move; each expert's pairs are cut into tiles of $B_m$ rows, in waves over the multiprocessors; the kernel is
about the fastest of the tile sizes. Routing, sorting and the weighted sum (none where a token has one expert) cost a
launch, a time per token, per expert chosen and held, and per byte of activations. Of the TK - P pairs with other ranks'
experts some kernels carry the activations along, and some compute a share $\phi$ of those whose token has a pair here:
$P + \phi\,(K \min(T, P) - P)$ pairs are computed.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dmodels.core.hardware import GPU
from dmodels.core.records import Real

from .constants import Constant, both, least
from .formats import Format, cached_gain, multiprocessors, peak_flop_per_s

#: `matrices`: 3 for a gated expert (gate, up, down), 2 for a plain one. `skew`: 0 balanced, 1 and 2 the measured
#: power laws of exponent 1.01 and 1.2; between them it interpolates.
FIELDS = (
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
    "moe_ep_size",
    "matrices",
    "skew",
)
CONSTANTS = (
    Constant("launch_us", 0.5, 400.0, 20.0, "start and end of the layer's kernels"),
    Constant("loop_ns", 0.002, 40.0, 1.0, "latency of one element of the inner dimension in a tile's loop"),
    Constant("bandwidth_frac", 0.05, 1.0, 0.75, "of the memory's data sheet"),
    Constant("compute_frac", 0.03, 1.0, 0.7, "of the data sheet's peak, large tiles"),
    Constant("wave_frac", 0.003, 1.0, 0.5, "share of a part-filled tile that is paid for"),
    Constant("overlap_power", 1.02, 40.0, 2.5, "how far memory and arithmetic hide each other"),
    Constant("small_tile_frac", 0.001, 10.0, 0.35, "loss of a tile of 64 rows"),
    Constant("choice_power", 0.3, 300.0, 10.0, "how well the fastest tile is chosen"),
    Constant("cache_gain", 0.001, 20.0, 0.05, "extra bandwidth of experts that stay in the last-level cache"),
    Constant("cache_share", 0.1, 1.5, 0.5, "share of the last-level cache that they can have"),
    Constant("sort_passes", 0.01, 40.0, 1.0, "passes over the activations of pairs that are summed"),
    Constant("token_passes", 0.01, 40.0, 0.5, "passes over the entering tokens' activations outside the products"),
    Constant("foreign_passes", 0.001, 20.0, 0.1, "passes over the activations of pairs with other ranks' experts"),
    Constant("foreign_frac", 0.001, 1.0, 0.01, "share computed of such pairs of tokens that the rank has a pair with"),
    Constant("choice_ns", 0.0003, 20.0, 0.1, "cost of an expert that a token chooses, whichever rank has it"),
    Constant("token_ns", 0.01, 500.0, 5.0, "cost of a token outside the products"),
    Constant("expert_ns", 0.01, 2000.0, 15.0, "cost of a held expert outside the products"),
    Constant("skew1_power", 0.05, 0.8, 0.3, "growth of the fullest rank's load with EP, power law 1.01"),
    Constant("skew2_power", 0.05, 0.9, 0.4, "the same, power law 1.2"),
    Constant("evening_power", 0.005, 1.0, 0.1, "fall of that growth with the experts of a rank, whose loads even out"),
    Constant("skew1_shape", 0.2, 10.0, 1.5, "evenness of the tokens per expert, power law 1.01"),
    Constant("skew2_shape", 0.2, 10.0, 1.3, "the same, power law 1.2"),
)
TILE_ROWS = np.array([[16.0, 32, 64, 128, 256]])


def loads(shape: dict[str, Real], c: dict[str, Real]) -> tuple[Real, Real]:
    """(token-expert pairs of the fullest rank, experts of it that have any)."""
    experts = shape["num_experts"] / shape["moe_ep_size"]
    low, high = jnp.clip(shape["skew"], 0.0, 1.0), jnp.clip(shape["skew"] - 1.0, 0.0, 1.0)
    growth = low * ((1.0 - high) * c["skew1_power"] + high * c["skew2_power"])
    growth = growth * jnp.maximum(experts, 1.0) ** -c["evening_power"]
    alpha = (1.0 - high) * c["skew1_shape"] + high * c["skew2_shape"]
    even = shape["num_tokens"] * shape["topk"] / shape["moe_ep_size"]
    pairs = jnp.minimum(
        even * shape["moe_ep_size"] ** growth, shape["num_tokens"] * jnp.minimum(shape["topk"], experts)
    )
    pairs = jnp.maximum(pairs, 1.0)
    spread = experts * (1.0 - (1.0 + pairs / experts / alpha) ** -alpha)
    reached = low * spread + (1.0 - low) * jnp.minimum(experts, pairs)
    return pairs, jnp.minimum(jnp.maximum(reached, 1.0), pairs)


def work(shape: dict[str, Real], form: Format) -> tuple[Real, Real]:
    """(FLOPs, bytes that must move) on an average rank with balanced routing: what no kernel can avoid."""
    t, h = shape["num_tokens"], shape["hidden_size"]
    width = shape["inter_size"] / shape["moe_tp_size"]
    experts = shape["num_experts"] / shape["moe_ep_size"]
    pairs = t * shape["topk"] / shape["moe_ep_size"]
    reached = jnp.minimum(jnp.minimum(1.0, experts), pairs)  # all tokens may choose the same one
    per_expert = shape["matrices"] * h * width
    return 2.0 * pairs * per_expert, reached * per_expert * form.weight_bytes


def seconds(shape: dict[str, Real], c: dict[str, Real], gpu: GPU, form: Format, warm: float = 0.0) -> Real:
    """Seconds of the routed experts (no shared expert, no communication between ranks)."""
    t, h = shape["num_tokens"], shape["hidden_size"]
    width = shape["inter_size"] / shape["moe_tp_size"]
    experts = shape["num_experts"] / shape["moe_ep_size"]
    sms = multiprocessors(gpu)
    per_sm = peak_flop_per_s(gpu, form) / sms
    pairs, reached = loads(shape, c)
    choices = t * shape["topk"]
    foreign = choices - pairs
    pairs = pairs + c["foreign_frac"] * (shape["topk"] * jnp.minimum(t, pairs) - pairs)

    rows = (pairs / reached)[:, None] / TILE_ROWS
    part = jnp.where(shape["skew"][:, None] > 0, 0.5, jnp.ceil(rows - 1e-9) - rows)  # spread loads: half a tile
    tiles = reached[:, None] * jnp.maximum(1.0, rows + c["wave_frac"][:, None] * part)
    efficiency = c["compute_frac"][:, None] / (1.0 + c["small_tile_frac"][:, None] * 64.0 / TILE_ROWS)

    def product(n: Real, k: Real) -> Real:
        waves = jnp.hypot(1.0, tiles * jnp.maximum(n / 128.0, 1.0)[:, None] / sms)
        depth = k[:, None]
        return waves * (256.0 * TILE_ROWS * depth / (per_sm * efficiency) + depth * c["loop_ns"][:, None] * 1e-9)

    arithmetic = product((shape["matrices"] - 1.0) * width, h) + product(h, width)
    weights = reached * shape["matrices"] * h * width * form.weight_bytes
    moved = weights + pairs * (h * (form.activation_bytes + 2.0) + shape["matrices"] * width * 2.0)
    memory = moved / (gpu.hbm_bytes_per_s * c["bandwidth_frac"] * cached_gain(gpu, moved, c, warm))
    kernel = least(both(arithmetic, memory[:, None], c["overlap_power"][:, None]), c["choice_power"])
    summed = pairs * (1.0 - 1.0 / shape["topk"])
    passed = c["sort_passes"] * summed + c["foreign_passes"] * foreign + c["token_passes"] * t
    around = passed * h * 4.0 / gpu.hbm_bytes_per_s
    counted = c["token_ns"] * t + c["choice_ns"] * choices + c["expert_ns"] * experts
    return c["launch_us"] * 1e-6 + kernel + around + 1e-9 * counted
