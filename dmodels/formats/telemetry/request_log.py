"""What a server logged of every request: when it came, when its first and its last token left.

JSON lines or CSV. vLLM's names of the times (`queued_ts`, `scheduled_ts`, `first_token_ts`, `last_token_ts`) and plain
ones are known; all are seconds of one clock. A `meta.json` beside the file says how the engine was started.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.files import read_lines, read_text, table_rows
from dmodels.core.records import Floats

#: What is read, and the names that it has.
NAMES: dict[str, tuple[str, ...]] = {
    "arrival_s": ("queued_ts", "arrival_s", "arrival_time"),  # `arrival_time` may be of another clock than the tokens'
    "input_tokens": ("input_toks", "input_tokens", "prompt_tokens"),
    "output_tokens": ("output_toks", "output_tokens", "completion_tokens"),
    "first_token_s": ("first_token_ts", "first_token_s"),
    "end_s": ("last_token_ts", "end_s", "last_token_s"),
}
#: What a log need not have.
_SCHEDULED = ("scheduled_ts", "scheduled_s")
#: Any time or length below it is told exactly by a float; times since 1970 in nanoseconds are not.
_MOST = 1e15
#: Longest median time per output token that is believed to be in seconds.
_SLOWEST_S = 2.0


class ServerLog(NamedTuple):
    """Requests (n,) in the order in which they came, times from the first one's."""

    name: str
    ids: tuple[str, ...]
    arrival_s: Floats
    input_tokens: Floats
    output_tokens: Floats
    scheduled_s: Floats  # nan where it is not known
    first_token_s: Floats
    end_s: Floats
    engine: Mapping[str, Any]  # how it was started, as far as that is known: vLLM's names


def read_requests(path: str | Path) -> ServerLog:
    """The log of a file, or of the `requests.jsonl` of a folder; of each request, times and lengths are kept."""
    place = Path(path)
    place = place / "requests.jsonl" if place.is_dir() else place
    ids, columns = _columns(place)
    arrival, first, end = (columns[name] for name in ("arrival_s", "first_token_s", "end_s"))
    bad = np.flatnonzero((first < arrival) | (end < first))
    if bad.size:
        raise InputError(
            f"{place}: request {bad[0] + 1} has its first token before it came, or after its last; "
            "accepted: times of one clock, in order"
        )
    short = min(columns["input_tokens"].min(), columns["output_tokens"].min())
    if short < 1:
        raise InputError(f"{place}: a request of {short:g} tokens; accepted: prompts and answers from 1")
    _check_unit(place, first, end, columns["output_tokens"])
    order = np.argsort(arrival, kind="stable")
    scheduled = columns.get("scheduled_s", np.full(arrival.size, np.nan))
    times = [(column - arrival.min())[order] for column in (arrival, scheduled, first, end)]
    return ServerLog(
        place.parent.name or place.name,
        tuple(ids[i] for i in order),
        times[0],
        columns["input_tokens"][order],
        columns["output_tokens"][order],
        scheduled_s=times[1],
        first_token_s=times[2],
        end_s=times[3],
        engine=_engine(place),
    )


def _columns(place: Path) -> tuple[list[str], dict[str, Floats]]:
    """The ids and the columns of `NAMES` (and `scheduled_s`, if it is there) of all requests, in the file's order."""
    ids: list[str] = []
    found: dict[str, tuple[str, array[float]]] = {}
    for row in _rows(place):
        found = found or {field: (name, array("d")) for field, name in _names(place, row).items()}
        for name, column in found.values():
            try:
                column.append(float(row[name]))
            except (KeyError, TypeError, ValueError, OverflowError):
                raise InputError(
                    f"{place}: {name} is missing or no number in request {len(ids) + 1}; accepted: a number in each"
                ) from None
        ids.append(str(row.get("request_id", len(ids))))
    if not ids:
        raise InputError(f"{place}: no requests; accepted: one JSON object or CSV row each")
    columns = {field: np.array(column) for field, (_, column) in found.items()}
    for field, (name, _) in found.items():
        odd = np.flatnonzero(~(np.abs(columns[field]) < _MOST))
        if odd.size:
            raise InputError(
                f"{place}: {name} is {columns[field][odd[0]]:g} in request {odd[0] + 1}; accepted: below 1e15"
            )
    return ids, columns


def _names(place: Path, row: Mapping[str, Any]) -> dict[str, str]:
    """The name that each field has in the first row, and so in all."""
    named = {field: next((name for name in names if name in row), "") for field, names in NAMES.items()}
    for field, name in named.items():
        if not name:
            raise InputError(f"{place}: no {field}; accepted names are {', '.join(NAMES[field])}")
    scheduled = next((name for name in _SCHEDULED if name in row), "")
    return named | ({"scheduled_s": scheduled} if scheduled else {})


def _rows(place: Path) -> Iterator[Mapping[str, Any]]:
    lines = ((n, line) for n, line in enumerate(read_lines(place), start=1) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    if not first[1].lstrip().startswith("{"):
        try:
            yield from table_rows(chain([first[1]], (line for _, line in lines)))
        except csv.Error as error:
            raise InputError(f"{place}: no table ({error}); accepted: CSV with a header, or JSON lines") from None
        return
    for number, line in chain([first], lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place}:{number}: not JSON ({str(error)[:80]}); accepted: a JSON object") from None
        if not isinstance(row, dict):
            raise InputError(f"{place}:{number}: {line.strip()[:40]!r} is no request; accepted: a JSON object")
        yield row


def _check_unit(place: Path, first: Floats, end: Floats, output_tokens: Floats) -> None:
    """The mistake of times in milliseconds: half of all answers slower than any engine that is worth its power."""
    several = output_tokens > 1
    if not several.any():
        return
    pace = float(np.median((end - first)[several] / (output_tokens[several] - 1.0)))
    if pace > _SLOWEST_S:
        raise InputError(
            f"{place}: {pace:.4g} s for each output token (median); accepted: seconds, up to {_SLOWEST_S:g} a token; "
            "are the times in milliseconds?"
        )


def _engine(place: Path) -> Mapping[str, Any]:
    beside = place.parent / "meta.json"
    if not beside.is_file():
        return {}
    try:
        found = json.loads(read_text(beside))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{beside}: not JSON ({str(error)[:80]}); accepted: a JSON object") from None
    kept = found.get("engine_kwargs") if isinstance(found, dict) else None
    return {"release": str(found.get("vllm_version", ""))} | kept if isinstance(kept, dict) else {}
