"""`dmodels route`: the library's interval, units per worker, overload as an answer."""

from __future__ import annotations

import json

import pytest

from dmodels.cli import main


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
