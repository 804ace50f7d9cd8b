"""`dmodels catalog`: lists and single entries, as tables and as JSON."""

from __future__ import annotations

import json

import pytest

from dmodels import Workload, catalog
from dmodels.cli import catalog as command
from dmodels.cli import main
from tests.audit.shown import terminal_tables
from tests.audit.terminal import audit_shown


def run(capsys, *argv):
    code = main(["catalog", *argv])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("what", ["gpus", "models", "fabrics"])
def test_lists_show_every_entry(capsys, what):
    code, text, _ = run(capsys, what)
    assert code == 0
    document = json.loads(run(capsys, what, "--json")[1])
    assert set(document["result"][what]) == set(getattr(catalog, what)())
    audit_shown(document, text)


def test_an_entry_has_a_line_for_each_fact_with_its_unit(capsys):
    (lines,) = terminal_tables(run(capsys, "h100_sxm")[1]).values()
    facts = json.loads(run(capsys, "h100_sxm", "--json")[1])["result"]
    rows = {row[""]: (row["value"], row["unit"]) for row in lines}
    assert rows.keys() == {name for name, value in facts.items() if value not in ("", [])}
    assert (rows["tdp_w"], rows["gpus_per_node"], rows["name"]) == (("700", "W"), ("8", ""), ("h100_sxm", ""))


def test_workloads_are_listed_with_their_means(capsys):
    code, out, _ = run(capsys, "workloads", "--json")
    document = json.loads(out)
    found = document["result"]["workloads"]
    assert code == 0 and set(found) == set(catalog.workload_names())
    assert all(w["mean_input_tokens"] > 10 and w["mean_output_tokens"] > 5 and w["source"] for w in found.values())
    code, text, _ = run(capsys, "workloads")
    assert code == 0
    audit_shown(document, text)


def test_one_gpu_and_one_model(capsys):
    code, out, _ = run(capsys, "H200-SXM", "--json")
    assert code == 0 and json.loads(out)["result"]["hbm_bytes_per_s"] == 4.8e12
    code, out, _ = run(capsys, "openai/gpt-oss-120b", "--json")
    assert code == 0 and json.loads(out)["result"]["params_count"] == 116_829_156_672
    code, out, _ = run(capsys, "deepseek-v3")
    assert code == 0 and "671,026,419,200" in out and "70,272" in out


def test_unknown_names_and_files_are_bad_input(capsys):
    code, out, err = run(capsys, "h10000")
    assert (code, out) == (2, "") and "h100_sxm" in err
    code, out, err = run(capsys, "gpus", "--gpu-file", "none.csv")
    assert (code, out) == (2, "") and "none.csv" in err


