"""llm-d's Benchmark Report 0.2 (YAML or JSON): the stack that ran, the load, and aggregates that state their units.

Schema: br_v0_2_1_json_schema.json of llm-d/llm-d-benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dmodels.core.errors import InputError

from ..paths import at
from .point import LatencyStats, LoadPoint, degree, number, text
from .vllm_bench import engine

_SECONDS = {"s": 1.0, "ms": 1e-3, "s/token": 1.0, "ms/token": 1e-3}


def knows(document: Any) -> bool:
    """Whether a document is such a report."""
    return isinstance(document, dict) and {"version", "run", "results"} <= set(document)


def read(document: Any, where: str) -> Iterator[LoadPoint]:
    """The point of a report. Pools of several kinds are summed up by no number here, so the first engine counts."""
    version = text(document, "version")
    if not version.startswith("0.2"):
        raise InputError(f"{where}: version is {version!r}; accepted is 0.2")
    aggregate = at(document, "results", "request_performance", "aggregate")
    requests, latency = at(aggregate, "requests"), at(aggregate, "latency")
    load = at(document, "scenario", "load", "standardized")
    one = _engine(document)
    parallel = at(one, "accelerator", "parallelism")
    total = number(requests, "total", where)
    failures = number(requests, "failures", where, 0.0)
    yield LoadPoint(
        form="llm-d-report",
        where=where,
        input_tokens=_mean(requests, "input_length", where, _value(load, "input_seq_len", where)),
        output_tokens=_mean(requests, "output_length", where, _value(load, "output_seq_len", where)),
        throughput_rps=_mean(at(aggregate, "throughput"), "request_rate", where, math.nan),
        ttft=_latency(latency, "time_to_first_token", where),
        tpot=_latency(latency, "time_per_output_token", where),
        e2e=_latency(latency, "request_latency", where),
        completed_count=total - failures - number(requests, "incomplete", where, 0.0),
        failed_count=failures,
        asked_rate_rps=number(load, "rate_qps", where),
        max_concurrency_count=_clients(load, where),
        model=text(at(one, "model"), "name"),
        engine=engine(text(one, "tool")),
        release=text(one, "tool_version"),
        gpu=text(at(one, "accelerator"), "model"),
        tp=degree(parallel, "tp", where),
        pp=degree(parallel, "pp", where),
        dp=degree(parallel, "dp", where),
        ep=degree(parallel, "ep", where),
    )


def _engine(document: Any) -> Any:
    stack = at(document, "scenario", "stack")
    for component in stack if isinstance(stack, list) else ():
        one = at(component, "standardized")
        if isinstance(one, Mapping) and "accelerator" in one:
            return one
    return {}


def _mean(table: Any, name: str, where: str, otherwise: float) -> float:
    return number(at(table, name), "mean", where, otherwise)


def _value(load: Any, name: str, where: str) -> float:
    return number(at(load, name), "value", where)


def _clients(load: Any, where: str) -> float:
    value = at(load, "concurrency")  # .inf: an open loop
    return math.nan if isinstance(value, Mapping | list) or value == math.inf else number(load, "concurrency", where)


def _latency(table: Any, name: str, where: str) -> LatencyStats:
    own = at(table, name)
    if own is None:
        return LatencyStats()
    units = text(own, "units")
    if units not in _SECONDS:
        raise InputError(f"{where}: {name}.units is {units!r}; accepted are {', '.join(_SECONDS)}")
    fields = {"mean_s": "mean", "p50_s": "p50", "p90_s": "p90", "p95_s": "p95", "p99_s": "p99"}
    return LatencyStats(**{ours: _SECONDS[units] * number(own, theirs, where) for ours, theirs in fields.items()})
