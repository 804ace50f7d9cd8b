"""The command `dmodels simulate`: a table, JSON with inputs, one line for bad input, 1 for a fleet that drowns."""

from __future__ import annotations

import json
import math
import re
import shlex
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels.cli import main, simulate
from dmodels.cli.simulate import SimulateAsked
from dmodels.core.flags import Flag
from tests.audit.shown import terminal_tables

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


def interval(value=0.5, flags=0):
    return Record(value=value, low=value / 2, high=2 * value, samples=9, flags=int(flags))


def test_each_pool_and_metric_is_a_row_and_what_flags_mean_is_told_below_once(capsys):
    asked = SimulateAsked(short_instances=3, short_slots=7, instances=2, slots=5, workload="mooncake", policy="random")
    few, wide = Flag.EXTRAPOLATED, Flag.NOT_CONVERGED
    parts = {"short": {"a_s": interval(0.5)}, "long": {"a_s": interval(8.0, few | wide), "b_s": interval(2.0, few)}}
    simulate._show(asked, parts, 7.0)
    *table, last, before = capsys.readouterr().out.splitlines()
    ((title, rows),) = terminal_tables("\n".join(table)).items()
    assert title == "mooncake at 7 req/s on 3 x 7 + 2 x 5 slots, random"
    first = {"pool": "short", "metric": "a_s", "value": "0.5", "95% low": "0.25", "95% high": "1", "samples": "9"}
    assert rows[0] == first | {"note": ""} and list(rows[0]) == [*first, "note"]
    assert [*rows[1].values()] == ["long", "a_s", "8", "4", "16", "9", "wide, few"]
    assert [*rows[2].values()] == ["long", "b_s", "2", "1", "4", "9", "few"]
    assert (last, before) == (
        "wide: the interval is not as narrow, or as sure, as asked",
        "few: few values beyond the percentile",
    )


def test_flags_of_intervals_in_words():
    told = {Flag.OVERLOAD: ("overload", "waits keep growing"), Flag.NONFINITE: ("none", "not a number")}
    for flag, (word, meaning) in told.items():
        assert simulate._notes(int(flag)) == {word: meaning}
    assert simulate._notes(0) == {} == simulate._notes(int(Flag.NO_FIT))
    assert list(simulate._notes(~0)) == ["overload", "wide", "few", "none"]


def test_the_fleet_of_a_title_is_what_was_asked_for(capsys):
    for more, title in (
        ({}, "azure-paper at 7 req/s on 1 x 16 slots, jsq"),
        ({"prefill_instances": 2, "instances": 3}, "azure-paper at 7 req/s on 2 prefill + 3 decode, phasor"),
        (
            {"prefill_instances": 2, "standby_instances": 4, "policy": "reactive"},
            "azure-paper at 7 req/s on 2 prefill + 1 decode + 4 standby, reactive",
        ),
        ({"trace": "t.csv"}, "t.csv at 7 req/s on 1 x 16 slots, jsq"),
    ):
        simulate._show(SimulateAsked(**more), {"all": {"a_s": interval()}}, 7.0)
        assert [*terminal_tables(capsys.readouterr().out)] == [title]


def test_documents_are_of_pools_and_of_a_cluster_with_its_flag():
    fleet, cluster, replay = SimulateAsked(), SimulateAsked(prefill_instances=2), SimulateAsked(trace="t.csv")
    calm, late = {"a_s": interval()}, {"a_s": interval(flags=Flag.OVERLOAD)}
    assert simulate._result(fleet, None, {"all": calm}) == {"all": calm}
    assert simulate._result(cluster, calm, {"all": calm}) == calm | {"flags": 0}
    assert simulate._result(cluster, late, {"all": late}) == late | {"flags": int(Flag.OVERLOAD)}
    found = Record(cut_count=3, requests_count=1200)
    assert simulate._result(replay, found, {"all": calm}) == {"all": calm, "cut_requests_count": 3}
    assert simulate._overloaded({"a": calm, "b": late}) and not simulate._overloaded({"a": calm, "b": calm})


