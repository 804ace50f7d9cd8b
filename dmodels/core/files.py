"""Files: read as people have them (packed, marked, with semicolons), and written whole or not at all, in one way."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import itertools
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from .errors import InputError
from .extras import needed

#: The folder of this package.
PACKAGE = Path(__file__).parents[1]
#: Most that is read of one file, unpacked: a trace of some ten million requests. A device has no end.
MOST_BYTES = 1 << 30
#: Most of a document that is parsed as a whole (a config, a scenario, a table of GPUs).
MOST_DOCUMENT_BYTES = 1 << 26


def read_bytes(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """What a file holds, unpacked where it is .gz or .zst; refused beyond `most_bytes`, so that no file is endless."""
    with opened(path) as stream:
        try:
            held = stream.read(most_bytes + 1)
        except BROKEN as error:
            raise broken(path, error) from None
    if len(held) > most_bytes:
        raise InputError(f"{path}: holds more than {most_bytes >> 20:,} MiB; a smaller file is accepted")
    return held


def read_text(path: str | os.PathLike[str], most_bytes: int = MOST_DOCUMENT_BYTES) -> str:
    """The text of a file in UTF-8, without the byte order mark that some editors write."""
    try:
        return read_bytes(path, most_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text in UTF-8") from None


def read_lines(
    path: str | os.PathLike[str], errors: str = "strict", most_bytes: int = MOST_DOCUMENT_BYTES
) -> Iterator[str]:
    """The lines of a text file, one after another in memory, each of at most `most_bytes`; `errors` is what becomes of
    bytes that are not UTF-8."""
    with opened(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", errors=errors, newline="") as stream:
        try:
            while line := stream.readline(most_bytes + 1):
                if len(line) > most_bytes:
                    most = f"{most_bytes >> 20} MiB"
                    raise InputError(f"{path}: a line of more than {most}; shorter ones are accepted")
                yield line
        except UnicodeDecodeError:
            raise InputError(f"{path}: not text in UTF-8; accepted are JSON, JSONL, YAML and CSV, also .gz") from None
        except BROKEN as error:
            raise broken(path, error) from None


class BrokenArchiveError(Exception):
    """A .zst that is cut off, or none."""


BROKEN = (EOFError, zlib.error, gzip.BadGzipFile, BrokenArchiveError)


def broken(path: str | os.PathLike[str], error: Exception) -> InputError:
    """The mistake of an archive that is cut off."""
    kind = "zst" if isinstance(error, BrokenArchiveError) else "gzip"
    return InputError(f"{path}: broken {kind} file ({str(error)[:80]}); a whole one is accepted")


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """The bytes of a file; packed ones are known by how they begin, whatever their name."""
    with Path(path).open("rb") as raw:
        start = raw.peek(4)[:4]
        if start[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield cast(IO[bytes], unpacked)
        elif start == b"\x28\xb5\x2f\xfd":
            with io.BufferedReader(cast(io.RawIOBase, _Zst(path, raw))) as unpacked:
                yield unpacked
        else:
            yield raw


class _Zst(io.RawIOBase):
    """The bytes of a .zst, unpacked as they are read."""

    def __init__(self, path: str | os.PathLike[str], raw: IO[bytes]) -> None:
        arrow = needed("pyarrow", f"{path}: reading .zst")
        self._unpacked = arrow.CompressedInputStream(raw, "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            got = self._unpacked.read(len(buffer))
        except OSError as error:
            raise BrokenArchiveError(str(error)) from None
        buffer[: len(got)] = got
        return len(got)


def csv_rows(text: str) -> csv.DictReader[str]:
    """Rows of a CSV table by column name; blank lines, and lines that begin with #, are remarks.

    Spreadsheets of half the world separate by semicolons or tabs, and write 0,5: both are read.

    >>> next(csv_rows("# a remark\\nname;price\\nh100;3,9"))
    {'name': 'h100', 'price': '3.9'}
    """
    return table_rows(io.StringIO(text, newline=None))  # `splitlines` also ends a line at what may stand in a cell


def table_rows(lines: Iterable[str]) -> csv.DictReader[str]:
    """`csv_rows` of lines that come one after another."""
    kept = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    first = next(kept, "")
    comma = separator(first)
    rest = kept if comma == "," else (DECIMAL.sub(r"\1.\2", line) for line in kept)
    return csv.DictReader(itertools.chain([first] if first else [], rest), delimiter=comma)


def separator(header: str) -> str:
    """What stands between the columns: a comma, or the semicolon or tab of a header that has more of them."""
    return max(",;\t", key=header.count)


#: A number with a decimal comma, as a cell of a table whose columns are not separated by commas.
DECIMAL = re.compile(r"(?<![^;\t\s\"])(-?\d+),(\d+)(?![^;\t\s\"])")


def remarks(text: str) -> list[str]:
    """The lines of a table that begin with #, without it.

    >>> remarks("# source: a page\\nname,price")
    ['source: a page']
    """
    return [line.lstrip()[1:].strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def check_writable(path: str | os.PathLike[str]) -> None:
    """Bad input where a file cannot be written, known before what goes into it is computed."""
    folder = Path(path).absolute().parent
    while not folder.exists():
        folder = folder.parent
    try:
        if Path(path).is_file() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        Path(tempfile.mkdtemp(dir=folder, prefix=".dmodels.")).rmdir()
    except OSError as error:
        raise InputError(f"{path}: cannot be written there ({_reason(error)})") from None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write a file or folder to; at the end it takes the place of `path`, unless something went wrong.

    It lies beside the target, so that the last step is a rename: readers never see half a result. Folders on the way
    are made.
    """
    path = Path(path)
    if not path.name:
        raise InputError(f"{str(path)!r} is a folder; the name of a file is accepted")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=path.absolute().parent, prefix=f".{path.name}."))
    except OSError as error:
        raise InputError(f"{path}: cannot be written there ({_reason(error)})") from None
    DRAFTS.add(folder)
    try:
        draft = folder / path.name
        yield draft
        if path.is_dir():  # a folder cannot be replaced in one step: set the old one aside first
            path.rename(folder / "old")
        os.replace(draft, path)
    except OSError as error:
        if error.filename and not str(error.filename).startswith(str(folder)):
            raise
        raise InputError(f"{path}: cannot be written ({_reason(error)})") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        DRAFTS.discard(folder)


#: Folders of files that are being written.
DRAFTS: set[Path] = set()


def drop_drafts() -> None:
    """Remove what is half written, for a process that is about to end without unwinding."""
    for folder in list(DRAFTS):
        shutil.rmtree(folder, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file whole or not at all."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return Path(path)
