"""Time series out of Prometheus: the answer of its HTTP API (JSON), or what an engine's /metrics shows (text)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.files import read_lines

from ..measurements import files
from .server import ask, is_url

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?\s*$")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')


#: No counter or gauge of an engine reaches it.
MOST = 1e18
#: Seconds since 1970 until the year 5138; more are milliseconds.
LATEST_S = 1e11
#: A text beyond this is no scrape; those of busy engines have some thousand lines.
MOST_LINES = 200_000


class Series(NamedTuple):
    """One metric of one label set over time."""

    name: str
    labels: dict[str, str]
    time_s: np.ndarray
    value: np.ndarray


def read_series(paths: Iterable[str | Path], hours: float = 6.0) -> list[Series]:
    """The series of several files, each an answer of `query_range` (also several, one a line) or a scrape as text.

    In place of a file stands the address of a Prometheus server, http://HOST:PORT, which is asked for the last `hours`.
    """
    found: list[Series] = []
    for given in paths:
        if is_url(given):
            found += [one for answer in ask(str(given), hours) for one in _answer(answer, str(given))]
            continue
        path = Path(given)
        rows = read_lines(path)
        first = next((line for line in rows if line.strip()), "")
        if first.lstrip()[:1] in ("{", "["):
            text = files.whole_text(path, first, rows)
            found += _answers(text, path.name)
        else:
            found += _scrape([first, *rows], path.name)
    if not found:
        raise InputError("telemetry: no series; accepted are answers of Prometheus' query_range, and scrapes as text")
    return found


def _answers(text: str, where: str) -> Iterator[Series]:
    try:
        documents = [files.parsed(text, where)]
    except InputError:
        documents = [
            files.parsed(line, f"{where}: line {i}") for i, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
    for document in documents:
        for one in document if isinstance(document, list) else [document]:
            yield from _answer(one, where)


def _answer(document: Any, where: str) -> Iterator[Series]:
    status = document.get("status") if isinstance(document, Mapping) else None
    if status != "success":
        said = str(document.get("error", "no answer of Prometheus") if isinstance(document, Mapping) else document)
        raise InputError(f"{where}: {said[:80]}; accepted are answers with status 'success'")
    data = document.get("data")
    results = data.get("result") if isinstance(data, Mapping) else None
    if not isinstance(results, list):
        raise InputError(f"{where}: data.result is {str(results)[:40]!r}; accepted is a list of series")
    for i, one in enumerate(results):
        place = f"{where}: data.result[{i}]"
        metric = one.get("metric") if isinstance(one, Mapping) else None
        if not isinstance(metric, Mapping):
            raise InputError(f"{place}: metric is {str(metric)[:40]!r}; accepted is an object of labels")
        labels = {str(key): str(value) for key, value in metric.items()}
        name = labels.pop("__name__", "")
        if not name:
            raise InputError(f"{place}: no __name__; accepted are series of metrics, not of expressions")
        pairs = one.get("values") or [one.get("value")]
        yield Series(name, labels, *_samples(pairs, place))


def _samples(pairs: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        columns = np.array([(float(when), float(value)) for when, value in pairs], float).reshape(-1, 2)
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: values are {str(pairs)[:40]!r}; accepted are pairs of a time and a number"
        ) from None
    kept = columns[np.isfinite(columns).all(1)]  # a stale series ends in NaN
    kept = kept[np.argsort(kept[:, 0], kind="stable")]
    if len(kept):
        _believed(kept[-1, 0], float(np.abs(kept[:, 1]).max()), where)
    return kept[:, 0], kept[:, 1]


def _believed(latest_s: float, largest: float, where: str) -> None:
    if not latest_s < LATEST_S:
        raise InputError(f"{where}: a sample at {latest_s:g}; accepted are seconds since 1970, not milliseconds")
    if not largest < MOST:
        raise InputError(f"{where}: a value of {largest:g}; accepted are those below {MOST:g}")


def _scrape(rows: Iterable[str], where: str) -> Iterator[Series]:
    for i, line in enumerate(rows, 1):
        if not line.strip() or line.startswith("#"):
            continue
        if i > MOST_LINES:
            raise InputError(f"{where}: more than {MOST_LINES:,} lines; accepted is one scrape of an engine's /metrics")
        match = _SAMPLE.match(line.rstrip("\n"))
        try:
            value = float(match[3]) if match else math.nan
        except ValueError:
            match = None
        if match is None:
            raise InputError(f"{where}: line {i}: {line.strip()[:40]!r}; accepted is NAME{{LABELS}} VALUE")
        if math.isfinite(value):
            when = 1e-3 * float(match[4]) if match[4] else 0.0
            _believed(when, abs(value), f"{where}: line {i}")
            labels = dict(_LABEL.findall(match[2] or ""))
            yield Series(match[1], labels, np.array([when]), np.array([value]))


def increase(series: Series) -> float:
    """What a counter grew by, over its resets; of a single sample, all since it began.

    >>> increase(Series("c", {}, np.arange(4.0), np.array([5.0, 9.0, 2.0, 3.0])))
    7.0
    """
    if float(series.value.min()) < 0:
        raise InputError(f"telemetry: {series.name} counts {series.value.min():g}; accepted are counts from 0")
    return float(series.value[0]) if len(series.value) == 1 else float(steps(series).sum())


def steps(series: Series) -> np.ndarray:
    """What a counter grew by from each sample to the next; after a restart it begins at zero."""
    grown = np.diff(series.value)
    return np.where(grown < 0, series.value[1:], grown)
