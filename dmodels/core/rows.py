"""Rows of a file, one after another in memory: JSON lines, CSV, and the columns of Parquet and Arrow files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import InputError
from .extras import needed
from .files import BROKEN, broken, opened, read_lines, table_rows

#: Rows of a table of columns that are in memory at a time.
BATCH_ROWS = 8192
#: What begins a file of columns: Parquet, and Arrow's file and stream.
PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"


def json_rows(path: Path) -> Iterator[Any]:
    """One object a line; a line that is none is handed on as text."""
    for line in read_lines(path, errors="replace"):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield line.strip()


def csv_rows(path: Path) -> Iterator[Any]:
    """A mapping a row, under the names of the header; a row that cannot be split comes as text."""
    rows = table_rows(read_lines(path, errors="replace"))
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)


def has_columns(path: Path) -> bool:
    """Whether a file is one of columns, by how it begins."""
    try:
        with opened(path) as stream:
            start = stream.read(6)
    except BROKEN as error:
        raise broken(path, error) from None
    return start.startswith((PARQUET, ARROW_FILE, ARROW_STREAM))


def batches(path: Path) -> Iterator[Any]:
    """The record batches (pyarrow) of a Parquet or Arrow file, each checked: pyarrow ends the process where it uses one
    whose lengths and offsets a broken file made up."""
    with readable(path):
        for batch in _batches(path):
            if batch.num_rows < 0:
                raise InputError(f"{path.name}: a batch of {batch.num_rows} rows; a whole file is accepted")
            batch.validate(full=True)
            yield batch


def _batches(path: Path) -> Iterator[Any]:
    with path.open("rb") as raw:
        start = raw.read(6)
    if start.startswith(PARQUET):
        with needed("pyarrow.parquet", path.name).ParquetFile(path) as file:
            yield from file.iter_batches(BATCH_ROWS)
        return
    ipc = needed("pyarrow.ipc", path.name)
    with needed("pyarrow", path.name).memory_map(str(path)) as source:
        if start.startswith(ARROW_FILE):
            with ipc.open_file(source) as file:
                yield from (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            with ipc.open_stream(source) as stream:
                yield from stream


def column_rows(path: Path) -> Iterator[Any]:
    """A mapping a row of a Parquet or Arrow file."""
    for batch in batches(path):
        with readable(path):
            rows = batch.to_pylist()
        yield from rows


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """In one line, whatever pyarrow says of a broken file, of text that is not UTF-8, of dates beyond Python's."""
    arrow = needed("pyarrow", f"{path.name}: reading Parquet and Arrow")
    try:
        yield
    except InputError:
        raise
    except (arrow.ArrowException, ValueError, OSError, ArithmeticError) as error:
        raise InputError(f"{path.name}: not a file of columns that can be read ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
