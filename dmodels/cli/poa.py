"""PoA-hat of a router's log, window by window: regime, and what drives it.

LOG is CSV, JSON lines or Parquet with id, arrival, completion, worker; optional latency, ttft, overlap or prefix.
PoA-hat is Eq. (12) of "The Price of Anarchy in Disaggregated Inference" with its constants. It measures regret and the
misfit of those constants, not efficiency: the last columns say which.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import Json

NAMES = ("below", "transition", "saturated")


def command(
    log: Annotated[Path, typer.Argument(help="request log: .csv, .jsonl, .parquet")],
    window: Annotated[int, typer.Option(help="requests in a window")] = 512,
    step: Annotated[int | None, typer.Option(help="requests between windows [default: half a window]")] = None,
    worker: Annotated[list[str] | None, typer.Option(help="a known worker; repeat [default: those in the log]")] = None,
    capacity: Annotated[float, typer.Option(help="C_j, places on each worker")] = 64.0,
    calibrate: Annotated[bool, typer.Option(help="fit a, b and the cache weight to the log")] = False,
    load_aware: Annotated[bool, typer.Option(help="let the optimum move the loads")] = False,
    baseline: Annotated[str | None, typer.Option(help='TTFT P99 of the idle system, like "55 ms"')] = None,
    limit: Annotated[int, typer.Option(help="bad rows to show")] = 20,
    plot: Annotated[Path | None, typer.Option(help="write PoA-hat over time to this file")] = None,
    json: Json = False,
    show_python: Annotated[bool, typer.Option("--show-python", help="print the library call")] = False,
) -> int:
    """Parse, analyse, show."""
    from dmodels.core.errors import InputError
    from dmodels.core.flags import describe
    from dmodels.studies.router_log import analyse

    from .options import quantity
    from .render import as_json, print_table

    baseline_s = None if baseline is None else quantity("baseline", baseline, "s")
    if show_python:
        call = f"analyse({str(log)!r}, window={window}, step={step}, workers={worker}, limit={limit}, "
        call += f"capacity={capacity}, calibrate={calibrate}, load_aware={load_aware}, baseline_s={baseline_s})"
        print(f"from dmodels.studies.router_log import analyse\n\n{call}")
        return 0
    for name, value, least in (("window", window, 1), ("step", step or 1, 1), ("limit", limit, 0)):
        if value < least:
            raise InputError(f"--{name} {value}: accepted are whole numbers from {least}")
    if not 0 < capacity < float("inf"):
        raise InputError(f"--capacity {capacity:g}: accepted are positive numbers")
    found = analyse(log, window, step, worker, limit, capacity, calibrate, load_aware, baseline_s)
    w, index = found.windows, found.windows.index
    if plot is not None:
        from dmodels.report import routing_figures, style

        drawn = routing_figures.index_over_time(w.end_s, index.poa_hat, found.regime)
        style.save(style.paper(drawn), plot)
    if json:
        inputs = {
            "log": str(log),
            "window": window,
            "step": step,
            "capacity": capacity,
            "calibrate": calibrate,
            "load_aware": load_aware,
            "baseline_s": found.baseline_s,
        }
        rows = [
            {
                "start_s": w.start_s[i],
                "end_s": w.end_s[i],
                "poa_hat": index.poa_hat[i],
                "observed_s": index.observed_s[i],
                "optimum_s": index.optimum_s[i],
                "ttft_p99_s": w.ttft_p99_s[i],
                "regime": NAMES[found.regime[i]],
                "driver": found.driver[i],
                "routing": w.routing[i],
                "constant": w.constant[i],
                "queueing": w.queueing[i],
                "loads": index.loads[i],
                "flags": describe(index.flags[i]),
            }
            for i in range(len(w.end_s))
        ]
        log_facts = {
            "rows": found.log.rows_count,
            "kept": len(found.log),
            "workers": found.log.workers,
            "problems": dict(found.log.problems),
            "reports": found.log.reports,
            "notices": found.log.notices,
        }
        print(as_json("poa", inputs, {"log": log_facts, "windows": rows}))
        return 0
    for text in (*found.log.reports, *found.log.notices):
        print(text, file=sys.stderr)
    if found.log.problems:
        counts = ", ".join(f"{kind}: {count:,}" for kind, count in found.log.problems.items())
        print(
            f"{found.log.rows_count - len(found.log):,} of {found.log.rows_count:,} rows left out; {counts}",
            file=sys.stderr,
        )
    head = ["end [s]", "PoA-hat", "TTFT P99 [s]", "regime", "driver", "routing x", "constant x", "queueing x", "flags"]
    rows = [
        [
            w.end_s[i],
            index.poa_hat[i],
            w.ttft_p99_s[i],
            NAMES[found.regime[i]],
            found.driver[i],
            w.routing[i],
            w.constant[i],
            w.queueing[i],
            describe(index.flags[i]),
        ]
        for i in range(len(w.end_s))
    ]
    print_table(f"{len(found.log):,} requests on {len(found.log.workers)} workers", head, rows)
    return 0
