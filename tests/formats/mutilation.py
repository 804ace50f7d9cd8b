"""Files as they should not be: a few bytes replaced, taken out, put in, or the end cut off; some are packed."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: What is put in: digits, signs and brackets where they do harm in JSON, YAML, CSV, commands and labels.
PIECES = (b"0", b"-", b"e9", b"null", b"[", b"{", b'"', b"'", b": ", b"NaN", b"\n", b",")

#: What a digit is replaced by.
NUMBERS = (b"0", b"1", b"7", b"00", b"123", b"", b"-1", b".", b"5e3", b"1e400", b"9999999999999999999999")


class Reader(NamedTuple):
    """How a format is read: good files, and the reader, which also asserts what must hold of whatever it accepts."""

    files: Sequence[bytes]
    read: Callable[[Path], Any]
    suffix: str = ""


class Outcome(NamedTuple):
    """How many mutilated files were read, and how many were refused in one line."""

    read: int
    refused: int


def mutilated(rng: np.random.Generator, whole: bytes) -> bytes:
    """`whole` with a change, or several: half of all files have one."""
    text = bytearray(whole)
    for _ in range(rng.geometric(0.5)):
        at = int(rng.integers(len(text) or 1))
        match rng.integers(10):
            case 0:
                text = text[:at] or text
            case 1 | 2:
                text[at : at + 1] = bytes([int(rng.integers(256))])
            case 3 | 4:
                del text[at : at + int(rng.integers(1, 30))]
            case 5 | 6 | 7:  # a number becomes another one
                digits = [i for i in range(at, min(at + 40, len(text))) if 48 <= text[i] <= 57]
                if digits:
                    text[digits[0] : digits[0] + 1] = NUMBERS[rng.integers(len(NUMBERS))]
            case _:
                text[at:at] = PIECES[rng.integers(len(PIECES))]
    return bytes(text)


def survive(reader: Reader, folder: Path, count: int, refusal: type[Exception], seed: int = 3) -> Outcome:
    """Read `count` mutilated files; anything but an answer or a refusal in one line is an error here, also a warning.

    One in ten is packed: half of those before the damage, half of them after it.
    """
    rng, done = np.random.default_rng(seed), 0
    path = folder / f"file{reader.suffix}"
    for _ in range(count):
        whole = reader.files[rng.integers(len(reader.files))]
        packed = rng.integers(20)
        data = mutilated(rng, gzip.compress(whole, 1) if packed == 0 else whole)
        path.write_bytes(gzip.compress(data, 1) if packed == 1 else data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                reader.read(path)
            done += 1
        except refusal as error:
            assert "\n" not in str(error), str(error)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} at {path.read_bytes()!r}") from error
    return Outcome(done, count - done)
