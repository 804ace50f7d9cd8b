"""From the bytes of a trace file to columns: what is text, which layout it is, which lines are whole, what is a number.

Everything that cannot be read is a `TraceError`: one line with file, line, field, value, and what is accepted.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import TraceError
from dmodels.core.files import DECIMAL, read_lines, separator
from dmodels.core.rows import numbers
from dmodels.core.units import counted

#: Longest sequence that is believed; more is a corrupted number.
_MAX_TOKENS = 1e9


class Layout(NamedTuple):
    """The names of the columns, and how time is written."""

    name: str
    time: str
    input: str
    output: str
    unit_s: float  # 0: a date and time


LAYOUTS = (
    Layout("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", 0.0),
    Layout("mooncake", "timestamp", "input_length", "output_length", 1e-3),
    Layout("burstgpt", "Timestamp", "Request tokens", "Response tokens", 1.0),
    Layout("plain", "time_s", "input_tokens", "output_tokens", 1.0),
    Layout("plain", "time_ms", "input_tokens", "output_tokens", 1e-3),
)
#: Characters of a table that are in memory at a time, and most lines that are read: a device has no end.
CHUNK_CHARS, MOST_LINES = 1 << 20, 1 << 28
#: Seconds since 1970 until the year 5138; more are milliseconds.
_LATEST_S = 1e11


class TablePart(NamedTuple):
    """Some lines of a table: {name: values}, their numbers, and the layout of all of it."""

    columns: dict[str, Sequence[Any]]
    lines: Sequence[int]
    layout: Layout


class Dropped:
    """The lines that could not be read, while a file is being read."""

    def __init__(self, where: str, repair: bool) -> None:
        self.where, self.repair = where, repair
        self.count, self.first, self.kind = 0, "", ""

    def add(self, lines: Sequence[int], first: str, kind: str, accepted: str) -> None:
        """Count lines of a kind; without `repair` they are an error."""
        if not self.repair:
            raise TraceError(f"{self.where}: {first}; accepted: {accepted}, or --repair (repair=True)")
        self.first, self.kind = self.first or first, kind
        self.count += len(lines)

    def notices(self) -> list[str]:
        """What was dropped, in words."""
        return [f"dropped {counted(self.count, 'line')} {self.kind}, the first: {self.first}"] * bool(self.count)


def parts(path: Path, dropped: Dropped, label: str = "") -> Iterator[TablePart]:
    """A table of text, some lines after another, so that a file may be larger than the memory."""
    chunks = _chunks(path, dropped.where)
    found = False
    reader: _JsonTable | _CsvTable | None = None
    for lines, is_last in chunks:
        if reader is None:
            begins_object = lines[0][1].lstrip()[:1] == "{"
            reader = _JsonTable(dropped, label) if begins_object else _CsvTable(dropped, label)
        part = reader.read(lines, is_last)
        if part is not None:
            found = True
            yield part
    if reader is None:
        raise TraceError(f"{dropped.where}: empty; accepted: a trace with a header and at least one request")
    if not found:
        raise TraceError(f"{dropped.where}: {dropped.first or 'no usable request after the header'}; {reader.NEEDED}")


def _chunks(path: Path, where: str) -> Iterator[tuple[list[tuple[int, str]], bool]]:
    """(numbered lines that are not blank, whether they are the last ones), some `CHUNK_CHARS` at a time."""
    kept: list[tuple[int, str]] = []
    size = 0
    for i, line in enumerate(read_lines(path, errors="surrogateescape"), 1):
        if not line.isascii():
            _check_text(where, i, line)
        if line.isspace():
            continue
        if size > CHUNK_CHARS:
            yield kept, False
            kept, size = [], 0
        size += len(line)
        kept.append((i, line.rstrip("\r\n")))
        if i > MOST_LINES:
            raise TraceError(f"{where}: more than {MOST_LINES:,} lines; a shorter trace is accepted")
    if kept:
        yield kept, True


def _check_text(where: str, number: int, line: str) -> None:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        byte = ord(line[error.start]) - 0xDC00
        raise TraceError(f"{where}: line {number}: byte 0x{byte:02x} is not text; accepted: UTF-8") from None


class _CsvTable:
    """A table with a header."""

    NEEDED = "accepted: at least one"

    def __init__(self, dropped: Dropped, label: str) -> None:
        self.dropped, self.label = dropped, label
        self.comma, self.layout = "", LAYOUTS[0]
        self.names: list[str] = []

    def read(self, lines: list[tuple[int, str]], is_last: bool) -> TablePart | None:
        """The columns of some lines; None: none of them can be used."""
        if not self.names:
            (number, header), *lines = lines
            self.comma = separator(header)
            names = [name.strip() for name in self._cells(header)]
            self.layout, self.names = layout_of(self.dropped.where, names, number)
            wanted(self.dropped.where, self.layout, self.names, self.label)
        rows = [(i, self._cells(line)) for i, line in lines]
        width = len(self.names)
        wrong = [k for k, (_, row) in enumerate(rows) if len(row) != width]
        if wrong:
            cut = is_last and wrong == [len(rows) - 1] and not self.dropped.count
            number, row = rows[wrong[0]]
            problem = f"line {number}: {'the last line is cut off: ' if cut else ''}{len(row)} of {width} fields"
            self.dropped.add(wrong, problem, "with missing or extra fields", f"{width} fields")
            rows = [row for row in rows if len(row[1]) == width]
        if not rows:
            return None
        columns = dict(zip(self.names, zip(*(row for _, row in rows), strict=True), strict=True))
        return TablePart(columns, [number for number, _ in rows], self.layout)

    def _cells(self, line: str) -> list[str]:
        line = line if self.comma == "," else DECIMAL.sub(r"\1.\2", line)
        if '"' not in line:
            return line.split(self.comma)
        try:
            return next(csv.reader([line], delimiter=self.comma), [])
        except csv.Error:
            return []


class _JsonTable:
    """An object a line; the first one says which fields there are."""

    NEEDED = "accepted: an object per line"

    def __init__(self, dropped: Dropped, label: str) -> None:
        self.dropped, self.label = dropped, label
        self.layout: Layout | None = None
        self.spelled: dict[str, str] = {}
        self.kept: list[str] = []

    def read(self, lines: list[tuple[int, str]], is_last: bool) -> TablePart | None:
        """The columns of some lines; None: none of them can be used."""
        where = self.dropped.where
        rows = _objects(lines)
        good = [(i, row) for (i, _), row in zip(lines, rows, strict=True) if row is not None]
        wrong = [(i, line) for (i, line), row in zip(lines, rows, strict=True) if row is None]
        if wrong:
            alone = is_last and wrong == lines[-1:] and not self.dropped.count
            cut = "the last line is cut off: " if alone and (good or self.layout) else ""
            problem = f"line {wrong[0][0]}: {cut}{short(wrong[0][1])} is not a JSON object"
            self.dropped.add([i for i, _ in wrong], problem, "that are not JSON objects", "an object per line")
        if not good:
            return None
        if self.layout is None:
            number, first = good[0]
            self.layout, known = layout_of(where, list(first), number)
            self.spelled = {name: ours for name, ours in zip(first, known, strict=True) if name != ours}
            self.kept = wanted(where, self.layout, known, self.label)
        found = [row for _, row in good]
        if self.spelled:
            found = [{self.spelled.get(name, name): value for name, value in row.items()} for row in found]
        columns = {}
        for name in self.kept:
            try:
                columns[name] = [row[name] for row in found]
            except KeyError:
                number = next(i for (i, _), row in zip(good, found, strict=True) if name not in row)
                raise TraceError(f"{where}: line {number}: {name!r} is missing; accepted: every line has it") from None
        return TablePart(columns, [i for i, _ in good], self.layout)


def _objects(lines: list[tuple[int, str]]) -> list[dict[str, Any] | None]:
    """The objects in lines, None where one is none; all at once where all are."""
    try:
        rows = json.loads("[" + ",".join(line for _, line in lines) + "]")
        if len(rows) == len(lines) and all(type(row) is dict for row in rows):
            return rows
    except (ValueError, RecursionError):
        pass
    return [_object(line) for _, line in lines]


def _object(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def wanted(where: str, layout: Layout, names: Collection[str], label: str) -> list[str]:
    """The columns of a layout that count, of those that there are, and the one of the requests' labels."""
    if label and label not in names:
        raise TraceError(f"{where}: no column {label!r}; there are {short(','.join(names))}")
    more = {"mooncake": ["hash_ids"], "plain": ["cached_tokens"]}.get(layout.name, [])
    return [layout.time, layout.input, layout.output, *(name for name in more if name in names), *[label] * bool(label)]


