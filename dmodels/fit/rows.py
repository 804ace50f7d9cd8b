"""Measured serving points: a CSV with the columns of a benchmark export, read row by row; bad rows are named.

The measured columns (`silicon_ttft_ms`, `silicon_tpot_ms`) may be missing: then the rows are questions, not data.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dmodels.core.errors import InputError
from dmodels.core.files import csv_rows, read_text

from .layouts import layouts, whole
from .recipes import Layout
from .runs import settings

NEEDED = ("id", "model_path", "system", "backend", "isl", "osl")
MODES = ("agg", "disagg")


@dataclass(frozen=True)
class Row:
    """One serving point: what ran where, under how many concurrent clients, and what was measured (NaN: nothing)."""

    id: str
    model_path: str
    system: str
    backend: str
    precision: str
    gemm_dtype: str  # of dense matrices, "" for 16 bits
    moe_dtype: str  # of routed experts
    mode: str  # "agg" or "disagg"
    isl: float
    osl: float
    concurrency: float  # clients of the whole deployment that the layouts describe
    decode: Layout
    prefill: Layout  # the decode layout again, where one instance does both
    stated: bool  # the row states the whole layout; otherwise parts are assumed
    draft_tokens: float  # drafted per step (speculative decoding)
    stream_interval: float  # tokens per message to the client
    compile_s: float = 0.0  # a request waits for kernels that are compiled meanwhile, in the mean
    equal_lengths: bool = False  # every prompt and every answer is as long as the row says
    poll_steps: float = 0.0  # steps between two looks of the scheduler for new requests
    release: str = ""  # of the backend: "0.19.0"; "" where it is not stated
    source: str = ""
    ttft_s: float = math.nan
    tpot_s: float = math.nan

    @property
    def measured(self) -> bool:
        """Both latencies are there."""
        return math.isfinite(self.ttft_s) and math.isfinite(self.tpot_s)

    @property
    def day(self) -> str:
        """When it was measured, as the data source states it: "2026-03-25"; "" where it does not."""
        found = re.search(r"measured=(\d{4}-\d\d-\d\d)", self.source)
        return found[1] if found else ""


@dataclass(frozen=True)
class Rejected:
    """A row that is not used, and why."""

    id: str
    line: int
    reason: str


@dataclass(frozen=True)
class Table:
    """The rows of a file that can be used, and those that cannot."""

    rows: list[Row] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def read_rows(path: str | Path, measured: bool = True) -> Table:
    """The rows of a CSV. With `measured`, a row without both latencies is rejected; otherwise they are optional."""
    table = Table()
    for line, raw in _records(Path(path), measured):
        name = (raw.get("id") or "").strip() or f"line {line}"
        try:
            table.rows.append(parse_row(raw, measured))
        except InputError as error:
            table.rejected.append(Rejected(name, line, str(error)))
    return table


def measurement(row: Row) -> tuple[str, str, str]:
    """One run of a benchmark, whatever exports it appears in: some of them round to 0.01 ms."""
    return row.system, f"{1e3 * row.ttft_s:.2f}", f"{1e3 * row.tpot_s:.2f}"


def parse_row(raw: Mapping[str, str], measured: bool = True) -> Row:
    """One row. Raises `InputError` with the column, its value and what is accepted."""
    cell = {key: (value or "").strip() for key, value in raw.items() if isinstance(key, str)}
    for column in NEEDED:
        if not cell.get(column):
            raise InputError(f"{column} is missing")
    mode = cell.get("mode") or "agg"
    if mode not in MODES:
        raise InputError(f"mode is {mode!r}; accepted are {', '.join(MODES)}")
    ran, run = layouts(cell, mode), settings(cell, mode)
    if run.extra_clients:  # the engine's batch is as large as the row says that there are clients
        full = [side._replace(batch=ran.concurrency) for side in (ran.decode, ran.prefill)]
        ran = ran._replace(decode=full[0], prefill=full[1], concurrency=ran.concurrency + run.extra_clients)
    return Row(
        id=cell["id"],
        model_path=cell["model_path"],
        system=cell["system"],
        backend=cell["backend"],
        precision=cell.get("precision", ""),
        gemm_dtype=cell.get("gemm_quant_mode", ""),
        moe_dtype=cell.get("moe_quant_mode", "") or cell.get("gemm_quant_mode", ""),
        mode=mode if ran.prefill == ran.decode else "disagg",  # or the GPUs of separate instances in one number
        isl=whole(cell, "isl"),
        osl=whole(cell, "osl"),
        concurrency=ran.concurrency,
        decode=ran.decode,
        prefill=ran.prefill,
        stated=ran.stated,
        draft_tokens=(run.draft_tokens or 0.0) if ran.draft_tokens is None else ran.draft_tokens,
        stream_interval=run.stream_interval,
        compile_s=run.compiling(ran.concurrency * whole(cell, "isl")),
        equal_lengths=run.equal_lengths,
        poll_steps=run.polling(ran.concurrency),
        release=release(cell.get("backend_version", "")),
        source=cell.get("silicon_data_source", ""),
        ttft_s=_latency_s(cell, "silicon_ttft_ms", measured),
        tpot_s=_latency_s(cell, "silicon_tpot_ms", measured),
    )


def release(version: str) -> str:
    """A backend's version without the marks of builds and candidates.

    >>> release("v0.5.8.post1"), release("1.2.0rc6.post3"), release("nightly-dev-20260402")
    ('0.5.8', '1.2.0', '')
    """
    found = re.match(r"v?(\d+\.\d+(\.\d+)?)", version)
    return found[1] if found else ""


def _latency_s(cell: Mapping[str, str], column: str, needed: bool) -> float:
    text = cell.get(column, "")
    if not text and not needed:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value > 0:
        return value * 1e-3
    if needed:
        raise InputError(f"{column} is {text!r}; a positive number of milliseconds is accepted")
    return math.nan


def _records(path: Path, measured: bool) -> Iterator[tuple[int, dict[str, str]]]:
    needed = NEEDED + (("silicon_ttft_ms", "silicon_tpot_ms") if measured else ())
    reader = csv_rows(read_text(path))
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
    try:
        missing = [column for column in needed if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{path.name}: no column {missing[0]!r}; needed are {', '.join(needed)}")
        yield from ((reader.line_num, row) for row in reader)
    except csv.Error as error:
        raise InputError(f"{path.name}, line {reader.line_num}: {error}") from None
