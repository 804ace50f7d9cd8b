"""The report of a scenario file: a capacity plan as one HTML page to send on, and the answer on the terminal.

The file's tables hold what `dmodels plan` takes as flags; examples/plan.toml shows all of them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from . import plan
from .command import Form, asks
from .plan_inputs import PlanInputs

Page = Annotated[Path | None, typer.Option(help="the page's file [default: the scenario's name, .html]")]


@asks(PlanInputs, scenario="a TOML file; examples/plan.toml is one", only=("measured.calibration",), batches=True)
def command(
    asked: PlanInputs,
    form: Form,
    scenario: Path,
    out: Page = None,
    sensitivity: plan.Sensitivity = True,
    ensure: plan.Ensure = None,
    verify: plan.Verify = False,
) -> int:
    out = Path(scenario.with_suffix(".html").name) if out is None else out
    again = shlex.join(["dmodels", "report", str(scenario), "--out", str(out)])
    return plan.answer(asked, form, again, sensitivity=sensitivity, ensure=ensure, verify=verify, out=out)