def test_what_of_a_trace_does_not_count_is_said(capsys):
    for more, cut in (({}, 3), ({"trace": "t.csv"}, 0), ({"trace": "t.csv"}, 1234)):
        simulate._cut(SimulateAsked(**more), Record(cut_count=cut, requests_count=56_789))
    assert capsys.readouterr() == (
        "",
        "dmodels: 1,234 of 56,789 requests left out as warm-up and end (--steady)\n",
    )


#: Command line -> which call it makes, under which names its pools stand, of which rate.
KINDS = {
    "--rate '7 req/s'": ("dmodels.sim.verify:measure", ["all"], 7.0),
    "--short-instances 2 --rate '7 req/s'": ("dmodels.sim.verify:measure", ["short", "long"], 7.0),
    "--prefill-instances 2 --rate '7 req/s'": ("dmodels.sim.cluster:measure", ["all"], 7.0),
    "--trace t.csv": ("dmodels.sim.replay:replay_trace", ["all"], 3.0),
    "--trace t.csv --short-instances 2": ("dmodels.sim.replay:replay_trace", ["short", "long"], 3.0),
}


@pytest.mark.parametrize("line", KINDS)
def test_pools_are_told_by_their_names_whatever_simulates_them(line, handed, monkeypatch):
    made, names, rate = KINDS[line]
    pools = [{"a_s": interval(k + 1.0)} for k in range(len(names))]
    parts = dict(zip(names, pools, strict=True))
    found = pools if "measure" in made else Record(pools=pools, rate_rps=3.0, cut_count=0)
    found = pools[0] if "cluster" in made else found
    monkeypatch.setattr(simulate, "_result", lambda asked, found, parts: parts)
    monkeypatch.setattr(simulate, "_show", lambda asked, parts, rate: (parts, rate))
    monkeypatch.setattr(simulate, "_cut", lambda asked, found: ("cut", asked.trace))
    monkeypatch.setattr(simulate, "_overloaded", lambda parts: len(parts) == 2)
    assert main(["simulate", *shlex.split(line)]) == 0
    assert handed.call.target == made and handed.inputs(found)["rate_rps"] == rate
    assert handed.result(found) == parts and handed.show(found) == (parts, rate)
    assert handed.feasible(found) == (len(parts) == 1)
    assert handed.write(found) == ("cut", "t.csv" if "trace" in line else None)


def test_requests_are_written_of_servers_alone(capsys, tmp_path):
    for more in ([], ["--trace", "t.csv"], ["--prefill-instances", "2"]):
        assert main(["simulate", *more, "--out", str(tmp_path / "x.csv")]) == 2
        told = "--out: accepted with --model, --plan or --replay, which know every request"
        assert capsys.readouterr().err == f"dmodels: {told}\n"


def test_inputs_state_the_pools_the_policy_and_the_law():
    plain = SimulateAsked().inputs(1.0)
    assert (plain["pools"], plain["policy"], plain["decode_instances"], plain["slots_count"]) == (
        [{"instances": 1, "slots_count": 16, "max_tokens": None}],
        "jsq",
        0,
        16,
    )
    assert not {"iteration", "server"} & plain.keys() and plain["workload"] == "azure-paper"
    assert (plain["base_s"], plain["per_sequence_s"]) == pytest.approx((8e-3, 0.65e-3))
    assert SimulateAsked(trace="t.csv").inputs(1.0)["workload"] is None
    assert SimulateAsked(prefill_instances=2, instances=3).inputs(1.0)["decode_instances"] == 3


def test_without_a_rate_and_a_workload_a_request_a_second_is_drawn():
    rate = lambda **asked: SimulateAsked(**asked).drawn_rps
    assert rate() == simulate.RATE_RPS == 1.0 and rate(rate_rps=3.0) == 3.0 == rate(rate_rps=3.0, workload="mooncake")
    assert rate(workload="mooncake") is None  # its own


