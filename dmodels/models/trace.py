"""Traffic traces: what arrived when. Readers for four public layouts, prefix-cache hits, burstiness.

The layout is found from the names of the columns (CSV header, or keys of the first JSON line); gzip is accepted:

    azure     TIMESTAMP (date and time), ContextTokens, GeneratedTokens        Azure/AzurePublicDataset
    mooncake  timestamp (ms), input_length, output_length, hash_ids            kvcache-ai/Mooncake
    burstgpt  Timestamp (s), Request tokens, Response tokens, ...              HPMLL/BurstGPT
    plain     time_s, input_tokens, output_tokens (cached_tokens)              for everything else

A file that cannot be trusted is refused with a `TraceError`: one line with file, line, field, value, and what is
accepted. `repair=True` mends what can be mended (sorts, drops) and says so in `Trace.notices`.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError, TraceError

#: Tokens of one prefix block in Mooncake traces.
BLOCK_TOKENS = 512
#: Longest sequence that is believed; more is a corrupted number.
_MAX_TOKENS = 1e9


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival, on the host. Time starts at 0."""

    name: str
    time_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    cached_tokens: np.ndarray | float = 0.0  # part of the input that a prefix cache holds, where the file says so
    block_ids: np.ndarray | None = None  # prefix blocks of all requests, one after another ...
    block_starts: np.ndarray | None = None  # ... request i has block_ids[block_starts[i]:block_starts[i + 1]]
    layout: str = "plain"
    notices: tuple[str, ...] = field(default=())  # what was mended or dropped, in words, with counts

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.time_s[-1] - self.time_s[0])

    @property
    def rate_rps(self) -> float:
        """Gaps per second between first and last arrival; nan where all arrive at one instant."""
        return (len(self) - 1) / self.duration_s if self.duration_s > 0 else float("nan")


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
)


def read_trace(path: str | PathLike, repair: bool = False) -> Trace:
    """The trace in a file. Raises `TraceError` for what is not one, and `OSError` where there is no file.

    `repair`: sort what is out of order, drop lines that cannot be read and requests of zero length, each with a notice.
    Without it these are errors, because they more often mean a broken export than traffic. BurstGPT marks failed
    requests by 0 response tokens; those are always dropped, with a notice.
    """
    where = str(path)
    columns, lines, layout, notices = _columns(where, _text(where, Path(path).read_bytes()), repair)
    time_s = _times(where, layout, columns[layout.time], lines)
    sizes = [_numbers(where, name, columns[name], lines) for name in (layout.input, layout.output)]
    cached = columns.get("cached_tokens") if layout.name == "plain" else None
    cached_tokens = _numbers(where, "cached_tokens", cached, lines) if cached is not None else np.zeros(len(lines))
    trace = _Rows(time_s, *sizes, cached_tokens, np.asarray(lines), columns.get("hash_ids"))
    trace, notices = _drop_unserved(where, layout, trace, notices, repair)
    trace, notices = _in_order(where, layout, trace, notices, repair)
    ids, starts = _blocks(where, trace)
    return Trace(Path(where).name, trace.time - trace.time[0], trace.input, trace.output,
                 trace.cached if cached is not None else 0.0, ids, starts, layout.name, tuple(notices))  # fmt: skip


class _Rows(NamedTuple):
    time: np.ndarray
    input: np.ndarray
    output: np.ndarray
    cached: np.ndarray
    line: np.ndarray
    blocks: Any

    def take(self, index: np.ndarray) -> _Rows:
        blocks = None if self.blocks is None else [self.blocks[i] for i in index]
        return _Rows(*(x[index] for x in self[:5]), blocks)


def _text(where: str, raw: bytes) -> str:
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise TraceError(f"{where}: broken gzip file ({error}); accepted: a whole .gz of a trace") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TraceError(f"{where}: line {line}: byte 0x{raw[error.start]:02x} is not text; accepted: UTF-8") from None
    if not text.strip():
        raise TraceError(f"{where}: empty; accepted: a trace with a header and at least one request")
    return text


def _columns(where: str, text: str, repair: bool):
    """({name: values}, line numbers, layout, notices) of the table in `text`."""
    lines = text.replace("\r\n", "\n").split("\n")
    first = next(i for i, line in enumerate(lines) if line.strip())
    reader = _json_table if lines[first].lstrip()[:1] == "{" else _csv_table
    return reader(where, lines, first, repair)


