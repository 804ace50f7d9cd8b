"""`dmodels simulate` of servers: what is asked of the library, and each word and number that is shown, by hand."""

from __future__ import annotations

import json
import math
from importlib import import_module
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels.cli import main, simulate_server
from dmodels.cli.simulate import SimulateAsked
from dmodels.cli.simulate_server import ServerTable
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from tests.audit.shown import terminal_tables

LINE = ["simulate", "--model", "m", "--gpu", "g"]


def interval(value=0.5, flags=0):
    return Record(value=value, low=value / 2, high=2 * value, flags=int(flags))


def server(name, instances):
    policy = Record(name=f"scheduler of {name}", slots=64, step_tokens=4096, kv_blocks=5000, block_tokens=16)
    return Record(name=name, instances=instances, policy=policy)


@pytest.fixture
def found(monkeypatch):
    """What a simulation finds, of servers that are only named; what is shown and written is told."""
    servers = import_module("dmodels.studies.servers")
    first = lambda model, gpu: server(f"{model} on {gpu}", 2)
    made = lambda model, gpu, *_, **__: Record(**vars(first(model, gpu)), parts=[first(model, gpu), server("b", 3)])
    monkeypatch.setattr(servers, "server", made)
    monkeypatch.setattr(servers, "of_plan", lambda saved: [Record(server=made("saved", saved["of"], None))])
    monkeypatch.setattr(simulate_server, "_show_played", lambda servers, found: servers)
    monkeypatch.setattr(simulate_server, "_show_compared", lambda one, found: one)
    monkeypatch.setattr(simulate_server, "_played_rows", lambda found: "rows of the play")
    monkeypatch.setattr(simulate_server, "_compared_rows", lambda found: "rows of the log")
    monkeypatch.setattr(simulate_server, "_write", lambda *given: given)
    pools, counts = [{"a_s": interval()}, {"a_s": interval()}], {"cut_count": 4, "restarts_count": 5}
    return Record(labels=["x", "y"], pools=pools, **counts, rate_rps=7.0, to_dict=lambda: "a document")


def test_servers_of_flags_are_played_stated_shown_and_written(handed, found, tmp_path):
    out = tmp_path / "x.csv"
    assert main([*LINE, "--instances", "2", "--out", str(out)]) == 0
    play, stated = handed.call, handed.inputs(found)
    assert play.target == "dmodels.studies.servers:play" and play.options == {"percentile": 0.99}
    names = [one["name"] for one in stated["servers"]]
    assert names == ["m on g", "b"] == [one.name for one in handed.show(found)] and stated["rate_rps"] == 7.0
    (x, y) = found.pools
    assert handed.result(found) == {"x": x, "y": y, "cut_requests_count": 4, "restarts_count": 5}
    assert handed.feasible(found) and handed.write(found) == (out, "rows of the play")
    assert main([*LINE, "--requests", "2000", "--seed", "3", "--percentile", "0.9", "--steady"]) == 0
    options = {"count": 2000, "seed": 3, "percentile": 0.9, "stationary": True}
    assert handed.call.options == options and handed.write(found) == (None, "rows of the play")


def test_servers_of_a_saved_plan_are_those_that_it_says(handed, found, tmp_path):
    file = tmp_path / "plan.json"
    said = {"workload": {"trace": "t.csv", "name": None, "repair": True}, "traffic": {"rate": 5.0}}
    file.write_text(json.dumps({"command": "plan", "of": "file", "result": {}, "inputs": {"asked": said}}))
    assert main(["simulate", "--plan", str(file)]) == 0
    assert handed.call.options == {"rate_rps": 5.0, "percentile": 0.99}
    pools, traffic = handed.call.arguments
    assert (pools.target, traffic.target, traffic.arguments) == (
        "dmodels.studies.servers:of_plan",
        "dmodels:read_trace",
        ("t.csv",),
    )
    assert [one.name for one in handed.show(found)] == ["saved on file", "b"]
    assert handed.write(found) == (None, "rows of the play")


