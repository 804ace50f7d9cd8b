"""What each number of a plan rests on, and the claims of papers behind it."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace as Record

from dmodels import catalog
from dmodels.report import provenance
from tests.report.records import asked, pool, row


def test_what_the_numbers_of_a_plan_rest_on():
    confidence = namedtuple("Confidence", "provenance tpot ttft")
    own = lambda name: confidence(name, (0.9, 1.25), (0.8, 1.5))
    from_file = Record(price_usd_per_hour=7.5)
    answer = Record(
        best=Record(
            pools=[pool("all", confidence=own("calibrated on a"), extrapolated=("TTFT", "E2E"), load_frac=0.97)]
        ),
        question=asked(workload_name="ISL 100", gpus={"no such gpu": from_file, "h100_sxm": from_file}),
    )
    title, head, cells = provenance.rests_on(answer)
    assert (title, head) == ("What the numbers rest on", ["number", "standing", "from", "error"])
    assert [first for first, *_ in cells] == [
        *("weights, KV per token, blocks", "activations, runtime", "sequences in memory", "step times"),
        *("waits and percentiles", "lengths and their joint distribution", "price of no such gpu", "price of h100_sxm"),
    ]
    rows = {first: rest for first, *rest in cells}
    assert rows["weights, KV per token, blocks"] == ["exact", "the model's config.json", "none"]
    standing, by, error = rows["activations, runtime"]
    assert standing == "assumed" and "driver" in by and error.startswith("factor 2")
    standing, by, error = rows["sequences in memory"]
    assert standing == "approximate" and "occupancy" in by and "Bernstein" in error
    standings = {"exact", "measured", "calibrated", "approximate", "assumed", "list price"}
    assert {standing for standing, *_ in rows.values()} <= standings
    assert rows["step times"] == [
        "calibrated",
        "calibrated on a",
        "80 %: TPOT x 0.90 to 1.25, TTFT x 0.80 to 1.50",
    ]  # as they are known
    assert rows["waits and percentiles"][2].startswith("not vouched for: TTFT and E2E of all (load 0.97)")
    assert rows["lengths and their joint distribution"][0] == "assumed"
    assert rows["price of no such gpu"][1] == "7.5 USD/h, the file given"
    assert rows["price of h100_sxm"][1] == "7.5 USD/h, given for this plan"
    answer.question.workload_name = "day.csv"
    rows = {first: rest for first, *rest in provenance.rests_on(answer)[2]}
    assert rows["lengths and their joint distribution"][:2] == ["measured", "day.csv"]
    answer.best.pools.append(pool("more", confidence=own("assumed of b"), extrapolated=(), load_frac=0.5))
    answer.question.workload_name = "azure-conv"
    facts = catalog.gpu_facts("h100_sxm")
    answer.question.gpus = {"h100_sxm": Record(price_usd_per_hour=facts["price_usd_per_hour"])}
    rows = {first: rest for first, *rest in provenance.rests_on(answer)[2]}
    assert rows["step times"][:2] == ["assumed", "assumed of b; calibrated on a"]
    standing, source, _ = rows["lengths and their joint distribution"]
    assert standing == "measured" and source == f"azure-conv: {catalog.workload_source('azure-conv')}"
    price, *listed = rows["price of h100_sxm"][1].split(" USD/h, ")
    assert float(price) == facts["price_usd_per_hour"] and listed == [f"{facts['price_source']}, {facts['date']}"]
    answer.best = None
    answer.priced = Record(calibration=Record(confidences={1: own("calibrated on a"), 2: own("calibrated on c")}))
    rows = {first: rest for first, *rest in provenance.rests_on(answer)[2]}
    assert rows["step times"][:2] == ["calibrated", "calibrated on a; calibrated on c"]
    assert rows["waits and percentiles"][2].startswith("each P99 within 10 %")


def test_claims_are_those_of_every_kind_of_fleet_shown():
    """The paper on pools where two pools stand beside one; the one on splits where a split does."""
    shown = lambda *kinds: {
        claim for claim, *_ in provenance.claims_table(Record(kinds=[Record(kind=k) for k in kinds]))[2]
    }
    one, both, all_three = (
        shown("one pool"),
        shown("one pool", "two pools"),
        shown("one pool", "two pools", "prefill/decode split"),
    )
    assert "POA-4.2" in one and "TB-1" not in one and "POA-1c" not in one
    assert {"POA-4.2", "TB-1"} <= both and "POA-1c" not in both and {"TB-1", "POA-1c"} <= all_three
    every = Record(kinds=[Record(kind=k) for k in ("prefill/decode split", "two pools", "one pool")])
    # what every plan rests on, then each kind of fleet, and last what could go wrong
    listed = "NK-E1 TB-5 TB-4 POA-4.2 POA-G TB-1 TB-2 NEW-17 TB-FF TB-E9 POA-1c POA-R1 NK-P1b POA-4.3 NK-P2d NEW-8"
    assert [claim for claim, *_ in provenance.claims_table(every)[2]] == listed.split()
    for shown in row(provenance.claims_table(Record(kinds=[Record(kind="two pools")]))):
        told = catalog.claim(shown["claim"])
        assert (shown["verdict"], shown["what it says"]) == (told["verdict"].lower(), told["says"])
        assert shown["source"] == f"{told['source']}, {told['where']}"
        assert shown["what it means for a plan"] == told["means"] and len(shown) == 5


def test_rows_of_what_a_plan_rests_on_in_full():
    confidence = namedtuple("Confidence", "provenance tpot ttft")("calibrated on a", (0.9, 1.25), (0.8, 1.5))
    used = [pool("all", confidence=confidence, extrapolated=("TTFT",), load_frac=0.97)]
    question = asked(workload_name="ISL 100", gpus={"my gpu": Record(price_usd_per_hour=7.5)})
    assert provenance.rests_on(Record(best=Record(pools=used), question=question)) == (
        "What the numbers rest on",
        ["number", "standing", "from", "error"],
        [
            ["weights, KV per token, blocks", "exact", "the model's config.json", "none"],
            ["activations, runtime", "assumed", "a model of one step; the driver's context", "factor 2 on 1 to 3 GiB"],
            [
                *("sequences in memory", "approximate", "P99 of occupancy, normal law with skewness"),
                "Bernstein's guaranteed count is lower: see `dmodels size`",
            ],
            ["step times", "calibrated", "calibrated on a", "80 %: TPOT x 0.90 to 1.25, TTFT x 0.80 to 1.50"],
            [
                *("waits and percentiles", "approximate"),
                "Poisson arrivals per instance; occupancy of a birth-death chain; exponential tails",
                "not vouched for: TTFT of all (load 0.97); `--verify` simulates them",
            ],
            [
                *("lengths and their joint distribution", "assumed", "ISL 100, every request alike"),
                "real lengths vary: a trace says how much",
            ],
            ["price of my gpu", "list price", "7.5 USD/h, the file given", "the cost scales with it"],
        ],
    )
    used[0].extrapolated, question.workload_name = (), "day.csv"
    rows = {first: rest for first, *rest in provenance.rests_on(Record(best=Record(pools=used), question=question))[2]}
    assert rows["waits and percentiles"][2] == "each P99 within 10 % of the simulation at its load"
    assert rows["lengths and their joint distribution"][1:] == ["day.csv", "as long as the traffic stays like it"]


def test_claims_are_told_under_their_heads():
    title, head, _ = provenance.claims_table(Record(kinds=[]))
    assert title == "Claims of the papers that the formulas rest on (`dmodels claims ID` runs the check)"
    assert head == ["claim", "verdict", "source", "what it says", "what it means for a plan"]
