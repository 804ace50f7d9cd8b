"""NVIDIA's AIPerf and GenAI-Perf: the summary of a run (JSON), and the log of its requests (JSONL).

Fields: aiperf/common/models/export_models.py of AIPerf 0.13, whose summary keeps GenAI-Perf's form. Every value states
its unit. The first releases (examples/artifacts of ai-dynamo/aiperf) keep metrics under `records`, say `ttft`, and
`timestamp_ns` of a request's start.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dmodels.core.errors import InputError

from ..paths import at
from .point import LatencyStats, LoadPoint, number, text

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "milliseconds": 1e-3}
_LATENCIES = ("time_to_first_token", "inter_token_latency", "request_latency")
#: What a metric was called before.
_EARLIER = {"time_to_first_token": "ttft"}


def knows(document: Any) -> bool:
    """Whether a document is a summary."""
    return isinstance(at(document, "request_throughput"), dict) or isinstance(_records(document), dict)


def knows_request(document: Any) -> bool:
    """Whether a line is of a log of requests."""
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return False
    return any(name in document["metadata"] for name in ("request_start_ns", "timestamp_ns"))


def read(document: Any, where: str) -> Iterator[LoadPoint]:
    """The point of a summary."""
    config = document.get("input_config")
    document = _records(document) or document
    ttft, itl, e2e = (_latency(document, name, where) for name in _LATENCIES)
    yield LoadPoint(
        form="aiperf",
        where=where,
        input_tokens=_average(document, "input_sequence_length", where),
        output_tokens=_average(document, "output_sequence_length", where),
        throughput_rps=_average(document, "request_throughput", where),
        ttft=ttft,
        tpot=itl,  # theirs is the mean over a request's tokens after the first
        e2e=e2e,
        completed_count=_average(document, "request_count", where),
        failed_count=_average(document, "error_request_count", where, 0.0),
        duration_s=_duration_s(document, where),
        max_concurrency_count=_concurrency(config, where),
        model=_model(config),
    )


def read_requests(documents: Iterable[tuple[Any, str]], where: str) -> Iterator[LoadPoint]:
    """The point of a log, in one pass with five numbers of each request; warm-up and what failed do not count."""
    kept = {name: array("d") for name in (*_LATENCIES, "input_sequence_length", "output_sequence_length")}
    first, last, failed = math.inf, -math.inf, 0
    for document, place in documents:
        if not knows_request(document):
            raise InputError(f"{place}: no request of AIPerf; accepted are lines with metadata and metrics")
        meta, metrics = document["metadata"], document.get("metrics")
        phase = meta.get("benchmark_phase", meta.get("credit_phase", "profiling"))
        if phase != "profiling" or meta.get("was_cancelled") is True:
            continue
        if document.get("error") or not isinstance(metrics, Mapping):
            failed += 1
            continue
        for name, values in kept.items():
            values.append(_value(metrics, name, place, latency=name in _LATENCIES))
        start = number(meta, "request_start_ns", place, number(meta, "timestamp_ns", place))
        end = start + 1e9 * kept["request_latency"][-1]
        first, last = min(first, start), max(last, number(meta, "request_end_ns", place, end))
    columns = {name: np.frombuffer(values, float) for name, values in kept.items()}
    duration = 1e-9 * (last - first)
    count = len(columns["request_latency"])
    if not count or not duration > 0:
        raise InputError(f"{where}: no completed request; accepted is a log with some that took time")
    ttft, itl, e2e = (_over(columns[name]) for name in _LATENCIES)
    yield LoadPoint(
        form="aiperf",
        where=where,
        input_tokens=float(np.nanmean(columns["input_sequence_length"])),
        output_tokens=float(np.nanmean(columns["output_sequence_length"])),
        throughput_rps=count / duration,
        ttft=ttft,
        tpot=itl,
        e2e=e2e,
        completed_count=float(count),
        failed_count=float(failed),
        duration_s=duration,
    )


def _value(metrics: Any, name: str, where: str, latency: bool) -> float:
    table = _metric(metrics, name)
    if table is None:
        return math.nan
    return number(table, "value", where) * (_unit_s(table, name, where) if latency else 1.0)


def _records(document: Any) -> Any:
    """The metrics of an early release's summary; None: it is none."""
    records = at(document, "records")
    return records if isinstance(at(records, "request_throughput"), dict) else None


def _metric(metrics: Any, name: str) -> Any:
    """A metric, under its name or its earlier one."""
    found = at(metrics, name)
    return at(metrics, _EARLIER[name]) if found is None and name in _EARLIER else found


def _over(values: np.ndarray) -> LatencyStats:
    known = values[np.isfinite(values)]
    if not known.size:
        return LatencyStats()
    return LatencyStats(float(known.mean()), *map(float, np.percentile(known, (50, 90, 95, 99))))


def _unit_s(table: Any, name: str, where: str) -> float:
    unit = text(table, "unit")
    if unit not in _SECONDS:
        raise InputError(f"{where}: {name}.unit is {unit!r}; accepted are {', '.join(_SECONDS)}")
    return _SECONDS[unit]


def _latency(document: Any, name: str, where: str) -> LatencyStats:
    table = _metric(document, name)
    if not isinstance(table, Mapping):
        return LatencyStats()
    scale = _unit_s(table, name, where)
    fields = {"mean_s": "avg", "p50_s": "p50", "p90_s": "p90", "p95_s": "p95", "p99_s": "p99"}
    return LatencyStats(**{ours: scale * number(table, theirs, where) for ours, theirs in fields.items()})


def _average(document: Any, name: str, where: str, default: float = math.nan) -> float:
    return number(document.get(name), "avg", where, default)


def _duration_s(document: Any, where: str) -> float:
    table = document.get("benchmark_duration")
    return number(table, "avg", where) * _unit_s(table, "benchmark_duration", where) if table else math.nan


def _concurrency(config: Any, where: str) -> float:
    """Clients of a closed loop: of AIPerf before 0.10, since then, of GenAI-Perf."""
    phases = at(config, "phases")
    measured = [one for one in phases if at(one, "name") == "profiling"] if isinstance(phases, list) else []
    tables = [at(config, "loadgen"), *measured, at(config, "perf_analyzer", "stimulus")]
    return next((number(table, "concurrency", where) for table in tables if at(table, "concurrency")), math.nan)


def _model(config: Any) -> str:
    names = (
        at(config, "endpoint", "model_names", 0),
        at(config, "models", "items", 0, "name"),
        at(config, "model_names", 0),
    )
    return next((name for name in names if isinstance(name, str)), "")
