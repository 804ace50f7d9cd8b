"""Regions against plans of each of them alone, and against arithmetic on what they serve."""

from __future__ import annotations

import json

import pytest

from dmodels import SLO, catalog
from dmodels.cli import main
from dmodels.core.errors import InputError
from dmodels.studies.plan import Region, by_formula, in_cheapest_region, plan_regions, question

EAST, WEST = Region("east", {"h100_sxm": 8}), Region("west", {"h100_sxm": 16, "h200_sxm": 4}, {"h100_sxm": 2.0})


def asked(rate_rps, **options):
    few = {"tp": (4, 8), "thresholds_tokens": (), "split": False} | options
    chat = catalog.workload("azure-conv", rate_rps)
    return question("llama-3.1-70b", ["h100", "h200"], chat, SLO(2.0, 0.08), **few)


def test_alone_each_region_is_the_plan_of_what_it_has():
    found = plan_regions(asked(8.0), [EAST, WEST])
    assert [site.region for site in found.alone] == ["west", "east"] and not found.together and found.fits
    prices = {"h100_sxm": 2.0}
    west = by_formula(asked(8.0, inventory={"h100_sxm": 16.0, "h200_sxm": 4.0}))
    here = by_formula(
        question(
            "llama-3.1-70b",
            ["h100", "h200"],
            catalog.workload("azure-conv", 8.0),
            SLO(2.0, 0.08),
            prices_usd_per_hour=prices,
            inventory={"h100_sxm": 16, "h200_sxm": 4},
            tp=(4, 8),
            thresholds_tokens=(),
            split=False,
        )
    )
    assert found.alone[0].best.parts == here.best.parts and found.usd_per_hour == pytest.approx(here.best.usd_per_hour)
    assert found.usd_per_hour < west.best.usd_per_hour
    chosen = in_cheapest_region(asked(8.0), [EAST, WEST])
    assert chosen.inventory == {"h100_sxm": 16.0, "h200_sxm": 4.0}
    assert float(chosen.gpus["h100_sxm"].price_usd_per_hour) == 2.0


def test_where_none_is_enough_the_traffic_is_divided_and_nothing_is_over_bought():
    dear = Region("north", {"h100_sxm": 8}, {"h100_sxm": 9.0})  # which the others need no help of
    found = plan_regions(asked(36.0), [dear, EAST, WEST])
    assert all(site.best is None for site in found.alone) and found.fits
    assert sum(site.share_frac for site in found.together) == pytest.approx(1.0, abs=2e-3)
    for site, region in zip(found.together, [WEST, EAST], strict=True):
        for gpu, count in site.plan.question.limits.bought(site.best.parts).items():
            assert count <= region.inventory[gpu]
        assert site.plan.question.rate_rps == pytest.approx(36.0 * site.share_frac)
    assert found.usd_per_hour == pytest.approx(sum(site.best.usd_per_hour for site in found.together))


def test_too_much_for_all_of_them_is_infeasible_and_says_what_they_serve():
    found = plan_regions(asked(300.0), [EAST, WEST])
    assert not found.fits and 0.0 < found.served_frac < 0.2


@pytest.mark.parametrize(
    ("regions", "says"),
    [
        ([EAST, EAST], "regions east, east: accepted are regions, each once"),
        ([Region("south", {})], "region south: names no GPUs"),
        ([Region("south", {"l40s": 8})], "region south: l40s: accepted are the types asked about"),
    ],
)
def test_regions_that_mean_nothing(regions, says):
    with pytest.raises(InputError, match=says):
        plan_regions(asked(8.0), regions)


def test_on_the_command_line(capsys):
    line = ["plan", "--tp", "4,8", "--no-sensitivity", "--no-split", "--thresholds", "2048", "--rate", "36 req/s"]
    line += ["--no-ensure"]
    places = ["--region", "east: h100_sxm=8", "--region", "west: h100_sxm=16 at 2 $/h"]
    assert main([*line, *places]) == 0
    said = capsys.readouterr().out
    assert "Regions: none serves all of the traffic; together they serve all of it" in said
    west = ["--region", "west: h100_sxm=32 at 2 $/h"]
    assert main([*line, *west, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["result"]["recommended"]
    assert best["usd_per_hour"] == 2.0 * best["bought_gpus"]
    assert main([*line, "--region", "east: h100_sxm"]) == 2
    assert "--region" in capsys.readouterr().err
