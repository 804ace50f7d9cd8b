"""`dmodels plan --deploy` and `--from-deployment` as a person uses them."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main
from dmodels.cli.deployments import Deployments, tables
from dmodels.core.errors import InputError

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


SERVES = {"serves_rps": 12.34567, "ttft_s": 0.43219, "tpot_s": 0.0412345}


def test_the_table_of_what_runs_has_these_columns_and_rows_in_this_order():
    pool = Record(name="all", instances=3, layout="tp2", gpus=6, usd_per_hour=16.145, share_frac=0.25, **SERVES)
    now = Record(
        name="split", pools=[pool], keeps_slo=True, serves_rps=9.0, refused_frac=0.02, gpus=6, usd_per_hour=3.0
    )
    now.source = "a trace"
    (title, head, rows), (versus, none, lines) = tables(now, Record(gpus=8, usd_per_hour=4.0))
    assert head == [
        "pool",
        "servers",
        "layout",
        "GPUs",
        "USD/h",
        "requests",
        "serves [req/s]",
        "TTFT [ms]",
        "TPOT [ms]",
    ]
    assert rows == [["all", 3, "tp2", 6, 16.14, "25%", 12.35, 432.2, 41.23]]
    assert (title, versus, none) == ("What runs now: split, in a replay of a trace", "Now and the plan", ["", ""])
    assert lines == [
        ["at the rate asked about", "keeps the SLOs"],
        ["most that it serves [req/s]", 9.0],
        ["requests beyond its context", "2%"],
        ["GPUs, now and planned", "6 and 8"],
        ["USD/h, now and planned", "3.00 and 4.00"],
    ]


def test_a_deployment_needs_a_folder_that_can_be_written(tmp_path):
    def refused(*given):
        with pytest.raises(InputError) as told:
            Deployments(*given).check()
        return str(told.value)

    Deployments().check()
    Deployments(None, None, (tmp_path,)).check()
    Deployments("ray", tmp_path / "new" / "folder").check()
    assert list(tmp_path.iterdir()) == []
    accepted = "accepted are llm-d, kserve, dynamo, ray, keda, lines"
    assert refused("helm", tmp_path).startswith(f"--deploy helm: {accepted[:35]}")
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "x.html", tmp_path / "x.htm", tmp_path / "file"):
        assert refused("ray", folder) == f"--deploy ray: --out FOLDER is needed with it, not {folder}"
    assert "cannot be written" in refused("ray", tmp_path / "file" / "x")


def test_the_files_of_a_deployment_are_written_where_something_is_feasible(monkeypatch, tmp_path, capsys):
    from dmodels.formats import deployments as forms
    from dmodels.studies import plan

    monkeypatch.setattr(plan, "serving", lambda best, question: f"{best} for {question}")
    files = {"a.yaml": "of", "b.yaml": "more of"}
    wrote = lambda serving, form: {name: f"{text} {serving}, {form}" for name, text in files.items()}
    monkeypatch.setattr(forms, "write_deployment", wrote)
    found = Record(best="the fleet", question="it")
    Deployments("ray", tmp_path / "x").write(found)
    told = {path.name: path.read_text() for path in (tmp_path / "x").iterdir()}
    assert told == {name: f"{text} the fleet for it, ray" for name, text in files.items()}
    assert capsys.readouterr() == ("", f"ray: {tmp_path / 'x' / 'a.yaml'}\nray: {tmp_path / 'x' / 'b.yaml'}\n")
    for asked, best in ((Deployments("ray", tmp_path / "y"), None), (Deployments(None, tmp_path / "y"), 1)):
        asked.write(Record(best=best, question="it"))
    Deployments("ray", None).write(found)
    assert not (tmp_path / "y").exists() and capsys.readouterr().err == ""


def test_what_runs_is_read_and_asked_where_it_is_named(monkeypatch, tmp_path):
    from dmodels.formats import deployments as forms
    from dmodels.studies.plan import existing

    monkeypatch.setattr(forms, "read_deployment", lambda paths: ("read", paths))
    monkeypatch.setattr(existing, "existing", lambda asked, runs: (asked, runs))
    assert Deployments().existing("question") is None
    assert Deployments(running=(tmp_path,)).existing("question") == ("question", ("read", (tmp_path,)))
    assert Deployments() == Deployments(None, None, ())