def _csv_table(where: str, lines: list[str], first: int, repair: bool):
    def cells(line: str) -> list[str]:
        if '"' not in line:
            return line.split(",")
        try:
            return next(csv.reader([line]), [])
        except csv.Error:
            return []

    names = [name.strip() for name in cells(lines[first])]
    layout = _layout(where, names, first + 1)
    rows = [(i + 1, cells(line)) for i, line in enumerate(lines) if i > first and line.strip()]
    wrong = [k for k, (_, row) in enumerate(rows) if len(row) != len(names)]
    notices: list[str] = []
    if wrong:
        last = wrong == [len(rows) - 1]
        line, row = rows[wrong[0]]
        what = "the last line is cut off: " if last else ""
        problem = f"line {line}: {what}{len(row)} of {len(names)} fields"
        if not repair:
            raise TraceError(f"{where}: {problem}; accepted: {len(names)} fields, or repair to drop such lines")
        notices.append(f"dropped {_n(len(wrong), 'line')} with missing or extra fields, the first: {problem}")
        bad = set(wrong)
        rows = [row for k, row in enumerate(rows) if k not in bad]
    if not rows:
        raise TraceError(f"{where}: no usable request after the header; accepted: at least one")
    columns = dict(zip(names, zip(*(row for _, row in rows), strict=True), strict=True))
    return columns, [line for line, _ in rows], layout, notices


def _json_table(where: str, lines: list[str], first: int, repair: bool):
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
            problem = f"line {bad[0][0]}: {cut}{_short(bad[0][1])} is not a JSON object"
            if not repair or not good:
                raise TraceError(f"{where}: {problem}; accepted: an object per line, or repair to drop such lines")
            notices.append(f"dropped {_n(len(bad), 'line')} that are not JSON objects, the first: {problem}")
        numbers, rows = [i for i, _ in good], [row for _, row in good]
    layout = _layout(where, list(rows[0]), numbers[0])
    names = [layout.time, layout.input, layout.output]
    if layout.name == "mooncake" and "hash_ids" in rows[0]:
        names.append("hash_ids")
    if layout.name == "plain" and "cached_tokens" in rows[0]:
        names.append("cached_tokens")
    columns = {}
    for name in names:
        try:
            columns[name] = [row[name] for row in rows]
        except KeyError:
            line = next(i for i, row in zip(numbers, rows, strict=True) if name not in row)
            raise TraceError(f"{where}: line {line}: {name!r} is missing; accepted: every line has it") from None
    return columns, numbers, layout, notices


def _layout(where: str, names: Sequence[str], line: int) -> Layout:
    for layout in LAYOUTS:
        if {layout.time, layout.input, layout.output} <= set(names):
            if len(set(names)) < len(names):
                raise TraceError(f"{where}: line {line}: a column name occurs twice; accepted: each once")
            return layout
    known = " | ".join(f"{x.time},{x.input},{x.output}" for x in LAYOUTS)
    raise TraceError(f"{where}: line {line}: columns {_short(','.join(names))} are unknown; accepted: {known}")


def _numbers(where: str, name: str, values: Sequence[Any], lines: Sequence[int]) -> np.ndarray:
    """Token counts: whole, finite, not negative."""
    found = _floats(values)
    bad = ~(np.isfinite(found) & (found >= 0) & (found <= _MAX_TOKENS) & (np.floor(found) == found))
    if bad.any():
        k = int(np.argmax(bad))
        raise TraceError(f"{where}: line {lines[k]}: {name} = {_short(values[k])}; accepted: a whole number from 0")
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


def _times(where: str, layout: Layout, values: Sequence[Any], lines: Sequence[int]) -> np.ndarray:
    if layout.unit_s > 0:
        found = _floats(values)
        bad = ~(np.isfinite(found) & (np.abs(found) < 1e15))
        accepted = f"a finite number of {'ms' if layout.unit_s < 1 else 's'}"
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
    raise TraceError(f"{where}: line {lines[k]}: {layout.time} = {_short(values[k])}; accepted: {accepted}")


_DATE = re.compile(r"([12]\d{3}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|[+-]00:?00)?", re.ASCII)


def _is_date(text: str) -> bool:
    try:
        np.datetime64(text, "ns")
    except ValueError:
        return False
    return True


def _drop_unserved(where: str, layout: Layout, rows: _Rows, notices: list[str], repair: bool):
    """Requests without input or without output: nothing was served, so there is nothing to plan for."""
    failed = (rows.output == 0) & (layout.name == "burstgpt")
    empty = ((rows.input == 0) | (rows.output == 0)) & ~failed
    if empty.any() and not repair:
        k = int(np.argmax(empty))
        name, value = (layout.input, rows.input[k]) if rows.input[k] == 0 else (layout.output, rows.output[k])
        raise TraceError(f"{where}: line {rows.line[k]}: {name} = {value:.0f}; accepted: at least 1 token, "
                         f"or repair to drop such requests ({empty.sum()} here)")  # fmt: skip
    if failed.any():
        notices.append(f"dropped {_n(failed.sum(), 'failed request')} (0 response tokens)")
    if empty.any():
        notices.append(f"dropped {_n(empty.sum(), 'request')} of zero input or output length, the first in line "
                       f"{rows.line[np.argmax(empty)]}")  # fmt: skip
    good = np.flatnonzero(~(failed | empty))
    if not good.size:
        raise TraceError(f"{where}: no usable request ({len(rows.line)} of zero length); accepted: at least one")
    above = rows.cached > rows.input
    if above[good].any():
        k = good[np.argmax(above[good])]
        raise TraceError(f"{where}: line {rows.line[k]}: cached_tokens = {rows.cached[k]:.0f}; "
                         f"accepted: at most the input, {rows.input[k]:.0f}")  # fmt: skip
    return (rows if good.size == len(rows.line) else rows.take(good)), notices


