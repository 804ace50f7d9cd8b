"""Access logs of gateways as traces: a request a row, as LiteLLM, Envoy AI Gateway and OpenAI's API write it.

    LiteLLM   startTime, prompt_tokens, completion_tokens, status          docs.litellm.ai/docs/proxy/logging_spec
    Envoy     start_time, gen_ai.usage.input_tokens, .output_tokens        its default JSON log; response_code
    OpenAI    created (created_at), usage.{prompt,completion}_tokens       a response, or usage.{input,output}_tokens
    AIPerf    metadata.request_start_ns, metrics.{input,output}_sequence_length

A time is a date or counts from 1970, in s, ms, us or ns, which the size of the number tells. Rows lie in the order in
which requests ended, so they are sorted. What failed has no tokens and is left out; what was served has to state them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import TraceError
from dmodels.core.units import counted

from .trace_file import short

#: Where a row says when a request came, how long it was, and whether it was served; the first that is there counts.
TIMES = (
    ("startTime",),
    ("start_time",),
    ("metadata", "request_start_ns"),
    ("metadata", "timestamp_ns"),
    ("created",),
    ("created_at",),
    ("timestamp",),
    ("@timestamp",),
    ("time",),
    ("ts",),
)
INPUTS = (
    ("prompt_tokens",),
    ("usage", "prompt_tokens"),
    ("usage", "input_tokens"),
    ("gen_ai.usage.input_tokens",),
    ("response", "usage", "prompt_tokens"),
    ("response", "usage", "input_tokens"),
    ("metrics", "input_sequence_length", "value"),
    ("input_tokens",),
    ("llm_input_token",),
)
OUTPUTS = (
    ("completion_tokens",),
    ("usage", "completion_tokens"),
    ("usage", "output_tokens"),
    ("gen_ai.usage.output_tokens",),
    ("response", "usage", "completion_tokens"),
    ("response", "usage", "output_tokens"),
    ("metrics", "output_sequence_length", "value"),
    ("output_tokens",),
    ("llm_output_token",),
)
CACHED = (
    ("usage", "prompt_tokens_details", "cached_tokens"),
    ("usage", "input_tokens_details", "cached_tokens"),
    ("response", "usage", "prompt_tokens_details", "cached_tokens"),
    ("gen_ai.usage.cache_read.input_tokens",),
    ("llm_cached_input_token",),
    ("cached_tokens",),
)
STATUSES = (("response_code",), ("status",), ("status_code",), ("error",))
#: Of one unit of time since 1970: the numbers from 1973 to 5138, and what it is in seconds.
UNITS = (("s", 1e8, 1.0), ("ms", 1e11, 1e-3), ("us", 1e14, 1e-6), ("ns", 1e17, 1e-9))
#: Longest sequence that is believed.
_MOST_TOKENS = 1e9


class AccessLog(NamedTuple):
    """The requests of a log, in order of arrival."""

    time_s: np.ndarray  # since 1970
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    cached_tokens: np.ndarray
    row: np.ndarray
    labels: np.ndarray | None
    notices: list[str]


def knows(row: Any) -> bool:
    """Whether a row is of such a log: it has a time, and tokens or a status beside it."""
    if not isinstance(row, Mapping) or {"input_length", "output_length"} & set(row):
        return False
    beside = (*INPUTS, *OUTPUTS, *STATUSES)
    return _first(row, TIMES)[1] is not None and any(_first(row, [path])[1] is not None for path in beside)


def read(where: str, rows: Iterable[tuple[int, Any]], repair: bool, label: str = "") -> AccessLog:
    """The log in numbered rows, in one pass that keeps five numbers of each; a row that is none comes as text.

    `label` is a field whose text is kept, too, with points between its levels (metadata.team), or a header's name.
    """
    columns = [array("d") for _ in range(5)]
    labels: list[str] = []
    unit, failed, dropped, first_dropped = "", 0, 0, ""
    for line, row in rows:
        problem = ""
        if not isinstance(row, Mapping):
            problem = f"row {line}: {short(row)} is not an object"
        elif _failed(row):
            failed += 1
            continue
        else:
            unit, problem, values = _request(line, row, unit)
        if not problem:
            for column, value in zip(columns, (*values, float(line)), strict=True):
                column.append(value)
            if label:
                labels.append(_label(row, label))
            continue
        if not repair:
            raise TraceError(f"{where}: {problem}; or --repair (repair=True) drops such rows")
        dropped, first_dropped = dropped + 1, first_dropped or problem
    time_s, inputs, outputs, cached, lines = (np.frombuffer(column, float) for column in columns)
    if not len(time_s):
        raise TraceError(f"{where}: no request that was served ({failed} failed); accepted: at least one")
    order = np.argsort(time_s, kind="stable")
    notices = [f"left out {counted(failed, 'request')} that failed"] * bool(failed)
    if dropped:
        notices.append(f"dropped {counted(dropped, 'row')}, the first: {first_dropped}")
    if unit == "s" and len(time_s) > 1 and not (time_s % 1.0).any():
        notices.append("times are whole seconds: requests of one second are replayed as a burst")
    if label and not any(labels):
        raise TraceError(f"{where}: no row has a field or header {label!r}; accepted: one that requests carry")
    named = np.array(labels)[order] if label else None
    return AccessLog(time_s[order], inputs[order], outputs[order], cached[order], lines[order], named, notices)


def _request(line: int, row: Mapping[str, Any], unit: str) -> tuple[str, str, tuple[float, ...]]:
    """(unit of time, what is wrong, (time [s], input, output, cached tokens))."""
    name, given = _first(row, TIMES)
    found, time_s = _time(given)
    if not found:
        accepted = "a date like 2026-01-24T09:20:46Z, or s, ms, us, ns since 1970"
        said = short(given) if name else "is missing"
        return unit, f"row {line}: {name or 'time'} = {said}; accepted: {accepted}", ()
    if unit and found != unit:
        return unit, f"row {line}: {name} = {short(given)} is in {found}, the rows before in {unit}", ()
    sizes = []
    for what, paths in (("prompt tokens", INPUTS), ("completion tokens", OUTPUTS), ("", CACHED)):
        where, value = _first(row, paths)
        if value is None and not what:
            sizes.append(0.0)
            continue
        if value is None:
            known = ", ".join(".".join(path) for path in paths[:4])
            return found, f"row {line}: states no {what}; accepted: {known}", ()
        tokens = _tokens(value)
        if tokens is None:
            return found, f"row {line}: {where} = {short(value)}; accepted: a whole number from 0", ()
        sizes.append(tokens)
    return found, "", (time_s, *sizes)


def _first(row: Any, paths: Iterable[tuple[str, ...]]) -> tuple[str, Any]:
    """(name, value) of the first path at which there is something; Envoy writes "-" where there is nothing."""
    for path in paths:
        at = row
        for key in path:
            at = at.get(key) if isinstance(at, Mapping) else None
        if at is not None and at != "-" and at != "":
            return ".".join(path), at
    return "", None


def _label(row: Mapping[str, Any], label: str) -> str:
    """The text of a field of a row, or of one of its headers; "" where there is none."""
    headers = ((box, label) for box in ("headers", "request_headers"))
    found = _first(row, [(label,), tuple(label.split(".")), *headers])[1]
    return "" if found is None else str(found)


def _failed(row: Mapping[str, Any]) -> bool:
    """Whether a request was not served: a status of HTTP from 400 or of none, or the gateway's word."""
    for path in STATUSES:
        name, value = _first(row, [path])
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if name == "error":
            return bool(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value >= 400 or value < 200
        if isinstance(value, str):
            return value.lower() in ("failure", "failed", "error", "cancelled", "incomplete")
    return False


def _time(value: Any) -> tuple[str, float]:
    """(unit, seconds since 1970) of a date or a number; ("", nan): neither."""
    if isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return _date(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "", np.nan
    for unit, least, second in reversed(UNITS):
        if least <= value < 1e3 * least:
            return unit, float(value) * second
    return "", np.nan


def _date(text: str) -> tuple[str, float]:
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        return "", np.nan
    return "date", (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _tokens(value: Any) -> float | None:
    if isinstance(value, str):
        value = float(value) if value.replace(".", "", 1).isdigit() else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MOST_TOKENS and float(value).is_integer() else None
