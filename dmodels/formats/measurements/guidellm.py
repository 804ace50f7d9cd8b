"""GuideLLM's report (metadata.version 2, and 1 of the same metrics): a benchmark for each rate.

Fields: src/guidellm/schemas of vllm-project/guidellm. Latencies of requests are in s, those of tokens in ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dmodels.core.errors import InputError

from ..paths import at
from .point import LatencyStats, LoadPoint, number, stats, text


def knows(document: Any) -> bool:
    """Whether a document is such a report."""
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list) and "metadata" in document


def read(document: Any, where: str) -> Iterator[LoadPoint]:
    """The points of its benchmarks; one without a completed request is left out."""
    backend = at(document, "config", "spec", "backend") or at(document, "args")
    for i, one in enumerate(document["benchmarks"]):
        place = f"{where}: benchmarks[{i}]"
        if not isinstance(one, dict):
            raise InputError(f"{place} is {str(one)[:40]!r}; accepted is an object")
        metrics, totals = one.get("metrics"), at(one, "metrics", "request_totals")
        completed = number(totals, "successful", place, 0.0)
        if not completed:
            continue
        strategy = at(one, "config", "strategy")
        e2e = _latency(metrics, "request_latency", place, 1.0)
        yield LoadPoint(
            form="guidellm",
            where=place,
            input_tokens=number(_of(metrics, "prompt_token_count"), "mean", place),
            output_tokens=number(_of(metrics, "output_token_count"), "mean", place),
            throughput_rps=_rate(metrics, completed, one, place),
            ttft=_latency(metrics, "time_to_first_token_ms", place, 1e-3),
            tpot=_latency(metrics, "inter_token_latency_ms", place, 1e-3),  # theirs "per output token" has TTFT in it
            e2e=e2e,
            completed_count=completed,
            failed_count=number(totals, "errored", place, 0.0),
            duration_s=number(one, "duration", place),
            asked_rate_rps=number(strategy, "rate", place),
            max_concurrency_count=_clients(strategy, place),
            model=text(backend, "model"),
        )


def _rate(metrics: Any, completed: float, one: Any, where: str) -> float:
    """Completed requests a second; a run of a few requests states a mean over buckets of them."""
    duration = number(one, "duration", where)
    stated = number(_of(metrics, "requests_per_second"), "mean", where)
    return completed / duration if duration > 0 else stated


def _clients(strategy: Any, where: str) -> float:
    """Clients of a closed loop; a schedule of arrivals has only a limit that is not reached."""
    if text(strategy, "type_") in ("concurrent", "synchronous"):
        return number(strategy, "streams", where, 1.0 if strategy.get("type_") == "synchronous" else math.nan)
    return math.nan


def _of(metrics: Any, name: str) -> Any:
    return at(metrics, name, "successful")


def _latency(metrics: Any, name: str, where: str, unit_s: float) -> LatencyStats:
    table = _of(metrics, name)
    flat = {**table, **(table.get("percentiles") or {})} if isinstance(table, Mapping) else {}
    names = {"mean_s": "mean", "p50_s": "median", "p90_s": "p90", "p95_s": "p95", "p99_s": "p99"}
    return stats(flat, where, unit_s, names)