def _in_order(where: str, layout: Layout, rows: _Rows, notices: list[str], repair: bool):
    back = np.diff(rows.time) < 0
    if not back.any():
        return rows, notices
    line = rows.line[np.argmax(back) + 1]
    if not repair:
        raise TraceError(f"{where}: line {line}: {layout.time} goes back in time ({back.sum()} such lines); "
                         "accepted: arrivals in order, or repair to sort them")  # fmt: skip
    notices.append(f"sorted by time: {_n(back.sum(), 'line')} went back in time, the first is line {line}")
    return rows.take(np.argsort(rows.time, kind="stable")), notices


def _blocks(where: str, rows: _Rows) -> tuple[np.ndarray | None, np.ndarray | None]:
    if rows.blocks is None:
        return None, None
    for line, ids in zip(rows.line, rows.blocks, strict=True):
        if type(ids) is not list or not all(type(i) is int and -(2**63) <= i < 2**63 for i in ids):
            raise TraceError(f"{where}: line {line}: hash_ids = {_short(ids)}; accepted: a list of whole numbers")
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in rows.blocks])])
    return np.array([i for ids in rows.blocks for i in ids], np.int64), starts


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python prints, or a deep nesting
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _n(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def prefix_hits(trace: Trace, capacity_blocks: float = float("inf"), block_tokens: int = BLOCK_TOKENS) -> np.ndarray:
    """Input tokens of each request that a shared prefix cache of `capacity_blocks` (least recently used out) holds.

    A request hits its leading blocks up to the first that is missing, then writes all its blocks. At least one token
    is always computed. The cache is one and global: with n instances and random routing each sees 1/n of the traffic.
    """
    if trace.block_ids is None:
        raise InputError(f"{trace.name}: has no prefix blocks; accepted: a Mooncake trace with hash_ids")
    if not capacity_blocks >= 0:
        raise InputError(f"capacity_blocks = {capacity_blocks}: accepted are numbers from 0")
    cache: OrderedDict[int, None] = OrderedDict()
    hits = np.zeros(len(trace))
    ids = trace.block_ids.tolist()
    for i, (a, b) in enumerate(zip(trace.block_starts[:-1].tolist(), trace.block_starts[1:].tolist(), strict=True)):
        found = a
        while found < b and ids[found] in cache:
            found += 1
        hits[i] = found - a
        for block in reversed(ids[a:b]):  # the head of a prefix is used last, so its tail goes first
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity_blocks:
            cache.popitem(last=False)
    return np.minimum(hits * block_tokens, np.maximum(trace.input_tokens - 1, 0))


def with_prefix_hits(trace: Trace, capacity_blocks: float = float("inf")) -> Trace:
    """The trace with `cached_tokens` from a simulated prefix cache (see `prefix_hits`)."""
    return replace(trace, cached_tokens=prefix_hits(trace, capacity_blocks))


class Burstiness(NamedTuple):
    """How far arrivals are from Poisson (for which the first two are 1)."""

    interarrival_cv: float  # standard deviation of the gaps over their mean
    dispersion_count: np.ndarray  # variance over mean of the number of arrivals in a window, one per window length
    peak_to_mean_frac: np.ndarray  # busiest window over the mean window
    window_s: np.ndarray


def burstiness(time_s: np.ndarray, window_s: Sequence[float] | float = (1.0, 10.0, 60.0)) -> Burstiness:
    """Index of dispersion of counts and peak-to-mean over whole windows, and the CV of inter-arrival gaps.

    A window longer than half the trace has no variance and gives nan.

    >>> burstiness(np.arange(100.0), 10.0).dispersion_count.tolist()  # clockwork
    [0.0]
    """
    time = np.asarray(time_s, np.float64)
    windows = np.atleast_1d(np.asarray(window_s, np.float64))
    if not (windows > 0).all():
        raise InputError(f"window_s = {windows.tolist()}: accepted are positive lengths")
    gaps = np.diff(time)
    mean = gaps.mean() if gaps.size else 0.0
    dispersion, peak = np.full(windows.shape, np.nan), np.full(windows.shape, np.nan)
    for k, window in enumerate(windows):
        whole = int((time[-1] - time[0]) // window) if time.size else 0
        if whole >= 2:
            index = np.floor((time - time[0]) / window).astype(np.int64)
            counts = np.bincount(index[index < whole], minlength=whole)
            dispersion[k], peak[k] = counts.var() / counts.mean(), counts.max() / counts.mean()
    return Burstiness(float(gaps.std() / mean) if mean > 0 else float("nan"), dispersion, peak, windows)
