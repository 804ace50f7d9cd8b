"""inference-perf's lifecycle reports (YAML or JSON): a stage of load, all times in seconds.

Fields: inference_perf/reportgen of kubernetes-sigs/inference-perf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .point import LatencyStats, LoadPoint, number, stats


def knows(document: Any) -> bool:
    """Whether a document is such a report."""
    return isinstance(document, dict) and {"load_summary", "successes"} <= set(document)


def read(document: Any, where: str) -> Iterator[LoadPoint]:
    """The point of a stage."""
    load, done = document["load_summary"], document["successes"]
    latency = done.get("latency") if isinstance(done, Mapping) else None
    through = done.get("throughput") if isinstance(done, Mapping) else None
    yield LoadPoint(
        form="inference-perf",
        where=where,
        input_tokens=_mean(done, "prompt_len", where),
        output_tokens=_mean(done, "output_len", where),
        throughput_rps=number(through, "requests_per_sec", where),
        ttft=_latency(latency, "time_to_first_token", where),
        tpot=_latency(latency, "time_per_output_token", where),
        e2e=_latency(latency, "request_latency", where),
        completed_count=number(done, "count", where),
        failed_count=number(document.get("failures"), "count", where, 0.0),
        duration_s=number(document, "benchmark_time_seconds", where),
        asked_rate_rps=number(load, "requested_rate", where),
        max_concurrency_count=number(load, "concurrency", where),
    )


def _mean(table: Any, name: str, where: str) -> float:
    return number(table.get(name) if isinstance(table, Mapping) else None, "mean", where)


def _latency(table: Any, name: str, where: str) -> LatencyStats:
    own = table.get(name) if isinstance(table, Mapping) else None
    names = {"mean_s": "mean", "p50_s": "median", "p90_s": "p90", "p95_s": "p95", "p99_s": "p99"}
    return stats(own, where, 1.0, names)
