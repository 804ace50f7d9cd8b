"""Traces that are no text of one table: columns of Parquet and Arrow files, and rows of gateways' logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dmodels.core.errors import TraceError
from dmodels.core.extras import needed
from dmodels.core.files import read_lines, read_text
from dmodels.core.rows import batches, csv_rows, json_rows

from . import access_log
from .trace_file import Layout, layout_of, wanted


def columns_of(path: Path, where: str, label: str = "") -> tuple[dict[str, Any], range, Layout] | None:
    """({name: values}, row numbers, layout) of a file of columns; None: a gateway's log."""
    first = next((part for part in batches(path) if len(part)), None)
    if first is None:
        raise TraceError(f"{where}: no row; accepted: a trace with at least one request")
    if _of_gateway(first.slice(0, 1).to_pylist()[0]):
        return None
    names = list(map(str, first.schema.names))
    layout, spelled = layout_of(where, names, 1)
    kept = wanted(where, layout, spelled, label)
    at = [spelled.index(name) for name in kept]
    whole = needed("pyarrow", where).Table.from_batches([part.select(at) for part in batches(path)])
    columns = {name: _values(whole.column(i)) for i, name in enumerate(kept)}
    return columns, range(1, len(whole) + 1), layout


def gateway_rows(path: Path) -> Iterator[Any] | None:
    """The rows of a text file that is a gateway's log; None: it is none."""
    first = next((line.lstrip() for line in read_lines(path, errors="replace") if line.strip()), "")
    if first.startswith("["):
        rows = _listed(path)
        return iter(rows) if rows and _of_gateway(rows[0]) else None
    read = json_rows if first.startswith("{") else csv_rows
    return read(path) if _of_gateway(next(read(path), None)) else None


def _of_gateway(row: Any) -> bool:
    """Whether a row is of a gateway's log and of none of the layouts."""
    if not access_log.knows(row):
        return False
    try:
        layout_of("", list(map(str, row)), 1)
    except TraceError:
        return True
    return False


def _listed(path: Path) -> list[Any]:
    """The rows of a document that is one list of them."""
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _values(column: Any) -> Any:
    """A column as Python's values; points in time as text, to the nanosecond."""
    arrow = needed("pyarrow", "a column of times")
    if arrow.types.is_timestamp(column.type):
        times = column.cast(arrow.timestamp("ns")).to_numpy()
        return [str(when) for when in np.datetime_as_string(times, unit="ns")]
    return column.to_pylist()
