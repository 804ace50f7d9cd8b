"""Refit the efficiencies on measured serving rows, or (`fit operators FOLDER`) the operators' laws on kernel times."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

#: Machines side by side in one table, so that a terminal of 120 columns shows whole names.
CELLS_PER_TABLE = 4


def command(
    rows: Annotated[
        Path,
        typer.Argument(help="CSV with the layout and silicon_ttft_ms and silicon_tpot_ms; or the word 'operators'"),
    ],
    folder: Annotated[
        Path | None, typer.Argument(help="after 'operators': the folder of measured kernel times")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the calibration here (JSON), for `dmodels predict`")] = None,
    steps: Annotated[int, typer.Option(help="Levenberg-Marquardt steps at most", min=1)] = 15,
    json: Annotated[bool, typer.Option("--json", help="JSON with the inputs")] = False,
    show_python: Annotated[bool, typer.Option("--show-python", help="Print the library call instead")] = False,
) -> int:
    import sys

    if rows == Path("operators") or folder is not None:
        from dmodels.core.errors import InputError

        from .fit_operators import run

        if folder is None or rows != Path("operators"):
            raise InputError(f"fit {rows}: one CSV of serving rows, or `operators FOLDER`, is accepted")
        return run(folder, out, json, show_python)
    if show_python:
        print("from dmodels.fit.refit import refit\n")
        print(f"print(refit({str(rows)!r}, max_steps={steps}).after)")
        return 0
    from dmodels.core.files import write_text
    from dmodels.fit.calibration import dump
    from dmodels.fit.refit import refit

    from .render import as_json, print_table

    found = refit(rows, max_steps=steps)
    if out is not None:
        write_text(out, dump(found.effects, {"rows": rows.name, "count": len(found.rows)}))
    head = ["latency", "rows", "median before", "after", "after, held out", "P90 before", "after", "after, held out"]
    lines = []
    for metric in ("ttft", "tpot"):
        b, a, h = found.before[metric], found.after[metric], found.held_out[metric]
        lines.append(
            [
                metric,
                b.count,
                *(f"{100 * x:.1f} %" for x in (b.median, a.median, h.median)),
                *(f"{100 * x:.1f} %" for x in (b.p90, a.p90, h.p90)),
            ]
        )
    if json:
        result = {
            "errors": {name: _plain(getattr(found, name)) for name in ("before", "after", "held_out")},
            "efficiencies": found.table,
            "outliers": [o._asdict() for o in found.outliers],
            "rejected": [{"id": r.id, "line": r.line, "reason": r.reason} for r in found.rejected],
        }
        print(as_json("fit", {"rows": str(rows), "steps": steps}, result))
    else:
        print_table("Absolute error", head, lines)
        names = [name for name in found.table[0] if name not in ("gpu", "backend", "precision")]
        for first in range(0, len(found.table), CELLS_PER_TABLE):
            cells = found.table[first : first + CELLS_PER_TABLE]
            machines = (f"{c['gpu']} {c['backend']} {c['precision']}" for c in cells)
            values = [[name, *(round(c[name], 3) for c in cells)] for name in names]
            print_table("Efficiencies after the fit", ["efficiency", *machines], values)
        if found.outliers:
            head = ["row", "latency", "measured [ms]", "against [ms]", "why"]
            print_table("Outliers (kept, with little weight)", head, [list(o) for o in found.outliers[:20]])
    for r in found.rejected:
        print(f"skipped {r.id}{f' (line {r.line})' if r.line else ''}: {r.reason}", file=sys.stderr)
    used, skipped, odd = len(found.rows), len(found.rejected), len(found.outliers)
    print(f"{used} rows used, {skipped} skipped, {odd} outliers", file=sys.stderr)
    return 0


def _plain(errors) -> dict:
    return {metric: e._asdict() for metric, e in errors.items()}
