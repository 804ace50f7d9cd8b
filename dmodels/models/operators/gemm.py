r"""Time of one matrix product on one GPU: tiles in waves over the multiprocessors, and bytes through the memory.

$y_{m \times n} = x_{m \times k} W_{k \times n}$; m is the number of tokens of the step. The engine's kernels cut y into
tiles $(B_m, B_n)$ and k into s parts, so that few tiles still fill the S multiprocessors. For each tile

$$t_j = \left( \Big(w_j\,\big(\tfrac{2 B_m B_n k / s}{P/S\, f\, e_j} + \tfrac{k}{s}\tau\big)\Big)^p
      + \big(\tfrac{\text{bytes}}{\beta\, b\, r_j}\big)^p \right)^{1/p}, \qquad
  t = t_0 + \min_j t_j + t_\text{quantise}$$

with waves $w_j = \max(1, T_j s / S)$ partly rounded up, $e_j$ the efficiency of a small tile, and $r_j$ the share of
the bandwidth that as few multiprocessors can draw. Formats with quantised activations add the kernel that quantises
them: a cost per row and one pass over x. The minimum over j is smooth (`constants.least`): where all n tile sizes
are as fast, the kernel is $n^{1/b}$ faster than each, so f and $\beta$ are shares of one tile size, below those that
large products reach.

Source: the tile and wave arithmetic of CUTLASS and cuBLAS (NVIDIA, "Matrix Multiplication Background").
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dmodels.core.hardware import GPU
from dmodels.core.records import Real

from .constants import Constant, both, least, steps
from .formats import Format, cached_gain, multiprocessors, peak_flop_per_s

FIELDS = ("m", "n", "k")
CONSTANTS = (
    Constant("launch_us", 0.5, 400.0, 3.0, "start and end of the kernel; of the whole call where no graph is used"),
    Constant("loop_ns", 0.002, 40.0, 1.0, "latency of one element of k in a tile's loop"),
    Constant("bandwidth_frac", 0.05, 1.0, 0.8, "of the memory's data sheet, with all multiprocessors busy"),
    Constant("compute_frac", 0.05, 1.0, 0.75, "of the data sheet's peak, large tiles"),
    Constant("wave_frac", 0.003, 1.0, 0.3, "share of a part-filled wave that is waited for"),
    Constant("overlap_power", 1.02, 40.0, 3.0, "how far memory and arithmetic hide each other"),
    Constant("reach_frac", 0.001, 3.0, 0.02, "waiting for bandwidth where few multiprocessors ask for it"),
    Constant("split_count", 1.02, 200.0, 6.0, "parts of k that few tiles are split into at most"),
    Constant("split_k", 64.0, 16384.0, 512.0, "elements of k in such a part at least"),
    Constant("small_tile_frac", 0.001, 10.0, 0.3, "loss of a 64 x 64 tile's arithmetic"),
    Constant("choice_power", 0.3, 300.0, 10.0, "how well the fastest tile is chosen"),
    Constant("row_ns", 1e-6, 100.0, 1.0, "quantising: cost of a row"),
    Constant("quantise_frac", 0.02, 1.0, 0.5, "quantising: share of the memory's bandwidth"),
    Constant("cache_gain", 0.001, 20.0, 0.05, "extra bandwidth of a matrix that stays in the last-level cache"),
    Constant("cache_share", 0.1, 1.5, 0.5, "share of the cache that such a matrix can have"),
)
#: Tiles that the common kernels use.
TILE_M = np.array([[16.0, 32, 64, 64, 128, 128, 256, 128, 64, 256]])
TILE_N = np.array([[64.0, 64, 64, 128, 128, 256, 128, 64, 256, 256]])


def work(shape: dict[str, Real], form: Format) -> tuple[Real, Real]:
    """(FLOPs, bytes that must move): 2 m n k; the weights, the activations and the result once."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    return 2.0 * m * n * k, n * k * form.weight_bytes + m * k * form.activation_bytes + 2.0 * m * n


def seconds(shape: dict[str, Real], c: dict[str, Real], gpu: GPU, form: Format, warm: float = 0.0) -> Real:
    """Seconds of GEMMs of shapes m, n, k (each (rows,)). `warm`: 1 where the weights may still be in the cache (a
    benchmark's loop over one matrix), 0 where a model's other layers have passed through it since."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    bandwidth, sms = gpu.hbm_bytes_per_s, multiprocessors(gpu)
    per_sm = peak_flop_per_s(gpu, form) / sms
    bytes_ = work(shape, form)[1]
    drawn = bandwidth * c["bandwidth_frac"] * cached_gain(gpu, bytes_, c, warm)

    columns = jnp.ceil(n[:, None] / TILE_N)
    tiles = jnp.ceil(m[:, None] / TILE_M) * columns
    most = jnp.clip(jnp.minimum(c["split_count"], k / c["split_k"]), 1.0)[:, None]
    split = jnp.clip(sms / tiles, 1.0, most)
    waves = jnp.maximum(1.0, steps(tiles * split / sms, c["wave_frac"][:, None]))
    efficiency = c["compute_frac"][:, None] / (1.0 + c["small_tile_frac"][:, None] * 32.0 * (1 / TILE_M + 1 / TILE_N))
    depth = k[:, None] / split
    arithmetic = waves * (2.0 * TILE_M * TILE_N * depth / (per_sm * efficiency) + depth * c["loop_ns"][:, None] * 1e-9)
    asking = columns * jnp.clip(sms / columns, 1.0, most)
    memory = (bytes_ / drawn)[:, None] * (1.0 + sms / asking * c["reach_frac"][:, None])
    kernel = least(both(arithmetic, memory, c["overlap_power"][:, None]), c["choice_power"])

    pass_bytes = m * k * (2.0 + form.activation_bytes)
    quantise = m * c["row_ns"] * 1e-9 + pass_bytes / (bandwidth * c["quantise_frac"])
    return c["launch_us"] * 1e-6 + kernel + form.quantises * quantise
