"""The report of a plan: one self-contained HTML page that a planner can send on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dmodels import __version__
from dmodels.studies.plan import Change, Plan, Verified, command
from dmodels.studies.plan.memory_use import MemoryUse, memory_use
from dmodels.studies.plan.risks import PoolLoad, Risks, risks

from . import (
    answer_figures,
    glossary,
    html,
    plan_figures,
    plan_json,
    plan_tables,
    plan_words,
    provenance,
    replay_tables,
    risk_tables,
    style,
)
from .parted import Parted
from .plan_notes import notes
from .text import cell

#: (how to draw it on axes, height in inches, caption, what it shows in words)
Drawing = tuple[Callable[[Any], None], float, str, str]


def plan_page(
    answer: Plan,
    changes: list[Change],
    reproduce: str,
    checks: Verified | None = None,
    advice: Sequence[str] = (),
    several: Parted | None = None,
) -> str:
    """The page; `reproduce` is the command line or call that makes it again, `checks` are replays to show, `advice` is
    what else the reader should know, `several` the answer where no one fleet is it."""
    asked = answer.question
    card = plan_words.card(answer) if several is None else several.card
    said = plan_words.in_three_sentences(answer) if several is None else [several.sentence(answer)]
    parts = [html.card(*card[1:])]
    if answer.best is not None:
        parts.append(pictures(answer_drawings(answer), first=100))
    parts += [html.paragraph(" ".join(said), "answer")]
    parts += [html.paragraph(note) for note in (*notes(answer), *advice)]
    if several is not None:
        parts.append(html.section("What to deploy", html.table(*several.table), html.code(several.launches)))
    if answer.best is not None:
        parts += _recommended(answer, changes, checks)
    if answer.rejections:
        fell = html.table(*plan_tables.rejections_table(answer.rejections))
        parts.append(html.section("What fell, and why", fell, shut=answer.best is not None))
    claims = provenance.claims_table(answer)
    parts.append(
        html.section(
            "What it rests on",
            html.table(*provenance.rests_on(answer)),
            html.folded("The papers' claims behind the formulas, as they were checked", html.table(*claims)),
            shut=True,
        )
    )
    given = [[key, _shown(value)] for key, value in plan_json.inputs(answer).items()]
    parts.append(
        html.section(
            "Inputs and reproduction",
            html.table("Inputs", ["input", "value"], given),
            html.code([reproduce]),
            html.paragraph(f"dmodels {__version__}; {answer.points_count:,} points evaluated."),
            shut=True,
        )
    )
    return html.page(f"Capacity plan: {asked.model_name}, {cell(asked.rate_rps)} req/s", _explained(parts))


def _explained(parts: Sequence[str]) -> list[str]:
    """The parts with words linked where each is used first: on the page's open part, and in each section again."""
    words: set[str] = set()
    made = []
    for part in parts:
        seen = set() if part.startswith("<section") else words
        made.append(glossary.linked(part, seen))
        words |= seen
    return [*made, html.section("Words", glossary.entries(words), shut=True)]


def pictures(drawn: Sequence[Drawing], quick: bool = False, first: int = 0) -> str:
    """Drawings side by side, as inline SVG; `first` numbers them where a page has several groups."""
    return html.pictures(
        [
            html.picture(style.figure(draw, height=height, quick=quick), caption, i, told)
            for i, (draw, height, caption, told) in enumerate(drawn, first)
        ]
    )


def answer_drawings(answer: Plan) -> list[Drawing]:
    """The answer and how sure it is."""
    said = answer_figures.promised(answer)
    kept = "; ".join(
        f"{name} {1e3 * s:,.0f} ms ({1e3 * low:,.0f} to {1e3 * high:,.0f})" for name, s, low, high, _ in said
    )
    others = plan_tables.alternatives(answer)
    dear = "; ".join(f"{name} {d.gpus} GPUs, ${d.usd_per_hour:,.2f}/h" for name, d in others)
    return [
        (
            partial(answer_figures.promises, answer),
            1.1 + 0.5 * len(said),
            "Does it keep its promises? Left of the SLO it does.",
            f"Intervals of latencies over their SLOs: {kept}.",
        ),
        (
            partial(answer_figures.costs, answer, others),
            0.9 + 0.36 * len(others),
            "What the other fleets would cost. Fleets of the same layouts err together: the model may tell them apart "
            "although thin lines overlap.",
            f"Bars of cost: {dear}.",
        ),
    ]


def fleet_drawings(answer: Plan) -> list[Drawing]:
    """What fleets cost and yield."""
    best = answer.best
    star = (
        ""
        if best is None
        else (
            f" The full star: the recommended fleet, ${best.usd_per_hour:,.2f}/h{_beaten(answer)}; empty stars: the "
            "alternatives below."
        )
    )
    kinds = " and ".join(kind for kind in answer.fleets.fronts if kind != "one pool")
    lines = f" Broken lines: the cheapest fleets as {kinds}." if kinds else ""
    return [
        (
            partial(plan_figures.cost_front, answer),
            style.HEIGHT,
            f"Cost of fleets against their TTFT. Points: one-pool fleets, hollow where they miss an SLO.{lines}{star}",
            f"Scatter plot of cost against TTFT of one-pool fleets of {', '.join(answer.question.gpus)}, with the "
            f"Pareto front of all kinds of fleets that meet the SLOs.{lines}{star}",
        ),
        (
            partial(plan_figures.throughput_front, answer),
            style.HEIGHT,
            "What a GPU yields against what a user feels, one-pool fleets.",
            "Scatter plot of output tokens per second and GPU against tokens per second of one user, with the Pareto "
            "front; left of the dashed line the TPOT SLO is missed in the mean.",
        ),
    ]


