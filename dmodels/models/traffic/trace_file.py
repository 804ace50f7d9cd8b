"""From the bytes of a trace file to columns: what is text, which layout it is, which lines are whole, what is a number.

Everything that cannot be read is a `TraceError`: one line with file, line, field, value, and what is accepted.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import TraceError
from dmodels.core.files import DECIMAL, separator

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
#: Seconds since 1970 until the year 5138; more are milliseconds.
_LATEST_S = 1e11


def decode(where: str, raw: bytes) -> str:
    """The text in a file's bytes; a byte order mark is dropped."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TraceError(f"{where}: line {line}: byte 0x{raw[error.start]:02x} is not text; accepted: UTF-8") from None
    if not text.strip():
        raise TraceError(f"{where}: empty; accepted: a trace with a header and at least one request")
    return text


def table(where: str, text: str, repair: bool, label: str = ""):
    """({name: values}, line numbers, layout, notices) of the table in `text`."""
    lines = text.replace("\r\n", "\n").split("\n")
    first = next(i for i, line in enumerate(lines) if line.strip())
    reader = _json_table if lines[first].lstrip()[:1] == "{" else _csv_table
    return reader(where, lines, first, repair, label)


def _csv_table(where: str, lines: list[str], first: int, repair: bool, label: str):
    comma = separator(lines[first])

    def cells(line: str) -> list[str]:
        line = line if comma == "," else DECIMAL.sub(r"\1.\2", line)
        if '"' not in line:
            return line.split(comma)
        try:
            return next(csv.reader([line], delimiter=comma), [])
        except csv.Error:
            return []

    layout, names = layout_of(where, [name.strip() for name in cells(lines[first])], first + 1)
    wanted(where, layout, names, label)
    rows = [(i + 1, cells(line)) for i, line in enumerate(lines) if i > first and line.strip()]
    wrong = [k for k, (_, row) in enumerate(rows) if len(row) != len(names)]
    notices: list[str] = []
    if wrong:
        last = wrong == [len(rows) - 1]
        line, row = rows[wrong[0]]
        what = "the last line is cut off: " if last else ""
        problem = f"line {line}: {what}{len(row)} of {len(names)} fields"
        if not repair:
            raise TraceError(f"{where}: {problem}; accepted: {len(names)} fields, or --repair (repair=True)")
        notices.append(f"dropped {counted(len(wrong), 'line')} with missing or extra fields, the first: {problem}")
        bad = set(wrong)
        rows = [row for k, row in enumerate(rows) if k not in bad]
    if not rows:
        raise TraceError(f"{where}: no usable request after the header; accepted: at least one")
    columns = dict(zip(names, zip(*(row for _, row in rows), strict=True), strict=True))
    return columns, [line for line, _ in rows], layout, notices


def _json_table(where: str, lines: list[str], first: int, repair: bool, label: str):
    kept = [(i + 1, line) for i, line in enumerate(lines) if line.strip()]
    rows: list[Any] = []
    notices: list[str] = []
    try:
        rows = json.loads("[" + ",".join(line for _, line in kept) + "]")
    except (ValueError, RecursionError):
        rows = []
    numbers = [i for i, _ in kept]
    if len(rows) != len(kept) or not all(type(row) is dict for row in rows):
        good, bad = [], []
        for i, line in kept:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            (good if isinstance(row, dict) else bad).append((i, row if isinstance(row, dict) else line))
        if bad:
            cut = "the last line is cut off: " if [i for i, _ in bad] == numbers[-1:] and good else ""
            problem = f"line {bad[0][0]}: {cut}{short(bad[0][1])} is not a JSON object"
            if not repair or not good:
                raise TraceError(f"{where}: {problem}; accepted: an object per line, or --repair (repair=True)")
            notices.append(f"dropped {counted(len(bad), 'line')} that are not JSON objects, the first: {problem}")
        numbers, rows = [i for i, _ in good], [row for _, row in good]
    layout, known = layout_of(where, list(rows[0]), numbers[0])
    if known != list(rows[0]):
        spelled = dict(zip(rows[0], known, strict=True))
        rows = [{spelled.get(name, name): value for name, value in row.items()} for row in rows]
    columns = {}
    for name in wanted(where, layout, rows[0], label):
        try:
            columns[name] = [row[name] for row in rows]
        except KeyError:
            line = next(i for i, row in zip(numbers, rows, strict=True) if name not in row)
            raise TraceError(f"{where}: line {line}: {name!r} is missing; accepted: every line has it") from None
    return columns, numbers, layout, notices


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
    found = _floats(values)
    bad = ~(np.isfinite(found) & (found >= 0) & (found <= _MAX_TOKENS) & (np.floor(found) == found))
    if bad.any():
        k = int(np.argmax(bad))
        raise TraceError(f"{where}: line {lines[k]}: {name} = {short(values[k])}; accepted: a whole number from 0")
    return found


def _floats(values: Sequence[Any]) -> np.ndarray:
    """float64, with nan for what is not a number (booleans and strings in JSON are not)."""
    text = isinstance(values[0], str)
    try:
        if set(map(type, values)) <= ({str} if text else {int, float}):
            return np.array(values, dtype=str if text else np.float64).astype(np.float64)
    except (ValueError, OverflowError):
        pass
    return np.array([_float(value) for value in values])


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return float("nan")
    try:
        return float(value)
    except (ValueError, OverflowError):
        return float("nan")


def seconds(where: str, layout: Layout, values: Sequence[Any], lines: Sequence[int]) -> np.ndarray:
    if layout.unit_s > 0:
        found = _floats(values)
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
                found = np.array([stamp[1] for stamp in stamps], "datetime64[ns]")
                return (found - found[0]).astype(np.int64) * 1e-9
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


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
