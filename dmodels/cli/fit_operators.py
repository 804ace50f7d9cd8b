"""Refit the laws of operators on a folder of measured kernel times."""

from __future__ import annotations

import sys
from pathlib import Path


def run(folder: Path, out: Path | None, json: bool, show_python: bool) -> int:
    """`dmodels fit operators FOLDER`: the held-out error by kind of operator, and the constants to a file."""
    if show_python:
        print("from dmodels.fit.operators.refit import refit\n")
        print(f'print(refit({str(folder)!r}).summary("kind"))')
        return 0
    from dmodels.core.files import write_text
    from dmodels.fit.operators.coefficients import dump
    from dmodels.fit.operators.refit import PROTOCOLS, refit

    from .render import as_json, print_table

    found = refit(folder, say=lambda line: print(line, file=sys.stderr))
    if out is not None:
        write_text(out, dump(found.coefficients))
    if json:
        skipped = [{"table": table, "reason": reason} for table, reason in found.skipped]
        result = {"errors": found.summary("kind", "gpu", "engine", "dtype"), "skipped": skipped}
        print(as_json("fit", {"folder": str(folder)}, result))
    else:
        head = ["operator", "rows", *(f"{p}: {q}" for p in PROTOCOLS for q in ("median", "P90"))]
        cells = [f"{p}_{q}" for p in PROTOCOLS for q in ("median", "p90")]
        rows = found.summary("kind")
        lines = [[row["kind"], row["shapes_count"], *(_percent(row[cell]) for cell in cells)] for row in rows]
        print_table("Absolute error of what was held out", head, lines)
    for table, reason in found.skipped:
        print(f"skipped {table}: {reason}", file=sys.stderr)
    return 0


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
