"""Rows of a router's log as columns, some thousand rows at a time: what each field says, and why a row is of no use."""

from __future__ import annotations

import itertools
import json
import math
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.records import Floats
from dmodels.core.rows import Block, numbers

#: Field -> all names for it.
NAMES = {
    "id": ("id", "request_id", "req_id"),
    "arrival": ("arrival", "arrival_s", "arrival_time", "start", "start_s"),
    "completion": ("completion", "completion_s", "completion_time", "end", "end_s", "finish"),
    "worker": ("worker", "worker_id", "decode_worker", "decode_worker_id"),
    "latency": ("latency", "latency_s", "e2e", "e2e_s", "e2e_latency"),
    "ttft": ("ttft", "ttft_s", "time_to_first_token"),
    "overlap": ("overlap", "overlaps", "overlap_score", "overlap_scores"),
    "prefix": ("prefix", "prefix_hashes", "hash_ids", "blocks", "block_hashes"),
}
#: Times beyond this many seconds (about 30,000 years) are corrupted numbers.
_FAR_S = 1e12


class Complaints:
    """What is wrong with the rows of a log: counted by kind, the first of them in words."""

    def __init__(self, limit: int) -> None:
        self.counts: Counter[str] = Counter()
        self.reports: list[str] = []
        self._limit = limit

    def add(self, kind: str, row: int, text: str) -> None:
        self.counts[kind] += 1
        if len(self.reports) < self._limit:
            self.reports.append(f"row {row}: {text}")


class Lists(NamedTuple):
    """A list of numbers for each row, end to end: `lengths` (rows,) and all `entries`."""

    lengths: np.ndarray
    entries: np.ndarray

    def of(self, rows: np.ndarray) -> Lists:
        """Those of some rows, in their order."""
        lengths = self.lengths[rows]
        starts = self.starts()[rows] - (np.cumsum(lengths) - lengths)
        return Lists(lengths, self.entries[np.repeat(starts, lengths) + np.arange(lengths.sum())])

    def starts(self) -> np.ndarray:
        """Where each row's list begins."""
        starts: np.ndarray = np.cumsum(self.lengths) - self.lengths
        return starts


#: What a row says of caches: nothing, the share of its own worker, of all in their order, or of those that it names.
NOTHING, OWN, ORDERED, NAMED = range(4)


class Requests(NamedTuple):
    """Rows that can be used, in columns."""

    row: np.ndarray
    arrival: Floats
    completion: Floats
    latency: Floats
    ttft: Floats
    worker: np.ndarray  # by the numbers of `Reader.workers`
    said: np.ndarray  # NOTHING, OWN, ...
    shares: Lists
    sharers: Lists  # beside each share the worker that it is of, if it is named
    blocks: Lists  # of the prefix, by the numbers of `Reader.blocks`

    def of(self, rows: np.ndarray) -> Requests:
        """Some rows, in their order."""
        columns: list[Any] = [part.of(rows) if isinstance(part, Lists) else part[rows] for part in self]
        return Requests(*columns)


class Reader:
    """Rows to columns, block by block; the same names in all blocks are the same numbers."""

    def __init__(self, known: Collection[str] | None, skew_s: float, complaints: Complaints) -> None:
        self.known, self.skew_s, self.complaints = known, skew_s, complaints
        self.ids: list[str] = []
        self.rows_count = 0
        self.workers: dict[str, int] = {}
        self.blocks: dict[str, int] = {}
        self._seen: set[str] = set()

    def requests(self, block: Block) -> Requests:
        """The rows of the next block that can be used."""
        first, self.rows_count = self.rows_count + 1, self.rows_count + block.rows_count
        fields = _Fields(block)
        arrival, completion, latency, ttft = map(fields.seconds, ("arrival", "completion", "latency", "ttft"))
        said, shares, sharers = fields.overlaps(self.workers)
        blocks = fields.prefixes(self.blocks)
        worker = [None if value is None else str(value) for value in fields.values("worker")]
        completion = np.where(np.isnan(completion), arrival + latency, completion)
        arrival = np.where(np.isnan(arrival), completion - latency, arrival)
        taken = completion - arrival
        latency = np.where(np.isnan(latency), taken, latency)
        fields.refuse(np.isnan(arrival), "missing field", lambda i: "no arrival")
        fields.refuse(np.isnan(completion), "missing field", lambda i: "no completion")
        fields.refuse([name is None for name in worker], "missing field", lambda i: "no worker")
        before = "completion before arrival"
        fields.refuse(taken < 0, before, lambda i: f"completion {completion[i]:g} s before arrival {arrival[i]:g} s")
        negative = (latency < 0) | (ttft < 0)
        fields.refuse(negative, "bad number", lambda i: f"negative latency {latency[i]:g} s or ttft")
        if self.known is not None:
            strange = [name not in self.known for name in worker]
            fields.refuse(strange, "unknown worker", lambda i: f"unknown worker {str(worker[i])[:40]!r}")
        kept = self._new(fields, first)
        skewed = kept & (np.abs(taken - latency) > self.skew_s)
        told = lambda i: f"latency {latency[i]:g} s, completion - arrival {taken[i]:g} s"
        fields.refuse(skewed, "clock skew", told)  # which is kept all the same
        for i, (kind, text) in sorted(fields.wrong.items()):
            self.complaints.add(kind, first + i, text)
        row = first + np.arange(len(fields), dtype=np.int32)
        at = np.array([_number(self.workers, str(name)) for name in worker], np.int32)
        every = Requests(row, arrival, completion, latency, ttft, at, said, shares, sharers, blocks)
        return every.of(np.flatnonzero(kept))

    def _new(self, fields: _Fields, first: int) -> np.ndarray:
        """Which rows are right so far and have an id that was not seen before; they are kept."""
        kept = np.zeros(len(fields), bool)
        for i, given in enumerate(fields.values("id")):
            if i in fields.wrong:
                continue
            name = f"row {first + i}" if given is None else str(given)
            if name in self._seen:
                fields.wrong[i] = "duplicated id", f"id {name[:40]!r} was seen before"
            else:
                self._seen.add(name)
                self.ids.append(name)
                kept[i] = True
        return kept


