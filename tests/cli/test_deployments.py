"""`dmodels plan --deploy` and `--from-deployment` as a person uses them."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main
from dmodels.cli.deployments import tables

pytestmark = pytest.mark.usefixtures("short_replays")
SMALL = [
    *("plan", "--model", "llama-3.1-8b", "--isl", "1000", "--osl", "100", "--rate", "20 req/s"),
    *("--tp", "1", "--gpu", "h100", "--no-split", "--no-sensitivity"),
]


def test_a_plan_is_written_for_a_tool_and_read_as_what_runs(tmp_path, capsys):
    out = tmp_path / "deploy"
    assert main([*SMALL, "--deploy", "kserve", "--out", str(out)]) == 0
    (path,) = out.iterdir()
    assert f"kserve: {path}\n" in capsys.readouterr().err
    assert "kind: LLMInferenceService" in path.read_text(encoding="utf-8")
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


def test_what_runs_stands_beside_the_plan():
    """A pool that prefills makes no tokens after the first; without a plan there is nothing to compare with."""
    pool = Record(name="prefill", instances=3, layout="h100 tp2", gpus=6, usd_per_hour=16.145, share_frac=0.25)
    pool.serves_rps, pool.ttft_s, pool.tpot_s = 12.34567, 0.43219, math.nan
    decode = Record(**vars(pool) | {"name": "decode", "share_frac": 1.0, "ttft_s": 0.5, "tpot_s": 0.0412345})
    now = Record(name="split", pools=[pool, decode], keeps_slo=False, serves_rps=12.34567, refused_frac=0.02, gpus=12)
    now.usd_per_hour, now.source = 32.29, "a trace with its own arrival times"
    (title, head, rows), (versus, _, lines) = tables(now, Record(gpus=8, usd_per_hour=1021.5))
    assert (
        title == "What runs now: split, in a replay of a trace with its own arrival times"
        and versus == "Now and the plan"
    )
    known = {"pool": "prefill", "servers": 3, "layout": "h100 tp2", "GPUs": 6, "USD/h": pytest.approx(16.145, abs=6e-3)}
    known |= {"requests": "25%", "serves [req/s]": 12.35, "TTFT [ms]": 432.2, "TPOT [ms]": "-"}
    assert dict(zip(head, rows[0], strict=True)) == known
    assert dict(zip(head, rows[1], strict=True)) == known | {
        "pool": "decode",
        "requests": "100%",
        "TTFT [ms]": 500,
        "TPOT [ms]": 41.23,
    }
    told = {
        "at the rate asked about": "does not keep the SLOs",
        "most that it serves [req/s]": 12.35,
        "requests beyond its context": "2%",
    }
    plan = {"GPUs, now and planned": "12 and 8", "USD/h, now and planned": "32.29 and 1,021.50"}
    assert dict(lines) == told | plan and dict(list(tables(now, None))[1][2]) == told
    now.keeps_slo, now.refused_frac = True, 0.0
    good = {"at the rate asked about": "keeps the SLOs", "most that it serves [req/s]": 12.35}
    assert dict(list(tables(now, None))[1][2]) == good
