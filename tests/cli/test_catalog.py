"""`dmodels catalog`: lists and single entries, as tables and as JSON."""

from __future__ import annotations

import json

import pytest

from dmodels import catalog
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
