"""A capacity plan: what to deploy, how many GPUs, at what cost, what limits it, and how sure the answer is.

Without options it plans a bundled workload (conversations, at their own rate) for Llama 3.1 70B.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.files import write_text

from . import deployments, render
from .calls import call
from .command import Form, asks, check_output
from .deployments import Deploy, Deployments, Running
from .plan_inputs import PlanInputs

Page = Annotated[
    Path | None, typer.Option(help="write the report, one HTML page, to this file; with --deploy, a folder")
]
Sensitivity = Annotated[
    bool, typer.Option(help="also vary one input at a time, and look for what was not asked but pays")
]
Verify = Annotated[bool, typer.Option(help="replay the whole fleet, request by request: exit 1 where it misses an SLO")]
Ensure = Annotated[
    bool | None,
    typer.Option(
        "--ensure/--no-ensure",
        help="size the fleet by replays: the smallest that keeps the SLOs [default: with a trace]",
        show_default=False,
    ),
]
SolveFor = Annotated[
    str | None,
    typer.Option(
        help="plan at the most that what there is can do: the largest rate, or the tightest ttft, tpot or e2e"
    ),
]


@asks(PlanInputs)
def command(
    asked: PlanInputs,
    form: Form,
    solve_for: SolveFor = None,
    sensitivity: Sensitivity = True,
    ensure: Ensure = None,
    verify: Verify = False,
    out: Page = None,
    deploy: Deploy = None,
    from_deployment: Running = None,
) -> int:
    again = "dmodels plan " + shlex.join(sys.argv[2:]) if sys.argv[1:2] == ["plan"] else "dmodels plan"
    tools = Deployments(deploy, out if deploy else None, tuple(from_deployment or ()))
    tools.check()
    page = None if deploy else out
    return answer(
        asked,
        form,
        again,
        solve_for=solve_for,
        sensitivity=sensitivity,
        ensure=ensure,
        verify=verify,
        out=page,
        tools=tools,
    )


def answer(
    asked: PlanInputs,
    form: Form,
    again: str,
    *,
    solve_for: str | None = None,
    sensitivity: bool,
    ensure: bool | None,
    verify: bool,
    out: Path | None,
    tools: Deployments = Deployments(),  # noqa: B008  # frozen
) -> int:
    """Answer, and show it as asked; `again` is the command line that does the same."""
    check_output("out", out)
    more: dict[str, Any] = {
        "changes": [],
        "suggested": [],
        "tail": [],
        "checks": None,
        "now": None,
        "limit": None,
        "apart": None,
    }

    def write(found: Any) -> None:
        more.update(_more(found, sensitivity, verify), now=tools.existing(found.question))
        if asked.slo.classes:
            classes = [kind.run() for kind in asked.slo.class_calls()]
            more["apart"] = call("dmodels.studies.plan:plan_apart", found.question, classes, ensure).run()
        if solve_for is not None and found.best is not None:
            from dmodels.studies.plan import solved

            more["limit"] = solved(found, solve_for)
        tools.write(found)
        if out is not None:
            from dmodels.report.plan_notes import advice, classes_told
            from dmodels.report.plan_page import plan_page

            told = advice(more["suggested"], more["tail"], more["limit"]) + classes_told(found, more["apart"])
            write_text(out, plan_page(found, more["changes"], again, more["checks"], told))
            print(f"report: {out}", file=sys.stderr)

    question = asked.call()
    if solve_for is not None:  # by the closed forms, so that what replays add or spare does not blur the limit
        question, ensure = call("dmodels.studies.plan:at_limit", question, solve_for), ensure or False
    return form.give(
        call("dmodels.studies.plan:plan", question, ensure=ensure),
        lambda found: _inputs(found) | {"asked": asked.model_dump()},
        lambda found: _result(found, **more),
        lambda found: _show(found, **more),
        feasible=lambda found: _feasible(found, more),
        write=write,
    )


def _more(found: Any, sensitivity: bool, verify: bool) -> dict[str, Any]:
    """The plans of other inputs, and replays of the best of each kind."""
    from dmodels.studies.plan import sensitivity as vary
    from dmodels.studies.plan import suggestions, tails
    from dmodels.studies.plan import verify as replays

    feasible = found.best is not None
    return {
        "suggested": suggestions(found) if sensitivity else [],
        "tail": tails(found) if sensitivity else [],
        "changes": vary(found) if sensitivity and feasible else [],
        "checks": replays(found) if verify and feasible else None,
    }


def _feasible(found: Any, more: dict[str, Any]) -> bool:
    """Whether one fleet for all, or one for each class of requests, keeps the SLOs."""
    apart = more["apart"] is not None and more["apart"].fits
    return apart or (found.best is not None and _keeps(found, more["checks"]))


def _keeps(found: Any, checks: Any) -> bool:
    """Whether the recommended fleet keeps its SLOs in every replay that was made of it."""
    seen = [found.best.replayed, checks.replays[0] if checks else None]
    return all(replayed is None or replayed.holds for replayed in seen)


def _inputs(found: Any) -> dict[str, Any]:
    from dmodels.report import plan_tables

    return plan_tables.inputs(found)


def _result(
    found: Any, changes: list[Any], suggested: list[Any], tail: list[Any], checks: Any, now: Any, limit: Any, apart: Any
) -> dict[str, Any]:
    from dmodels.report import plan_tables

    more = ({"verification": checks.to_dict()} if checks else {}) | ({"running_now": now.to_dict()} if now else {})
    more |= ({"solved": limit.to_dict()} if limit else {}) | ({"classes": apart.to_dict()} if apart else {})
    return plan_tables.result(found, changes, suggested, tail) | more


def _show(
    found: Any, changes: list[Any], suggested: list[Any], tail: list[Any], checks: Any, now: Any, limit: Any, apart: Any
) -> None:
    from dmodels.report import plan_tables, replay_tables
    from dmodels.report.plan_notes import advice, classes_told, notes
    from dmodels.studies.plan import command as command_of

    print(
        "\n".join(
            plan_tables.sentences(found) + notes(found) + advice(suggested, tail, limit) + classes_told(found, apart)
        )
        + "\n"
    )
    if apart is not None:
        render.show([plan_tables.classes_table(apart)])
    if found.best is not None:
        render.show([plan_tables.card(found), plan_tables.pools_table(found), plan_tables.alternatives_table(found)])
        render.show(replay_tables.tables(found, checks))
        if checks is not None:
            print(replay_tables.verdict(checks) + "\n")
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
