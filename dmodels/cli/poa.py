"""PoA-hat of a router's log, window by window: regime, and what drives it.

LOG is CSV, JSON lines or Parquet with id, arrival, completion, worker; optional latency, ttft, overlap or prefix.
PoA-hat is Eq. (12) of "The Price of Anarchy in Disaggregated Inference" with its constants. It measures regret and the
misfit of those constants, not efficiency: the last columns say which.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from dmodels.report.text import table

from . import render
from .calls import Code, call
from .command import Form, asks, check_output
from .schema import Degree, Positive, Seconds, Table, flag

NAMES = ("below", "transition", "saturated")


class PoaAsked(Table):
    """A router's log, and how it is cut into windows."""

    log: str = flag(..., "request log: .csv, .jsonl, .parquet", argument=True)
    window: Degree = flag(512, "requests in a window")
    step: Degree | None = flag(None, "requests between windows [default: half a window]")
    worker: list[str] | None = flag(None, "a known worker; repeat [default: those in the log]", repeated=True)
    capacity: Positive = flag(64.0, "C_j, places on each worker")
    calibrate: bool = flag(False, "fit a, b and the cache weight to the log")
    load_aware: bool = flag(False, "let the optimum move the loads")
    baseline_s: Seconds | None = flag(None, 'TTFT P99 of the idle system, like "55 ms"', "--baseline")
    limit: Annotated[int, Field(ge=0)] = flag(20, "bad rows to show")

    def call(self) -> Code:
        """The library call."""
        return call(
            "dmodels.studies.router_log:analyse",
            self.log,
            window=self.window,
            step=self.step,
            workers=self.worker,
            limit=self.limit,
            capacity=self.capacity,
            calibrate=self.calibrate,
            load_aware=self.load_aware,
            baseline_s=self.baseline_s,
        )


@asks(PoaAsked, batches=True)
def command(
    asked: PoaAsked,
    form: Form,
    plot: Annotated[Path | None, typer.Option(help="write PoA-hat over time to this file")] = None,
) -> int:
    check_output("plot", plot, ".png", ".svg", ".pdf")
    return form.give(
        asked.call(),
        lambda found: asked.model_dump() | {"baseline_s": found.baseline_s},
        _result,
        _show,
        write=lambda found: _draw(found, plot),
    )


def _draw(found: Any, plot: Path | None) -> None:
    if plot is None:
        return
    from dmodels.report import routing_figures, style

    w = found.windows
    style.save(style.paper(routing_figures.index_over_time(w.end_s, w.index.poa_hat, found.regime)), plot)


def _windows(found: Any) -> list[dict[str, Any]]:
    from dmodels.core.flags import describe

    w, index = found.windows, found.windows.index
    columns = {
        **{name: getattr(w, name) for name in ("start_s", "end_s", "ttft_p99_s", "routing", "constant", "queueing")},
        **{name: getattr(index, name) for name in ("poa_hat", "observed_s", "optimum_s", "loads")},
        "regime": [NAMES[now] for now in found.regime],
        "driver": found.driver,
        "flags": [describe(flags) for flags in index.flags],
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _result(found: Any) -> dict[str, Any]:
    log = {
        "rows": found.log.rows_count,
        "kept": len(found.log),
        "workers": found.log.workers,
        "problems": dict(found.log.problems),
        "reports": found.log.reports,
        "notices": found.log.notices,
    }
    return {"log": log, "windows": _windows(found)}


COLUMNS = {
    "end [s]": "end_s",
    "PoA-hat": "poa_hat",
    "TTFT P99 [s]": "ttft_p99_s",
    "regime": "regime",
    "driver": "driver",
    "routing x": "routing",
    "constant x": "constant",
    "queueing x": "queueing",
    "flags": "flags",
}


def _show(found: Any) -> None:
    log = found.log
    for text in (*log.reports, *log.notices):
        print(text, file=sys.stderr)
    if log.problems:
        counts = ", ".join(f"{kind}: {count:,}" for kind, count in log.problems.items())
        print(f"{log.rows_count - len(log):,} of {log.rows_count:,} rows left out; {counts}", file=sys.stderr)
    render.show([table(f"{len(log):,} requests on {len(log.workers)} workers", _windows(found), COLUMNS)])
