"""Refit the efficiencies on measured serving rows, and report the error before and after."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.files import write_text
from dmodels.report.text import Table as Shown
from dmodels.report.text import table

from . import render
from .calls import Code, call
from .command import Form, asks
from .predict import rejected, say_rejected
from .schema import Degree, Table, flag

#: Machines side by side in one table, so that a terminal of 120 columns shows whole names.
CELLS_PER_TABLE = 4


class FitAsked(Table):
    """The measured rows."""

    rows: str = flag(..., "CSV with the layout and silicon_ttft_ms and silicon_tpot_ms", argument=True)
    steps: Degree = flag(15, "Levenberg-Marquardt steps at most")

    def call(self) -> Code:
        """The library call."""
        return call("dmodels.fit.refit:refit", self.rows, max_steps=self.steps)


@asks(FitAsked)
def command(
    asked: FitAsked,
    form: Form,
    out: Annotated[Path | None, typer.Option(help="write the calibration here (JSON), for `dmodels predict`")] = None,
) -> int:
    return form.give(
        asked.call(),
        lambda found: asked.model_dump(),
        _result,
        lambda found: render.show(_tables(found)),
        write=lambda found: _write(found, Path(asked.rows).name, out),
    )


def _write(found: Any, name: str, out: Path | None) -> None:
    from dmodels.fit.calibration import dump

    if out is not None:
        write_text(out, dump(found.effects, {"rows": name, "count": len(found.rows)}))
    say_rejected(found)
    used, skipped, odd = len(found.rows), len(found.rejected), len(found.outliers)
    print(f"{used} rows used, {skipped} skipped, {odd} outliers", file=sys.stderr)


def _result(found: Any) -> dict[str, Any]:
    return {
        "errors": {name: getattr(found, name) for name in ("before", "after", "held_out")},
        "efficiencies": found.table,
        "outliers": found.outliers,
        "rejected": rejected(found),
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
    if found.outliers:
        head = ["row", "latency", "measured [ms]", "against [ms]", "why"]
        tables.append(("Outliers (kept, with little weight)", head, [list(o) for o in found.outliers[:20]]))
    return tables


def _error(share: str, of: dict[str, Any]):
    return lambda metric: f"{100 * getattr(of[metric], share):.1f} %"
