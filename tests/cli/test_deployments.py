"""`dmodels plan --deploy` and `--from-deployment` as a person uses them."""

from __future__ import annotations

import json

import pytest

from dmodels.cli import main

SMALL = [
    *("plan", "--model", "llama-3.1-8b", "--isl", "1000", "--osl", "100", "--rate", "20 req/s"),
    *("--tp", "1", "--gpu", "h100", "--no-split", "--no-sensitivity"),
]


def test_a_plan_is_written_for_a_tool_and_read_as_what_runs(tmp_path, capsys):
    out = tmp_path / "deploy"
    assert main([*SMALL, "--deploy", "kserve", "--out", str(out)]) == 0
    (path,) = out.iterdir()
    assert str(path) in capsys.readouterr().err and "kind: LLMInferenceService" in path.read_text(encoding="utf-8")
    assert main([*SMALL, "--from-deployment", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    now = result["running_now"]
    assert now["keeps_slo"] and now["gpus"] == result["recommended"]["fleet_gpus"] and now["serves_rps"] > 20
    assert main([*SMALL, "--from-deployment", str(out)]) == 0
    assert "What runs now" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, why",
    [
        (["--deploy", "helm"], "--deploy helm: accepted are llm-d, kserve, dynamo, ray"),
        (["--deploy", "llm-d"], "--out FOLDER is needed with it"),
        (["--deploy", "llm-d", "--out", "page.html"], "--out FOLDER is needed with it, not page.html"),
        (["--deploy", "ray", "--backend", "sglang", "--out", "x"], "Ray Serve LLM runs vllm, not sglang"),
        (["--deploy", "lines", "--weights", "int4", "--out", "x"], "published in bf16: --checkpoint names one in int4"),
        (["--from-deployment", "nowhere.yaml"], "nowhere.yaml: No such file"),
    ],
)
def test_mistakes_are_one_line(options, why, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, *options]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert why in error
    assert not list(tmp_path.iterdir())
