"""`dmodels size`: a table, JSON with units in its keys, exit codes, and the way out when nothing fits."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from dmodels.cli import main


def run(capsys, *argv):
    code = main(["size", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_size_that_fits(capsys):
    code, out, err = run(capsys, "--model", "llama-3.1-70b", "--gpu", "h100", "--tp", "8", "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["inputs"]["gpu"] == "h100_sxm" and answer["inputs"]["parallel"] == "tp8pp1dp1ep1"
    result = answer["result"]
    assert result["per_gpu"]["kv_bytes_per_token"] == 40_960
    assert result["per_gpu"]["kv_sequence_bytes"] == 320 * 2**20
    assert result["instance_gpus"] == 8
    per_gpu = result["per_gpu"]
    parts = ("embedding", "attention", "dense", "expert")
    assert sum(per_gpu[f"{part}_weight_bytes"] for part in parts) == pytest.approx(per_gpu["weight_bytes"])
    used = per_gpu["weight_bytes"] + per_gpu["activation_bytes"] + per_gpu["runtime_bytes"]
    assert used + per_gpu["kv_budget_bytes"] == pytest.approx(0.9 * 79.18 * 2**30)
    slots = result["sequences_per_instance_count"]
    assert slots == per_gpu["kv_budget_bytes"] // per_gpu["kv_sequence_bytes"] > 100


def test_the_table_names_the_parts_and_the_instance(capsys):
    code, out, _ = run(capsys, "--model", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--workload", "azure-conv")
    assert code == 0
    for words in ("8 x h200_sxm", "routed experts", "engine logs", "per instance of 8 GPUs", "azure-conv", "99%"):
        assert words in out
    parts = [
        "embedding and head",
        "attention ",
        "dense FFNs",
        "routed experts",
        "padding",
        "activations",
        "driver",
        "left",
    ]
    assert (places := [out.index(part) for part in parts]) == sorted(places)  # weights, what runs, and the cache


def test_what_does_not_fit_says_have_need_and_the_way_out(capsys):
    code, out, _ = run(capsys, "--model", "llama-3.1-70b", "--gpu", "h100", "--json")
    assert code == 1
    result = json.loads(out)["result"]
    assert result["have_bytes"] < result["need_bytes"]
    assert {"tp = 4", "weights in FP4"} <= {fix["change"] for fix in result["fixes"]}
    for change in (["--tp", "4"], ["--weight-dtype", "fp4"]):  # and each does what it says
        code, out, _ = run(capsys, "--model", "llama-3.1-70b", "--gpu", "h100", "--json", *change)
        assert code == 0
        slots = json.loads(out)["result"]["sequences_per_instance_count"]
        assert slots in [fix["slots_count"] for fix in result["fixes"]]


def test_a_shorter_context_fits_as_often_as_is_said_on_all_ranks(capsys):
    args = ("--model", "llama-3.1-8b", "--gpu", "l4", "--dp", "2", "--json", "--context")
    (fix,) = [x for x in json.loads(run(capsys, *args, "65536")[1])["result"]["fixes"] if "context" in x["change"]]
    shorter = re.search(r"a context of ([\d,]+) tokens", fix["change"])[1].replace(",", "")
    again = json.loads(run(capsys, *args, shorter)[1])["result"]
    assert again["sequences_per_instance_count"] == fix["slots_count"] >= 2


def test_a_context_that_is_too_long_is_shortened_to_one_that_fits(capsys):
    args = ("--model", "llama-3.1-70b", "--gpu", "a100", "--tp", "2", "--json", "--context")
    code, out, _ = run(capsys, *args, "65536")
    result = json.loads(out)["result"]
    longest = result["longest_context_tokens"]
    assert code == 1 and 0 < longest < 65_536
    assert run(capsys, *args, str(longest))[0] == 0
    assert run(capsys, *args, str(longest + 1))[0] == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--model", "llama-9", "--gpu", "h100"], "nearest are"),
        (["--model", "qwen3-8b", "--gpu", "h1000"], "h100_sxm"),
        (["--model", "qwen3-8b", "--gpu", "h100", "--context", "0"], "--context 0"),
        (["--model", "qwen3-8b", "--gpu", "h100", "--tp", "-1"], "--tp -1"),
        (["--model", "qwen3-8b", "--gpu", "h100", "--utilization", "nan"], "--utilization nan"),
        (["--model", "qwen3-8b", "--gpu", "h100", "--kv-dtype", "fp3"], "KV dtype 'fp3'"),
        (["--model", "qwen3-8b", "--gpu", "h100", "--weight-dtype", "x"], "weight dtype 'x'"),
        (["--model", "qwen3-8b", "--gpu", "h100", "--workload", "x"], "workload 'x'"),
        (["--model", "./nowhere/config.json", "--gpu", "h100"], "nowhere"),
        (["--gpu", "h100"], "--model"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, argv, words):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert words in err and err.count("\n") == 1


def test_a_local_config_file_is_enough(capsys, tmp_path):
    from dmodels.catalog import model_config

    (tmp_path / "config.json").write_text(json.dumps(model_config("qwen3-8b")))
    code, out, _ = run(capsys, "--model", str(tmp_path), "--gpu", "l40s", "--json")
    assert code == 0 and json.loads(out)["result"]["per_gpu"]["kv_bytes_per_token"] == 147_456
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 3}')
    code, _, err = run(capsys, "--model", str(tmp_path), "--gpu", "l40s")
    assert code == 2 and "hidden_size" in err


def test_the_printed_python_runs(capsys):
    code, out, _ = run(capsys, "--model", "qwen3-8b", "--gpu", "h100", "--kv-dtype", "fp8", "--show-python")
    assert code == 0
    assert subprocess.run([sys.executable, "-c", out], capture_output=True, check=False).returncode == 0
