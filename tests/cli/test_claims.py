"""`dmodels claims`: the ledger as a list, one entry with its check, and what is left without the source tree."""

from __future__ import annotations

import json
import subprocess

import pytest

from dmodels import catalog
from dmodels.cli import claims, main


def run(capsys, *argv):
    code = main(["claims", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_list_has_every_claim_and_can_be_narrowed(capsys):
    code, out, _ = run(capsys)
    assert code == 0 and all(name in out for name in catalog.claims())
    _, out, _ = run(capsys, "--verdict", "refuted", "--json")
    refuted = json.loads(out)["result"]
    assert "POA-4.2" in refuted and {entry["verdict"] for entry in refuted.values()} == {"REFUTED"}
    assert all(entry["counterexample"] and entry["means"] for entry in refuted.values())


def test_an_entry_says_where_it_ends_and_what_follows_and_runs_its_check(capsys):
    code, out, _ = run(capsys, "nk-p2b")
    words = " ".join(out.split())
    assert code == 0 and "refuted" in words and "95 % full" in words and "no blind spot" in words
    assert "2 passed" in words and "prop_nk_p2b.py" in words


def test_a_check_that_fails_is_exit_code_1(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    page = tmp_path / catalog.claim("NK-P2b")["page"]
    page.parent.mkdir(parents=True)
    page.write_text("def test_no():\n    assert 1 == 2\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npython_files = prop_*.py\n")
    code, out, err = run(capsys, "NK-P2b", "--json")
    assert code == 1 and "1 failed" in json.loads(out)["result"]["check"]["line"] and "assert 1 == 2" in err


def test_without_the_source_tree_the_entry_is_shown_and_the_check_is_not(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing to run"))
    code, out, _ = run(capsys, "POA-4.2")
    assert code == 0 and "source tree" in out and "identical workers" in " ".join(out.split())
    assert json.loads(run(capsys, "POA-4.2", "--json")[1])["result"]["check"]["passed"] is None


def test_no_run_shows_only(capsys, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing to run"))
    assert run(capsys, "TB-1", "--no-run")[0] == 0


def test_unknown_ids_and_verdicts_are_bad_input(capsys):
    for argv in (("TB-99",), ("--verdict", "maybe")):
        code, out, err = run(capsys, *argv)
        assert (code, out) == (2, "") and argv[-1] in err and err.count("\n") == 1


def test_the_library_call_is_shown(capsys):
    _, out, _ = run(capsys, "TB-1", "--show-python")
    namespace = {}
    exec(out.replace("catalog.claim(", "found = catalog.claim("), namespace)
    assert namespace["found"]["id"] == "TB-1"
