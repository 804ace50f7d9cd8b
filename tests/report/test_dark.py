"""On dark paper nothing stays black: every word and line of a picture has a colour of the page."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
import xarray as xr

from dmodels import SLO, catalog
from dmodels.report import html, plan_figures, style, sweep_figures
from dmodels.studies.plan import plan, question, sensitivity
from dmodels.studies.plan.memory_use import memory_use
from dmodels.studies.plan.risks import loads


def unpaged(drawn) -> list[str]:
    """Words without a colour of the page, and what is black or white: it would be invisible on paper, or hide it."""
    svg = html.picture(drawn, "caption", 0)
    words = [said for look, said in re.findall(r"<text([^>]*)>([^<]*)</text>", svg) if "fill: var(" not in look]
    return words + re.findall(r"(?:stroke|fill): #(?:000000|ffffff)", svg)


@pytest.fixture(scope="module")
def answer():
    chat = catalog.workload("azure-conv", 20.0)
    return plan(
        question(
            "llama-3.1-70b", ["h100", "h200"], chat, SLO(2.0, 0.08), tp=(2, 4, 8), thresholds_tokens=(1024.0, 4096.0)
        )
    )


def test_the_pictures_of_a_plan(answer):
    load, uses = loads(answer)[0], memory_use(answer)
    for draw in (
        partial(plan_figures.cost_front, answer),
        partial(plan_figures.throughput_front, answer),
        partial(plan_figures.latency_against_load, load),
        partial(plan_figures.occupancy, load, uses[0]),
        partial(plan_figures.memory_per_gpu, uses),
        partial(plan_figures.threshold_curve, answer),
        partial(plan_figures.tornado, answer, sensitivity(answer)),
    ):
        assert unpaged(style.figure(draw)) == []


def test_black_is_found():
    assert unpaged(style.figure(lambda axes: axes.text(0.5, 0.5, "black"))) == ["black"]
    assert unpaged(style.figure(lambda axes: axes.plot([0, 1], color="black")))


def test_an_answer_without_fleets_has_words_in_place_of_points():
    none = plan(
        question(
            "llama-3.1-405b",
            ["l4"],
            catalog.workload("azure-conv", 20.0),
            SLO(2.0, 0.08),
            tp=(2, 4, 8),
            thresholds_tokens=(1024.0, 4096.0),
        )
    )
    for draw in (plan_figures.cost_front, plan_figures.throughput_front):
        drawn = style.figure(partial(draw, none))
        assert unpaged(drawn) == [] and "no layout keeps up" in html.picture(drawn, "caption", 0)


def test_the_pictures_of_a_sweep():
    cost = np.arange(12.0).reshape(3, 4) + 1.0
    ds = xr.Dataset(
        {"cost": (("tp", "rate"), cost, {"units": "USD/h"}), "flags": (("tp", "rate"), np.where(cost > 10.0, 1, 0))},
        coords={"tp": [2, 4, 8], "rate": [1.0, 2.0, 4.0, 8.0]},
    )
    for draw in (sweep_figures.heatmap, sweep_figures.curves):
        assert unpaged(style.paper(draw(ds, "cost"))) == []
