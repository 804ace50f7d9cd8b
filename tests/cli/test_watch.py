"""`dmodels watch` shows what was seen, each number under its name: a record with numbers of its own, by hand."""

from __future__ import annotations

import json
import math
from inspect import signature
from pathlib import Path
from types import SimpleNamespace as Record

from dmodels.cli import main
from dmodels.cli.watch import _tables
from dmodels.formats.telemetry.observe import Histogram
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
