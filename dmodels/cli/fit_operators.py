"""Refit the laws of kernels from a folder of measured kernel times, with the error on what was held out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BeforeValidator

from dmodels.core.files import write_text
from dmodels.report.text import table

from . import render
from .calls import Code, call
from .command import Form, asks, check_output
from .schema import Table, flag, several

Kinds = Annotated[list[str], BeforeValidator(several)]


class OperatorsAsked(Table):
    """The measured tables."""

    folder: str = flag(..., "with <gpu>/<engine>/<table>@<release>.parquet, or the public database's", argument=True)
    kinds: Kinds = flag([], "operators to refit, like gemm,moe; default: all that have a law", "--kind")

    def call(self) -> Code:
        """The library call."""
        return call("dmodels.fit.operators.refit:refit", self.folder, tuple(self.kinds))


@asks(OperatorsAsked, batches=True)
def command(
    asked: OperatorsAsked,
    form: Form,
    out: Annotated[Path | None, typer.Option(help="write the constants here (JSON)")] = None,
) -> int:
    check_output("out", out)
    return form.give(
        asked.call(), lambda found: asked.model_dump(), _result, _show, write=lambda found: _write(found, out)
    )


def _write(found: Any, out: Path | None) -> None:
    from dmodels.fit.operators.coefficients import dump

    if out is not None:
        write_text(out, dump(found.coefficients))
    for path, reason in found.skipped:
        print(f"dmodels: {path}: skipped, {reason}", file=sys.stderr)


def _result(found: Any) -> dict[str, Any]:
    return {
        "held_out_error": found.summary("kind"),
        "rows": found.coefficients.provenance["rows"],
        "skipped": [{"table": path, "reason": reason} for path, reason in found.skipped],
    }


def _show(found: Any) -> None:
    rows = found.coefficients.provenance["rows"]
    columns = {
        "operator": lambda of: of["kind"],
        "rows": lambda of: rows[of["kind"]],
        "new shapes": _error("shapes"),
        "a new (GPU, engine)": _error("pair"),
        "a new GPU": _error("gpu"),
    }
    render.show([table("Error of kernels that the fit did not see: median (P90)", found.summary("kind"), columns)])


def _error(protocol: str) -> Callable[[dict[str, Any]], str]:
    def cell(of: dict[str, Any]) -> str:
        if not of[f"{protocol}_count"]:
            return "-"
        return f"{100 * of[f'{protocol}_median']:.1f} % ({100 * of[f'{protocol}_p90']:.0f} %)"

    return cell
