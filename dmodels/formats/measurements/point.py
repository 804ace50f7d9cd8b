"""One measured point: what a load generator offered to a deployment, and what it saw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError

#: Latencies that are believed, in seconds: a first token in less than half a millisecond, or after an hour, is a unit.
TTFT_S, TPOT_S, E2E_S = (5e-4, 3600.0), (5e-5, 100.0), (5e-4, 86400.0)


@dataclass(frozen=True)
class LatencyStats(Answer):
    """A latency over requests. nan: the file does not say."""

    mean_s: float = math.nan
    p50_s: float = math.nan
    p90_s: float = math.nan
    p95_s: float = math.nan
    p99_s: float = math.nan

    @property
    def typical_s(self) -> float:
        """The mean, or the median where there is none."""
        return self.mean_s if math.isfinite(self.mean_s) else self.p50_s


@dataclass(frozen=True)
class LoadPoint(Answer):
    """A deployment under one load. nan and "" are what the file does not say; 0 GPUs: the same."""

    derived = ("concurrency_count",)
    form: str  # of `FORMATS`
    where: str  # file and place in it
    input_tokens: float  # mean of a request
    output_tokens: float
    throughput_rps: float  # completed requests
    ttft: LatencyStats
    tpot: LatencyStats  # per request: (E2E - TTFT) / (output tokens - 1)
    e2e: LatencyStats = field(default_factory=LatencyStats)
    completed_count: float = math.nan
    failed_count: float = 0.0
    duration_s: float = math.nan
    asked_rate_rps: float = math.nan  # inf: as fast as the clients can
    max_concurrency_count: float = math.nan  # clients of a closed loop
    model: str = ""
    engine: str = ""
    release: str = ""  # of the engine
    gpu: str = ""
    precision: str = ""
    tp: int = 0
    pp: int = 0
    dp: int = 0
    ep: int = 0

    @property
    def concurrency_count(self) -> float:
        """Requests in flight on average: throughput times time in the system (Little's law)."""
        latency = self.e2e.mean_s
        if not math.isfinite(latency):
            latency = self.ttft.typical_s + max(self.output_tokens - 1.0, 0.0) * self.tpot.typical_s
        return self.throughput_rps * latency


def checked(point: LoadPoint) -> LoadPoint:
    """The point, if its numbers can be true together; otherwise an `InputError` that names what cannot.

    A latency in the wrong unit is a thousand times off: it is beyond what any engine does, longer than the run, or at
    odds with E2E = TTFT + (output tokens - 1) TPOT.
    """
    needed = {"input tokens": point.input_tokens, "output tokens": point.output_tokens}
    needed |= {"throughput": point.throughput_rps, "TTFT": point.ttft.typical_s}
    for name, value in needed.items():
        if math.isnan(value):
            raise InputError(f"{point.where}: {point.form} states no {name}; accepted are reports that do")
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{point.where}: {name} is {value:g}; accepted are positive numbers")
    ttft, tpot, e2e = point.ttft.typical_s, point.tpot.typical_s, point.e2e.typical_s
    for name, value, (low, high) in (("TTFT", ttft, TTFT_S), ("TPOT", tpot, TPOT_S), ("E2E", e2e, E2E_S)):
        if math.isfinite(value) and not low <= value <= high:
            raise InputError(
                f"{point.where}: {name} of {value:.3g} s; accepted are {low:g} to {high:g} s: is it in another unit?"
            )
    for name, value in (("TTFT", ttft), ("E2E", e2e), ("TTFT and tokens", _through(point))):
        if math.isfinite(point.duration_s) and value > 1.5 * point.duration_s + 1.0:
            raise InputError(
                f"{point.where}: {name} of {value:.4g} s on average in a run of {point.duration_s:.4g} s; is one of "
                "them in another unit?"
            )
    if math.isfinite(e2e) and math.isfinite(tpot) and not 0.2 <= _through(point) / e2e <= 5.0:
        raise InputError(
            f"{point.where}: E2E {e2e:.3g} s, but TTFT {ttft:.3g} s and {point.output_tokens:.4g} tokens at TPOT "
            f"{1e3 * tpot:.3g} ms make {_through(point):.3g} s; is one of them in another unit?"
        )
    if ttft > 1.2 * e2e:
        raise InputError(
            f"{point.where}: TTFT {ttft:.3g} s is longer than E2E {e2e:.3g} s; is one of them in another unit?"
        )
    flight, clients = point.concurrency_count, point.max_concurrency_count
    if flight > 2.0 * clients + 1.0:
        raise InputError(
            f"{point.where}: {point.throughput_rps:.4g} req/s of {flight / point.throughput_rps:.4g} s are {flight:.4g}"
            f" in flight, of {clients:g} clients; is one of them in another unit?"
        )
    rate = point.completed_count / point.duration_s if point.duration_s > 0 else math.nan
    if math.isfinite(rate) and rate > 0 and not 0.5 <= point.throughput_rps / rate <= 2.0:
        raise InputError(
            f"{point.where}: {point.completed_count:g} requests in {point.duration_s:.4g} s are {rate:.4g} req/s, but "
            f"the throughput is {point.throughput_rps:.4g}; accepted are the same to a factor of 2"
        )
    return point


def _through(point: LoadPoint) -> float:
    tpot = point.tpot.typical_s
    return point.ttft.typical_s + max(point.output_tokens - 1.0, 0.0) * (tpot if math.isfinite(tpot) else 0.0)


def number(table: Any, name: str, where: str, default: float = math.nan) -> float:
    """A number of a document, `default` where it is missing or null; text and truth values are none."""
    value = table.get(name) if isinstance(table, Mapping) else None
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {name} is {str(value)[:40]!r}; accepted is a number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or found < 0:
        raise InputError(f"{where}: {name} is {found:g}; accepted is a finite number from 0")
    return found


def text(table: Any, name: str) -> str:
    """A word of a document; "" where it is missing."""
    value = table.get(name) if isinstance(table, Mapping) else None
    return value.strip()[:400] if isinstance(value, str) else ""


def degree(table: Any, name: str, where: str) -> int:
    """A degree of parallelism; 0 where it is missing."""
    found = number(table, name, where, 0.0)
    if not found.is_integer() or found > 1e5:
        raise InputError(f"{where}: {name} is {found:g}; accepted is a whole number")
    return int(found)


def stats(table: Any, where: str, unit_s: float, names: Mapping[str, str]) -> LatencyStats:
    """A latency from a table's fields: `names` says which one is which of `LatencyStats`'."""
    found = {ours: unit_s * number(table, theirs, where) for ours, theirs in names.items()}
    return LatencyStats(**found)