class _Fields:
    """The fields of some rows under any of their names, and the first thing that is wrong with each row."""

    def __init__(self, block: Block) -> None:
        self._count, self._columns = block.rows_count, block.columns
        self._spelt: dict[str, list[Any]] = {}
        for key in block.columns:
            if key is not None:
                self._spelt.setdefault(str(key).strip().lower(), []).append(key)
        #: Row of these -> kind and words.
        self.wrong = {i: ("unreadable", f"unreadable: {text[:80]}") for i, text in block.broken.items()}

    def __len__(self) -> int:
        return self._count

    def refuse(self, rows: Any, kind: str, text: Callable[[int], str]) -> None:
        """Note what is wrong with some rows (a mask), unless something was before."""
        for i in np.flatnonzero(rows).tolist():
            if i not in self.wrong:
                self.wrong[i] = kind, text(i)

    def values(self, name: str) -> Sequence[Any]:
        """A field of each row; None where it has none."""
        columns = [self._columns[key] for spelt in NAMES[name] for key in self._spelt.get(spelt, ())]
        if not columns:
            return [None] * len(self)
        found, *others = ([None if isinstance(cell, str) and not cell else cell for cell in cells] for cells in columns)
        for more in others:
            found = [new if old is None else old for old, new in zip(found, more, strict=True)]
        return found

    def seconds(self, name: str) -> Floats:
        """Finite numbers, NaN where there is none; what is no number is wrong."""
        values = self.values(name)
        found = numbers(values)
        found[~(np.abs(found) <= _FAR_S)] = math.nan
        bad = [i for i in np.flatnonzero(np.isnan(found)).tolist() if values[i] is not None]
        for i in bad:
            self.wrong.setdefault(i, ("bad number", f"{name} {str(values[i])[:40]!r} is no time in seconds"))
        return found

    def overlaps(self, workers: dict[str, int]) -> tuple[np.ndarray, Lists, Lists]:
        """What the rows say of caches, the shares, and whose they are."""
        said, count = np.zeros(len(self), np.int8), np.zeros(len(self), np.int32)
        shares: list[Any] = []
        sharers = array("i")
        for i, value in enumerate(self.values("overlap")):
            if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
                value = self._parsed(i, "overlap", value)
            if value is None:
                continue
            if isinstance(value, Mapping):
                given = {str(name): share for name, share in value.items() if share is not None}
                said[i], count[i] = NAMED, len(given)
                shares.extend(given.values())
                sharers.extend(_number(workers, name) for name in given)
                continue
            is_list = isinstance(value, list | tuple | np.ndarray)
            said[i], count[i] = (ORDERED, len(value)) if is_list else (OWN, 1)
            shares.extend(value if is_list else (value,))
            sharers.extend(itertools.repeat(-1, int(count[i])))
        found = numbers(shares)
        bad = np.flatnonzero(~((found >= 0.0) & (found <= 1.0)))
        owner = np.repeat(np.arange(len(self)), count)
        for k in bad.tolist():
            text = f"overlap {str(shares[k])[:40]!r} is no share from 0 to 1"
            self.wrong.setdefault(int(owner[k]), ("bad number", text))
        return said, Lists(count, found), Lists(count, np.array(sharers, np.int32))

    def prefixes(self, known: dict[str, int]) -> Lists:
        """The blocks of each row's prefix, by number."""
        count = np.zeros(len(self), np.int32)
        found = array("i")
        for i, value in enumerate(self.values("prefix")):
            if isinstance(value, str):
                value = self._parsed(i, "prefix", value) if value.lstrip().startswith("[") else value.split()
            if value is None:
                continue
            blocks = value if isinstance(value, list | tuple | np.ndarray) else [value]
            count[i] = len(blocks)
            found.extend(_number(known, str(block)) for block in blocks)
        return Lists(count, np.array(found, np.int32))

    def _parsed(self, i: int, name: str, text: str) -> Any:
        """What JSON in a cell holds; None and a note where it is broken."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            self.wrong.setdefault(i, ("bad number", f"{name} {text.strip()[:40]!r} is no list"))
            return None


def _number(numbered: dict[str, int], name: str) -> int:
    """The number of a name, the next one where it is new."""
    return numbered.setdefault(name, len(numbered))
