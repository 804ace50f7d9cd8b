"""The report of a scenario file: a capacity plan as one HTML page to send on, and the answer on the terminal.

The file's tables hold what `dmodels plan` takes as flags; examples/plan.toml shows all of them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from .options import Json, ShowPython
from .plan import run
from .plan_inputs import from_scenario


def command(
    scenario: Annotated[Path, typer.Argument(help="a TOML file; examples/plan.toml is one", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="the page's file [default: the scenario's name, .html]")] = None,
    sensitivity: Annotated[bool, typer.Option(help="also vary one input at a time")] = True,
    verify: Annotated[bool, typer.Option(help="also simulate the best of each kind, request by request")] = False,
    json: Json = False,
    show_python: ShowPython = False,
) -> int:
    inputs = from_scenario(scenario)
    out = Path(scenario.with_suffix(".html").name) if out is None else out
    again = shlex.join(["dmodels", "report", str(scenario), "--out", str(out)])
    return run(inputs, again, "report", sensitivity, verify, out, json, show_python)