def test_a_log_is_compared_with_the_server_that_it_is_of(handed, found, tmp_path, monkeypatch):
    log = import_module("dmodels.formats.telemetry.request_log")
    monkeypatch.setattr(log, "read_requests", lambda path: Record(engine={"model": f"that of {path}"}))
    out = tmp_path / "x.csv"
    assert main(["simulate", "--gpu", "g", "--replay", "log", "--instances", "3", "--out", str(out)]) == 0
    compare = handed.call
    assert compare.target == "dmodels.studies.servers:compare" and compare.options == {}
    of, read = compare.arguments
    assert (of.arguments[:2], read.arguments) == (("that of log", "g"), ("log",)) and "instances" not in of.options
    assert handed.result(found) == "a document" and handed.feasible is None
    assert handed.write(found) == (out, "rows of the log") and handed.show(found).name == "that of log on g"
    assert [one["name"] for one in handed.inputs(found)["servers"]] == ["that of log on g"]


def test_the_traffic_of_a_server_is_a_trace_fixed_lengths_or_a_workload():
    own = {"model": "m", "gpu": "g"}
    of = lambda server, **asked: simulate_server._alone(SimulateAsked(server=own | server, **asked))
    (pool,), traffic, rate = of({}, trace="t.csv", rate_rps=7.0)
    assert (pool.arguments[0], traffic.arguments, rate) == ("all", ("t.csv",), 7.0)
    _, traffic, rate = of({"isl": 10, "osl": 5}, rate_rps=7.0)
    assert (traffic.arguments, rate) == ((10.0, 5.0, 7.0), None)
    _, traffic, rate = of({}, workload="mooncake")
    assert (traffic.arguments, rate) == (("mooncake",), None)
    _, traffic, rate = of({})
    assert (traffic.arguments, rate) == (("azure-paper", 1.0), None)


def test_what_is_stated_of_a_server_is_what_its_scheduler_has():
    asked = SimulateAsked(seed=3, server={"model": "m", "gpu": "g"})
    stated = simulate_server._inputs(asked, [server("one", 2)])
    (told,) = stated.pop("servers")
    assert told == {
        "name": "one",
        "instances": 2,
        "scheduler": "scheduler of one",
        "slots_count": 64,
        "step_tokens": 4096,
        "kv_tokens": 80_000,
    }
    assert stated.keys() == {
        *("server", "trace", "workload", "rate_rps", "requests_count", "percentile", "steady", "seed")
    }
    assert stated["seed"] == 3 and stated["server"]["model"] == "m"


def test_a_table_of_servers_has_a_row_of_each_metric_of_each_pool(capsys):
    late = interval(8.0, Flag.OVERLOAD)
    found = Record(labels=["short", "long"], pools=[{"a_s": interval()}, {"a_s": late, "b_s": interval(2.0)}])
    found = Record(**vars(found), source="t.csv", rate_rps=7.0, requests_count=9, cut_count=0, restarts_count=0)
    simulate_server._show_played([server("one", 2)], found)
    (rows,) = terminal_tables(capsys.readouterr().out).values()
    first = {"pool": "short", "metric": "a_s", "value": "0.5", "95% low": "0.25", "95% high": "1", "note": ""}
    assert rows[0] == first and list(rows[0]) == list(first)
    assert [*rows[1].values()] == ["long", "a_s", "8", "4", "16", "waits keep growing"]
    assert [*rows[2].values()] == ["long", "b_s", "2", "1", "4", ""]
    assert simulate_server._overloaded(found)
    assert not simulate_server._overloaded(Record(pools=[{"a_s": interval(flags=Flag.EXTRAPOLATED)}]))


def test_a_log_beside_its_simulation_metric_by_metric_and_law_by_law(capsys):
    law = lambda base: Record(base_s=base, per_request_s=2.5e-5, per_prompt_token_s=7.5e-6, apart_frac=base)
    metrics = [Record(name=n, simulated_s=k, measured_s=k / 2, error_frac=-k / 10) for k, n in ((1.0, "a"), (2.0, "b"))]
    found = Record(requests_count=1200, metrics=metrics, measured_law=law(8e-3), simulated_law=law(4e-3), slower=1.5)
    simulate_server._show_compared(server("one", 2), found)
    out = capsys.readouterr().out
    ((title, rows),) = terminal_tables(out).items()
    assert title == "1,200 requests on one" and [*rows[0]] == ["metric", "simulated", "measured", "error"]
    assert [[*row.values()] for row in rows] == [["a", "1", "0.5", "-10.0%"], ["b", "2", "1", "-20.0%"]]
    each = "ms + 25 us a request that decodes + 7.5 us a prompt token"
    assert out.splitlines()[-3:] == [
        f"a step of 8 {each} would explain the log (0.8% of the duration between their tokens)",
        f"a step of 4 {each} is the calibrated one (0.4% of the duration between their tokens)",
        "the calibrated steps, 1.5 times as long, come closest to the log",
    ]


