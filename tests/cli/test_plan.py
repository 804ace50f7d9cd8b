"""`dmodels plan` as a person uses it: tables, JSON, report, exit codes, one line for bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmodels.cli import main, plan
from dmodels.cli.plan import Beside
from dmodels.report import plan_json, plan_notes
from tests.audit.asking import ask
from tests.audit.terminal import audit_shown

SMALL = ["plan", "--tp", "4,8", "--gpu", "h100", "--thresholds", "2048", "--rate", "20 req/s"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """JSON document and report of one small plan."""
    import contextlib
    import io

    out = tmp_path_factory.mktemp("plan") / "sub" / "plan.html"
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main([*SMALL, "--json", "--out", str(out)]) == 0
    return json.loads(text.getvalue()), out


def test_json_holds_inputs_units_and_version(planned):
    document, _ = planned
    assert document["command"] == "plan" and document["dmodels"]
    assert document["inputs"]["rate_rps"] == 20
    assert document["inputs"]["model"] == "llama-3.1-70b"
    best = document["result"]["recommended"]
    assert best["fleet_gpus"] == sum(p["pool_instances"] * p["gpus_per_instance"] for p in best["pools"])
    assert best["usd_per_hour"] == pytest.approx(sum(p["usd_per_hour"] for p in best["pools"]))
    assert best["ttft_ms"] <= 2000 and best["tpot_ms"] <= 80
    for pool in best["pools"]:
        low, high = pool["tpot_interval80_ms"]
        assert low < pool["tpot_ms"] < high
        assert pool["command"].startswith("vllm serve meta-llama/")


def test_the_report_is_one_self_contained_page(planned):
    _, out = planned
    page = out.read_text(encoding="utf-8")
    outside = re.findall(r'(?:src|href)="(?!#)[^"]*"|@import|url\((?!#)', page)
    assert [x for x in outside if "w3.org" not in x] == []
    assert page.count("<svg") >= 4 and page.count("</svg>") == page.count("<svg")
    assert "<script" not in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    labels = re.findall(r'<svg role="img" aria-label="[^"]+"', page)
    assert len(labels) == page.count("<svg")

    class Balanced(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, tag, attrs):
            if tag not in {"meta", "br", "link", "use", "path", "rect"}:
                self.open.append(tag)

        def handle_endtag(self, tag):
            if tag not in {"use", "path", "rect"}:
                assert self.open.pop() == tag

    parser = Balanced()
    parser.feed(page)
    assert parser.open == []


def test_show_python_prints_a_call_that_runs(capsys):
    assert main([*SMALL, "--show-python"]) == 0
    code = capsys.readouterr().out
    scope: dict = {}
    exec(code, scope)
    assert scope["answer"].best is not None


def test_a_config_json_of_ones_own_is_planned(tmp_path, capsys):
    from dmodels import catalog

    config = tmp_path / "mine" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(catalog.model_config("qwen3-32b")))
    assert main([*SMALL, "--model", str(config), "--no-sensitivity", "--no-split"]) == 0
    printed = capsys.readouterr().out
    assert "calibrated on this architecture" in printed and f"vllm serve {config.parent} " in printed.replace("\n", "")


def test_an_infeasible_plan_exits_with_1_and_names_the_fix(capsys):
    assert main([*SMALL, "--tpot", "1 ms", "--no-split", "--no-sensitivity"]) == 1
    out = capsys.readouterr().out
    assert "Nothing among" in out and "smallest fix: a TPOT SLO of" in out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--rate", "-5 req/s"], "--rate -5 req/s: input should be greater than 0"),
        (["--rate", "nan req/s"], "not a number"),
        (["--rate", "5"], "--rate '5': a unit is missing"),
        (["--gpu", "h1000"], "nearest are h100"),
        (["--model", "lama"], "nearest are llama"),
        (["--trace", "nofile.csv"], "nofile.csv: No such file"),
        (["--isl", "5"], "give both"),
        (["--isl", "5", "--osl", "5"], "--rate is missing"),
        (["--tp", "0"], "--tp 0: input should be greater than or equal to 1"),
        (["--weights", "fp9"], "nearest are fp8"),
        (["--backend", "vlm"], "nearest are vllm"),
        (["--ttft", "-1 s"], "--ttft -1 s"),
        (["--percentile", "2"], "--percentile 2"),
        (["--max-num-seqs", "x"], "--max-num-seqs"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(options, says, capsys):
    assert main(["plan", *options]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no usable request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,10,5\n2023-11-16 18:1", "cut off"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,9,5\n2023-11-16 18:15:45,9,5\n", "back in time"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,0,0\n", "at least 1"),
    ],
)
def test_broken_traces_are_one_line(text, says, tmp_path, capsys):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert main(["plan", "--trace", str(path)]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["azure_2023_conv.csv", "azure_2023_code.csv", "mooncake_conversation.jsonl"])
def test_the_raw_traces_are_planned(name, shared_data, capsys):
    options = ["--rate", "20 req/s", "--ttft-p99", "30 s", "--tpot-p99", "80 ms", "--gpu", "h100_sxm,h200_sxm"]
    assert main(["plan", "--trace", str(shared_data / name), "--model", "llama-3.1-70b", *options]) == 0
    assert "Deploy" in capsys.readouterr().out


def test_help_names_every_command_and_imports_nothing_heavy():
    code = (
        "import sys; from dmodels.cli import main; assert main(['--help']) == 0; "
        "assert not {'jax', 'numpy', 'typer', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    from dmodels.cli import COMMANDS

    assert all(f"  {name}" in done.stdout for name in COMMANDS)


def test_an_unknown_command_names_the_nearest(capsys):
    assert main(["plam"]) == 2
    assert "plan" in capsys.readouterr().err


@pytest.fixture
def short_config(tmp_path):
    """The example's model as if its context ended at 2,048 tokens."""
    config = json.loads((Path(__file__).parents[2] / "examples" / "data" / "our-model" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    return tmp_path / "config.json"


def test_requests_beyond_the_context_are_told_by_text_page_and_json(short_config, tmp_path):
    options = ["plan", "--model", str(short_config), "--rate", "10 req/s", "--tp", "4"]
    options += ["--gpu", "h100_sxm", "--thresholds", "1024", "--no-sensitivity", "--out", str(tmp_path / "plan.html")]
    found = ask(options)
    audit_shown(found.document, found.text)
    text, result, page = found.text, found.document["result"], (tmp_path / "plan.html").read_text(encoding="utf-8")
    (note,) = result["notes"]
    assert "2,048 tokens" in note and "not in the load" in note and "cut them off" in note
    assert note in text and note in page
    assert 0.05 < result["refused_frac"] < 0.5 and 0 < result["cut_off_frac"] < 0.1
    assert f"{100 * result['refused_frac']:.3g}% of them refused" in text
    for deployment in result["alternatives"]:
        assert all(pool["max_model_len_tokens"] <= 2048 for pool in deployment["pools"])
    assert not re.search(r"--max-model-len (?!2048|1024)", text)


def test_where_the_context_takes_no_request_nothing_is_planned(short_config, tmp_path, capsys):
    options = [
        "plan",
        "--model",
        str(short_config),
        "--rate",
        "10 req/s",
        "--isl",
        "2048",
        "--osl",
        "9",
        "--tp",
        "4",
        "--gpu",
        "h100_sxm",
        "--out",
        str(tmp_path / "plan.html"),
    ]
    assert main(options) == 1
    text, page = capsys.readouterr().out, (tmp_path / "plan.html").read_text(encoding="utf-8")
    for shown in (text, page):
        assert "a model with a longer context" in shown and "nothing is left to serve" in shown


def test_the_commands_are_those_of_the_engine_asked_for(capsys):
    for backend, start in (("sglang", "python3 -m sglang.launch_server --model-path"), ("trtllm", "trtllm-serve")):
        assert main([*SMALL, "--backend", backend, "--no-split", "--no-sensitivity"]) == 0
        out = capsys.readouterr().out
        assert start in out and "vllm serve" not in out


@pytest.fixture
def volleys(tmp_path) -> list[str]:
    """A trace of sixty requests at once, every minute, and the options of a small search on it."""
    rows = [f"{60 * k + 0.01 * i},2000,20" for k in range(20) for i in range(60)]
    path = tmp_path / "volleys.csv"
    path.write_text("\n".join(["time_s,input_tokens,output_tokens", *rows]))
    small = ["--model", "llama-3.1-8b", "--gpu", "h100", "--tp", "1", "--no-split", "--no-sensitivity"]
    return ["--trace", str(path), "--rate", "1 req/s", *small]


def test_verify_replays_the_whole_fleet_and_fails_with_it(volleys):
    found = ask(["plan", *volleys, "--no-ensure", "--verify"])
    assert found.status == 1
    assert "MISSED in the replay of volleys.csv" in found.text and "bursts: counts of arrivals" in found.text
    result = found.document["result"]
    first = result["verification"]["replays"][0]
    assert not first["holds"] and result["verification"]["smallest_gpus"] > result["recommended"]["fleet_gpus"]
    assert result["outside_of_checked"] and result["ensured"] is None
    assert {"low_s", "high_s", "worst_s", "predicted_s", "kept_frac"} <= first["promises"][0].keys()


def test_with_a_trace_the_fleet_is_the_smallest_that_keeps_its_slos(volleys, capsys, tmp_path):
    page = tmp_path / "plan.html"
    assert main(["plan", *volleys, "--json", "--out", str(page)]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    told, best = result["ensured"], result["recommended"]
    assert told["formula_gpus"] < told["smallest_gpus"] <= told["gpus"] == best["fleet_gpus"]
    assert best["replay"]["holds"] and best["ttft_ms"] <= 2000.0
    text = page.read_text()
    assert "by the formula" in text and "Does it hold" in text and "with its own arrival times" in text


def test_without_a_trace_random_arrivals_are_replayed_and_said_so(capsys):
    options = ["--isl", "500", "--osl", "100", "--rate", "5 req/s", "--gpu", "h100", "--model", "llama-3.1-8b"]
    assert main(["plan", *options, "--tp", "1", "--no-split", "--no-sensitivity", "--verify"]) == 0
    out = capsys.readouterr().out
    assert "Poisson arrivals (there is no trace)" in out.replace("\n", " ") and "Verified: every SLO holds" in out


def test_what_a_prefix_cache_holds_is_not_computed(capsys):
    """Nine tenths of the prompt cached: its prefill is a tenth, and fewer GPUs do."""
    fixed = ["plan", "--isl", "8000", "--osl", "100", "--rate", "20 req/s", "--gpu", "h100", "--tp", "4", "--no-split"]
    gpus = []
    for share in ("0", "0.9"):
        assert main([*fixed, "--no-sensitivity", "--cached-share", share, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["inputs"]["prefix_hit_frac"] == pytest.approx(float(share))
        gpus.append(document["result"]["recommended"]["fleet_gpus"])
    assert gpus[1] < gpus[0] / 2
    assert main(["plan", "--cached-share", "0.5"]) == 2
    assert "cached_share is of fixed lengths" in capsys.readouterr().err


def test_classes_of_requests_are_planned_apart(tmp_path, capsys):
    """Two in a hundred long jobs: one fleet for all would have to answer them within the chat's two seconds."""
    file = tmp_path / "mix.csv"
    rows = [f"{i * 0.25},{120_000 if i % 50 == 7 else 800},100" for i in range(400)]
    file.write_text("time_s,input_tokens,output_tokens\n" + "\n".join(rows))
    few = [
        "plan",
        "--trace",
        str(file),
        "--gpu",
        "h100",
        "--tp",
        "4,8",
        "--no-split",
        "--no-sensitivity",
        "--no-ensure",
    ]
    assert main([*few, "--json"]) == 1
    (told,) = json.loads(capsys.readouterr().out)["result"]["notes"]  # what to ask, though nobody asked what else pays
    assert told.startswith("Long requests: 2% of the requests") and '--class "long: from 120099, ttft' in told
    both = ["--class", "chat: to 60000", "--class", "jobs: from 60000, ttft 60 s, tpot 200 ms"]
    assert main([*few, *both, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    classes = result["classes"]
    assert result["feasible"] and classes["fits"] and result["recommended"] is None
    assert [x["requests"]["name"] for x in classes["shares"]] == ["chat", "jobs"]
    assert classes["usd_per_hour"] == pytest.approx(sum(x["usd_per_hour"] for x in classes["shares"]))
    assert result["summary"][0].startswith(f"Deploy {classes['gpus']} GPUs as a fleet for each class of requests")
    page = tmp_path / "plan.html"
    assert main([*few, *both[2:], "--out", str(page)]) == 0  # what is of no class is chat to the plan's own SLOs
    said = capsys.readouterr().out
    assert said.startswith(result["summary"][0]) and "# others, all:" in said and "vllm serve" in page.read_text()
    assert main([*few, "--class", "chat"]) == 2
    assert 'like "chat: to 8000' in capsys.readouterr().err
    assert main([*few, "--class", "chat: to 60000, speed 2 s"]) == 2
    assert "--class speed is unknown; the nearest are" in capsys.readouterr().err
    assert main([*few, "--class", "chat: tier=1", "--class", "jobs: user=2"]) == 2
    assert "one column is accepted" in capsys.readouterr().err


def test_regions_and_classes_say_what_their_fleets_are():
    """Two regions of which none serves all, at prices that are no whole dollars; the auditors of tables read on."""
    few = ["plan", "--model", "llama-3.1-8b", "--tp", "1", "--isl", "1000", "--osl", "200", "--rate", "80 req/s"]
    few += ["--no-split", "--no-sensitivity"]
    places = ["--region", "us: h100_sxm=2 at 2.13 $/h", "--region", "eu: h100_sxm=3 at 3.47 $/h"]
    found = ask([*few, *places])
    audit_shown(found.document, found.text)
    regions = found.document["result"]["regions"]
    for one in regions["together"]:
        (pool,) = one["best"]["pools"]
        price = {"us": 2.13, "eu": 3.47}[one["region"]]
        assert one["usd_per_hour"] == pytest.approx(price * pool["instances"])
        assert pool["instances"] <= {"us": 2, "eu": 3}[one["region"]]
    assert regions["together"][0]["region"] == "us" and sum(o["share_frac"] for o in regions["together"]) >= 0.9


def test_all_that_is_found_beside_a_plan_is_said_in_its_place(monkeypatch):
    for name in ("advice", "classes_told", "together_told", "regions_told"):
        monkeypatch.setattr(plan_notes, name, lambda *found, name=name: [f"{name} of {found[-1]}"])
    beside = Beside(limit="limit", apart="classes", together="priorities", regions="regions")
    said = ["advice of limit", "classes_told of classes", "together_told of priorities", "regions_told of regions"]
    assert beside.told("plan") == said
    monkeypatch.setattr(plan_notes, "advice", lambda *found: [*found])
    assert Beside(["change"], "pays", "tail", limit="limit").told("plan")[:3] == ["pays", "tail", "limit"]


def test_all_that_is_found_beside_a_plan_stands_under_its_own_name(monkeypatch):
    monkeypatch.setattr(
        plan_json, "result", lambda found, changes, suggested, tail: {"plan": [changes, suggested, tail]}
    )
    monkeypatch.setattr(Beside, "parted", lambda beside, found: None)
    of = lambda name: SimpleNamespace(to_dict=lambda: f"what {name} is", fits=True, holds=True)
    beside = Beside(["change"], ["suggestion"], ["tail"], of("checks"), of("now"), of("limit"), of("apart"))
    beside.together, beside.regions = of("together"), of("regions")
    found = {"plan": [["change"], ["suggestion"], ["tail"]], "feasible": True, "verification": "what checks is"}
    found |= {"running_now": "what now is", "solved": "what limit is", "classes": "what apart is"}
    found |= {"by_priority": "what together is", "regions": "what regions is"}
    assert plan._result(SimpleNamespace(best=None), beside) == found
    assert plan._result(SimpleNamespace(best=None), Beside()) == {"plan": [[], [], []], "feasible": False}
