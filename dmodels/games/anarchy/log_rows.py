"""Rows of a request log as its file holds them: JSON lines, CSV, Parquet. What a row says is read elsewhere."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmodels.core.errors import InputError, TraceError
from dmodels.core.files import read_lines, table_rows


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


def parquet_rows(path: Path) -> Iterator[Any]:
    """A mapping a row, 8,192 of them in memory at a time."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"{path.name}: reading Parquet needs pyarrow; pip install 'dmodels[io]'") from None
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(8192):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise TraceError(f"{path.name}: not a Parquet file that can be read ({str(error).splitlines()[0]})") from None
