"""A capacity plan: what to deploy, how many GPUs, at what cost, what limits it, and how sure the answer is.

Without options it plans a bundled workload (conversations, at their own rate) for Llama 3.1 70B.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.files import write_text
from dmodels.report.text import Table

from . import deployments, render
from .calls import call
from .command import Form, asks
from .deployments import Deploy, Deployments, Running
from .plan_inputs import PlanInputs

Page = Annotated[
    Path | None, typer.Option(help="write the report, one HTML page, to this file; with --deploy, a folder")
]
Sensitivity = Annotated[bool, typer.Option(help="also vary one input at a time")]
Verify = Annotated[bool, typer.Option(help="also simulate the best of each kind, request by request")]


@asks(PlanInputs)
def command(
    asked: PlanInputs,
    form: Form,
    sensitivity: Sensitivity = True,
    verify: Verify = False,
    out: Page = None,
    deploy: Deploy = None,
    from_deployment: Running = None,
) -> int:
    again = "dmodels plan " + shlex.join(sys.argv[2:]) if sys.argv[1:2] == ["plan"] else "dmodels plan"
    tools = Deployments(deploy, out if deploy else None, tuple(from_deployment or ()))
    tools.check()
    page = None if deploy else out
    return answer(asked, form, again, sensitivity=sensitivity, verify=verify, out=page, tools=tools)


def answer(
    asked: PlanInputs,
    form: Form,
    again: str,
    *,
    sensitivity: bool,
    verify: bool,
    out: Path | None,
    tools: Deployments = Deployments(),  # noqa: B008  # frozen
) -> int:
    """Answer, and show it as asked; `again` is the command line that does the same."""
    more: dict[str, Any] = {"changes": [], "checks": [], "now": None}

    def write(found: Any) -> None:
        more.update(_more(found, sensitivity, verify), now=tools.existing(found.question))
        tools.write(found)
        if out is not None:
            from dmodels.report.plan_page import plan_page

            write_text(out, plan_page(found, more["changes"], again))
            print(f"report: {out}", file=sys.stderr)

    return form.give(
        call("dmodels.studies.plan:plan", asked.call()),
        lambda found: _inputs(found) | {"asked": asked.model_dump()},
        lambda found: _result(found, **more),
        lambda found: _show(found, **more),
        feasible=lambda found: found.best is not None,
        write=write,
    )


def _more(found: Any, sensitivity: bool, verify: bool) -> dict[str, list[Any]]:
    """The plans of other inputs, and simulations beside the closed form."""
    import jax

    from dmodels.studies.plan import sensitivity as vary
    from dmodels.studies.plan.verification import verify as simulate

    feasible = found.best is not None
    return {
        "changes": vary(found) if sensitivity and feasible else [],
        "checks": simulate(found, jax.random.key(0)) if verify and feasible else [],
    }


def _inputs(found: Any) -> dict[str, Any]:
    from dmodels.report import plan_tables

    return plan_tables.inputs(found)


def _result(found: Any, changes: list[Any], checks: list[Any], now: Any) -> dict[str, Any]:
    from dmodels.report import plan_tables

    simulated = [
        {"kind": checked.scheme, "pool": checked.pool.stage.name, "rows": [row._asdict() for row in checked.rows]}
        for checked in checks
    ]
    more = ({"verification": simulated} if checks else {}) | ({"running_now": now.to_dict()} if now else {})
    return plan_tables.result(found, changes) | more


def _show(found: Any, changes: list[Any], checks: list[Any], now: Any) -> None:
    from dmodels.report import plan_tables
    from dmodels.report.plan_notes import notes
    from dmodels.studies.plan import command as command_of

    print("\n".join(plan_tables.sentences(found) + notes(found)) + "\n")
    if found.best is not None:
        render.show([plan_tables.pools_table(found), plan_tables.alternatives_table(found)])
        if changes:
            render.show([plan_tables.sensitivity_table(found, changes)])
        for pool in found.best.pools:
            print(f"# {pool.stage.name}: {pool.instances} x")
            print(command_of(pool, found.question))
        print(f"# rate headroom {plan_tables.headroom(found)}; {found.points_count:,} points evaluated")
    if now is not None:
        render.show(deployments.tables(now, found.best))
    if found.rejections:
        title, head, rows = plan_tables.rejections_table(found.rejections)
        render.show([(title, head, rows[:8])])
    render.show(_checked(checks))


def _checked(checks: list[Any]) -> Iterator[Table]:
    """Closed form beside simulation."""
    head = ["metric", "closed form", "simulated", "95 % interval", "error"]
    for checked in checks:
        rows = [
            [r.metric, r.predicted, m.value, f"{m.low:.4g} to {m.high:.4g}", f"{r.error_frac:+.1%}"]
            for r in checked.rows
            for m in [r.measured]
        ]
        yield f"{checked.scheme}, {checked.pool.stage.name}: one instance, simulated", head, rows