def test_rows_of_requests_are_written_with_their_columns_and_nothing_is_where_there_is_none(tmp_path):
    out = tmp_path / "x.csv"
    simulate_server._write(out, [])
    simulate_server._write(None, [{"a": 1}])
    assert not out.exists()
    simulate_server._write(out, [{"a": "x", "b": 1 / 3, "c": 7}, {"a": "y", "b": math.nan, "c": 8}])
    assert out.read_text() == "a,b,c\nx,0.333333,7\ny,,8\n"
    simulate_server._write(out, [{"a": 1}])
    assert out.read_text() == "a\n1\n"


def test_the_first_request_of_each_pool_is_the_first_of_its_rows():
    names = ("arrival_s", "ttft_s", "tpot_s", "e2e_s", "wait_s")
    of = lambda k, many: Record(
        output_tokens=np.arange(many) + k,
        restarts=np.arange(many),
        **{name: np.arange(many) / 2 + k + n for n, name in enumerate(names)},
    )
    served = [(np.array([10, 20]), of(100, 2)), (np.array([30]), of(200, 1))]
    rows = simulate_server._played_rows(Record(labels=["short", "long"], served=served))
    assert [(row["pool"], row["input_tokens"], row["output_tokens"]) for row in rows] == [
        ("short", 10, 100),
        ("short", 20, 101),
        ("long", 30, 200),
    ]
    assert list(rows[0]) == ["pool", "arrival_s", "input_tokens", "output_tokens", *names[1:], "restarts"]
    log = Record(ids=["a", "b"], input_tokens=np.array([10, 20]))
    both = simulate_server._compared_rows(Record(log=log, measured=of(100, 2), simulated=of(300, 2)))
    both_of = [f"{kind}_{name}" for name in names[1:4] for kind in ("simulated", "measured")]
    assert list(both[0]) == ["request_id", "arrival_s", "input_tokens", "output_tokens", *both_of]
    assert (both[0]["simulated_ttft_s"], both[0]["measured_ttft_s"]) == (301.0, 101.0)


def test_a_log_that_names_no_model_needs_one():
    with pytest.raises(InputError, match="neither --model nor the log's meta"):
        ServerTable(gpu="g", replay="log").server(1, {})
    made = ServerTable(model="m", gpu="g").server(1, {})
    options = {"backend": "vllm"}
    assert made.options == options and made.label == "server"  # the rest is left to the library
    assert made.arguments[2].options == {"tp": 1, "dp": 1, "ep": 1}
    many = ServerTable(model="m", gpu="g", dp=3, ep=5, gpu_file="f", kv_dtype="k", weight_dtype="w").server(2, {})
    assert many.options == options | {"instances": 2, "gpu_file": "f", "kv_dtype": "k", "weight_dtype": "w"}
    assert many.arguments[2].options == {"tp": 1, "dp": 3, "ep": 5}
    started = {"max_num_seqs": "48", "max_num_batched_tokens": 2048.0, "tensor_parallel_size": 2}
    of_log = ServerTable(model="m", gpu="g").server(1, started)
    assert of_log.options == options | {"max_num_seqs": 48, "max_num_batched_tokens": 2048}
    assert of_log.arguments[2].options["tp"] == 2
    own = ServerTable(model="m", gpu="g", tp=4, max_num_seqs=16, max_num_batched_tokens=512).server(1, started)
    assert own.options == options | {"max_num_seqs": 16, "max_num_batched_tokens": 512}
    assert own.arguments[2].options["tp"] == 4
    effects = ServerTable(model="m", gpu="g", calibration="c", utilization_frac=0.8).server(1, {}).options
    assert effects.pop("effects").arguments == ("c",) and effects == options | {"utilization": 0.8}
    log = {"release": "0.9", "tensor_parallel_size": None}
    assert ServerTable(model="m", gpu="g").server(1, log).options["release"] == "0.9"
    assert "release" not in ServerTable(model="m", gpu="g", backend="sglang").server(1, log).options


def test_a_share_of_memory_ends_at_all_of_it():
    assert ServerTable(model="m", gpu="g", utilization_frac=1.0).utilization_frac == 1.0
    for wrong in (0.0, 1.01):
        with pytest.raises(ValueError, match="utilization_frac"):
            ServerTable(model="m", gpu="g", utilization_frac=wrong)
