"""A plain CSV: a row a point, columns with their units in the name.

Needed are input_tokens, output_tokens, throughput_rps and TTFT and TPOT in ms or s: `ttft_ms` or `ttft_s`, `tpot_ms` or
`tpot_s`, of which `p99_ttft_ms` is the 99th percentile. May be there: concurrency, request_rate_rps, duration_s,
completed, e2e_ms, model, gpu, engine, precision, tp, pp, dp, ep.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping

from dmodels.core.errors import InputError
from dmodels.core.files import separator, table_rows

from .point import LatencyStats, LoadPoint

NEEDED = ("input_tokens", "output_tokens", "throughput_rps")
_PREFIXES = {"mean_s": "", "p50_s": "median_", "p90_s": "p90_", "p95_s": "p95_", "p99_s": "p99_"}
_NUMBERS = {"concurrency", "request_rate_rps", "duration_s", "completed", "failed", "tp", "pp", "dp", "ep"}
_WORDS = {"model", "gpu", "engine", "precision", "release", "remark"}


def knows(header: str) -> bool:
    """Whether the first line of a file is that of such a table."""
    return {"input_tokens", "throughput_rps"} <= {name.strip().lower() for name in header.split(separator(header))}


def read(rows: Iterable[str], where: str) -> Iterator[LoadPoint]:
    """The points of the rows; lines that begin with # are remarks."""
    table = table_rows(rows)
    names = table.fieldnames = [name.strip().lower() for name in table.fieldnames or ()]
    for name in (*NEEDED, "ttft", "tpot"):
        if not any(found in (name, f"{name}_ms", f"{name}_s") for found in names):
            raise InputError(f"{where}: no column {name!r}; needed are {', '.join(NEEDED)}, ttft_ms, tpot_ms")
    latencies = [f"{p}{metric}" for p in _PREFIXES.values() for metric in ("ttft", "tpot", "e2e")]
    known = {f"{name}_{unit}" for name in latencies for unit in ("ms", "s")}
    for name in names:
        if name not in known | _NUMBERS | _WORDS | set(NEEDED):
            raise InputError(f"{where}: column {name[:40]!r} is unknown; accepted are those of the guide's page")
    try:
        for row in table:
            cells = {key or "": value.strip() for key, value in row.items() if isinstance(value, str)}
            yield _point(cells, f"{where}: line {table.line_num}")
    except csv.Error as error:
        raise InputError(f"{where}: {error}") from None


def _point(cells: Mapping[str, str], where: str) -> LoadPoint:
    def of(name: str) -> float:
        return _number(cells, name, where)

    def degree(name: str) -> int:
        return _degree(of(name), name, where)

    return LoadPoint(
        form="csv",
        where=where,
        input_tokens=of("input_tokens"),
        output_tokens=of("output_tokens"),
        throughput_rps=of("throughput_rps"),
        ttft=_latency(cells, "ttft", where),
        tpot=_latency(cells, "tpot", where),
        e2e=_latency(cells, "e2e", where),
        completed_count=of("completed"),
        failed_count=0.0 if math.isnan(of("failed")) else of("failed"),
        duration_s=of("duration_s"),
        asked_rate_rps=of("request_rate_rps"),
        max_concurrency_count=of("concurrency"),
        model=cells.get("model", ""),
        engine=cells.get("engine", ""),
        release=cells.get("release", ""),
        gpu=cells.get("gpu", ""),
        precision=cells.get("precision", ""),
        tp=degree("tp"),
        pp=degree("pp"),
        dp=degree("dp"),
        ep=degree("ep"),
    )


def _degree(value: float, name: str, where: str) -> int:
    if not math.isnan(value) and not (value.is_integer() and value < 1e6):
        raise InputError(f"{where}: {name} is {value:g}; accepted is a whole number")
    return 0 if math.isnan(value) else int(value)


def _number(cells: Mapping[str, str], name: str, where: str) -> float:
    text = cells.get(name, "")
    if not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{where}: {name} is {text[:40]!r}; accepted is a finite number from 0")
    return value


def _latency(cells: Mapping[str, str], metric: str, where: str) -> LatencyStats:
    found = {}
    for ours, prefix in _PREFIXES.items():
        ms, s = _number(cells, f"{prefix}{metric}_ms", where), _number(cells, f"{prefix}{metric}_s", where)
        found[ours] = 1e-3 * ms if math.isfinite(ms) else s
    return LatencyStats(**found)
