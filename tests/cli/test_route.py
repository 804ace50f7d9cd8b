"""`dmodels route`: the library's interval, units per worker, overload as an answer."""

from __future__ import annotations

import json
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main, route
from dmodels.core.flags import Flag, describe
from dmodels.games.anarchy import PriceOfAnarchy


def run(capsys, *args):
    code = main(["route", *args, "--runs", "5"])
    return code, capsys.readouterr()


def test_pigou_pair(capsys):
    """Two requests, f = n and f = 2, no misses: 4/3."""
    code, seen = run(
        capsys,
        "--requests",
        "2",
        "--prefixes",
        "1",
        "--a",
        "1 s,0 s",
        "--b",
        "0 s,2 s",
        "--d",
        "0 s",
        "--omega",
        "0 s",
        "--json",
    )
    result = json.loads(seen.out)["result"]
    assert code == 0 and result["lower"] == pytest.approx(4 / 3) and result["exact"] and result["certified"]


def test_table_and_python(capsys):
    code, seen = run(capsys)
    assert code == 0 and "worst equilibrium" in seen.out and "power of two" in seen.out
    code, seen = run(capsys, "--show-python")
    scope = {}
    exec(seen.out, scope)
    assert bool(scope["answer"].price.exact)


def test_dynamo_routes_without_chance_unless_told_to(capsys):
    """The default of its `--router-temperature` is 0: every draw is the same; at a temperature, each is another."""
    spread = []
    for more in ((), ("--tau", "0"), ("--tau", "0.5")):
        _, seen = run(capsys, "--json", *more)
        dynamo = json.loads(seen.out)["result"]["policies"]["dynamo"]
        spread.append(dynamo["worst_s"] / dynamo["mean_s"] - 1)
    assert spread[0] == pytest.approx(0.0, abs=1e-12) == spread[1] and spread[2] > 1e-3


def test_overload_is_no_feasible_answer(capsys):
    code, seen = run(capsys, "--requests", "200", "--json")
    assert code == 1 and "capacity" in json.loads(seen.out)["result"]["flags"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--a", "5"], "'5'"),
        (["--b", "1 s,2 s,3 s"], "b has 3 values"),
        (["--workers", "0"], "workers 0"),
        (["--workers", "1000000000"], "workers 1000000000"),
        (["--saturation", "x"], "saturation"),
    ],
)
def test_mistakes_are_one_line(capsys, args, says):
    code, seen = run(capsys, *args)
    assert code == 2 and says in seen.err and seen.err.count("\n") == 1


def test_workers_that_stay_idle_cost_nothing_and_change_nothing(capsys):
    found = [json.loads(run(capsys, "--workers", workers, "--json")[1].out)["result"] for workers in ("70", "2000")]
    assert all(one["exact"] for one in found)
    assert [one["upper"] for one in found] == pytest.approx([found[0]["upper"]] * 2, rel=1e-12)


def test_a_search_that_was_cut_short_says_what_holds_of_every_equilibrium(capsys, monkeypatch):
    monkeypatch.setattr("dmodels.studies.router_costs._SEARCH_S", 0.0)
    code, seen = run(capsys, "--workers", "16")
    assert code == 0 and "did not converge" not in seen.out
    assert "The search for equilibria was cut short. The dearest that was found costs" in seen.out


def priced(flags=0):
    known = dict.fromkeys(PriceOfAnarchy._fields, 0.0) | {"flags": flags, "optimum_s": 8.0}
    return PriceOfAnarchy(**known | {"worst_s": 24.0, "lower": 3.0, "upper": 4.25})


def test_the_document_of_a_game_is_its_price_and_what_each_policy_costs(monkeypatch):
    costs = {"random": Record(mean_s=5.0, worst_s=9.0, ratio=2.5, worst_ratio=4.5)}
    found = Record(price=priced(int(Flag.OVERLOAD)), policies=costs)
    told = priced()._asdict() | {"flags": describe(Flag.OVERLOAD)}
    assert route._result(found) == told | {"policies": {"random": {"mean_s": 5.0, "worst_s": 9.0, "ratio": 2.5}}}


@pytest.mark.parametrize(
    ("flags", "feasible"),
    [(0, True), (Flag.NOT_CONVERGED, True), (Flag.OVERLOAD, False), (Flag.OVERLOAD | Flag.NOT_CONVERGED, False)],
)
def test_an_interval_is_an_answer_and_overload_is_none(flags, feasible):
    assert route._feasible(Record(price=priced(int(flags)))) == feasible


def test_a_game_is_shown_with_what_was_asked_of_it(handed, monkeypatch):
    monkeypatch.setattr(route, "_show", lambda asked, found: (asked.requests, found))
    assert main(["route", "--requests", "12", "--workers", "3", "--b", "1 ms,2 ms,3 ms"]) == 0
    stated = handed.inputs(None)
    assert (stated["a_s"], stated["b_s"], stated["n_sat"]) == ([5e-3] * 3, [1e-3, 2e-3, 3e-3], [64.0] * 3)
    assert handed.call.target == "dmodels.studies.router_costs:router_costs" and handed.show("found") == (12, "found")
    assert (handed.result, handed.feasible, handed.write) == (route._result, route._feasible, None)


@pytest.mark.parametrize(("option", "name"), [("--a", "a"), ("--b", "b"), ("--d", "d"), ("--saturation", "saturation")])
def test_values_of_a_worker_are_one_for_all_or_one_for_each(option, name, capsys):
    unit = "" if name == "saturation" else " ms"
    line = [f"1{unit},2{unit}", "--workers", "3"]
    code, seen = run(capsys, option, *line)
    assert code == 2
    assert seen.err == f"dmodels: --{name} has 2 values; accepted are 1 or 3, one per worker\n"


def test_of_several_mistakes_the_first_parameter_of_the_law_is_told(capsys):
    wrong = {"--a": "1 s,2 s", "--b": "1 s,2 s", "--d": "1 s,2 s", "--saturation": "1,2"}
    for name in list(wrong):
        _, seen = run(capsys, "--workers", "3", *(word for pair in wrong.items() for word in pair))
        assert seen.err.startswith(f"dmodels: {name} has 2 values")
        del wrong[name]


def test_a_law_has_a_value_of_each_worker():
    made = route.RouteAsked(workers=3, requests=12, prefixes=4, a_s="1 ms", n_sat="7,8,9", beta=1.5).call()
    game = made.arguments[0]
    assert game.arguments[:2] == (12, 4) and game.arguments[3] == pytest.approx(0.015)
    law = game.arguments[2].arguments
    assert law == ([1e-3] * 3, [0.02] * 3, [0.01] * 3, [7.0, 8.0, 9.0], [1.5] * 3)
    assert made.options == {"runs": 200, "seed": 0, "tau": 0.0} and game.label == "game"