def _beaten(answer: Plan) -> str:
    """Words where a fleet of more pools, for the same money, has a lower TTFT than the recommended one."""
    front, best = answer.fleets.front, plan_tables.recommended(answer)
    quicker = front.ttft_s[front.usd_per_hour <= best.usd_per_hour * (1.0 + 1e-9)] < best.ttft_s * (1.0 - 1e-9)
    return ", simpler than a fleet of several pools that is quicker at the same price" if quicker.any() else ""


def latency_drawing(load: PoolLoad) -> Drawing:
    """One pool's latency against its load."""
    name, p = load.pool.stage.name, load.pool
    return (
        partial(plan_figures.latency_against_load, load),
        style.HEIGHT,
        f"Pool '{name}': latency against load. It runs at {load.operating_frac:.0%} of saturation; the knee is where "
        "1 % more load begins to cost more than 1 % more TTFT.",
        f"Line chart of TTFT and TPOT over their SLOs against load for the pool {name}: at the operating point, "
        f"{load.operating_frac:.0%} of saturation, TTFT is {1e3 * p.ttft_s:,.0f} ms; the knee is at "
        f"{load.knee_frac:.0%}.",
    )


def occupancy_drawing(load: PoolLoad, use: MemoryUse) -> Drawing:
    """One pool's requests in flight against its load."""
    name, p = load.pool.stage.name, load.pool
    now = float(np.interp(load.operating_frac, load.load_frac, load.in_flight_count))
    return (
        partial(plan_figures.occupancy, load, use),
        style.HEIGHT,
        f"Pool '{name}': requests in flight on one instance, and the slots that bound them.",
        f"Line chart of requests in flight per instance of the pool {name} against load: {now:.0f} at the "
        f"operating point, {p.slots_count:.0f} slots.",
    )


def memory_drawing(uses: Sequence[MemoryUse]) -> Drawing:
    """Where GPU memory goes."""
    told = "; ".join(
        f"{use.pool.stage.name}: " + ", ".join(f"{name} {size / 2**30:.3g} GiB" for name, size in use.parts.items())
        for use in uses
    )
    return (
        partial(plan_figures.memory_per_gpu, uses),
        1.9 + 0.8 * len(uses),
        "Where the memory of one GPU goes.",
        f"Stacked bars of one GPU's memory. {told}.",
    )


def threshold_drawing(answer: Plan) -> Drawing:
    """Cost by threshold."""
    told = "Cost of two pools against the threshold on total tokens, with the cost of one pool."
    return partial(plan_figures.threshold_curve, answer), style.HEIGHT, told, f"Line chart. {told}"


def tornado_drawing(answer: Plan, changes: list[Change]) -> Drawing:
    """What moves the cost."""
    worst = max(changes, key=lambda c: c.usd_per_hour)
    return (
        partial(plan_figures.tornado, answer, changes),
        3.9,
        "Cost of the cheapest plan when one input changes.",
        f"Bar chart of the cheapest plan's cost when one input changes; the dearest: {worst.what} times "
        f"{worst.factor:g}, {cell(worst.usd_per_hour)} USD/h.",
    )


def _recommended(answer: Plan, changes: list[Change], checks: Verified | None) -> list[str]:
    found, uses = risks(answer), memory_use(answer)
    drawn = fleet_drawings(answer)
    for load, use in zip(found.loads, uses, strict=True):
        drawn += [latency_drawing(load), occupancy_drawing(load, use)]
    drawn.append(memory_drawing(uses))
    if answer.by_threshold:
        drawn.append(threshold_drawing(answer))
    if changes:
        drawn.append(tornado_drawing(answer, changes))
    made = [
        _deployed(answer),
        *_replays(answer, checks),
        html.section("Why", pictures(drawn), html.table(*plan_tables.memory_table(uses)), shut=True),
        html.section("Alternatives", html.table(*plan_tables.alternatives_table(answer)), shut=True),
    ]
    if changes:
        moved = html.table(*plan_tables.sensitivity_table(answer, changes))
        made.append(html.section("If an input is wrong", moved, shut=True))
    return [*made, _wrong(answer, found)]


def _deployed(answer: Plan) -> str:
    best, asked = plan_tables.recommended(answer), answer.question
    commands = []
    for pool in best.pools:
        commands += [f"# {pool.stage.name}: {pool.instances} x", command(pool, asked)]
    router = ", ".join(f"{key} = {value}" for key, value in best.router.items())
    return html.section(
        "What to deploy", html.table(*plan_tables.pools_table(answer)), html.code([*commands, f"# router: {router}"])
    )


def _replays(answer: Plan, checks: Verified | None) -> list[str]:
    shown = replay_tables.tables(answer, checks)
    if not shown:
        return []
    said = [] if checks is None else [html.paragraph(replay_tables.verdict(checks))]
    return [html.section("Does it hold", *said, *(html.table(*one) for one in shown), shut=True)]


def _wrong(answer: Plan, found: Risks) -> str:
    tables = [risk_tables.load_table(found), risk_tables.burst_table(answer, found)]
    tables.append(risk_tables.loss_table(answer, found))
    if found.stale:
        tables.append(risk_tables.stale_table(found))
    return html.section(
        "What could go wrong",
        *map(html.paragraph, risk_tables.sentences(answer, found)),
        *(html.table(*one) for one in tables),
        shut=True,
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {cell(number)}" for key, number in value.items())
    return ", ".join(map(cell, value)) if isinstance(value, list | tuple) else cell(value)