def test_a_users_file_is_listed(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[h100_sxm]\nprice_usd_per_hour = 1.23\n")
    code, out, _ = run(capsys, "h100", "--gpu-file", str(path), "--json")
    assert code == 0 and json.loads(out)["result"]["price_usd_per_hour"] == 1.23


@pytest.mark.parametrize("argv", [["gpus"], [], ["workloads"], ["h100_sxm"], ["qwen3-8b"]])
def test_the_printed_call_gives_what_the_command_shows(capsys, argv, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[h100_sxm]\nprice_usd_per_hour = 1.23\n")
    code, out, _ = run(capsys, *argv, "--gpu-file", str(path), "--show-python")
    names: dict = {}
    exec(out, names)
    assert code == 0
    if "gpus" in names:
        assert names["gpus"]["h100_sxm"]["price_usd_per_hour"] == 1.23
    elif argv == ["h100_sxm"]:
        assert names["found"]["price_usd_per_hour"] == 1.23
    else:
        assert names.get("workloads") == catalog.workload_names() if argv == ["workloads"] else names["found"]


def test_published_traffic_has_its_published_means(capsys):
    """Azure's traces of 2023 (Splitwise): 211 tokens of answer to 1,155 in a conversation, 28 to 2,048 of code."""
    found = json.loads(run(capsys, "workloads", "--json")[1])["result"]["workloads"]
    for name, isl, osl in (("azure-conv", 1155, 211), ("azure-code", 2048, 28)):
        told = found[name]["mean_input_tokens"], found[name]["mean_output_tokens"]
        assert told == pytest.approx((isl, osl), rel=0.02)


def test_a_list_of_gpus_has_these_columns_in_these_units():
    """An H100: 80 GiB at 3.35 TB/s, half the rate of FP8 in BF16, no FP4, NVLink one way, 400 Gbit/s, 700 W."""
    gpu = {"memory_bytes": 80 * 2**30, "hbm_bytes_per_s": 3.35e12, "peak_flop_per_s": 989e12, "tdp_w": 700}
    gpu |= {"peak_fp8_flop_per_s": 1979e12, "nvlink_bytes_per_s_oneway": 450e9, "price_usd_per_hour": 2.69}
    gpu |= {"nic_bytes_per_s_per_gpu_oneway": 50e9, "gpus_per_node": 8}
    title, head, rows = command._gpus({"h100": gpu, "other": {"peak_fp4_flop_per_s": 9e15}})
    assert title == "GPUs (dense rates; links one direction, per GPU; approximate list prices)"
    units = ["GiB", "HBM TB/s", "BF16 TFLOP/s", "FP8", "FP4", "scale-up GB/s", "NIC Gbit/s", "domain", "W", "$/h"]
    assert head == ["GPU", *units]
    assert rows[0] == ["h100", 80, 3.35, 989, 1979, "-", 450, 400, 8, 700, 2.69]
    assert rows[1] == ["other", "-", "-", "-", "-", 9000, "-", "-", "-", "-", "-"]


def test_lists_of_models_fabrics_and_workloads_have_these_columns_in_these_units():
    model = {"params_count": 671e9, "active_params_count": 37e9, "weight_bytes": 2**39, "kv_bytes_per_token": 70_272}
    found = command._models({"m": model | {"max_context_tokens": 163_840, "hf_id": "a/m"}})
    assert found[0] == "Models (KV bytes per token of a long sequence, at tp = 1)"
    units = ["parameters, 1e9", "active", "weights GiB", "KV bytes/token", "context", "Hugging Face id"]
    assert found[1:] == (["model", *units], [["m", 671, 37, 512, 70_272, 163_840, "a/m"]])
    fabric = {"bytes_per_s_oneway": 50e9, "latency_s": 2e-6, "scope": "GPU", "source": "a page", "date": "2025-01"}
    assert command._fabrics({"ib": fabric}) == (
        "Fabrics",
        ["fabric", "GB/s one way", "latency us", "per", "source", "date"],
        [["ib", 50, 2, "GPU", "a page", "2025-01"]],
    )
    traffic = {"mean_input_tokens": 1155.0, "mean_output_tokens": 211.0, "rate_rps": 5.5, "source": "a trace"}
    assert command._workloads({"conv": traffic}) == (
        "Workloads",
        ["workload", "mean input tokens", "mean output", "req/s", "source"],
        [["conv", 1155, 211, 5.5, "a trace"]],
    )


def test_the_facts_of_a_workload_are_its_means_by_weight(monkeypatch):
    """A quarter of 100 + 10 tokens and three quarters of 300 + 50."""
    mix = Workload([100.0, 300.0], [10.0, 50.0], [0.25, 0.75], rate_rps=3.0)
    monkeypatch.setattr(catalog, "workload", lambda name: mix)
    monkeypatch.setattr(catalog, "workload_source", lambda name: f"where {name} is from")
    told = {"mean_input_tokens": 250.0, "mean_output_tokens": 40.0, "rate_rps": 3.0, "source": "where a is from"}
    assert command._workload_facts(["a"]) == {"a": told}


def test_the_sizes_of_a_model_are_added_to_what_is_known_of_it(monkeypatch):
    """Qwen3 8B: 8.19e9 parameters of two bytes, 36 layers of 8 heads of 128 in two bytes, keys and values."""
    found = command._sized_models({"qwen3-8b": {"hf_id": "a/b", "weight_bytes": "mine"}})["qwen3-8b"]
    assert found.keys() == {
        *("params_count", "active_params_count", "weight_bytes"),
        *("kv_bytes_per_token", "max_context_tokens", "hf_id"),
    }
    assert found["params_count"] == 8_190_735_360 and found["weight_bytes"] == "mine"
    assert found["active_params_count"] == 8_190_735_360 - 151_936 * 4096  # a token looks its embedding up
    assert found["kv_bytes_per_token"] == 2 * 36 * 8 * 128 * 2 and found["max_context_tokens"] == 40_960
    sizes = command._sizes(catalog.model("qwen3-8b"))
    assert sizes["weight_bytes"] == 2 * 8_190_735_360 and sizes["kv_bytes_per_token"] == 147_456


def test_without_a_word_gpus_and_models_are_listed_and_a_file_is_of_gpus(capsys, monkeypatch):
    shown, asked = [], []
    fake = lambda title: ("builtins:str", lambda value: f"{value}!", lambda found: (title, [""], [[found]]))
    monkeypatch.setattr(command, "LISTS", {name: fake(name) for name in ("gpus", "models", "fabrics", "workloads")})
    monkeypatch.setattr(command.render, "show", lambda tables: shown.append([*tables]))
    monkeypatch.setattr(command.render, "as_json", lambda *told: asked.append(told) or "{}")
    assert run(capsys, "--gpu-file", "x.csv")[0] == 0 == run(capsys, "fabrics", "--gpu-file", "x.csv")[0]
    assert shown == [[("gpus", [""], [["x.csv!"]]), ("models", [""], [["!"]])], [("fabrics", [""], [["!"]])]]
    assert run(capsys, "--json") == (0, "{}\n", "")
    assert asked == [("catalog", {"what": "gpus, models", "gpu_file": None}, {"gpus": "!", "models": "!"})]
    assert run(capsys, "--gpu-file", "x.csv", "--show-python")[1] == "\ngpus = str('x.csv')\n\nmodels = str()\n"


def test_a_file_that_cannot_be_read_is_told_of_whatever_is_asked(capsys):
    code, out, err = run(capsys, "qwen3-8b", "--gpu-file", "none.csv")
    assert (code, out) == (2, "") and "none.csv" in err


def test_one_entry_is_asked_for_and_told_by_its_own_name(capsys, monkeypatch):
    """Lists with commas; what is empty has no line."""
    facts = {"name": "mine", "source": "", "aliases": (), "spellings": ("a", "b"), "tdp_w": 1234.0, "layers": [1, 2]}
    monkeypatch.setattr(catalog, "gpu_facts", lambda name, file: facts | {"name": f"{name} of {file}"})
    shown = []
    monkeypatch.setattr(command.render, "show", lambda tables: shown.append([*tables]))
    assert run(capsys, "x", "--gpu-file", "y.csv")[0] == 0
    rows = [["name", "x of y.csv", ""], ["spellings", "a, b", ""], ["tdp_w", "1,234", "W"], ["layers", "1, 2", ""]]
    assert shown == [[("x of y.csv", ["", "value", "unit"], rows)]]
    monkeypatch.undo()
    code, _, err = run(capsys, "gps")
    assert code == 2 and err.startswith("dmodels: GPU or model 'gps' is unknown; the nearest are gpus")
