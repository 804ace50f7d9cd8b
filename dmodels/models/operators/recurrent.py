r"""Time of linear attention (gated delta rule, KDA, Mamba-2): its recurrence over tokens, and the short convolution.

Prompts are cut into chunks of 64 tokens: within a chunk the recurrence is a few small matrix products, from chunk to
chunk the state of $d_k \times d_v$ per head is carried, one after the other. A new token reads and writes every
state. The convolution (`conv` 1) only moves its channels.

$$t = t_0 + \big(A^p + (\text{bytes} / \beta b)^p\big)^{1/p},\quad
  A = \frac{F}{P f} + \lceil s/64 \rceil\, \tau\, \max(1, \text{heads} \cdot b / S)$$
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import GPU
from dmodels.core.records import Real

from .constants import Constant, both
from .formats import Format, multiprocessors, peak_flop_per_s

#: `channels` pass through the kernel for each token; `heads` states of key_dim x value_dim each.
FIELDS = ("batch_size", "seq_len", "channels", "heads", "key_dim", "value_dim", "conv")
CONSTANTS = (
    Constant("launch_us", 0.3, 400.0, 5.0, "start and end of the kernels"),
    Constant("compute_frac", 0.003, 1.0, 0.2, "of the data sheet's 16-bit peak"),
    Constant("bandwidth_frac", 0.02, 1.0, 0.5, "of the memory's data sheet"),
    Constant("passes", 0.2, 20.0, 1.0, "passes over the tokens' channels"),
    Constant("chunk_us", 0.0005, 50.0, 0.5, "a chunk of one head, after the one before it"),
    Constant("block_tokens", 1.0, 4096.0, 16.0, "tokens that a convolution's block covers, few or not"),
    Constant("overlap_power", 1.02, 40.0, 2.5, "how far memory and arithmetic hide each other"),
)
CHUNK = 64.0


def work(shape: dict[str, Real], form: Format) -> tuple[Real, Real]:
    """(FLOPs, bytes that must move): the state's update and read per token; channels in and out; states once, at
    16 bits, the fewest that engines keep of them."""
    del form
    tokens = shape["batch_size"] * shape["seq_len"]
    state = shape["heads"] * shape["key_dim"] * shape["value_dim"] * (1.0 - shape["conv"])
    return 4.0 * tokens * state, 4.0 * tokens * shape["channels"] + 2.0 * shape["batch_size"] * state


def seconds(shape: dict[str, Real], c: dict[str, Real], gpu: GPU, form: Format, warm: float = 0.0) -> Real:
    """Seconds of the recurrence's kernels, or of the convolution's."""
    del warm
    b, s = shape["batch_size"], shape["seq_len"]
    tokens = b * s
    flops, _ = work(shape, form)
    inside = 4.0 * tokens * shape["heads"] * jnp.minimum(s, CHUNK) * (shape["key_dim"] + shape["value_dim"])
    lanes = jnp.where(
        shape["conv"] > 0, b * jnp.hypot(s, c["block_tokens"]) * shape["channels"] / 4096.0, b * shape["heads"]
    )
    chunks = jnp.where(shape["conv"] > 0, 1.0, jnp.maximum(1.0, s / CHUNK))
    arithmetic = (flops + inside * (1.0 - shape["conv"])) / (peak_flop_per_s(gpu, form) * c["compute_frac"])
    arithmetic = arithmetic + 1e-6 * c["chunk_us"] * chunks * jnp.hypot(1.0, lanes / multiprocessors(gpu))
    states = b * shape["heads"] * shape["key_dim"] * shape["value_dim"] * (1.0 - shape["conv"])
    moved = 4.0 * tokens * shape["channels"] * c["passes"] + 8.0 * states
    memory = moved / (gpu.hbm_bytes_per_s * c["bandwidth_frac"])
    return 1e-6 * c["launch_us"] + both(arithmetic, memory, c["overlap_power"])
