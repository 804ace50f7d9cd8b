"""TTFT and TPOT of serving points, with 80 % and 95 % intervals: rows of a benchmark export (CSV), or those of a load
generator's report (`dmodels formats` lists them), for which flags say what it does not: GPU, layout, engine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.files import write_text
from dmodels.core.tables import check_table, is_table, write_table
from dmodels.core.units import counted

from .calls import Code, call
from .command import Form, asks, check_output
from .fit import MachineTable, rejected, say_rejected
from .schema import FileName, flag


class PredictAsked(MachineTable):
    """The rows, what ran where they do not say, and whose measured efficiencies apply."""

    rows: str = flag(..., "CSV with id, model_path, system, isl, osl ..., or a load generator's report", argument=True)
    calibration: FileName | None = flag(None, "a calibration written by `dmodels fit --out`")
    tuned: bool = flag(False, "servers tuned as those of MLPerf: the factor of its public runs on every step")

    def call(self) -> Code:
        """The library call."""
        own = call("dmodels.fit.calibration:read", self.calibration) if self.calibration else None
        return call("dmodels.fit.predict:predict_file", self.rows, own, self.machine(), tuned=self.tuned or None)


@asks(PredictAsked, batches=True)
def command(
    asked: PredictAsked,
    form: Form,
    out: Annotated[
        Path | None, typer.Option(help="write the predictions here (.csv, .parquet, .arrow); otherwise to stdout")
    ] = None,
) -> int:
    check_output("out", out)
    if is_table(out):
        check_table("out", out)
    return form.give(
        asked.call(),
        lambda found: asked.model_dump(),
        lambda found: {"predictions": found.values, "rejected": rejected(found)},
        lambda found: None if out else print(_csv(found), end=""),
        write=lambda found: _write(found, out),
        label="predictions",
    )


def _csv(found: Any) -> str:
    from dmodels.fit.predict import to_csv

    return to_csv(found)


def _write(found: Any, out: Path | None) -> None:
    if out is not None and is_table(out) and out.suffix.lower() != ".csv":
        write_table(found.to_dataframe(), out)
    elif out is not None:
        write_text(out, _csv(found))
    say_rejected(found)
    for line in found.notes:
        print(line, file=sys.stderr)
    print(f"{counted(len(found.values), 'row')} predicted, {len(found.rejected)} skipped", file=sys.stderr)
