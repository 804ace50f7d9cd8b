"""`dmodels claims`: the ledger as a list, one entry with its check, and what is left without the source tree."""

from __future__ import annotations

import json
import subprocess
import sys

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


def test_all_claims_or_one_are_asked_for_and_stated(handed, monkeypatch, capsys):
    monkeypatch.setattr(claims, "check", lambda page: (page != "x.py", f"ran {page}"))
    monkeypatch.setattr(claims, "_show", lambda entry, line: (entry["id"], line))
    monkeypatch.setattr(claims, "_list", lambda entry: entry["id"])
    entry = {"id": "X-1", "page": "x.py", "says": "so"}
    before = entry | {"check": {"passed": None, "line": "not run"}}
    assert run(capsys, "X-1")[0] == 0
    assert (handed.call.target, handed.call.arguments) == ("dmodels:catalog.claim", ("X-1",))
    assert handed.inputs(entry) == {"name": "X-1", "run": True}
    assert handed.result(entry) == before and handed.feasible(entry) is True
    handed.write(entry)
    assert handed.result(entry) == entry | {"check": {"passed": False, "line": "ran x.py"}}
    assert handed.feasible(entry) is False and handed.show(entry) == ("X-1", "ran x.py")
    assert run(capsys, "X-1", "--no-run")[0] == 0
    assert handed.inputs(entry)["run"] is False and handed.feasible(entry) is True
    handed.write(entry)
    assert handed.result(entry) == before and handed.feasible(entry) is True
    for more, verdict in (([], ()), (["--verdict", "proved"], ("proved",))):
        assert run(capsys, *more)[0] == 0
        assert (handed.call.target, handed.call.arguments) == ("dmodels:catalog.claims", verdict)
        assert handed.inputs(entry) == {"verdict": "".join(verdict)} and handed.write is None
        assert handed.result(entry) == entry and handed.show(entry) == "X-1"


def test_a_page_is_run_and_its_last_line_told(monkeypatch, tmp_path, capsys):
    """What a failure says goes to stderr; without pytest, and where it ends without a word, that is the line."""
    ran = []
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    (tmp_path / "x.py").write_text("")

    def done(code, out, err=""):
        made = subprocess.CompletedProcess([], code, out, err)
        monkeypatch.setattr(subprocess, "run", lambda line, **how: ran.append((line, how)) or made)
        return claims.check("x.py")

    assert done(0, "a\n\n== 2 passed in 1 s ==\n") == (True, "2 passed in 1 s")
    assert capsys.readouterr() == ("", "")
    assert done(1, "why\n= 1 failed =\n", "more\n") == (False, "1 failed")
    assert capsys.readouterr() == ("", "why\n= 1 failed =\nmore\n\n")
    assert done(4, "") == (False, "pytest ended with 4")
    line, how = ran[0]
    assert line == [sys.executable, "-m", "pytest", "--color=no", "-p", "no:cacheprovider", "x.py"]
    assert how == {"cwd": tmp_path, "capture_output": True, "text": True}
    monkeypatch.setattr(claims, "find_spec", lambda name: None if name == "pytest" else 1)
    assert claims.check("x.py") == (None, "not run: checks need pytest; install dmodels[test]")
    assert claims.check("y.py") == (None, "not run: the pages are in the source tree, not in the installed package")
    assert len(ran) == 3


def test_the_source_tree_is_where_the_package_is():
    assert (claims.__file__ or "").startswith(str(claims.ROOT / "dmodels"))
