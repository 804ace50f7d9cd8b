"""`dmodels step`: the table, the JSON, the picture, and refusals."""

from __future__ import annotations

import json

from dmodels.cli import main
from dmodels.report import step_figures

ASKED = ["step", "--model", "llama-3.1-70b", "--gpu", "h100"]


def test_the_step_as_a_table_as_json_and_as_a_picture(capsys, tmp_path, monkeypatch):
    titles, drawn = [], step_figures.figure
    monkeypatch.setattr(step_figures, "figure", lambda found, title: titles.append(title) or drawn(found, title))
    assert main([*ASKED, "--tp", "4", "--json", "--out", str(tmp_path / "step.png")]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert sum(o["seconds"] for o in result["operators"]) == result["step_s"]
    assert (tmp_path / "step.png").stat().st_size > 10_000 and titles == ["llama-3.1-70b on h100_sxm (tp4pp1dp1ep1)"]
    assert main([*ASKED, "--tp", "4", "--concurrency", "8"]) == 0
    out = capsys.readouterr().out
    assert "attention projections" in out and "output tokens a second" in out


def test_what_does_not_fit_is_an_answer(capsys):
    assert main(ASKED) == 1
    assert "Nothing fits" in capsys.readouterr().out


def test_refusals_name_the_option(capsys):
    assert main([*ASKED, "--backend", "vlm"]) == 2
    assert "backend 'vlm' is unknown" in capsys.readouterr().err
    assert main([*ASKED, "--out", "step.abc"]) == 2
    assert "--out step.abc" in capsys.readouterr().err
