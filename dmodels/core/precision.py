"""Number formats of weights and caches by name."""

from __future__ import annotations

from enum import StrEnum

from .errors import unknown

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


class Precision(StrEnum):
    """The format of weights or KV cache that is asked for."""

    AS_PUBLISHED = "as published"
    BF16 = "bf16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    INT8 = "int8"
    INT4 = "int4"
    FP4 = "fp4"
    MXFP4 = "mxfp4"

    @classmethod
    def named(cls, text: str) -> Precision:
        """The precision of a name, as people write it: 'FP8', 'as-published'."""
        name = spelled(text)
        if name not in list(cls):
            raise unknown("precision", text, cls)
        return cls(name)


def spelled(text: str) -> str:
    """A precision's name, as people write it, in the one spelling: 'FP8' is fp8, 'as-published' two words."""
    return text.strip().lower().replace("as-published", Precision.AS_PUBLISHED)
