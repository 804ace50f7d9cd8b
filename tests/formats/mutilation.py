"""Files as they should not be: a few bytes replaced, taken out, put in, or the end cut off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: What is put in: digits, signs and brackets where they do harm in JSON and CSV.
PIECES = (b"0", b"-", b"e9", b"null", b"[", b'"', b"NaN", b"\n")


def mutilated(rng: np.random.Generator, whole: bytes, pieces: Sequence[bytes] = PIECES, cut: bool = True) -> bytes:
    """`whole` with one to four changes; with `cut`, some of them cut off its end."""
    text = bytearray(whole)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(text) or 1))
        match rng.integers(4 if cut else 3):
            case 0:
                text[at : at + 1] = bytes([int(rng.integers(256))])
            case 1:
                del text[at : at + int(rng.integers(1, 30))]
            case 2:
                text[at:at] = bytes(rng.choice(list(pieces)))
            case _:
                text = text[:at] or text
    return bytes(text)
