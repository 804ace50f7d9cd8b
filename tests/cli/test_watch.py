"""`dmodels watch` shows what was seen, each number under its name: a record with numbers of its own, by hand."""

from __future__ import annotations

import json
import math
from inspect import signature
from pathlib import Path
from types import SimpleNamespace as Record

from dmodels.cli import main
from dmodels.cli import watch as command
from dmodels.cli.watch import _tables
from dmodels.formats.telemetry.observe import Histogram
from dmodels.report import grafana
from dmodels.studies.watch import watch


def seen(**more):
    known = {"start_s": 1800.0, "end_s": 9000.0, "replicas_count": 3, "requests_count": 12_345.0, "rate_rps": 1.71458}
    known |= {"peak_rps": 4.25, "arrival_cv": 1.5, "length_correlation": -0.125, "prefix_hit_frac": 0.375}
    known |= {"running_mean_count": 17.5, "running_peak_count": 64.0, "waiting_mean_count": 0.75, "kv_peak_frac": 0.875}
    known |= dict.fromkeys(("input_tokens", "output_tokens", "ttft_s", "itl_s", "e2e_s"))
    return Record(**known | more)


def test_a_scrape_as_json_says_which_and_what_was_in_it(capsys):
    scrape = str(Path(__file__).parents[1] / "formats" / "samples" / "sglang_metrics.txt")
    assert main(["watch", scrape, "--rate", "5 req/s", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["files"] == [scrape] and document["inputs"]["rate"] == 5.0
    assert document["inputs"]["from_deployment"] == []
    assert document["inputs"]["hours"] == signature(watch).parameters["hours"].default  # as without a command line


def test_demand_is_what_was_seen():
    (title, _, rows), (_, _, none) = _tables(Record(telemetry=seen(), fleet=None))
    assert (
        none == []
        and title == "Demand"
        and dict(rows)
        == {
            "hours": 2.0,
            "replicas": 3,
            "requests completed": "12,345",
            "rate, mean and busiest [req/s]": "1.715 and 4.25",
            "arrivals, coefficient of variation": 1.5,
            "prompts and answers, correlation": -0.125,
            "prefix-cache hits": "37.5%",
            "running, mean and most": "17.5 and 64.0",
            "waiting, mean": 0.75,
            "KV cache in use, most": "87.5%",
        }
    )
    unknown = seen(prefix_hit_frac=math.nan, kv_peak_frac=math.nan, arrival_cv=math.nan)
    found = dict(_tables(Record(telemetry=unknown, fleet=None))[0][2])
    names = "prefix-cache hits", "KV cache in use, most", "arrivals, coefficient of variation"
    assert [found[name] for name in names] == ["-", "-", "-"]


def test_lengths_are_in_tokens_and_latencies_in_milliseconds():
    """Of 100 requests 60 keep the first bound and 30 more the second: half of them 5/6 of the first, 90 % the second,
    and 99 % something beyond."""
    buckets = Histogram((1.2, 2.0), (60.0, 30.0, 10.0), 1.5)
    kinds = {"input_tokens": "prompt [tokens]", "output_tokens": "answer [tokens]", "ttft_s": "TTFT [ms]"}
    kinds |= {"itl_s": "time between tokens [ms]", "e2e_s": "E2E [ms]"}
    for field, name in kinds.items():
        tables = _tables(Record(telemetry=seen(**{field: buckets}), fleet=None))
        k = 1000 if field.endswith("_s") else 1
        assert tables[1][2] == [[name, 1.5 * k, 1.0 * k, 2.0 * k, f"> {2 * k:,}"]]
        assert tables[1][1] == ["", "mean", "P50", "P90", "P99"]


def test_the_model_stands_beside_what_was_measured():
    one = Record(name="TTFT P99 [ms]", measured=412.3456, predicted=500.0, ratio=1.2126)
    for keeps, words in ((True, "keeps the SLOs"), (False, "does not keep the SLOs")):
        fleet = Record(name="one pool", keeps_slo=keeps, serves_rps=8.25)
        _, _, (_, head, rows) = _tables(
            Record(telemetry=seen(ttft_s=Histogram((1.0,), (1.0, 0.0), 0.5)), fleet=fleet, compared=[one])
        )
        assert head == [f"one pool: {words}; at most 8.25 req/s", "measured", "model", "ratio"]
        assert rows == [["TTFT P99 [ms]", 412.3, 500.0, 1.213]]


def test_tables_come_in_the_order_of_what_is_asked_first():
    """Demand, then what was seen, quantity by quantity, then the model beside it."""
    one = Histogram((1.2, 2.0), (60.0, 30.0, 10.0), 1.5)
    names = ("input_tokens", "output_tokens", "ttft_s", "itl_s", "e2e_s")
    compared = [Record(name=name, measured=1.0, predicted=2.0, ratio=3.0) for name in ("b", "a")]
    fleet = Record(name="one pool", keeps_slo=True, serves_rps=8.25)
    found = Record(telemetry=seen(**dict.fromkeys(names, one)), fleet=fleet, compared=compared)
    demand, quantiles, beside = _tables(found)
    assert demand[1] == ["", ""] and [row[0] for row in demand[2]] == [
        "hours",
        "replicas",
        "requests completed",
        "rate, mean and busiest [req/s]",
        "arrivals, coefficient of variation",
        "prompts and answers, correlation",
        "prefix-cache hits",
        "running, mean and most",
        "waiting, mean",
        "KV cache in use, most",
    ]
    assert quantiles[0] == "Seen; quantiles are read off the buckets"
    lengths = ["prompt [tokens]", "answer [tokens]"]
    assert [row[0] for row in quantiles[2]] == [*lengths, "TTFT [ms]", "time between tokens [ms]", "E2E [ms]"]
    assert beside[0] == "The model beside what was measured" and [row[0] for row in beside[2]] == ["b", "a"]


def test_what_is_watched_is_asked_for_stated_shown_and_drawn(handed, monkeypatch):
    found = Record(to_dict=lambda: "a document")
    monkeypatch.setattr(command, "_tables", lambda found: ["the tables"])
    monkeypatch.setattr(command.render, "show", lambda tables: tables)
    monkeypatch.setattr(command, "_write", lambda found, out: (out,))
    assert main(["watch", "a.json", "--from-deployment", "run.sh", "--ttft", "1 s", "--dashboard", "d.json"]) == 0
    options = handed.call.options
    assert handed.call.target == "dmodels.studies.watch:watch" and handed.call.arguments == (["a.json"],)
    assert options["deployment"] == ["run.sh"] and options["hours"] == 6.0 and "gpu" not in options
    assert options["slo"].arguments == (1.0, 0.08, math.inf, 0.99) and "rate_rps" not in options
    stated = handed.inputs(found)
    assert stated["from_deployment"] == ["run.sh"] and stated["files"] == ["a.json"] and handed.feasible is None
    assert (handed.result(found), handed.show(found)) == ("a document", ["the tables"])
    assert handed.write(found) == (Path("d.json"),)
    assert main(["watch", "a.json", "--ttft", "1 s", "--gpu", "g"]) == 0 and handed.write(found) == (None,)
    assert handed.call.options == {"gpu": "g", "hours": 6.0} and handed.inputs(found)["from_deployment"] == []


def test_a_dashboard_is_written_and_what_is_to_be_known_is_said(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(grafana, "dashboard", lambda found: f"of {found.name}")
    found = Record(name="it", telemetry=Record(notices=("one scrape", "no rate")))
    said = "dmodels: telemetry: one scrape\ndmodels: telemetry: no rate\n"
    command._write(found, None)
    assert capsys.readouterr() == ("", said)
    command._write(found, tmp_path / "d.json")
    assert capsys.readouterr() == ("", f"dashboard: {tmp_path / 'd.json'}\n{said}")
    assert (tmp_path / "d.json").read_text() == "of it"
