"""TTFT and TPOT of serving rows (a CSV with the columns of a benchmark export), with 80 % and 95 % intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    rows: Annotated[Path, typer.Argument(help="CSV with id, model_path, system, backend, isl, osl, and the layout")],
    out: Annotated[Path | None, typer.Option(help="Write the predictions here; otherwise to stdout")] = None,
    calibration: Annotated[Path | None, typer.Option(help="A calibration written by `dmodels fit --out`")] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON with the inputs")] = False,
    show_python: Annotated[bool, typer.Option("--show-python", help="Print the library call instead")] = False,
) -> int:
    import sys

    if show_python:
        print("from dmodels.fit.predict import predict_file, to_csv\n")
        print(f"print(to_csv(predict_file({str(rows)!r})), end='')")
        return 0
    from dmodels.core.files import write_text
    from dmodels.fit.calibration import read
    from dmodels.fit.predict import predict_file, to_csv

    from .render import as_json

    found = predict_file(rows, read(calibration) if calibration else None)
    text = to_csv(found)
    if json:
        rejected = [{"id": r.id, "line": r.line, "reason": r.reason} for r in found.rejected]
        print(as_json("predict", {"rows": str(rows)}, {"predictions": found.values, "rejected": rejected}))
    elif out is None:
        print(text, end="")
    if out is not None:
        write_text(out, text)
    for r in found.rejected:
        print(f"skipped {r.id}{f' (line {r.line})' if r.line else ''}: {r.reason}", file=sys.stderr)
    print(f"{len(found.values)} rows predicted, {len(found.rejected)} skipped", file=sys.stderr)
    return 0
