"""Traffic traces: what arrived when. Readers for four public layouts and gateways' access logs; prefix-cache hits.

The layout is found from the names of the columns (of a CSV header, of a Parquet or Arrow file, or the keys of the first
JSON line), in capitals or not; columns of a CSV are separated by commas, semicolons or tabs; .gz and .zst are accepted:

    azure       TIMESTAMP (date and time), ContextTokens, GeneratedTokens        Azure/AzurePublicDataset
    mooncake    timestamp (ms), input_length, output_length, hash_ids            kvcache-ai/Mooncake
    burstgpt    Timestamp (s), Request tokens, Response tokens, ...              HPMLL/BurstGPT
    plain       time_s or time_ms, input_tokens, output_tokens (cached_tokens)   for everything else
    access-log  a time, prompt and completion tokens under a gateway's names     LiteLLM, Envoy, OpenAI (`access_log`)

A file that cannot be trusted is refused with a `TraceError`: one line with file, line, field, value, and what is
accepted. `repair=True` mends what can be mended (sorts, drops) and says so in `Trace.notices`.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError, TraceError
from dmodels.core.rows import column_rows, has_columns
from dmodels.core.units import counted

from . import access_log
from .trace_columns import columns_of, gateway_rows
from .trace_file import Dropped, Layout, TablePart, parts, short, times, whole_numbers

#: Name of a layout -> what it is. Each is also read as a Parquet or Arrow file of the same columns.
TRACE_FORMATS = {
    "azure": "Azure LLM inference trace (CSV)",
    "mooncake": "Mooncake trace (JSONL), with prefix blocks",
    "burstgpt": "BurstGPT trace (CSV)",
    "plain": "time_s or time_ms, input_tokens, output_tokens, cached_tokens (CSV, JSONL)",
    "access-log": "access log of LiteLLM, Envoy AI Gateway, OpenAI's API, AIPerf (JSONL, JSON, CSV)",
}
#: Tokens of one prefix block in Mooncake traces.
BLOCK_TOKENS = 512


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
    labels: np.ndarray | None = None  # text of each request, of the column that was asked for

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


def read_trace(path: str | PathLike[str], repair: bool = False, class_column: str = "") -> Trace:
    """The trace in a file. Raises `TraceError` for what is not one, and `OSError` where there is no file.

    `repair`: sort what is out of order, drop lines that cannot be read and requests of zero length, each with a notice.
    Without it these are errors, because they more often mean a broken export than traffic. BurstGPT marks failed
    requests by 0 response tokens; those are always dropped, with a notice. `class_column`: a column (of an access log,
    a field or header) whose text is kept for each request, to tell classes apart.
    """
    where = str(path)
    try:
        layout, trace, notices = _read(Path(path), where, repair, class_column)
    except TraceError:
        raise
    except InputError as error:
        raise TraceError(str(error)) from None
    trace, notices = _drop_unserved(where, layout, trace, notices, repair)
    trace, notices = _in_order(where, layout, trace, notices, repair)
    notices += _slow(layout, trace)
    ids, starts = _blocks(trace)
    if trace.cached.any():
        hits = trace.cached.sum() / trace.input.sum()
        notices.append(f"cached_tokens: {hits:.1%} of the prompt tokens were in a prefix cache and need no prefill")
    return Trace(
        Path(where).name,
        trace.time - trace.time[0],
        trace.input,
        trace.output,
        trace.cached if trace.cached.any() else 0.0,
        ids,
        starts,
        layout.name,
        tuple(notices),
        trace.labels,
    )


def _read(path: Path, where: str, repair: bool, label: str) -> tuple[Layout, _Rows, list[str]]:
    """(its layout, its requests as they stand in the file, what was mended)."""
    if has_columns(path):
        found = columns_of(path, where, label)
        if found is None:
            return _of_gateway(access_log.read(where, enumerate(column_rows(path), 1), repair, label))
        rows = _rows(where, TablePart(*found), label)
        return found[2], _from_first(rows), []
    if logged := gateway_rows(path):
        return _of_gateway(access_log.read(where, enumerate(logged, 1), repair, label))
    dropped = Dropped(where, repair)
    layouts, several = zip(
        *((part.layout, _rows(where, part, label)) for part in parts(path, dropped, label)), strict=True
    )
    return layouts[0], _from_first(_joined(several)), dropped.notices()


def _rows(where: str, part: TablePart, label: str) -> _Rows:
    """The requests of some lines; times as they stand there."""
    columns, lines, layout = part
    inputs, outputs = (whole_numbers(where, name, columns[name], lines) for name in (layout.input, layout.output))
    cached = columns.get("cached_tokens") if layout.name == "plain" else None
    cached_tokens = whole_numbers(where, "cached_tokens", cached, lines) if cached is not None else np.zeros(len(lines))
    labels = np.array([str(value).strip() for value in columns[label]]) if label else None
    return _Rows(
        times(where, layout, columns[layout.time], lines),
        inputs,
        outputs,
        cached_tokens,
        np.asarray(lines),
        _block_ids(where, columns["hash_ids"], lines) if "hash_ids" in columns else None,
        labels,
    )


def _joined(several: Sequence[_Rows]) -> _Rows:
    """The requests of all parts of a file."""
    time, inputs, outputs, cached, line = (
        np.concatenate(column) for column in zip(*(rows[:5] for rows in several), strict=True)
    )
    blocks = None if several[0].blocks is None else [ids for rows in several for ids in rows.blocks or ()]
    labels = None if several[0].labels is None else np.concatenate([rows.labels for rows in several])
    return _Rows(time, inputs, outputs, cached, line, blocks, labels)


def _from_first(rows: _Rows) -> _Rows:
    """The same with dates as seconds from the first one."""
    if rows.time.dtype.kind != "M":
        return rows
    return rows._replace(time=(rows.time - rows.time[0]).astype(np.int64) * 1e-9)


def _of_gateway(log: access_log.AccessLog) -> tuple[Layout, _Rows, list[str]]:
    layout = Layout("access-log", "time", "prompt tokens", "completion tokens", 0.0)
    rows = _Rows(log.time_s, log.input_tokens, log.output_tokens, log.cached_tokens, log.row, None, log.labels)
    return layout, rows, log.notices


#: Requests per second below which whole numbers of "seconds" are more likely milliseconds.
_SLOW_RPS = 0.02


def _slow(layout: Layout, rows: _Rows) -> list[str]:
    """A trace of a request every few minutes, all at whole seconds, was probably written in milliseconds."""
    lasts_s, count = float(rows.time[-1] - rows.time[0]), len(rows.time)
    if layout.unit_s != 1.0 or count < 10 or count >= _SLOW_RPS * lasts_s or (rows.time % 1).any():
        return []
    rate = (count - 1) / lasts_s
    return [f"{layout.time}: {rate:.2g} req/s; if these are milliseconds ({1e3 * rate:.3g} req/s), say time_ms"]


class _Rows(NamedTuple):
    time: np.ndarray
    input: np.ndarray
    output: np.ndarray
    cached: np.ndarray
    line: np.ndarray
    blocks: list[array[int]] | None
    labels: np.ndarray | None

    def take(self, index: np.ndarray) -> _Rows:
        blocks = None if self.blocks is None else [self.blocks[i] for i in index]
        kept = (self.time[index], self.input[index], self.output[index], self.cached[index], self.line[index])
        return _Rows(*kept, blocks, None if self.labels is None else self.labels[index])


def _drop_unserved(
    where: str, layout: Layout, rows: _Rows, notices: list[str], repair: bool
) -> tuple[_Rows, list[str]]:
    """Requests without input or without output: nothing was served, so there is nothing to plan for."""
    failed = (rows.output == 0) & (layout.name == "burstgpt")
    empty = ((rows.input == 0) | (rows.output == 0)) & ~failed
    if empty.any() and not repair:
        k = int(np.argmax(empty))
        name, value = (layout.input, rows.input[k]) if rows.input[k] == 0 else (layout.output, rows.output[k])
        raise TraceError(
            f"{where}: line {rows.line[k]}: {name} = {value:.0f}; accepted: at least 1 token, "
            f"or --repair (repair=True) to drop such requests ({empty.sum()} here)"
        )
    if failed.any():
        notices.append(f"dropped {counted(failed.sum(), 'failed request')} (0 response tokens)")
    if empty.any():
        notices.append(
            f"dropped {counted(empty.sum(), 'request')} of zero input or output length, the first in line "
            f"{rows.line[np.argmax(empty)]}"
        )
    good = np.flatnonzero(~(failed | empty))
    if not good.size:
        raise TraceError(f"{where}: no usable request ({len(rows.line)} of zero length); accepted: at least one")
    above = rows.cached > rows.input
    if above[good].any():
        k = good[np.argmax(above[good])]
        raise TraceError(
            f"{where}: line {rows.line[k]}: cached_tokens = {rows.cached[k]:.0f}; "
            f"accepted: at most the input, {rows.input[k]:.0f}"
        )
    return (rows if good.size == len(rows.line) else rows.take(good)), notices


def _in_order(where: str, layout: Layout, rows: _Rows, notices: list[str], repair: bool) -> tuple[_Rows, list[str]]:
    back = np.diff(rows.time) < 0
    if not back.any():
        return rows, notices
    line = rows.line[np.argmax(back) + 1]
    if not repair:
        raise TraceError(
            f"{where}: line {line}: {layout.time} goes back in time ({back.sum()} such lines); "
            "accepted: arrivals in order, or --repair (repair=True) to sort them"
        )
    notices.append(f"sorted by time: {counted(back.sum(), 'line')} went back in time, the first is line {line}")
    return rows.take(np.argsort(rows.time, kind="stable")), notices


def _block_ids(where: str, column: Sequence[Any], lines: Sequence[int]) -> list[array[int]]:
    """The prefix blocks of each request, eight bytes each."""
    for line, ids in zip(lines, column, strict=True):
        if type(ids) is not list or not all(type(i) is int and -(2**63) <= i < 2**63 for i in ids):
            raise TraceError(f"{where}: line {line}: hash_ids = {short(ids)}; accepted: a list of whole numbers")
    return [array("q", ids) for ids in column]


def _blocks(rows: _Rows) -> tuple[np.ndarray | None, np.ndarray | None]:
    if rows.blocks is None:
        return None, None
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in rows.blocks])])
    flat = array("q")
    for ids in rows.blocks:
        flat.extend(ids)
    return np.array(flat, np.int64), starts


def prefix_hits(trace: Trace, capacity_blocks: float = float("inf"), block_tokens: int = BLOCK_TOKENS) -> np.ndarray:
    """Input tokens of each request that a shared prefix cache of `capacity_blocks` (least recently used out) holds.

    A request hits its leading blocks up to the first that is missing, then writes all its blocks. At least one token
    is always computed. The cache is one and global: with n instances and random routing each sees 1/n of the traffic.
    """
    if trace.block_ids is None or trace.block_starts is None:
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
    return np.asarray(np.minimum(hits * block_tokens, np.maximum(trace.input_tokens - 1, 0)))


def with_prefix_hits(trace: Trace, capacity_blocks: float = float("inf")) -> Trace:
    """The trace with `cached_tokens` from a simulated prefix cache (see `prefix_hits`).

    A trace without prefix blocks whose file says what was cached has its hits already, and stays as it is.
    """
    if trace.block_ids is None and np.any(trace.cached_tokens):
        return trace
    return replace(trace, cached_tokens=prefix_hits(trace, capacity_blocks))
