"""Lines that commands print, each word and number in its place, of answers made by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import claims, main, route, sweep
from dmodels.cli.plan_inputs import PlanInputs
from dmodels.cli.schema import read_scenario
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.games.anarchy import PriceOfAnarchy
from tests.audit.shown import terminal_tables

CLAIM = {"id": "X-1", "says": "one thing", "source": "arXiv:1", "where": "Eq. (2)", "verdict": "REFUTED"}
CLAIM |= {"needs": ("a > 0", "b > 1"), "error": "5 %", "counterexample": "a = 1", "minimal": "a = 2", "means": "wait"}
CLAIM |= {"page": "a/page.py"}


def test_a_claim_in_the_order_of_a_planners_questions(capsys):
    claims._show(CLAIM, "2 passed")
    assert capsys.readouterr().out.splitlines() == [
        "X-1       one thing",
        "source    arXiv:1, Eq. (2)",
        "verdict   refuted",
        "holds if  a > 0; b > 1",
        "error     5 %",
        "breaks    a = 1",
        "smallest  a = 2",
        "decision  wait",
        "page      a/page.py",
        "check     2 passed",
    ]
    claims._show(CLAIM | {"says": "a " * 99, "error": "", "needs": ()}, "not run")
    first, second, *others = capsys.readouterr().out.splitlines()
    assert (first, second) == ("X-1       " + " ".join("a" * 50), " " * 10 + " ".join("a" * 49))  # of 110 columns
    assert [line[:10].strip() for line in others] == [
        *("source", "verdict", "breaks", "smallest", "decision", "page", "check")
    ]


def test_curves_are_drawn_over_numbers_of_which_there_may_be_one():
    picture = sweep._picture
    assert picture("curves", None, Path("x.nc"), {"gpu": ["a", "b"], "tp": [4.0]}) == Path("x.png")
    assert picture("curves", Path("y.svg"), Path("x.nc"), {"tp": [4.0]}) == Path("y.svg")
    with pytest.raises(InputError, match="--plot curves: needs an axis of numbers; given are gpu, kv"):
        picture("curves", None, Path("x.nc"), {"gpu": ["a"], "kv": ["fp8"]})
    with pytest.raises(InputError, match="--plot heatmap: needs two axes; 1 given, which --plot curves draws"):
        picture("heatmap", None, Path("x.nc"), {"tp": [1.0, 2.0]})
    assert picture("heatmap", None, Path("x.nc"), {"tp": [1.0], "pp": [1.0]}) == Path("x.png")


def test_the_best_points_of_a_sweep_in_the_order_of_what_they_are(capsys):
    """Axes, what ranks them, the fleet, its cost and its latencies."""
    names = ["tpot_s", "cost_usd_per_hour", "tp", "ttft_s", "gpus", "e2e_s", "instances", "gpu_tokens_per_s"]
    best = [dict(zip(names, map(float, range(1, 9)), strict=True))]
    found = Record(
        explanation="All of 4.", best=best, pareto=best * 3, output="e2e_s", label=lambda name: f"{name} [u]"
    )
    sweep._show(found, {"tp": [1, 2]}, {})
    first, *table, last = capsys.readouterr().out.splitlines()
    ((title, rows),) = terminal_tables("\n".join(table)).items()
    shown = {
        "tp": "3",
        "e2e_s": "6",
        "instances": "7",
        "gpus": "5",
        "cost_usd_per_hour": "2",
        "ttft_s": "4",
        "tpot_s": "1",
    }
    assert [list(row.items()) for row in rows] == [[(f"{name} [u]", value) for name, value in shown.items()]]
    assert (first, title, last) == (
        "All of 4.",
        "the best points by e2e_s",
        "3 points on the front of e2e_s against TTFT",
    )


def test_one_point_that_keeps_the_slos_is_an_answer(handed, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text('model.name = "qwen3-8b"\ngpu.name = "l40s"\nworkload = { isl = 10, osl = 5 }\n')
    assert main(["sweep", str(file), "--axis", "rate=1,2"]) == 0
    assert [handed.feasible(Record(feasible_count=count)) for count in (0, 1, 2)] == [False, True, True]


def test_claims_as_a_list(capsys):
    claims._list({"X-1": CLAIM})
    (rows,) = terminal_tables(capsys.readouterr().out).values()
    assert [list(row.values()) for row in rows] == [["X-1", "refuted", "one thing", "Eq. (2)"]]
    assert list(rows[0]) == ["id", "", "claim", "where"]


def test_a_search_that_was_cut_short_in_a_sentence_and_costs_of_a_request(capsys):
    price = dict.fromkeys(PriceOfAnarchy._fields, 0.0) | {"flags": int(Flag.NOT_CONVERGED), "optimum_s": 8.0}
    price |= {"worst_s": 24.0, "best_s": 12.0, "lower": 3.0, "upper": 4.25, "stability_lower": 1.25}
    cost = Record(mean_s=5.0, worst_s=9.0, ratio=2.5, worst_ratio=4.5)
    found = Record(price=PriceOfAnarchy(**price | {"stability_upper": 1.5}), policies={"random": cost})
    route._show(Record(requests=4, prefixes=2, workers=3), found)
    *table, said = capsys.readouterr().out.splitlines()
    ((title, rows),) = terminal_tables("\n".join(table)).items()
    assert title == "4 requests, 2 prefixes, 3 workers: ok"
    assert [list(row.values()) for row in rows] == [
        ["worst equilibrium", "6", "3", "4.25"],
        ["best equilibrium", "3", "1.25", "1.5"],
        ["optimum", "2", "1", "1"],
        ["random", "5", "2.5", "4.5"],
    ]
    assert said == (
        "The search for equilibria was cut short. The dearest that was found costs 3 times the optimum, and none costs "
        "more than 4.25 times; the cheapest costs 1.5 times, and none costs less than 1.25 times."
    )


@pytest.mark.parametrize(
    ("table", "key", "nearest"),
    [
        ("space", "thp", ["tp", "pp", "thresholds"]),  # and a checkpoint is a little further
        ("space", "zzz", ["tp", "pp", "wide_ep", "weights", "kv", "checkpoint"]),
        ("gpu", "zzz", ["name", "file", "price", "inventory", "node", "regions"]),
    ],
)
def test_a_key_that_nobody_knows_is_told_with_those_that_could_be_meant(table, key, nearest, tmp_path):
    """The nearest three, or where none is near some that there are."""
    file = tmp_path / "plan.toml"
    file.write_text(f"[{table}]\n{key} = 1\n")
    with pytest.raises(InputError) as told:
        read_scenario(file, PlanInputs)
    assert str(told.value) == f"{file}: {table}.{key} is unknown; the nearest are {', '.join(nearest)}"
