"""Number formats of kernels: bytes of a weight and of an activation, and the peak that multiplies them.

Written as engines and measured tables write them: `bfloat16`, `fp8` (per tensor), `fp8_block`, `nvfp4`, `int8_wo`,
`w4a16_mxfp4`, ... . Attention has two, the arithmetic's and the cache's, joined by `+`: `bfloat16+fp8`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.errors import unknown
from dmodels.core.hardware import GPU
from dmodels.core.records import Real


class Format(NamedTuple):
    """Bytes of a weight (scales included) and of an activation; bits of the arithmetic; 1 if activations are quantised
    by a kernel of their own."""

    weight_bytes: float
    activation_bytes: float
    bits: int
    quantises: float


FORMATS = {
    "bfloat16": Format(2.0, 2.0, 16, 0.0),
    "float16": Format(2.0, 2.0, 16, 0.0),
    "half": Format(2.0, 2.0, 16, 0.0),
    "fp8": Format(1.0, 1.0, 8, 1.0),
    "fp8_e4m3": Format(1.0, 1.0, 8, 1.0),
    "fp8_block": Format(1.0, 1.0, 8, 1.0),
    "int8": Format(1.0, 1.0, 8, 1.0),
    "sq": Format(1.0, 1.0, 8, 1.0),  # SmoothQuant: INT8 weights and activations
    "nvfp4": Format(0.5625, 0.5625, 4, 1.0),  # one 8-bit scale per 16
    "int8_wo": Format(1.0, 2.0, 16, 0.0),
    "int4_wo": Format(0.52, 2.0, 16, 0.0),
    "w4a16_mxfp4": Format(0.53125, 2.0, 16, 0.0),  # one 8-bit scale per 32
    "w4afp8": Format(0.53125, 1.0, 8, 1.0),
    "w4a8_mxfp4_mxfp8": Format(0.53125, 1.03125, 8, 1.0),
}


def number_format(name: str) -> Format:
    """The format of that name; of `a+b` the arithmetic's, a.

    >>> number_format("fp8_block").weight_bytes
    1.0
    """
    base = name.split("+")[0]
    if base not in FORMATS:
        raise unknown("number format", name, FORMATS)
    return FORMATS[base]


def cache_bytes(name: str) -> float:
    """Bytes of one element of the KV cache, of `arithmetic+cache`; without a `+` the arithmetic's own.

    >>> cache_bytes("bfloat16+fp8"), cache_bytes("bfloat16")
    (1.0, 2.0)
    """
    return number_format(name.split("+")[-1]).activation_bytes


def peak_flop_per_s(gpu: GPU, form: Format) -> Real:
    """The data sheet's dense rate for that arithmetic; the next wider one that the GPU has where it has none.

    INT8 without FP8 units (A100) runs at twice the 16-bit rate.
    """
    wide = gpu.peak_flop_per_s
    eight = jnp.where(gpu.peak_fp8_flop_per_s > 0, gpu.peak_fp8_flop_per_s, wide)
    four = jnp.where(gpu.peak_fp4_flop_per_s > 0, gpu.peak_fp4_flop_per_s, eight)
    return {16: wide, 8: eight, 4: four}[form.bits]


def cached_gain(gpu: GPU, bytes_: Real, c: dict[str, Real], warm: float) -> Real:
    """Factor on the bandwidth where a benchmark's loop finds its data in the last-level cache: 1 if `warm` is 0."""
    fits = jax.nn.sigmoid(8.0 * jnp.log(jnp.maximum(gpu.l2_bytes, 1.0) * c["cache_share"] / bytes_))
    return 1.0 + warm * fits * c["cache_gain"]


def multiprocessors(gpu: GPU) -> Real:
    """SMs of the GPU; where the record does not say, what a part of its peak would have (7.5 TFLOP/s each)."""
    return jnp.where(gpu.sm_count > 0, gpu.sm_count, jnp.clip(gpu.peak_flop_per_s / 7.5e12, 16.0, 304.0))