def test_policies_are_routers_and_controls_of_these_names():
    """Routers are called as in the library, but for three; controls leave standby workers alone, but for two."""
    routers = {name: name.upper().replace("-", "_") for name in ("round-robin", "random", "power-of-two")}
    routers |= {"jsq": "SHORTEST_QUEUE", "cache-aware": "DYNAMO", "prompt-tokens": "PROMPTS"}
    signals = {"freeness": "WORK", "queue-length": "REQUESTS", "token-backlog": "TOKENS", "memory": "MEMORY"}
    controls = {name: (signal, "NONE") for name, signal in signals.items()}
    controls |= {"phasor": ("WORK", "FREENESS"), "reactive": ("REQUESTS", "REACTIVE")}
    assert (routers, controls) == (simulate.ROUTERS, simulate.CONTROLS)
    assert (simulate.HYBRID, simulate.PREFILL) == ("taichi", ("own", "shared", "packed"))
    assert (simulate.WORKLOAD, simulate.RATE_RPS) == ("azure-paper", 1.0)
    for policy, router in routers.items():
        assert SimulateAsked(policy=policy).fleet().arguments[3].target == f"dmodels.sim.fleet:RoutingPolicy.{router}"
    for policy, names in controls.items():
        control = SimulateAsked(policy=policy, prefill_instances=1).control()
        kinds = [f"dmodels.sim.cluster:{kind}.{name}" for kind, name in zip(("Signal", "Flow"), names, strict=True)]
        assert [one.target for one in control.arguments] == kinds and control.options == {"theta_frag": 0.0}
    for chunk, decode in ((512, 128), (7, 1), (3, 1), (1, 1)):
        hybrid = SimulateAsked(policy="taichi", prefill_instances=1, chunk_tokens=chunk).control()
        assert hybrid.options == {"chunk_tokens": chunk, "decode_chunk_tokens": decode}


def test_a_fleet_is_called_with_its_pools_from_short_to_long():
    asked = SimulateAsked(short_instances=3, short_slots=7, instances=2, slots=5, threshold_tokens=2048, seed=4)
    made = asked.fleet()
    workload, (short, long), key, router = made.arguments
    assert made.target == "dmodels.sim.verify:measure" and workload.arguments == ("azure-paper", 1.0)
    assert made.options == {"target_frac": 0.05, "spill_queue": math.inf, "percentile": 0.99}
    assert short.arguments[:2] == (3, 7) and short.arguments[3] == 2048.0 and long.arguments[:2] == (2, 5)
    assert len(long.arguments) == 3 and short.arguments[2].arguments == pytest.approx((8e-3, 6.5e-4))
    assert short.options["chunk_tokens"] == 512 and short.options["prefill"].target.endswith("Prefill.OWN")
    assert (key.target, key.arguments, router.target[-14:]) == ("jax:random.key", (4,), "SHORTEST_QUEUE")
    replay = SimulateAsked(trace="t.csv", rate_rps=3.0, steady=True, requests_count=2000, spill_queue_count=6).fleet()
    assert replay.arguments[0].arguments == ("t.csv",) and replay.target == "dmodels.sim.replay:replay_trace"
    options = {"rate_rps": 3.0, "stationary": True, "count": 2000, "spill_queue": 6.0, "percentile": 0.99}
    assert replay.options == options


