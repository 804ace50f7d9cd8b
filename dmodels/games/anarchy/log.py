"""Request logs of a router (CSV, JSON lines, Parquet), read in columns: what is wrong is counted, never fatal.

A row has `id`, `arrival`, `completion` (seconds), `worker`; `latency` where it is not completion - arrival; and what
the router knew of caches: `overlap` (one number for the chosen worker, a list in the order of workers, or an object
worker -> share) or `prefix` (a list of block hashes, or text separated by spaces; the caches are then replayed).
`ttft` is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dmodels.core.errors import InputError, TraceError
from dmodels.core.rows import Block, blocks, column_blocks, csv_blocks, json_rows

from .log_rows import NAMED, NOTHING, ORDERED, OWN, Complaints, Lists, Reader, Requests


@dataclass(frozen=True)
class RequestLog:
    """Completed requests in order of completion, on the host."""

    ids: tuple[str, ...]
    arrival_s: np.ndarray
    completion_s: np.ndarray
    latency_s: np.ndarray
    ttft_s: np.ndarray  # NaN where the log does not say
    worker: np.ndarray  # number of the worker in `workers`
    overlap: np.ndarray  # (n, m)
    workers: tuple[str, ...]
    rows_count: int  # rows in the file
    problems: Mapping[str, int] = field(default_factory=dict)  # kind -> how often, dropped or not
    reports: tuple[str, ...] = ()  # the first of them, with row numbers
    notices: tuple[str, ...] = ()  # what was assumed of the log as a whole

    def __len__(self) -> int:
        return len(self.ids)


def read_log(
    path: str | Path, workers: Sequence[str] | None = None, limit: int = 20, gap_s: float = 60.0, skew_s: float = 1.0
) -> RequestLog:
    """Read a request log; rows that cannot be used are dropped and counted by kind, the first `limit` with their row.

    `workers` is the list of known workers (else those seen in the log). Dropped: rows that do not parse, a field
    missing or no finite number, an unknown worker, completion before arrival, an id seen before. Kept but counted:
    more than `gap_s` without a completion ("gap"), latency that differs from completion - arrival by more than
    `skew_s` ("clock skew": the two times come from different clocks; `latency` is believed). Refused (`TraceError`):
    no usable row.
    """
    path = Path(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    reader = {".csv": csv_blocks, ".parquet": column_blocks, ".pq": column_blocks}.get(suffix, _json_blocks)
    try:
        return _log(reader(path), path.name, workers, limit, gap_s, skew_s)
    except InputError as error:
        raise TraceError(str(error)) from None


def _json_blocks(path: Path) -> Iterator[Block]:
    return blocks(json_rows(path))


def log_from_rows(
    rows: Iterable[Any],
    name: str = "log",
    workers: Sequence[str] | None = None,
    limit: int = 20,
    gap_s: float = 60.0,
    skew_s: float = 1.0,
) -> RequestLog:
    """`read_log` of rows that are at hand: mappings, or a string that says why a row could not be read."""
    return _log(blocks(rows), name, workers, limit, gap_s, skew_s)


def _log(
    read: Iterable[Block], name: str, workers: Sequence[str] | None, limit: int, gap_s: float, skew_s: float
) -> RequestLog:
    known = None if workers is None else [str(w) for w in workers]
    complaints = Complaints(limit)
    reader = Reader(known, skew_s, complaints)
    parts = [reader.requests(block) for block in read]
    if not reader.ids:
        first = f"; {complaints.reports[0]}" if complaints.reports else ""
        raise TraceError(f"{name}: none of {reader.rows_count} rows is usable{first}")
    ids, every, rows_count = reader.ids, list(reader.workers), reader.rows_count
    del reader  # and the set of ids
    row, arrival, completion, latency, ttft, worker = (
        np.concatenate([getattr(part, name) for part in parts]) for name in Requests._fields[:6]
    )
    order = np.argsort(completion, kind="stable")
    pause = np.diff(completion[order])
    for i in np.flatnonzero(pause > gap_s):
        complaints.add("gap", row[order[i + 1]], f"{pause[i]:g} s without a completion before this one")
    names = known if known is not None else sorted((every[k] for k in np.unique(worker)), key=_by_length)
    place = {name: j for j, name in enumerate(names)}
    column = np.array([place.get(name, -1) for name in every])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    overlap, notices = _overlaps(parts, rank, column, len(names), complaints)
    return RequestLog(
        tuple(ids[i] for i in order),
        arrival[order],
        completion[order],
        latency[order],
        ttft[order],
        column[worker[order]],
        overlap,
        tuple(names),
        rows_count,
        dict(complaints.counts),
        tuple(complaints.reports),
        tuple(notices),
    )


def _by_length(name: str) -> tuple[int, str]:
    """w2 before w10."""
    return len(name), name


def _overlaps(
    parts: Sequence[Requests], rank: np.ndarray, column: np.ndarray, workers: int, complaints: Complaints
) -> tuple[np.ndarray, list[str]]:
    """(n, m) overlaps from what the rows hold, at their ranks; caches replayed in order of arrival where they hold
    prefixes."""
    out = np.zeros((sum(len(part.row) for part in parts), workers))
    filled = 0
    kinds: set[int] = set()
    for part in parts:
        here = rank[filled : filled + len(part.row)]
        filled += len(part.row)
        said, count = part.said, part.shares.lengths
        short = (said == ORDERED) & (count != workers)
        if short.any():
            complaints.counts["overlap of another length"] += int(short.sum())
        kinds |= set(said[~short].tolist())
        row = np.repeat(np.arange(len(here)), count)
        own, place = column[part.worker][row], np.arange(len(row)) - part.shares.starts()[row]
        at = np.where(said[row] == OWN, own, np.where(said[row] == NAMED, column[part.sharers.entries], place))
        told = ~short[row] & (at >= 0)
        out[here[row[told]], at[told]] = part.shares.entries[told]
    replayed = _replay(parts, rank, column, out)
    notices: list[str] = []
    if OWN in kinds:
        notices.append("overlap is known for the chosen worker only and taken as 0 elsewhere")
    if replayed:
        notices.append("overlap is replayed from prefixes with caches that never evict")
    if not replayed and kinds <= {NOTHING}:
        notices.append("the log holds no overlap; it is taken as 0 everywhere")
    return out, notices


def _replay(parts: Sequence[Requests], rank: np.ndarray, column: np.ndarray, out: np.ndarray) -> bool:
    """Fill in what caches that never evict hold of prefixes, where a row says nothing of them; whether any does."""
    blocks = Lists(*map(np.concatenate, zip(*(part.blocks for part in parts), strict=True)))
    if not len(blocks.entries):
        return False
    arrival, completion, worker, said = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("arrival", "completion", "worker", "said")
    )
    caches: list[set[int]] = [set() for _ in out.T]
    starts, replays = blocks.starts(), False
    for i in np.lexsort((completion, arrival)):
        if not blocks.lengths[i]:
            continue
        asked = blocks.entries[starts[i] : starts[i] + blocks.lengths[i]].tolist()
        if said[i] == NOTHING:
            replays = True
            for j, cache in enumerate(caches):
                held = next((k for k, block in enumerate(asked) if block not in cache), len(asked))
                out[rank[i], j] = held / len(asked)
        caches[column[worker[i]]].update(asked)
    return replays
