"""A capacity plan: what to deploy, how many GPUs, at what cost, what limits it, and how sure the answer is.

Without options it plans a bundled workload (conversations, at their own rate) for Llama 3.1 70B.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from dmodels.core.files import write_text
from dmodels.core.tables import SUFFIXES, check_table, is_table, write_table

from . import deployments, render
from .calls import call
from .command import Form, asks, check_output
from .deployments import Deploy, Deployments, Running
from .plan_inputs import PlanInputs

Page = Annotated[
    Path | None,
    typer.Option(
        help="write the report, one HTML page, or the table (.parquet, .arrow, .csv); with --deploy, a folder"
    ),
]
Sensitivity = Annotated[
    bool, typer.Option(help="also vary one input at a time, and look for what was not asked but pays")
]
Verify = Annotated[bool, typer.Option(help="replay the whole fleet, request by request: exit 1 where it misses an SLO")]
Ensure = Annotated[
    bool | None,
    typer.Option(
        "--ensure/--no-ensure",
        help="size the fleet by replays: the smallest that keeps the SLOs [default: with a trace or --from-deployment, "
        "or if formulas fail]",
        show_default=False,
    ),
]
SolveFor = Annotated[
    str | None,
    typer.Option(
        help="plan at the most that what there is can do: the largest rate, or the tightest ttft, tpot or e2e"
    ),
]


@asks(PlanInputs, batches=True)
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
    again = shlex.join(["dmodels", *sys.argv[1:]]) if sys.argv[1:2] == ["plan"] else "dmodels plan"
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
    check_output("out", out, ".html", ".htm", *SUFFIXES)
    if is_table(out):
        check_table("out", out)
    if tools.running and ensure is None:  # what runs is judged by replays, so the plan beside it is, too
        ensure = True
    more = Beside()

    def write(found: Any) -> None:
        _look_further(more, found, sensitivity, verify)
        long = sensitivity or found.best is None or call("dmodels.studies.plan:long_tailed", found).run()
        if long and not asked.slo.classes:  # classes say what they cost
            more.tail = call("dmodels.studies.plan:tails", found).run()
        more.now = tools.existing(found.question)
        if asked.slo.classes:
            traffic = found.question.workload if found.question.trace is None else found.question.trace
            classes = asked.slo.classes_call(traffic).run()
            more.apart = call("dmodels.studies.plan:plan_apart", found.question, classes, ensure).run()
            if len({kind.priority for kind in classes}) > 1:
                more.together = call("dmodels.studies.servers:plan_together", found.question, classes).run()
        if asked.gpu.regions:
            regions = [region.run() for region in asked.gpu.region_calls()]
            more.regions = call("dmodels.studies.plan:plan_regions", asked.call(), regions).run()
        if solve_for is not None and found.best is not None:
            more.limit = call("dmodels.studies.plan:solved", found, solve_for).run()
        tools.write(found)
        if is_table(out):
            print(f"table: {write_table(found.to_dataframe(), out)}", file=sys.stderr)
        elif out is not None:
            from dmodels.report.plan_page import plan_page

            write_text(out, plan_page(found, more.changes, again, more.checks, more.told(found), more.parted(found)))
            print(f"report: {out}", file=sys.stderr)

    question = asked.call()
    if asked.gpu.regions:
        question = call("dmodels.studies.plan:in_cheapest_region", question, asked.gpu.region_calls())
    if solve_for is not None:
        question = call("dmodels.studies.plan:at_limit", question, solve_for, ensure=ensure)
    return form.give(
        call("dmodels.studies.plan:plan", question, ensure=ensure),
        lambda found: _inputs(found) | {"asked": asked.model_dump()},
        lambda found: _result(found, more),
        lambda found: _show(found, more),
        feasible=lambda found: _feasible(found, more),
        write=write,
    )


@dataclass
class Beside:
    """What is shown beside a plan, as far as it was asked for."""

    changes: list[Any] = field(default_factory=list)  # the plans of other inputs
    suggested: list[Any] = field(default_factory=list)
    tail: list[Any] = field(default_factory=list)
    checks: Any = None  # replays of the best of each kind
    now: Any = None  # the fleet that runs
    limit: Any = None  # what was solved for
    apart: Any = None  # a fleet for each class of requests
    together: Any = None  # one for all of them, by priority
    regions: Any = None  # a fleet for each region

    def parted(self, found: Any) -> Any:
        """The answer where no one fleet is it."""
        from dmodels.report.parted import parted

        return parted(found, self.apart, self.together, self.regions)

    def told(self, found: Any) -> list[str]:
        """What of it is said in words."""
        from dmodels.report.plan_notes import advice, classes_told, regions_told, together_told

        said = advice(self.suggested, self.tail, self.limit)
        return said + classes_told(found, self.apart) + together_told(self.together) + regions_told(self.regions)


def _look_further(more: Beside, found: Any, sensitivity: bool, verify: bool) -> None:
    from dmodels.studies import plan as study

    feasible = found.best is not None
    if sensitivity:
        more.suggested = study.suggestions(found)
        more.changes = study.sensitivity(found) if feasible else []
    if verify and feasible:
        more.checks = study.verify(found)


def _feasible(found: Any, more: Beside) -> bool:
    """Whether one fleet for all, or one for each class of requests or region, or one by priority, keeps the SLOs."""
    several = any(x is not None and x.fits for x in (more.apart, more.regions))
    by_priority = more.together is not None and more.together.holds
    return several or by_priority or (found.best is not None and (more.checks is None or more.checks.holds))


def _inputs(found: Any) -> dict[str, Any]:
    from dmodels.report import plan_json

    return plan_json.inputs(found)


def _result(found: Any, more: Beside) -> dict[str, Any]:
    from dmodels.report import plan_json

    named = {"verification": more.checks, "running_now": more.now, "solved": more.limit, "classes": more.apart}
    named |= {"by_priority": more.together, "regions": more.regions}
    others = {name: one.to_dict() for name, one in named.items() if one}
    one = more.parted(found)
    told: dict[str, Any] = {"feasible": _feasible(found, more)} | ({"summary": [one.sentence(found)]} if one else {})
    return plan_json.result(found, more.changes, more.suggested, more.tail) | others | told


def _show(found: Any, more: Beside) -> None:
    from dmodels.report import plan_tables, plan_words, replay_tables
    from dmodels.report.plan_notes import notes
    from dmodels.studies.plan import command as command_of

    several = more.parted(found)
    said = [several.sentence(found)] if several else plan_words.sentences(found)
    render.say([*said, *notes(found), *more.told(found), ""])
    if more.apart is not None:
        render.show([plan_tables.classes_table(more.apart)])
    if more.together is not None:
        render.show([plan_tables.together_table(more.together)])
    if more.regions is not None:
        render.show([plan_tables.regions_table(more.regions)])
    if found.best is not None:
        render.show([plan_words.card(found), plan_tables.pools_table(found), plan_tables.alternatives_table(found)])
        render.show(replay_tables.tables(found, more.checks))
        if more.checks is not None:
            render.say([replay_tables.verdict(more.checks), ""])
        if more.changes:
            render.show([plan_tables.sensitivity_table(found, more.changes)])
        for pool in found.best.pools:
            print(f"# {pool.stage.name}: {pool.instances} x")
            print(command_of(pool, found.question))
        print(f"# rate headroom {plan_words.headroom(found)}; {found.points_count:,} points evaluated")
    if several is not None:
        print("\n".join(several.launches))
    if more.now is not None:
        render.show(deployments.tables(more.now, found.best))
    if found.rejections:
        title, head, rows = plan_tables.rejections_table(found.rejections)
        render.show([(title, head, rows[:8])])