def layout_of(where: str, names: Sequence[str], line: int) -> tuple[Layout, list[str]]:
    """The layout with these columns, in capitals or not, and the columns as it calls them."""
    folded = [name.lower() for name in names]
    for layout in LAYOUTS:
        needed = layout.time, layout.input, layout.output
        if {name.lower() for name in needed} <= set(folded):
            if len(set(folded)) < len(folded):
                raise TraceError(f"{where}: line {line}: a column name occurs twice; accepted: each once")
            ours = {name.lower(): name for name in (*needed, "hash_ids", "cached_tokens")}
            return layout, [ours.get(low, name) for low, name in zip(folded, names, strict=True)]
    known = " | ".join(f"{x.time},{x.input},{x.output}" for x in LAYOUTS[:4])
    raise TraceError(
        f"{where}: line {line}: columns {short(','.join(names))} are unknown; accepted: {known}; "
        f"name yours time_s,input_tokens,output_tokens"
    )


def whole_numbers(where: str, name: str, values: Sequence[Any], lines: Sequence[int]) -> np.ndarray:
    """Token counts: whole, finite, not negative."""
    found = numbers(values)
    bad = ~(np.isfinite(found) & (found >= 0) & (found <= _MAX_TOKENS) & (np.floor(found) == found))
    if bad.any():
        k = int(np.argmax(bad))
        raise TraceError(f"{where}: line {lines[k]}: {name} = {short(values[k])}; accepted: a whole number from 0")
    return found


