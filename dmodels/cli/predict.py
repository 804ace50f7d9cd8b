"""TTFT and TPOT of serving rows (a CSV with the columns of a benchmark export), with 80 % and 95 % intervals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.files import write_text

from .calls import Code, call
from .command import Form, asks, check_output
from .schema import FileName, Table, flag


class PredictAsked(Table):
    """The rows, and whose measured efficiencies apply."""

    rows: str = flag(..., "CSV with id, model_path, system, backend, isl, osl, and the layout", argument=True)
    calibration: FileName | None = flag(None, "a calibration written by `dmodels fit --out`")
    tuned: bool = flag(False, "servers tuned as those of MLPerf: the factor of its public runs on every step")

    def call(self) -> Code:
        """The library call."""
        own = call("dmodels.fit.calibration:read", self.calibration) if self.calibration else None
        return call("dmodels.fit.predict:predict_file", self.rows, own, tuned=self.tuned or None)


@asks(PredictAsked)
def command(
    asked: PredictAsked,
    form: Form,
    out: Annotated[Path | None, typer.Option(help="write the predictions here; otherwise to stdout")] = None,
) -> int:
    check_output("out", out)
    return form.give(
        asked.call(),
        lambda found: asked.model_dump(),
        lambda found: {"predictions": found.values, "rejected": rejected(found)},
        lambda found: None if out else print(_csv(found), end=""),
        write=lambda found: _write(found, out),
        label="predictions",
    )


def rejected(found: Any) -> list[dict[str, Any]]:
    """Rows that could not be used, as JSON holds them, and why."""
    return [{"id": r.id, "line": r.line, "reason": r.reason} for r in found.rejected]


def say_rejected(found: Any) -> None:
    """The same on stderr."""
    for r in found.rejected:
        print(f"skipped {r.id}{f' (line {r.line})' if r.line else ''}: {r.reason}", file=sys.stderr)


def _csv(found: Any) -> str:
    from dmodels.fit.predict import to_csv

    return to_csv(found)


def _write(found: Any, out: Path | None) -> None:
    if out is not None:
        write_text(out, _csv(found))
    say_rejected(found)
    for line in found.notes:
        print(line, file=sys.stderr)
    print(f"{len(found.values)} rows predicted, {len(found.rejected)} skipped", file=sys.stderr)
