"""Refit the efficiencies on measured points, and report the error before and after, and what load sweeps say.

Files are CSV tables of benchmark rows, or reports of load generators (`dmodels formats` lists them), for which flags
say what they do not: GPU, layout, engine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from dmodels.core.files import write_text
from dmodels.core.units import counted
from dmodels.report.text import Table as Shown
from dmodels.report.text import table

from . import render
from .calls import Code, call
from .command import Form, asks, check_output
from .schema import Degree, Table, flag

MACHINE = ("model", "gpu", "engine", "precision", "tp", "dp", "ep")
Wide = Annotated[int, Field(ge=0)]
#: Machines side by side in one table, so that a terminal of 120 columns shows whole names.
CELLS_PER_TABLE = 4
OUTLIERS_SHOWN = 20


class MachineTable(Table):
    """What ran, where reports of load generators do not say."""

    model: str = flag("", "catalogue name or Hugging Face id of what was measured")
    gpu: str = flag("", "GPU that was measured, like h100_sxm")
    engine: str = flag("", "engine that was measured: vllm, sglang, trtllm")
    precision: str = flag("", "precision of the weights: bf16, fp8, fp4, int4 [default: as published]")
    tp: Wide = flag(0, "tensor parallelism of an instance")
    dp: Wide = flag(0, "attention data parallelism of an instance")
    ep: Wide = flag(0, "expert parallelism of an instance")

    def machine(self) -> Code | None:
        """The library call; None: nothing was said."""
        said = {name: value for name in MACHINE if (value := getattr(self, name))}
        return call("dmodels.fit.measured:Machine", **said) if said else None


class FitAsked(MachineTable):
    """The measured points, and what ran where the files do not say."""

    rows: list[str] = flag(..., "reports of load generators, or CSV tables of rows", argument=True, repeated=True)
    steps: Degree = flag(15, "Levenberg-Marquardt steps at most")

    def call(self) -> Code:
        """The library call."""
        files = self.rows[0] if len(self.rows) == 1 else self.rows
        return call("dmodels.fit.refit:refit", files, max_steps=self.steps, machine=self.machine())


@asks(FitAsked, batches=True)
def command(
    asked: FitAsked,
    form: Form,
    out: Annotated[
        Path | None, typer.Option(help="write the calibration here (JSON), for --calibration of other commands")
    ] = None,
) -> int:
    check_output("out", out)
    return form.give(
        asked.call(),
        lambda found: asked.model_dump(),
        _result,
        lambda found: render.show(_tables(found)),
        write=lambda found: _write(found, ", ".join(Path(row).name for row in asked.rows), out),
    )


def _write(found: Any, name: str, out: Path | None) -> None:
    from dmodels.fit.refit import written

    if out is not None:
        write_text(out, written(found.own, name))
    say_rejected(found)
    used, skipped, odd = len(found.rows), len(found.rejected), len(found.outliers)
    print(f"{counted(used, 'row')} used, {skipped} skipped, {counted(odd, 'outlier')}", file=sys.stderr)


def rejected(found: Any) -> list[dict[str, Any]]:
    """Rows that could not be used, as JSON holds them, and why."""
    return [{"id": r.id, "line": r.line, "reason": r.reason} for r in found.rejected]


def say_rejected(found: Any) -> None:
    """The same on stderr."""
    for r in found.rejected:
        print(f"skipped {r.id}{f' (line {r.line})' if r.line else ''}: {r.reason}", file=sys.stderr)


def _result(found: Any) -> dict[str, Any]:
    return {
        "errors": {name: getattr(found, name) for name in ("before", "after", "held_out")},
        "efficiencies": found.table,
        "outliers": found.outliers,
        "rejected": rejected(found),
        "spread80": found.spread80,
        "sweeps": [sweep.to_dict() for sweep in found.sweeps],
    }


def _tables(found: Any) -> list[Shown]:
    columns = {
        "latency": lambda metric: metric,
        "rows": lambda metric: found.before[metric].count,
        "median before": _error("median", found.before),
        "after": _error("median", found.after),
        "after, held out": _error("median", found.held_out),
        "P90 before": _error("p90", found.before),
        "after ": _error("p90", found.after),
        "after, held out ": _error("p90", found.held_out),
    }
    tables = [table("Absolute error", ("ttft", "tpot"), columns)]
    names = [name for name in found.table[0] if name not in ("gpu", "backend", "precision")]
    for first in range(0, len(found.table), CELLS_PER_TABLE):
        cells = found.table[first : first + CELLS_PER_TABLE]
        machines = [f"{c['gpu']} {c['backend']} {c['precision']}" for c in cells]
        values = [[name, *(round(c[name], 3) for c in cells)] for name in names]
        tables.append(("Efficiencies after the fit", ["efficiency", *machines], values))
    spread = [[name, *(round(factor, 3) for factor in found.spread80[name])] for name in ("ttft", "tpot")]
    tables.append(("80 % of new points, as factors on a prediction after the fit", ["latency", "from", "to"], spread))
    tables += map(_sweep_table, found.sweeps)
    return [*tables, _outlier_table(found.outliers)] if found.outliers else tables


def _outlier_table(outliers: list[Any]) -> Shown:
    """The first of them."""
    count = len(outliers)
    title = "Outliers (kept, with little weight)" + (f", {OUTLIERS_SHOWN} of {count}" if count > OUTLIERS_SHOWN else "")
    head = ["row", "latency", "measured [ms]", "against [ms]", "why"]
    return title, head, [list(outlier) for outlier in outliers[:OUTLIERS_SHOWN]]


def _sweep_table(sweep: Any) -> Shown:
    """Loads, and below them what they say."""
    columns = (sweep.concurrency_count, sweep.throughput_rps, sweep.ttft_s, sweep.tpot_s)
    rows: list[list[Any]] = [
        [round(n, 1), f"{rate:.3g}", f"{1e3 * ttft:.4g}", f"{1e3 * tpot:.4g}"]
        for n, rate, ttft, tpot in zip(*columns, strict=True)
    ]
    base, each = (
        f"{1e3 * value:.3g} ({1e3 * low:.3g} to {1e3 * high:.3g})"
        for value, (low, high) in (
            (sweep.step_base_s, sweep.step_base_interval_s),
            (sweep.step_per_sequence_s, sweep.step_per_sequence_interval_s),
        )
    )
    rows.append(["TPOT", "", f"{base} ms", f"+ {each} ms each in flight"])
    low, high = sweep.knee_interval_count
    if sweep.knee_count == sweep.knee_count:
        rows.append(
            [f"knee {sweep.knee_count:.3g}", f"at most {sweep.ceiling_rps:.3g}", f"{low:.3g} to {high:.3g}", ""]
        )
    rows += [["!", said, "", ""] for said in sweep.contradictions]
    return f"Load sweep: {sweep.name}", ["in flight", "req/s", "TTFT [ms]", "TPOT [ms]"], rows


def _error(share: str, of: dict[str, Any]) -> Any:
    return lambda metric: f"{100 * getattr(of[metric], share):.1f} %"