def test_a_cluster_is_called_with_its_workers_and_memory_in_slots():
    made = SimulateAsked(prefill_instances=2, instances=3, standby_instances=4, slots=5, seed=6).cluster()
    workload, machines, control, key = made.arguments
    assert made.target == "dmodels.sim.cluster:measure" and workload.arguments == ("azure-paper", 1.0)
    options = dict(machines.options)
    assert options.pop("step").arguments == pytest.approx((8e-3, 6.5e-4))
    sizes = {"prefill": 2, "decode": 3, "standby": 4, "slots": 5, "kv_blocks": 5}
    assert options.pop("block_tokens") >= 10**9 and options == sizes  # no sequence needs a second block
    assert control.target == "dmodels.sim.cluster:Control" and key.arguments == (6,)
    assert made.options.pop("prefill_iteration_s") == pytest.approx(8.65e-3)
    assert made.options == {"chunk_tokens": 512, "percentile": 0.99, "target_frac": 0.05}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"policy": "phasor"}, "policy 'phasor' is unknown; known are cache-aware"),
        ({"policy": "jsq", "prefill_instances": 1}, "policy 'jsq' is unknown; known are freeness"),
        ({"prefill": "owner"}, "prefill 'owner' is unknown; the nearest are own"),
        (
            {"trace": "t", "prefill_instances": 1},
            "--prefill-instances: accepted with a bundled --workload and one pool",
        ),
        ({"standby_instances": 1}, "--standby-instances: accepted with --prefill-instances from 1"),
        (
            {"policy": "taichi", "prefill_instances": 1, "standby_instances": 1},
            "--standby-instances: accepted with --policy taichi is 0, every instance does both",
        ),
        ({"trace": "t", "workload": "w"}, "--trace and --workload: give one of them"),
        (
            {"server": {"model": "m", "gpu": "g"}, "slots": 3, "policy": "jsq"},
            "policy, slots: accepted without --model and --plan, whose engine and memory say so",
        ),
        (
            {"server": {"plan": "p"}, "prefill_instances": 1},
            "prefill_instances: accepted without --model and --plan, whose engine and memory say so",
        ),
        *(
            ({"server": {"plan": "p"}, name: value}, f"{name}: accepted without --model and --plan")
            for name, value in {
                "slots": 3,
                "iteration": "1 ms,1 ms",
                "chunk_tokens": 7,
                "prefill": "own",
                "policy": "jsq",
                "short_instances": 1,
            }.items()
        ),
        (
            {"server": {"model": "m", "gpu": "g", "plan": "p"}},
            "plan: a saved plan has a model and GPUs; accepted is --plan or --model with --gpu",
        ),
        (
            {"server": {"plan": "p", "replay": "r"}},
            "replay: a log is compared with one server (--model, --gpu), not with a plan",
        ),
        (
            {"server": {"model": "m", "replay": "r"}},
            "model: give both --model and --gpu (with --replay the log may name the model)",
        ),
        ({"server": {"replay": "r"}}, "replay: the GPU that served the log is missing (--gpu)"),
        ({"server": {"model": "m", "gpu": "g", "osl": 3}}, "isl: give both --isl and --osl"),
        ({"server": {"dp": 3}}, "model: an option of a server is given without one (--model with --gpu, or --plan)"),
    ],
)
def test_what_does_not_go_together_is_told(asked, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        SimulateAsked.model_validate(asked)


def test_what_fits_in_memory_and_in_ten_minutes_is_accepted_to_the_last(monkeypatch):
    """A hundred million slots in the larger pool; instances of both pools count, and those of every role."""
    asked = []
    monkeypatch.setattr(simulate, "check_work", lambda what, seconds, fits: asked.append((what, seconds, fits)))
    SimulateAsked(instances=100_000, slots=1000)
    SimulateAsked(short_instances=100_000, short_slots=1000)
    for pools in ({"instances": 100_000, "slots": 1001}, {"short_instances": 100_000, "short_slots": 1001}):
        with pytest.raises(
            ValueError, match="100,100,000 slots in all: accepted are up to 100,000,000, like --slots 100"
        ):
            SimulateAsked(**pools)
    assert asked == []
    SimulateAsked(instances=1, prefill_instances=2, standby_instances=4)
    assert asked.pop() == ("7 instances", pytest.approx(0.49), "5,000 in all")
    SimulateAsked(instances=1000, short_instances=500, requests_count=2_000_000)
    told, seconds, fits = asked.pop()
    assert told == "2,000,000 requests on 1,500 instances"
    assert seconds == pytest.approx(19.0) and fits == "--requests 63157894"
    SimulateAsked(trace="t.csv", requests_count=2_000_000)
    assert asked == []  # a trace is replayed once
