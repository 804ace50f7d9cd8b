"""What a server logged of every request: when it came, when its first and its last token left.

JSON lines or CSV. vLLM's names of the times (`queued_ts`, `scheduled_ts`, `first_token_ts`, `last_token_ts`) and plain
ones are known; all are seconds of one clock. A `meta.json` beside the file says how the engine was started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.files import broken, csv_rows, read_text
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
    """The log of a file, or of the `requests.jsonl` of a folder."""
    place = Path(path)
    place = place / "requests.jsonl" if place.is_dir() else place
    rows = list(_rows(place))
    if not rows:
        raise InputError(f"{place}: no requests; accepted: one JSON object or CSV row each")
    columns = {field: _column(place, rows, field, names) for field, names in NAMES.items()}
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
    order = np.argsort(arrival, kind="stable")
    known = next((name for name in _SCHEDULED if name in rows[0]), None)
    scheduled = np.full(len(rows), np.nan) if known is None else _column(place, rows, known, (known,))
    times = [(column - arrival.min())[order] for column in (arrival, scheduled, first, end)]
    ids = tuple(str(rows[i].get("request_id", i)) for i in order)
    name = place.parent.name or place.name
    lengths = columns["input_tokens"][order], columns["output_tokens"][order]
    return ServerLog(
        name,
        ids,
        times[0],
        *lengths,
        scheduled_s=times[1],
        first_token_s=times[2],
        end_s=times[3],
        engine=_engine(place),
    )


def _rows(place: Path) -> Iterable[Mapping[str, Any]]:
    text = read_text(place)
    if not text.lstrip().startswith("{"):
        return csv_rows(text)
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise broken(f"{place}:{number}", error) from None
            if not isinstance(rows[-1], dict):
                raise InputError(f"{place}:{number}: {line.strip()[:40]!r} is no request; accepted: a JSON object")
    return rows


def _column(place: Path, rows: list[Mapping[str, Any]], field: str, names: tuple[str, ...]) -> Floats:
    name = next((name for name in names if name in rows[0]), None)
    if name is None:
        raise InputError(f"{place}: no {field}; accepted names are {', '.join(names)}")
    try:
        found = np.array([float(row[name]) for row in rows])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{place}: {name} is missing or no number in a request") from None
    if not np.isfinite(found).all():
        raise InputError(f"{place}: {name} is not finite in a request")
    return found


def _engine(place: Path) -> Mapping[str, Any]:
    beside = place.parent / "meta.json"
    if not beside.is_file():
        return {}
    try:
        found = json.loads(read_text(beside))
    except ValueError as error:
        raise broken(beside, error) from None
    kept = found.get("engine_kwargs") if isinstance(found, dict) else None
    return {"release": str(found.get("vllm_version", ""))} | kept if isinstance(kept, dict) else {}
