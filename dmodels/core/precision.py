"""Number formats of weights and caches by name."""

from __future__ import annotations

#: Bytes per weight, scales included, of the formats by name.
FORMAT_BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,  # one scale per tensor or channel
    "fp8_block": 1.0 + 4.0 / (128 * 128),  # a float32 scale per 128 x 128 block (DeepSeek-V3)
    "int8": 1.0,
    "int4": 0.5 + (2.0 + 0.5) / 128,  # groups of 128 with a float16 scale and a 4-bit zero (AWQ, GPTQ)
    "fp4": 0.5 + 1.0 / 16,  # NVFP4: groups of 16 with an FP8 scale
    "mxfp4": 0.5 + 1.0 / 32,  # groups of 32 with a one-byte exponent
}