def times(where: str, layout: Layout, values: Sequence[Any], lines: Sequence[int]) -> np.ndarray:
    """Arrivals in seconds, or as points in time (datetime64)."""
    if layout.unit_s > 0:
        found = numbers(values)
        bad = ~(np.isfinite(found) & (np.abs(found) < 1e15))
        accepted = f"a finite number of {'ms' if layout.unit_s < 1 else 's'}"
        if layout.unit_s == 1.0 and not bad.any() and found.max() > _LATEST_S:
            bad, accepted = found > _LATEST_S, "seconds; milliseconds are in a column called time_ms"
        if not bad.any():
            return found * layout.unit_s
    else:
        accepted = "a date and time like 2023-11-16 18:17:03.9799600"
        stamps = [_DATE.fullmatch(value.strip()) if isinstance(value, str) else None for value in values]
        bad = np.array([stamp is None for stamp in stamps])
        if not bad.any():
            try:
                return np.array([stamp[1] for stamp in stamps], "datetime64[ns]")
            except ValueError:
                bad = np.array([not _is_date(stamp[1]) for stamp in stamps])
    k = int(np.argmax(bad))
    raise TraceError(f"{where}: line {lines[k]}: {layout.time} = {short(values[k])}; accepted: {accepted}")


_DATE = re.compile(r"([12]\d{3}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|[+-]00:?00)?", re.ASCII)


def _is_date(text: str) -> bool:
    try:
        np.datetime64(text, "ns")
    except ValueError:
        return False
    return True


def short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python prints, or a deep nesting
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= 60 else f"{text[:57]}..."
