"""Rows of a file, some at a time in memory: JSON lines, CSV, and the columns of Parquet and Arrow files."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import InputError
from .extras import needed
from .files import BROKEN, broken, opened, read_lines, table_rows

if TYPE_CHECKING:
    from .records import Floats

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
    return _split(table_rows(read_lines(path, errors="replace")))


def _split(rows: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)


class Block(NamedTuple):
    """Some rows of a table in columns: the cells under each name, None where a row has none."""

    rows_count: int
    columns: dict[Any, Sequence[Any]]
    broken: dict[int, str]  # row of these -> what could not be read


def blocks(rows: Iterable[Any]) -> Iterator[Block]:
    """Rows that are mappings, or text where one could not be read."""
    for some in _batched(rows):
        broken = {i: str(row) for i, row in enumerate(some) if not isinstance(row, Mapping)}
        found = [{} if i in broken else row for i, row in enumerate(some)]
        names = dict.fromkeys(itertools.chain.from_iterable(found))
        yield Block(len(some), {name: [row.get(name) for row in found] for name in names}, broken)


def csv_blocks(path: Path) -> Iterator[Block]:
    """`csv_rows` in columns."""
    table = table_rows(read_lines(path, errors="replace"))
    try:
        header = table.fieldnames or ()
    except csv.Error as error:
        raise InputError(
            f"{path.name}: a header that cannot be split ({error}); one name a column is accepted"
        ) from None
    for some in _batched(_split(table.reader)):
        broken = {i: row for i, row in enumerate(some) if isinstance(row, str)}
        cells = itertools.zip_longest(*([] if i in broken else row for i, row in enumerate(some)))
        yield Block(len(some), dict(zip(header, cells, strict=False)), broken)


def column_blocks(path: Path) -> Iterator[Block]:
    """The columns of a Parquet or Arrow file."""
    for batch in batches(path):
        with readable(path):
            columns = {name: column.to_pylist() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        yield Block(batch.num_rows, columns, {})


def _batched(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while some := list(itertools.islice(rows, BATCH_ROWS)):
        yield some


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


def numbers(values: Sequence[Any]) -> Floats:
    """float64 of the cells of a column, numbers or text, with nan for what is neither; booleans are no numbers.

    >>> numbers(["0.5", 2, None, "soon", True]).tolist()
    [0.5, 2.0, nan, nan, nan]
    """
    try:
        if set(map(type, values)) <= {str, int, float}:
            return np.array(list(map(float, values)), np.float64)
    except (ValueError, OverflowError):
        pass
    return np.array([_number(value) for value in values], np.float64)


def _number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool | np.bool_) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


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
