"""A scenario file with sliders: a local page on which load, lengths, SLO, GPU and prices move the plan at once.

The page is served on the loopback address only, by Starlette and uvicorn; its pictures are those of the report.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dmodels.core.extras import check_installed

from .command import announce, asks
from .interrupts import leave_to_the_server, sign_of_life
from .plan_inputs import PlanInputs


@asks(PlanInputs, scenario="a TOML file; examples/plan.toml is one", only=("measured.calibration",), batches=True)
def command(
    asked: PlanInputs,
    scenario: Path,
    port: Annotated[int, typer.Option(help="port on 127.0.0.1; 0: any free one")] = 8765,
) -> int:
    check_installed("dmodels explore", "starlette", "uvicorn", "matplotlib")
    from .explore_server import LOOPBACK, application, listening, serve

    call = asked.call()
    with sign_of_life():
        question = call.run()
        announce(call)
        listener = listening(port)
        print("dmodels: preparing (compiling each model once) ...", file=sys.stderr)
        app = application(question, str(scenario))
    print(f"http://{LOOPBACK}:{listener.getsockname()[1]}/  (Ctrl-C stops)", flush=True)
    leave_to_the_server()
    try:
        serve(app, listener)
    except KeyboardInterrupt:
        pass
    return 0
