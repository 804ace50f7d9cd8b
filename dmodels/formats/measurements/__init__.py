"""Measurements of other tools: reports of load generators, each read into points of one kind (`LoadPoint`).

A format is a module with `knows(document)` and `read(document, where)`; `FORMATS` lists it. Latencies are in seconds
whatever the file's unit, and a file whose numbers cannot be true together is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from dmodels.core.errors import InputError
from dmodels.core.files import read_lines, separator

from . import files
from .point import LatencyStats, LoadPoint, checked

__all__ = [
    "FORMATS",
    "LatencyStats",
    "LoadPoint",
    "MeasurementFormat",
    "checked",
    "measured_files",
    "read_measurements",
]


class MeasurementFormat(NamedTuple):
    """A row of the table of formats."""

    module: str
    title: str


#: Name -> format. The first that knows a document reads it.
FORMATS = {
    "vllm-bench": MeasurementFormat("vllm_bench", "vLLM `bench serve` (JSON, with and without --save-detailed)"),
    "sglang-bench": MeasurementFormat("sglang_bench", "SGLang `bench_serving` (JSONL)"),
    "guidellm": MeasurementFormat("guidellm", "GuideLLM report (JSON)"),
    "aiperf": MeasurementFormat("aiperf", "AIPerf and GenAI-Perf (summary JSON, log of requests JSONL)"),
    "inference-perf": MeasurementFormat("inference_perf", "inference-perf lifecycle report (YAML, JSON)"),
    "llmperf": MeasurementFormat("llmperf", "llmperf summary (JSON)"),
    "llm-d-report": MeasurementFormat("llmd_report", "llm-d Benchmark Report 0.2 (YAML, JSON)"),
    "csv": MeasurementFormat("plain", "plain CSV (input_tokens, output_tokens, throughput_rps, ttft_ms, tpot_ms, ...)"),
}


def read_measurements(paths: Iterable[str | Path]) -> list[LoadPoint]:
    """The points of several files; .gz and .zst are unpacked, logs of requests are read a line at a time."""
    points = [checked(point) for path in paths for point in _points(Path(path))]
    if not points:
        raise InputError("measurements: no file has a completed point; accepted is at least one")
    return points


def measured_files(path: str | Path) -> bool:
    """Whether a file is of a format here, rather than a table of benchmark rows (`dmodels.fit.rows`)."""
    lines = read_lines(Path(path), most_bytes=files.MOST_BYTES)
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    plain = import_module(".plain", __name__)
    return first.lstrip()[:1] in "{[" or separator(first) not in first or plain.knows(first)


def _points(path: Path) -> Iterator[LoadPoint]:
    rows = read_lines(path, most_bytes=files.MOST_BYTES)
    first = next((line for line in rows if line.strip() and not line.startswith("#")), "")
    if not first:
        raise InputError(f"{path.name}: empty; accepted are {', '.join(FORMATS)}")
    plain, aiperf = (import_module(f".{name}", __name__) for name in ("plain", "aiperf"))
    if plain.knows(first):
        yield from plain.read(chain([first], rows), path.name)
        return
    document = _line(first)
    if document is None:  # not whole in its first line: a document over several
        yield from _document(_whole(path, first, rows), path.name)
        return
    if aiperf.knows_request(document):
        later = (
            (files.parsed(line, f"{path.name}: line {i}"), f"{path.name}: line {i}") for i, line in _numbered(rows)
        )
        yield from aiperf.read_requests(chain([(document, f"{path.name}: line 1")], later), path.name)
        return
    yield from _document(document, path.name)
    for i, line in _numbered(rows):
        yield from _document(files.parsed(line, f"{path.name}: line {i}"), f"{path.name}: line {i}")


def _numbered(rows: Iterator[str]) -> Iterator[tuple[int, str]]:
    return ((i, line) for i, line in enumerate(rows, 2) if line.strip())


def _line(line: str) -> Any:
    try:
        found = files.parsed(line, "")
    except InputError:
        return None
    return found if isinstance(found, dict) else None


def _whole(path: Path, first: str, rows: Iterator[str]) -> Any:
    text = files.whole_text(path, first, rows)
    if first.lstrip()[:1] in "{[":
        return files.parsed(text, path.name)
    from ..deployments.documents import load

    documents = load(text, path.name)
    if len(documents) != 1:
        raise InputError(f"{path.name}: {len(documents)} documents; accepted is one report")
    return documents[0]


def _document(document: Any, where: str) -> Iterator[LoadPoint]:
    many = document if isinstance(document, list) else [document]
    for i, one in enumerate(many):
        place = where if len(many) == 1 else f"{where}: [{i}]"
        for row in FORMATS.values():
            form = import_module(f".{row.module}", __name__)
            if row.module != "plain" and form.knows(one):
                yield from form.read(one, place)
                break
        else:
            keys = ", ".join(map(str, list(one)[:6])) if isinstance(one, dict) else str(one)
            raise InputError(f"{place}: {keys[:80]!r} is of no known format; accepted are {', '.join(FORMATS)}")
