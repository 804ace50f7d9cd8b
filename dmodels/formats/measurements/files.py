"""Files of measurements as lines and objects: plain or packed, a log without holding it as a whole."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dmodels.core.errors import InputError

#: A document beyond this is a log, which is read a line at a time.
MOST_BYTES = 1 << 28


def lines(path: Path) -> Iterator[str]:
    """Lines of a text file; .gz and .zst by their first bytes."""
    try:
        with path.open("rb") as raw, io.TextIOWrapper(_unpacked(raw, path), encoding="utf-8-sig") as stream:
            yield from stream
    except UnicodeDecodeError:
        raise InputError(f"{path.name}: not text in UTF-8; accepted are JSON, JSONL, YAML and CSV, also .gz") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path.name}: broken archive ({error}); accepted is a whole .gz") from None


def _unpacked(raw: IO[bytes], path: Path) -> IO[bytes]:
    start = raw.read(4)
    raw.seek(0)
    if start[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if start == b"\x28\xb5\x2f\xfd":
        try:
            import zstandard  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise InputError(f"{path.name}: reading .zst needs the package zstandard; or unpack it") from None
        return zstandard.ZstdDecompressor().stream_reader(raw)  # type: ignore[no-any-return]
    return raw


def whole_text(path: Path, first: str, rest: Iterator[str]) -> str:
    """The text of a document."""
    parts, size = [first], len(first)
    for line in rest:
        parts.append(line)
        size += len(line)
        if size > MOST_BYTES:
            raise InputError(f"{path.name}: a document of more than {MOST_BYTES >> 20} MiB; accepted are logs as JSONL")
    return "".join(parts)


def parsed(line: str, where: str) -> Any:
    """JSON; NaN and infinities, which some writers leave in, are null."""
    try:
        return json.loads(line, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {' '.join(str(error).split())[:80]}") from None
