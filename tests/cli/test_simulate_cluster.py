"""`dmodels simulate --prefill-instances`: Phasor and its baselines from the command line."""

from __future__ import annotations

import json

import pytest

from dmodels.cli import main
from dmodels.core.flags import Flag

FAST = [
    "simulate",
    "--workload",
    "azure-conv",
    "--rate",
    "20 req/s",
    "--prefill-instances",
    "2",
    "--instances",
    "3",
    "--slots",
    "64",
    "--requests",
    "1500",
    "--precision",
    "0.9",
]


@pytest.mark.parametrize("policy", ["phasor", "queue-length"])
def test_json_carries_inputs_units_and_intervals(policy, capsys):
    assert main([*FAST, "--standby-instances", "1", "--policy", policy, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["policy"] == policy and document["inputs"]["rate_rps"] == 20
    ttft = document["result"]["ttft_p99_s"]
    assert 0 < ttft["low"] < ttft["high"] and ttft["samples"] >= 8
    assert (document["result"]["role_changes_count"]["value"] > 0) == (policy == "phasor")
    assert document["result"]["flags"] == 0  # a calm fleet


def test_hybrid_workers_take_prompts_in_chunks_beside_their_answers(capsys):
    assert main([*FAST, "--policy", "taichi", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["policy"] == "taichi" and document["result"]["tpot_mean_s"]["value"] > 0.008


@pytest.mark.parametrize("rate", ["400 req/s", "4000 req/s"])
def test_a_drowning_cluster_exits_with_one(rate, capsys):
    """Also where every run ends long before the first request is answered."""
    asked = [*FAST, "--policy", "freeness", "--rate", rate]
    assert main(asked) == 1
    assert "waits keep growing" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["result"]["flags"] == Flag.OVERLOAD


@pytest.mark.parametrize(
    ("policy", "counts"),
    [("queue-length", "REQUESTS"), ("token-backlog", "TOKENS"), ("memory", "MEMORY"), ("freeness", "WORK")],
)
def test_a_policy_looks_at_what_its_name_says(policy, counts, capsys):
    """A queue is long in requests, a backlog in tokens; Llumnix calls the work that fits freeness. Nobody moves."""
    assert main([*FAST, "--policy", policy, "--show-python"]) == 0
    shown = capsys.readouterr().out
    assert f"Signal.{counts}" in shown and "Flow.NONE" in shown


def test_taichis_decoders_read_prompts_in_quarters(capsys):
    assert main([*FAST, "--policy", "taichi", "--chunk", "1000", "--show-python"]) == 0
    assert "Hybrid(chunk_tokens=1000, decode_chunk_tokens=250)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("policy", "reads", "moves"),
    [
        ("phasor", "WORK", "FREENESS"),  # routes by the work that waits, and moves standby workers by freeness
        ("reactive", "REQUESTS", "REACTIVE"),
        ("freeness", "WORK", "NONE"),
        ("queue-length", "REQUESTS", "NONE"),
        ("token-backlog", "TOKENS", "NONE"),
        ("memory", "MEMORY", "NONE"),
    ],
)
def test_a_policy_reads_and_moves_what_its_name_says(policy, reads, moves, capsys):
    assert main([*FAST, "--policy", policy, "--show-python"]) == 0
    assert f"Control(Signal.{reads}, Flow.{moves}" in capsys.readouterr().out


def test_the_printed_call_runs(capsys):
    assert main([*FAST, "--policy", "phasor", "--show-python"]) == 0
    source = capsys.readouterr().out
    scope: dict = {}
    exec(compile(source, "call", "exec"), scope)
    assert scope["answer"]["ttft_p99_s"].value > 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--policy", "jsq"], "policy"),
        (["--short-instances", "2"], "prefill-instances"),
        (["--policy", "phasor", "--standby-instances", "-1"], "standby-instances"),
        (["--policy", "taichi", "--standby-instances", "1"], "standby-instances"),
    ],
)
def test_bad_input_is_one_line(options, word, capsys):
    assert main([*FAST, *options]) == 2
    message = capsys.readouterr().err.strip()
    assert word in message and len(message.splitlines()) == 1
