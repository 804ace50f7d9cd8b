"""The report of a plan: one self-contained HTML page."""

from __future__ import annotations

from functools import partial

from dmodels import __version__
from dmodels.studies.plan import Plan
from dmodels.studies.sensitivity import Change

from . import html, plan_figures, plan_tables


def plan_page(answer: Plan, changes: list[Change], reproduce: str) -> str:
    """The page; `reproduce` is the command line or call that makes it again."""
    asked = answer.question
    parts = [html.paragraph(" ".join(plan_tables.sentences(answer)), "answer")]
    if answer.best is not None:
        parts += _deployed(answer)
        drawn = _pictures(answer, changes)
        numbered = [html.picture(plan_figures.figure(d), c, i) for i, (d, c) in enumerate(drawn)]
        parts.append(html.section("Why", html.pictures(numbered)))
        parts.append(html.section("Alternatives", html.table(*plan_tables.alternatives_table(answer))))
        parts.append(html.section("If an input is wrong", html.table(*plan_tables.sensitivity_table(answer, changes))))
        parts.append(html.section("What could go wrong", *map(html.paragraph, _margins(answer))))
    if answer.rejections:
        parts.append(html.section("What fell, and why", html.table(*plan_tables.rejections_table(answer.rejections))))
    parts.append(html.section("What it rests on", html.table(*plan_tables.rests_on(answer))))
    given = [[key, str(value)] for key, value in plan_tables.inputs(answer).items()]
    parts.append(
        html.section(
            "Inputs and reproduction",
            html.table("Inputs", ["input", "value"], given),
            html.code([reproduce]),
            html.paragraph(f"dmodels {__version__}; {answer.points_count:,} points evaluated."),
        )
    )
    return html.page(f"Capacity plan: {asked.model_name}, {asked.rate_rps:,.4g} req/s", parts)


def _deployed(answer: Plan) -> list[str]:
    best, asked = answer.best, answer.question
    commands = []
    for pool in best.pools:
        commands += [f"# {pool.stage.name}: {pool.instances} x", pool.command(asked.served_name, asked.engine)]
    router = ", ".join(f"{key} = {value}" for key, value in best.router().items())
    return [
        html.section(
            "What to deploy",
            html.table(*plan_tables.pools_table(answer)),
            html.code([*commands, f"# router: {router}"]),
        )
    ]


def _pictures(answer: Plan, changes: list[Change]) -> list:
    drawn = [
        (
            partial(plan_figures.cost_front, answer),
            "Cost of one-pool fleets against their TTFT; hollow points miss an SLO.",
        ),
        (
            partial(plan_figures.throughput_front, answer),
            "What a GPU yields against what a user feels, one-pool fleets.",
        ),
    ]
    if answer.baseline is not None:
        drawn.append(
            (partial(plan_figures.latency_against_load, answer), "Latency of the one-pool fleet against load.")
        )
    if answer.by_threshold:
        drawn.append((partial(plan_figures.threshold_curve, answer), "Cost of two pools against the threshold."))
    if changes:
        drawn.append(
            (partial(plan_figures.tornado, answer, changes), "Cost of the cheapest plan when one input changes.")
        )
    return drawn


def _margins(answer: Plan) -> list[str]:
    room = f"The request rate may grow by {answer.headroom_frac:.1%} before an SLO breaks on this fleet."
    if answer.survives_loss:
        loss = "Each pool may lose one instance and still meet the SLOs."
    else:
        loss = "Losing one instance breaks an SLO: this is the smallest fleet. Add a spare to each pool."
    burst = "Arrivals are taken as Poisson at each instance; plan the rate of the busiest minutes, not the day's mean."
    return [room, loss, burst]
