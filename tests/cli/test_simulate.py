"""The command `dmodels simulate`: a table, JSON with inputs, one line for bad input, 1 for a fleet that drowns."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dmodels.cli import main
from dmodels.cli.simulate import SimulateAsked

FAST = ["simulate", "--rate", "20 req/s", "--instances", "8", "--requests", "3000", "--precision", "0.5"]


def test_json_carries_inputs_units_and_intervals(capsys):
    assert main([*FAST, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["rate_rps"] == 20 and document["inputs"]["seed"] == 0
    ttft = document["result"]["all"]["ttft_mean_s"]
    assert ttft["low"] < ttft["value"] < ttft["high"] and ttft["samples"] >= 5


def test_the_first_call_of_a_newcomer_is_served(capsys):
    assert main(["simulate"]) == 0
    shown = capsys.readouterr().out
    assert "azure-paper at 1 req/s on 1 x 16 slots" in shown and "waits keep growing" not in shown


def test_the_table_names_pools_and_metrics(capsys):
    assert main([*FAST, "--short-instances", "3"]) == 0
    table = capsys.readouterr().out
    assert all(word in table for word in ("short", "long", "tpot_p99_s", "95% low"))


def test_the_short_pool_has_the_shorter_answers(capsys):
    """In as many slots at one speed a request lasts as long as its answer."""
    assert main([*FAST, "--short-instances", "3", "--json"]) == 0
    pools = json.loads(capsys.readouterr().out)["result"]
    short, long = (pools[name]["e2e_mean_s"]["value"] for name in ("short", "long"))
    assert short < 0.7 * long


def test_a_pool_that_no_request_comes_to_is_refused(capsys):
    assert main([*FAST, "--workload", "azure-conv", "--short-instances", "3"]) == 2
    assert "0 requests in a pool" in capsys.readouterr().err


def test_a_drowning_fleet_exits_with_one(capsys):
    assert main([*FAST, "--rate", "60 req/s", "--requests", "20000"]) == 1
    assert "waits keep growing" in capsys.readouterr().out


def test_a_trace_is_replayed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    columns = np.cumsum(rng.exponential(0.2, 2000)), rng.integers(10, 900, 2000), rng.integers(5, 90, 2000)
    file = tmp_path / "trace.csv"
    rows = [f"{a},{b},{c}" for a, b, c in zip(*columns, strict=True)]
    file.write_text("\n".join(["time_s,input_tokens,output_tokens", *rows]))
    assert main(["simulate", "--trace", str(file), "--rate", "10 req/s", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["rate_rps"] == pytest.approx(10, rel=0.01)
    assert document["result"]["all"]["ttft_p99_s"]["value"] > 0
    assert document["result"]["cut_requests_count"] == 0


def test_a_burst_of_a_trace_counts_unless_it_is_taken_as_steady(tmp_path, capsys):
    """One instance of one slot takes 10 ms a request: 500 at once wait up to 5 s, whatever comes later."""
    times = [0.0] * 500 + [10.0 + k for k in range(3000)]
    file = tmp_path / "burst.csv"
    file.write_text("\n".join(["time_s,input_tokens,output_tokens", *(f"{t},10,1" for t in times)]))
    fleet = ["simulate", "--trace", str(file), "--slots", "1", "--iteration", "5 ms,0 ms", "--json"]
    assert main(fleet) in (0, 1)
    everything = json.loads(capsys.readouterr().out)["result"]
    assert everything["cut_requests_count"] == 0 and everything["all"]["wait_mean_s"]["value"] > 0.1
    assert main([*fleet, "--steady"]) in (0, 1)
    said = capsys.readouterr()
    steady = json.loads(said.out)["result"]
    left = f"{steady['cut_requests_count']:,} of 3,500 requests left out as warm-up and end (--steady)"
    assert steady["cut_requests_count"] > 0 and left in said.err
    assert steady["all"]["wait_mean_s"]["value"] < everything["all"]["wait_mean_s"]["value"]


def test_who_looks_at_queues_waits_less_than_who_takes_turns_and_chance_is_worst(capsys):
    """The shortest of all queues, and the shorter of two; requests come in bursts, and each instance has one slot."""
    waits = {}
    fleet = ["simulate", "--rate", "3 req/s", "--workload", "azure-code", "--instances", "8", "--slots", "1"]
    for policy in ("jsq", "power-of-two", "random", "round-robin"):
        assert main([*fleet, "--requests", "4000", "--precision", "0.9", "--policy", policy, "--json"]) == 0
        waits[policy] = json.loads(capsys.readouterr().out)["result"]["all"]["wait_mean_s"]["value"]
    assert max(waits["jsq"], waits["power-of-two"]) < 0.97 * waits["round-robin"] < 0.9 * waits["random"]


@pytest.mark.parametrize("flags", [[], ["--short-instances", "2"]])
def test_show_python_prints_a_call_that_runs_and_agrees(flags, capsys):
    assert main([*FAST, *flags, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["result"]
    assert main([*FAST, *flags, "--show-python"]) == 0
    scope: dict = {}
    exec(compile(capsys.readouterr().out, "shown", "exec"), scope)
    value = next(iter(shown.values()))["ttft_mean_s"]["value"]
    assert scope["answer"][0]["ttft_mean_s"].value == pytest.approx(value)


@pytest.mark.parametrize(
    "flags",
    [
        ["--policy", "best"],
        ["--prefill", "none"],
        ["--iteration", "8"],
        ["--iteration", "8,1"],
        ["--rate", "5"],
        ["--percentile", "99"],
        ["--requests", "10"],
        ["--instances", "0"],
        ["--trace", "/nowhere.csv"],
        ["--short-instances", "-1"],
        ["--slots", "0"],
        ["--workload", "nothing"],
        ["--slots", "-1"],
        ["--seed", "12345678901234567890"],
        ["--requests", "100000000000"],
        ["--workload", "azure-conv", "--trace", "x.csv"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_two(flags, capsys):
    assert main(["simulate", *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dmodels: ") and error.count("\n") == 1


def test_what_would_take_ten_minutes_is_refused_and_what_is_offered_instead_is_not():
    """An event takes a microsecond, and a look at all instances half a nanosecond for each; five replications."""
    for instances, least, most in (
        (1, 20_000_000, None),
        (10_000, 10_000_000, 20_000_000),
        (100_000, 1_000_000, 4_000_000),
    ):
        SimulateAsked(instances=instances, requests_count=least)
        if most is None:
            continue
        with pytest.raises(
            ValueError, match=f"requests on {instances:,} instances: would take about .* --requests"
        ) as told:
            SimulateAsked(instances=instances, requests_count=most)
        offered = int(str(told.value).partition("--requests ")[2].split()[0].rstrip("."))
        assert least <= offered < most
        SimulateAsked(instances=instances, requests_count=offered)
    SimulateAsked(prefill_instances=2500, instances=2500)
    with pytest.raises(ValueError, match=r"10,000 instances: would take about 12 min; accepted .* like 5,000 in all"):
        SimulateAsked(prefill_instances=4000, standby_instances=2000, instances=4000)
    SimulateAsked(slots=1000, instances=100_000)
    with pytest.raises(ValueError, match="200,000,000 slots in all"):
        SimulateAsked(short_slots=2000, short_instances=100_000)
