"""`dmodels report`: the same answer as `dmodels plan`, from a scenario file, as one page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dmodels.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan.toml"
SMALL = """
[model]
name = "llama-3.1-70b"
[gpu]
name = "h100"
[workload]
name = "azure-conv"
[traffic]
rate = "60 req/s"
[space]
tp = [4, 8]
thresholds = [2048]
"""
FLAGS = ["--tp", "4,8", "--gpu", "h100", "--thresholds", "2048", "--rate", "60 req/s"]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """(JSON document, page) of the small scenario."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("report")
    (folder / "small.toml").write_text(SMALL)
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main(["report", str(folder / "small.toml"), "--out", str(folder / "page.html"), "--json"]) == 0
    return json.loads(text.getvalue()), (folder / "page.html").read_text(encoding="utf-8")


def test_a_scenario_is_answered_as_the_flags_are(reported, capsys):
    assert main(["plan", *FLAGS, "--json"]) == 0
    by_flags = json.loads(capsys.readouterr().out)
    assert reported[0]["result"] == by_flags["result"] and reported[0]["inputs"] == by_flags["inputs"]


def test_the_page_has_everything_a_director_asks(reported):
    document, page = reported
    lead = re.search(r'<p class="answer">(.*?)</p>', page, re.S)[1]
    assert len(re.findall(r"[.](?= [A-Z]|$)", lead)) == 3  # three sentences
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles == [
        "What to deploy",
        "Why",
        "Alternatives",
        "If an input is wrong",
        "What could go wrong",
        "What fell, and why",
        "What it rests on",
        "Inputs and reproduction",
        "Words",
    ] or titles == [
        "What to deploy",
        "Why",
        "Alternatives",
        "If an input is wrong",
        "What could go wrong",
        "What it rests on",
        "Inputs and reproduction",
        "Words",
    ]
    deployed = page.partition("<h2>What to deploy</h2>")[2].partition("<h2>")[0]
    assert 0 < deployed.find("<table") < deployed.find("vllm serve")  # what is bought, and then how it is started
    year = document["result"]["recommended"]["usd_per_year"]
    assert "USD/year" in page and f"{round(year):,}" in page
    for words in (
        "knee",
        "Saturation:",
        "Burst",
        "Failure",
        "Stale telemetry",
        "calibrated",
        "assumed",
        "exact",
        "NK-E1",
        "dmodels report",
        "Memory of one GPU",
        "in flight",
    ):
        assert words in page, words


def test_tables_say_what_their_cells_are(reported):
    page = reported[1]
    for table in re.findall(r"<table.*?</table>", page, re.S):
        assert "<caption>" in table and 'scope="col"' in table
        rows = re.findall(r"<tr role=\"row\">(?!<th scope=\"col\")(.*?)</tr>", table, re.S)
        assert all(row.startswith('<th scope="row"') and row.count("data-name=") == row.count("<td") for row in rows)


def test_the_example_states_every_flag_that_plan_takes():
    """What a scenario can say is written in the example, if only as a comment."""
    from dmodels.cli.plan_inputs import PlanInputs

    text = EXAMPLE.read_text(encoding="utf-8")
    for name, field in PlanInputs.model_fields.items():
        assert f"[{name}]" in text
        for key in field.annotation.model_fields:
            shown = {"input_tokens": "isl", "output_tokens": "osl"}.get(key, key)
            assert re.search(rf"^(# )?\[?({name}\.)?{shown}\b", text, re.M), f"{name}.{key}"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('rate = "60 req/s"', "rate = 60", "traffic.rate"),
        ('rate = "60 req/s"', 'rate = "-1 req/s"', "traffic.rate"),
        ("[space]", "[spaces]", "spaces is unknown; the nearest are space"),
        ('name = "azure-conv"', 'name = "azure-conv"\nisl = 100', "give one of name (--workload), trace, or"),
        ('name = "azure-conv"', 'trace = "no.csv"', "no.csv"),
        ('name = "h100"', 'name = "h1000"', "h1000"),
        ('name = "h100"', 'name = "h100"\nprice = {a100 = "1 USD/h"}', "accepted are prices of h100_sxm"),
        ('name = "h100"', 'name = "h100"\nprice = {h100 = "1 s"}', "USD/h"),
        ("tp = [4, 8]", "tp = [0]", "space.tp"),
        ("tp = [4, 8]", "tp = [7]", "does not divide"),
        ("[model]", "[model", "toml"),
    ],
)
def test_mistakes_in_a_scenario_are_one_line(old, new, says, tmp_path, capsys):
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.replace(old, new))
    assert main(["report", str(path), "--out", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1 and "Traceback" not in said


def test_prices_of_the_scenario_count(tmp_path, capsys):
    text = SMALL.replace('name = "h100"', 'name = "h100"\nprice = {h100 = "1 USD/h"}')
    (tmp_path / "cheap.toml").write_text(text)
    quick = ["--no-sensitivity", "--no-ensure", "--out", str(tmp_path / "p.html"), "--json"]
    assert main(["report", str(tmp_path / "cheap.toml"), *quick]) == 0
    best = json.loads(capsys.readouterr().out)["result"]["recommended"]
    assert best["usd_per_hour"] == best["fleet_gpus"]


def test_a_trace_beside_the_scenario_is_found(tmp_path, capsys):
    lines = [f"{i * 0.5},{500 + i % 7 * 100},{100 + i % 5 * 20}" for i in range(200)]
    (tmp_path / "mine.csv").write_text("time_s,input_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    (tmp_path / "s.toml").write_text(SMALL.replace('name = "azure-conv"', 'trace = "mine.csv"').replace("2048", "800"))
    quick = ["--no-sensitivity", "--no-ensure", "--out", str(tmp_path / "p.html")]
    assert main(["report", str(tmp_path / "s.toml"), *quick]) == 0
    assert "of mine.csv" in capsys.readouterr().out


def test_nothing_feasible_is_reported_and_exits_with_1(tmp_path, capsys):
    text = SMALL + '[slo]\ntpot = "1 ms"\n'
    (tmp_path / "s.toml").write_text(text)
    assert main(["report", str(tmp_path / "s.toml"), "--out", str(tmp_path / "p.html")]) == 1
    page = (tmp_path / "p.html").read_text()
    lead = re.search(r'<p class="answer">(.*?)</p>', page, re.S)[1]
    assert "TPOT without load binds" in lead and "What fell, and why" in page


def test_show_python_runs_to_the_same_question(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(SMALL + '[slo]\ntpot = "90 ms"\n[gpu.price]\nh100 = "2 USD/h"\n')
    assert main(["report", str(tmp_path / "s.toml"), "--show-python"]) == 0
    scope: dict = {}
    exec(capsys.readouterr().out, scope)
    assert scope["asked"].rate_rps == 60.0 and float(scope["asked"].slo.tpot_s) == 0.09
    assert float(scope["asked"].gpus["h100_sxm"].price_usd_per_hour) == 2.0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_nothing_is_clipped_or_overlaps(reported, chromium, faults, width, scheme):
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_content(reported[1])
    assert faults(page) == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    words = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    assert (paper, words) == {
        "light": ("rgb(255, 255, 255)", "rgb(27, 31, 36)"),
        "dark": ("rgb(13, 17, 23)", "rgb(230, 237, 243)"),
    }[scheme]
    page.emulate_media(media="print", color_scheme=scheme)  # on paper it is black on white, whatever the screen
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    page.close()
