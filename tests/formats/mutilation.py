"""Files as they should not be: a few bytes replaced, taken out, put in, or the end cut off; some are packed."""

from __future__ import annotations

import gzip
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

#: What is put in: digits, signs and brackets where they do harm in JSON, YAML, CSV, commands and labels.
PIECES = (b"0", b"-", b"e9", b"null", b"[", b"{", b'"', b"'", b": ", b"NaN", b"\n", b",")

#: A digit, and what it is replaced by.
DIGIT = re.compile(rb"[0-9]")
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


def mutilated(rng: Random, whole: bytes) -> bytes:
    """`whole` with a change, or several: half of all files have one."""
    text = bytearray(whole)
    while True:
        at = rng.randrange(len(text) or 1)
        match rng.randrange(10):
            case 0:
                text = text[:at] or text
            case 1 | 2:
                text[at : at + 1] = bytes([rng.randrange(256)])
            case 3 | 4:
                del text[at : at + rng.randrange(1, 30)]
            case 5 | 6 | 7:  # a number becomes another one
                if digit := DIGIT.search(text, at):
                    text[digit.start() : digit.end()] = rng.choice(NUMBERS)
            case _:
                text[at:at] = rng.choice(PIECES)
        if rng.random() < 0.5:
            return bytes(text)


def survive(reader: Reader, folder: Path, count: int, refusal: type[Exception], seed: int = 3) -> Outcome:
    """Read `count` mutilated files; anything but an answer or a refusal in one line is an error here, also a warning.

    One in ten is packed: half of those before the damage, half of them after it.
    """
    rng, done = Random(seed), 0
    path = folder / f"file{reader.suffix}"
    packed = {whole: gzip.compress(whole, 1) for whole in reader.files}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(count):
            whole, kind = rng.choice(reader.files), rng.randrange(20)
            data = mutilated(rng, packed[whole] if kind == 0 else whole)
            path.write_bytes(gzip.compress(data, 1) if kind == 1 else data)
            try:
                reader.read(path)
                done += 1
            except refusal as error:
                assert "\n" not in str(error), str(error)
            except Exception as error:
                raise AssertionError(f"{type(error).__name__} at {path.read_bytes()!r}") from error
    return Outcome(done, count - done)
