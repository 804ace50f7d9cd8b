"""Engines' telemetry, saved from Prometheus: the demand and the workload in it, and the model beside what was measured.

Files are answers of Prometheus' query_range (JSON) or scrapes of /metrics (text), of vLLM, SGLang or Dynamo. With
--from-deployment, what the fleet's files start is asked what it should have shown under that load.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.files import write_text
from dmodels.report.text import Table as Shown
from dmodels.report.text import cell, share

from . import render
from .calls import Code, call
from .command import Form, asks, check_output
from .plan_inputs import BoundsTable
from .schema import Positive, Rate, Table, flag

Running = Annotated[list[Path] | None, typer.Option("--from-deployment", help="what runs: its files, or a folder")]

Dashboard = Annotated[Path | None, typer.Option(help="write a Grafana dashboard of plan against reality (JSON)")]


class WatchAsked(Table):
    """The files, and what they leave open."""

    files: list[str] = flag(
        ..., "Prometheus' answers (JSON), scrapes (text), or http://HOST:PORT", argument=True, repeated=True
    )
    hours: Positive = flag(6.0, "how far back a Prometheus server is asked")
    gpu: str = flag("", "GPU of the fleet, where its files name none")
    rate: Rate | None = flag(None, 'completed requests, like "5 req/s", where a single scrape has no rate')
    slo: BoundsTable = BoundsTable()

    def call(self, running: list[str]) -> Code:
        """The library call."""
        return call(
            "dmodels.studies.watch:watch",
            self.files,
            deployment=running or None,
            gpu=self.gpu or None,
            slo=self.slo.call() if running else None,
            rate_rps=self.rate,
            hours=self.hours,
        )


@asks(WatchAsked)
def command(asked: WatchAsked, form: Form, from_deployment: Running = None, dashboard: Dashboard = None) -> int:
    check_output("dashboard", dashboard)
    running = [str(path) for path in from_deployment or ()]
    return form.give(
        asked.call(running),
        lambda found: asked.model_dump() | {"from_deployment": running},
        lambda found: found.to_dict(),
        lambda found: render.show(_tables(found)),
        write=lambda found: _write(found, dashboard),
    )


def _write(found: Any, dashboard: Path | None) -> None:
    if dashboard is not None:
        from dmodels.report.grafana import dashboard as made

        print(f"dashboard: {write_text(dashboard, made(found))}", file=sys.stderr)
    for notice in found.telemetry.notices:
        print(f"dmodels: telemetry: {notice}", file=sys.stderr)


def _tables(found: Any) -> list[Shown]:
    seen = found.telemetry
    hours = (seen.end_s - seen.start_s) / 3600.0
    demand = [
        ["hours", _digits(hours)],
        ["replicas", seen.replicas_count],
        ["requests completed", f"{seen.requests_count:,.0f}"],
        ["rate, mean and busiest [req/s]", f"{_digits(seen.rate_rps)} and {_digits(seen.peak_rps)}"],
        ["arrivals, coefficient of variation", _digits(seen.arrival_cv)],
        ["prompts and answers, correlation", _digits(seen.length_correlation)],
        ["prefix-cache hits", "-" if math.isnan(seen.prefix_hit_frac) else share(seen.prefix_hit_frac)],
        ["running, mean and most", f"{_digits(seen.running_mean_count)} and {_digits(seen.running_peak_count)}"],
        ["waiting, mean", _digits(seen.waiting_mean_count)],
        ["KV cache in use, most", "-" if math.isnan(seen.kv_peak_frac) else share(seen.kv_peak_frac)],
    ]
    tables: list[Shown] = [("Demand", ["", ""], demand)]
    parts = {
        "prompt [tokens]": (seen.input_tokens, 1.0),
        "answer [tokens]": (seen.output_tokens, 1.0),
        "TTFT [ms]": (seen.ttft_s, 1e3),
        "time between tokens [ms]": (seen.itl_s, 1e3),
        "E2E [ms]": (seen.e2e_s, 1e3),
    }
    rows = [
        [name, _digits(scale * one.mean), *(_quantile(one, share, scale) for share in (0.5, 0.9, 0.99))]
        for name, (one, scale) in parts.items()
        if one is not None
    ]
    tables.append(("Seen; quantiles are read off the buckets", ["", "mean", "P50", "P90", "P99"], rows))
    if found.fleet is not None:
        verdict = "keeps the SLOs" if found.fleet.keeps_slo else "does not keep the SLOs"
        head = [
            f"{found.fleet.name}: {verdict}; at most {cell(found.fleet.serves_rps)} req/s",
            "measured",
            "model",
            "ratio",
        ]
        lines = [[one.name, *map(_digits, (one.measured, one.predicted, one.ratio))] for one in found.compared]
        tables.append(("The model beside what was measured", head, lines))
    return tables


def _quantile(one: Any, share: float, scale: float) -> Any:
    """Beyond the last bucket, what it is more than."""
    shown = _digits(scale * one.quantile(share))
    return f"> {shown:,.12g}" if one.beyond(share) else shown


def _digits(value: float) -> Any:
    return "-" if math.isnan(value) else float(f"{value:.4g}")
