"""`dmodels size`: a table, JSON with units in its keys, exit codes, and the way out when nothing fits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main, size
from dmodels.core.flags import Flag, describe
from dmodels.core.units import GIB
from tests.audit.shown import terminal_tables


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


def sized(**more):
    """A size whose numbers all differ."""
    parts = ("embedding", "attention", "dense", "expert", "prepared", "unsplit")
    weights = Record(**{f"{part}_bytes": k * GIB for k, part in enumerate(parts, start=1)})
    slots = Record(flags=0, slots_count=1234.0, gpus=2.0, weight_bytes=31 * GIB, activation_bytes=11 * GIB)
    slots.runtime_bytes, slots.budget_bytes, slots.free_bytes = 12 * GIB, 13 * GIB, 5.0
    slots.sequence_bytes, slots.kv_bytes_per_token = 5.5 * 2**20, 65_536.0
    known = {"fits": True, "binds": "memory", "longest_context_tokens": 98_765, "mixed": None, "fixes": []}
    return Record(**known | {"slots": slots, "weights": weights, "have_bytes": 70 * GIB, "need_bytes": 80 * GIB} | more)


ASKED = {"model": "m", "gpu": "g", "parallel": "tp2", "context_tokens": 8192, "workload": "mix"}


def test_the_parts_of_memory_in_their_order_and_how_sure_each_is(capsys):
    found = sized()
    found.weights.expert_bytes = 0.0  # of a dense model
    size._show(ASKED, found)
    out = capsys.readouterr().out
    ((title, rows),) = terminal_tables(out).items()
    assert title == "m on 2 x g (tp2): memory of the fullest GPU"
    assert [list(row.values()) for row in rows] == [
        ["embedding and head", "1", "exact"],
        ["attention", "2", "exact"],
        ["dense FFNs, shared experts, routers", "3", "exact"],
        ["weights of unknown split", "6", "as given"],
        ["padding and absorbed projections", "5", "as its kernels store them"],
        ["activations and sampler", "11", "the engine's start-up run, within 20 %"],
        ["driver and communicators", "12", "median of engine logs, within 1 GiB"],
        ["left for the KV cache", "13", "the rest of the usable memory"],
    ]
    assert [*rows[0]] == ["", "GiB", "how sure"]
    assert out.splitlines()[-3:] == [
        "1,234 sequences of 8,192 tokens at once per instance of 2 GPUs",
        "  each 5.5 MiB per GPU; 65,536 bytes per token and GPU",
        "  what limits: memory; a single sequence could have 98,765 tokens",
    ]
    size._show(ASKED, sized())
    assert next(iter(terminal_tables(capsys.readouterr().out).values()))[3][""] == "routed experts"


def test_a_mix_of_lengths_and_a_context_that_is_too_long_are_told_below(capsys):
    mixed = Record(slots_count=1500, probability=0.99, mean_bytes=2.25 * 2**20, certain_count=1400)
    found = sized(mixed=mixed)
    found.slots.flags = int(Flag.EXTRAPOLATED)
    size._show(ASKED, found)
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "1,500 running sequences of mix fit with 99% probability",
        "  2.2 MiB per GPU each on average; normal law with skewness (1,400 by Bernstein)",
        f"  note: {describe(Flag.EXTRAPOLATED)} (the config's context is shorter)",
    ]


def test_what_does_not_fit_is_told_with_what_would(capsys):
    tells = [
        "Nothing fits: weights.",
        "  have  70.00 GiB of usable memory per GPU",
        "  need  80.00 GiB with one sequence of 8,192 tokens",
    ]
    size._show(ASKED, sized(fits=False, binds="weights", fixes=[Record(change="tp = 4", slots_count=1300)]))
    assert capsys.readouterr().out.splitlines()[-4:] == [*tells, "  fits with tp = 4: 1,300 at once"]
    size._show(ASKED, sized(fits=False, binds="weights"))
    no = "  no single change of precision, parallelism or context makes it fit"
    assert capsys.readouterr().out.splitlines()[-4:] == [*tells, no]


def test_the_document_of_a_size_part_by_part():
    found = sized(mixed="mixed", fixes="fixes")
    wanted = {
        "fits": True,
        "reasons": "ok",
        "sequences_per_instance_count": 1234.0,
        "instance_gpus": 2.0,
        "binds": "memory",
        "longest_context_tokens": 98_765,
        "per_gpu": {
            "weight_bytes": 31 * GIB,
            "activation_bytes": 11 * GIB,
            "runtime_bytes": 12 * GIB,
            "embedding_weight_bytes": GIB,
            "attention_weight_bytes": 2 * GIB,
            "dense_weight_bytes": 3 * GIB,
            "expert_weight_bytes": 4 * GIB,
            "prepared_weight_bytes": 5 * GIB,
            "kv_budget_bytes": 13 * GIB,
            "kv_sequence_bytes": 5.5 * 2**20,
            "kv_free_bytes": 5.0,
            "kv_bytes_per_token": 65_536.0,
        },
        "mixed_lengths": "mixed",
        "have_bytes": 70 * GIB,
        "need_bytes": 80 * GIB,
        "fixes": "fixes",
    }
    made = size._result(found)
    assert made == wanted and [*made] == [*wanted] and [*made["per_gpu"]] == [*wanted["per_gpu"]]


def test_a_size_is_called_with_each_option_as_its_own_argument():
    asked = {"model": "m", "gpu": "g", "tp": 2, "pp": 3, "dp": 4, "ep": 8, "context_tokens": 5000, "workload": "w"}
    asked |= {"utilization_frac": 0.8, "block_tokens": 32, "batched_tokens": 4096, "max_num_seqs": 77, "gpu_file": "f"}
    made = size.SizeAsked(**asked, weight_dtype="FP8", kv_dtype="Fp4", backend="sglang", release="0.5").call()
    model, gpu, parallel, context, workload = made.arguments
    assert (model.target, model.arguments[1]) == ("dmodels.models.memory:with_kv_dtype", "fp4")
    inner = model.arguments[0]
    assert (inner.target, inner.arguments[1]) == ("dmodels.models.memory:with_weight_dtype", "fp8")
    assert inner.arguments[0].arguments == ("m",) and gpu.arguments == ("g", "f") and workload.arguments == ("w",)
    assert parallel.options == {"tp": 2, "pp": 3, "dp": 4, "ep": 8} and context == 5000
    sizes, engine = {"block_tokens": 32, "batched_tokens": 4096}, {"backend": "sglang", "release": "0.5"}
    assert made.options == {"utilization": 0.8, "max_sequences": 77} | sizes | engine
    plain = size.SizeAsked(model="m", gpu="g").call()
    assert len(plain.arguments) == 4 and plain.arguments[0].arguments == ("m",)
    defaults = {"block_tokens": 16, "batched_tokens": 8192, "backend": "vllm", "release": ""}
    assert (
        plain.options == defaults
        and size.SizeAsked(model="m", gpu="g", tp=2, pp=3, dp=4, ep=5).layout == "tp2pp3dp4ep5"
    )


def test_a_size_states_what_was_asked_and_shows_it(handed, monkeypatch):
    monkeypatch.setattr(size, "_show", lambda inputs, found: (inputs["gpu"], found))
    asked = "size --model qwen3-8b --gpu h200 --tp 2 --utilization 0.01 --weight-dtype fp8"
    assert main(asked.split()) == 0 and handed.call.target == "dmodels.studies.size:size"
    stated = handed.inputs(None)
    assert (stated["utilization_frac"], stated["parallel"]) == (0.01, "tp2pp1dp1ep1")
    assert (stated["weight_dtype"], stated["kv_dtype"]) == ("fp8", "as published")
    assert [handed.feasible(sized(fits=fits)) for fits in (True, False)] == [True, False]
    assert handed.result is size._result and handed.show("found") == ("h200_sxm", "found") and handed.write is None
