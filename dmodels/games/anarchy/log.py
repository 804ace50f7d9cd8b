"""Request logs of a router (CSV, JSON lines, Parquet), read row by row: what is wrong is counted, never fatal.

A row has `id`, `arrival`, `completion` (seconds), `worker`; `latency` where it is not completion - arrival; and what
the router knew of caches: `overlap` (one number for the chosen worker, a list in the order of workers, or an object
worker -> share) or `prefix` (a list of block hashes, or text separated by spaces; the caches are then replayed).
`ttft` is optional.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError, TraceError
from dmodels.core.rows import column_rows, csv_rows, json_rows

#: Field -> other names for it.
NAMES = {
    "id": ("request_id", "req_id"),
    "arrival": ("arrival_s", "arrival_time", "start", "start_s"),
    "completion": ("completion_s", "completion_time", "end", "end_s", "finish"),
    "worker": ("worker_id", "decode_worker", "decode_worker_id"),
    "latency": ("latency_s", "e2e", "e2e_s", "e2e_latency"),
    "ttft": ("ttft_s", "time_to_first_token"),
    "overlap": ("overlaps", "overlap_score", "overlap_scores"),
    "prefix": ("prefix_hashes", "hash_ids", "blocks", "block_hashes"),
}
_KEYS = {name: (name, *others) for name, others in NAMES.items()}
#: Times beyond this many seconds (about 30,000 years) are corrupted numbers.
_FAR_S = 1e12


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
    reader = {".csv": csv_rows, ".parquet": column_rows, ".pq": column_rows}.get(suffix, json_rows)
    try:
        return log_from_rows(reader(path), path.name, workers, limit, gap_s, skew_s)
    except InputError as error:
        raise TraceError(str(error)) from None


def log_from_rows(
    rows: Iterator[Any],
    name: str = "log",
    workers: Sequence[str] | None = None,
    limit: int = 20,
    gap_s: float = 60.0,
    skew_s: float = 1.0,
) -> RequestLog:
    """`read_log` of rows that are at hand: mappings, or a string that says why a row could not be read."""
    known = None if workers is None else [str(w) for w in workers]
    counts: Counter[str] = Counter()
    reports: list[str] = []
    seen: set[str] = set()
    kept: list[tuple[int, _Request]] = []
    total = 0

    def complain(kind: str, row: int, text: str) -> None:
        counts[kind] += 1
        if len(reports) < limit:
            reports.append(f"row {row}: {text}")

    for number, raw in enumerate(rows, start=1):
        total += 1
        if not isinstance(raw, Mapping):
            complain("unreadable", number, f"unreadable: {str(raw)[:80]}")
            continue
        row = _Row(raw)
        request = row.request(number)
        if isinstance(request, _Wrong):
            complain(request.kind, number, request.report)
        elif known is not None and request.worker not in known:
            complain("unknown worker", number, f"unknown worker {request.worker[:40]!r}")
        elif request.id in seen:
            complain("duplicated id", number, f"id {request.id[:40]!r} was seen before")
        else:
            seen.add(request.id)
            kept.append((number, request))
            measured = request.completion - request.arrival
            if abs(measured - request.latency) > skew_s:
                complain("clock skew", number, f"latency {request.latency:g} s, completion - arrival {measured:g} s")
    if not kept:
        first = f"; {reports[0]}" if reports else ""
        raise TraceError(f"{name}: none of {total} rows is usable{first}")
    kept.sort(key=lambda item: item[1].completion)
    for (_, before), (number, after) in itertools.pairwise(kept):
        pause = after.completion - before.completion
        if pause > gap_s:
            complain("gap", number, f"{pause:g} s without a completion before this one")
    return _assemble([request for _, request in kept], known, total, counts, reports)


class _Request(NamedTuple):
    """One row that can be used. (Of a million, dictionaries take three times the memory.)"""

    id: str
    arrival: float
    completion: float
    latency: float
    ttft: float
    worker: str
    overlap: float | list[float] | dict[str, float] | None
    prefix: tuple[str, ...] | None


class _Wrong(NamedTuple):
    """Why a row cannot be used."""

    kind: str
    report: str


@lru_cache(256)
def _spelt(column: Any) -> str:
    return str(column).strip().lower()


class _Row:
    """Fields of one row under any of their names."""

    def __init__(self, raw: Mapping[str, Any]):
        self.raw = {_spelt(k): v for k, v in raw.items() if k is not None}

    def get(self, name: str) -> Any:
        for key in _KEYS[name]:
            value = self.raw.get(key)
            if value is not None and value != "":
                return value
        return None

    def seconds(self, name: str) -> float | None:
        """A finite number, None where it is missing; ValueError otherwise."""
        value = self.get(name)
        if value is None:
            return None
        try:
            number = float(value) if not isinstance(value, bool) else math.nan
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) <= _FAR_S:
            raise ValueError(f"{name} {str(value)[:40]!r} is no time in seconds")
        return number

    def request(self, number: int) -> _Request | _Wrong:
        try:
            arrival, completion = self.seconds("arrival"), self.seconds("completion")
            latency, ttft = self.seconds("latency"), self.seconds("ttft")
            overlap = _overlap(self.get("overlap"))
            prefix = _prefix(self.get("prefix"))
        except ValueError as error:
            return _Wrong("bad number", str(error))
        worker, name = self.get("worker"), self.get("id")
        if completion is None and arrival is not None and latency is not None:
            completion = arrival + latency
        if arrival is None and completion is not None and latency is not None:
            arrival = completion - latency
        if arrival is None or completion is None or worker is None:
            given = (("arrival", arrival), ("completion", completion), ("worker", worker))
            return _Wrong("missing field", f"no {next(name for name, value in given if value is None)}")
        if completion < arrival:
            return _Wrong("completion before arrival", f"completion {completion:g} s before arrival {arrival:g} s")
        latency = completion - arrival if latency is None else latency
        if latency < 0 or (ttft is not None and ttft < 0):
            return _Wrong("bad number", f"negative latency {latency:g} s or ttft")
        return _Request(
            id=str(name) if name is not None else f"row {number}",
            arrival=arrival,
            completion=completion,
            latency=latency,
            ttft=math.nan if ttft is None else ttft,
            worker=sys.intern(str(worker)),
            overlap=overlap,
            prefix=prefix,
        )


def _share(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"overlap {str(value)[:40]!r} is no share from 0 to 1")
    return number


def _overlap(value: Any) -> float | list[float] | dict[str, float] | None:
    if value is None:
        return None
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(f"overlap {value[:40]!r} is no list") from None
    if isinstance(value, Mapping):
        return {str(k): _share(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple | np.ndarray):
        return [_share(v) for v in value]
    return _share(value)


def _prefix(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                raise ValueError(f"prefix {text[:40]!r} is no list") from None
        else:
            value = text.split()
    if not isinstance(value, list | tuple | np.ndarray):
        value = [value]
    return tuple(str(v) for v in value)


def _assemble(
    requests: list[_Request], known: list[str] | None, total: int, counts: Counter[str], reports: list[str]
) -> RequestLog:
    names = known if known is not None else sorted({r.worker for r in requests}, key=lambda w: (len(w), w))
    index = {name: j for j, name in enumerate(names)}
    worker = np.array([index[r.worker] for r in requests])
    overlap, notices = _overlaps(requests, worker, index, counts)
    column = {k: np.array([getattr(r, k) for r in requests]) for k in ("arrival", "completion", "latency", "ttft")}
    return RequestLog(
        tuple(r.id for r in requests),
        column["arrival"],
        column["completion"],
        column["latency"],
        column["ttft"],
        worker,
        overlap,
        tuple(names),
        total,
        dict(counts),
        tuple(reports),
        tuple(notices),
    )


def _overlaps(
    requests: list[_Request], worker: np.ndarray, index: dict[str, int], counts: Counter[str]
) -> tuple[np.ndarray, list[str]]:
    """(n, m) overlaps from what the rows hold; caches replayed in order of arrival where they hold prefixes."""
    out = np.zeros((len(requests), len(index)))
    notices: list[str] = []
    caches: list[set[Any]] = [set() for _ in index]
    kinds: Counter[str] = Counter()
    for i in np.argsort([r.arrival for r in requests], kind="stable"):
        request, given = requests[i], requests[i].overlap
        if isinstance(given, dict):
            kinds["full"] += 1
            for name, value in given.items():
                if name in index:
                    out[i, index[name]] = value
        elif isinstance(given, list):
            if len(given) == len(index):
                kinds["full"] += 1
                out[i] = given
            else:
                counts["overlap of another length"] += 1
        elif given is not None:
            kinds["own"] += 1
            out[i, worker[i]] = given
        elif request.prefix:
            kinds["replayed"] += 1
            blocks = request.prefix
            for j, cache in enumerate(caches):
                held = next((k for k, block in enumerate(blocks) if block not in cache), len(blocks))
                out[i, j] = held / len(blocks)
        if request.prefix:
            caches[worker[i]].update(request.prefix)
    if kinds["own"]:
        notices.append("overlap is known for the chosen worker only and taken as 0 elsewhere")
    if kinds["replayed"]:
        notices.append("overlap is replayed from prefixes with caches that never evict")
    if not kinds:
        notices.append("the log holds no overlap; it is taken as 0 everywhere")
    return out, notices
