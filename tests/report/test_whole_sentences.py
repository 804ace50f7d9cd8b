"""Sentences, tables and lines of a page from their first letter to their last, with every cell in its place."""

from __future__ import annotations

import json
import math
import re
from html import escape
from types import SimpleNamespace as Record

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from dmodels.report import (
    answer_figures,
    explore_page,
    glossary,
    grafana,
    html,
    plan_figures,
    plan_json,
    plan_notes,
    plan_page,
    plan_tables,
    plan_words,
    replay_tables,
    style,
    text,
)
from dmodels.studies.plan import Tail
from tests.report.records import CHANGES, FLEET, PROMISED, asked, fleet, fleets, pool


def test_a_table_has_a_column_for_each_of_its_heads():
    """By a field of a record or of a mapping, in its own format, or by a function of the item."""
    columns = {"tier": "name", "hits": "hit_frac:.1%", "twice": lambda item: 2 * item["count"], "plain": "count"}
    items = [{"name": "HBM", "hit_frac": 0.5, "count": 3}, {"name": "DRAM", "hit_frac": 0.25, "count": 4}]
    rows = [["HBM", "50.0%", 6, 3], ["DRAM", "25.0%", 8, 4]]
    assert text.table("Tiers", items, columns) == ("Tiers", ["tier", "hits", "twice", "plain"], rows)
    held = text.table("T", [Record(name="x", size=2.5)], {"a": "size", "b": "name", "c": "size:.2f"})
    assert held == ("T", ["a", "b", "c"], [[2.5, "x", "2.50"]])


def test_numbers_keep_all_digits_of_their_whole_part():
    assert [text.cell(x) for x in (9999.6, 12_345.6, 59_999.4, -12_345.6)] == ["10,000", "12,346", "59,999", "-12,346"]
    assert [text.cell(x) for x in (1234.56, 123.456, 0.00099996)] == ["1,235", "123.5", "0.001"]
    assert [text.ms(x) for x in (12.3456, 0.0012345)] == ["12,300", "1.23"]
    assert [text.milliseconds(x) for x in (12.3456, 0.0012345)] == [12_350, 1.234]


def test_where_a_class_of_long_requests_would_begin():
    """The flag counts requests of more tokens than it says."""
    for tokens, begins in ((30_000.0, 29_999), (1000.5, 1000)):
        (said,) = plan_notes.advice([], [Tail(0.02, tokens, 5.0, 0.9)])
        assert said == (
            f"Long requests: 2% of the requests (from {tokens:,.0f} tokens) make 90% of the cost: without them "
            "$5.00/h would do. Planned apart, they need an SLO of their own, "
            f'like --class "long: from {begins}, ttft 60 s".'
        )


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("rate", "0.5 req/s is the largest rate that can be kept with what there is; with 1 more GPU 0.75 req/s (0.25"),
        ("ttft", "500 ms is the tightest TTFT SLO that can be kept with what there is; with 1 more GPU 750 ms (250 ms"),
        ("tpot", "500 ms is the tightest TPOT SLO that can be kept with what there is; with 1 more GPU 750 ms (250 ms"),
        ("e2e", "500 ms is the tightest E2E SLO that can be kept with what there is; with 1 more GPU 750 ms (250 ms"),
    ],
)
def test_what_was_solved_for_by_its_name(target, words):
    found = Record(target=target, value=0.5, more_value=0.75, more_gpus=1, worth_per_gpu=0.25)
    each = " req/s" * (target == "rate")
    assert plan_notes.advice([], [], found) == [f"{words}{each} per GPU, by the closed forms)."]


def test_what_replays_say_comes_before_what_the_model_cannot_take():
    taken = Record(refused_frac=0.0, cut_frac=0.25, limit_tokens=8192.0, longest_tokens=9000.0)
    answer = Record(best=Record(replayed=None), ensured=None, question=asked(), outside=["x"])
    answer.priced = Record(admitted=taken)
    off, context = plan_notes.notes(answer)
    assert off == "The closed forms are off here: x; --verify replays the fleet."
    assert context == (
        "Context: 25% of the requests are longer than the 8,192 tokens that the config of m allows (the longest takes "
        "9,000). The answers would run past it: they are in the load up to there, where engines cut them off (or "
        "refuse them, if they ask for so many tokens in advance). Serving all of them whole takes a model with a "
        "longer context."
    )


@pytest.mark.parametrize(
    ("saved", "words"),
    [(0.006, "1% less than"), (0.004, "as much as"), (-0.004, "as much as"), (-0.006, "1% more than")],
)
def test_fleets_apart_cost_as_much_within_half_a_percent(saved, words):
    apart = Record(fits=True, gpus=1, usd_per_hour=100.0 * (1.0 - saved), shares=[])
    assert plan_notes.classes_told(Record(best=Record(usd_per_hour=100.0)), apart) == [
        f"Classes of requests: planned apart, they take ${apart.usd_per_hour:,.2f}/h (1 GPU), {words} the one fleet "
        "above, which keeps the tightest SLOs for all of them."
    ]


def test_a_probability_of_57_percent_is_not_told_as_56():
    """57 of 100 is a hair less than 57 in binary."""
    shares = [k / 100 for k in range(50, 97)]
    assert [plan_words.chance(Record(sure_frac=share)) for share in shares] == [f"{share:g}" for share in shares]


def test_a_cheaper_estimate_is_told_whole():
    best, lone = fleet(8, 20.0), fleet(7, 18.0, "two pools")
    known = {"layout": Record(gpu="h100"), "confidence": Record(provenance="calibrated on h100", shared_frac=1.0)}
    best.pools = [pool("all", usd_per_hour=20.0, **known)]
    best.usd_per_year, best.gpus_low, best.gpus_high, best.kind = 175_200.0, 8.0, 8.0, "one pool"
    lone.pools = [pool("short", 2, usd_per_hour=10.0, **known), pool("long", 1, usd_per_hour=8.0, **known)]
    lone.gpus_low, lone.gpus_high, lone.kind = 7.0, 7.0, "two pools"
    assert plan_words._cheaper(lone, best) == (
        "The cheapest estimate is 7 GPUs = 7 x 1 h100 as two pools at $18.00/h: 10.0% less, but nothing stands in for "
        "its only long instance; a second costs $8.00/h."
    )
    answer = Record(best=best, baseline=None, cheapest=best, sure_frac=0.75, indistinguishable=lambda: [])
    answer.question = asked(workload_name="chats")
    answer.priced = Record(admitted=Record(refused_frac=0.0), layouts=[1], schemes=[1, 2])
    assert plan_words.in_three_sentences(answer) == [  # no single pool serves it, so there is none to compare with
        "Deploy 8 GPUs = 8 x 1 h100 as one pool for 20 req/s of chats with m: $20.00/h, $175,200/year.",
        "It is the cheapest of 1 layout, put together in 2 ways; one instance less would break TTFT.",
        "Under the model's error it keeps its SLOs with a probability of 0.75; with step times anywhere in their 80 % "
        "interval the fleet stays at 8 GPUs (calibrated on h100).",
    ]


def test_latencies_are_told_with_their_interval_and_changes_with_their_cost():
    assert plan_tables._ranged(0.5, (0.8, 1.25)) == "500 (400 to 625)"
    answer = Record(priced=Record(admitted=Record(refused_frac=0.0)), formula_usd_per_hour=20.0, ensured=None)
    change = lambda factor, usd: Record(what="rate", factor=factor, usd_per_hour=usd, name="split", refused_frac=0.0)
    assert plan_tables.sensitivity_table(answer, [change(1.25, 25.006), change(4.0, math.inf)]) == (
        "Sensitivity: the cheapest plan when one input changes",
        ["input", "change", "USD/h", "cost", "then"],
        [["rate", "x 1.25", 25.01, "+25.0%", "split"], ["rate", "x 4", math.inf, "infeasible", "split"]],
    )


def promise(**more):
    known = {"metric": "TTFT", "pool": "all", "measured_s": 1.5, "low_s": 1.25, "high_s": 1.75, "bound_s": 2.0}
    known |= {"kept_frac": 0.999, "worst_s": 2.5, "worst_start_s": 12_345.6, "predicted_s": 1.0, "error_frac": -0.001}
    return Record(**known | {"holds": True, "sure": False} | more)


def test_every_cell_of_a_replay_is_left_out_for_its_own_reason():
    whole = ["1,500", "1,250 to 1,750", "2,000", "99.90%", "2,500", 12_350.0, "1,000", "+0%", "holds, not surely"]
    for more, changed in (
        ({}, {}),
        ({"sure": True, "holds": False}, {8: "missed"}),
        ({"low_s": math.nan}, {1: "too few requests", 8: "holds"}),
        ({"bound_s": math.inf}, {2: "-", 3: "-", 8: "no bound"}),
        ({"predicted_s": math.inf}, {6: "-"}),
        ({"error_frac": math.nan}, {7: "-"}),
    ):
        found = Record(
            **{
                "name": "one pool",
                "gpus": 1,
                "instances": (1,),
                "policy": "jsq",
                "source": "day.csv",
                "percentile": 0.5,
            },
            **{"requests_count": 1200, "period_s": 3600.0, "window_s": 60.0, "promises": [promise(**more)]},
        )
        title, head, (cells,) = replay_tables.table(found)
        assert title == "Replay of one pool (1 GPU, 1 instance, jsq routing): day.csv, 1,200 requests in 3,600 s"
        names = "pool;SLO;P50 [ms];95 % interval;bound [ms];kept;worst minute [ms];begins [s];closed form [ms];"
        assert head == [*f"{names}its error;verdict".split(";")]
        assert cells == ["all", "TTFT", *(changed.get(k, cell) for k, cell in enumerate(whole))]


def test_notes_on_replays_where_there_was_none_or_no_trace():
    how = Record(formula_gpus=10, same_formula_gpus=10, gpus=16, smallest_gpus=16, next_gpus=20)
    seen = Record(source="day.csv", held_count=5, days_count=7)
    answer = Record(best=Record(replayed=None), ensured=how, question=asked(), outside=[])
    assert replay_tables.notes(answer) == []
    answer.best.replayed, answer.ensured = seen, None
    assert replay_tables.notes(answer) == []
    answer.ensured = how
    assert replay_tables.notes(answer) == [
        "Replay: 10 GPUs by the formula, 16 by the replay of day.csv, where the SLOs take 16 at least. It holds on 5 "
        "of 7 other days (halves and quarters at the planned rate, and resamples)."
    ]


@pytest.mark.parametrize(
    ("smallest", "gpus", "words"),
    [
        ((3,), 12, " The smallest fleet of these pools that holds has 12 GPUs (3 instances)."),
        ((1,), 1, " The smallest fleet of these pools that holds has 1 GPU (1 instance)."),
        ((1, 2), 3, " The smallest fleet of these pools that holds has 3 GPUs (1 + 2 instances)."),
        (None, 3, " No number of instances of these pools holds."),
        ((1, 2), None, " No number of instances of these pools holds."),
    ],
)
def test_a_verdict_names_the_smallest_fleet_that_holds(smallest, gpus, words):
    good = Record(holds=True, source="day.csv")
    checks = Record(replays=[good, None], smallest=smallest, smallest_gpus=gpus)
    assert replay_tables.verdict(checks) == f"Verified: every SLO holds in the replay of day.csv.{words}"


def test_advice_of_a_document_is_on_what_was_suggested_and_what_is_long(monkeypatch):
    monkeypatch.setattr(plan_json, "sentences", lambda answer: [])
    monkeypatch.setattr(plan_json, "notes", lambda answer: ["noted"])
    monkeypatch.setattr(plan_json, "advice", lambda suggested, tail: [*suggested, *tail])
    admitted = Record(refused_frac=0.0, cut_frac=0.0)
    answer = Record(best=None, cheapest=None, kinds=[], by_gpu=[], by_threshold=(), rejections=[], ensured=None)
    answer.priced, answer.outside, answer.headroom_frac, answer.sure_frac = Record(admitted=admitted), (), 0.0, 0.0
    answer.survives_loss, answer.points_count = False, 1
    told = [Record(to_dict=lambda name=name: name) for name in ("suggested", "long")]
    shown = plan_json.result(answer, [], told[:1], told[1:])
    assert shown["notes"] == ["noted", *told] and shown["suggestions"] == ["suggested"]
    assert shown["longest_requests"] == ["long"]


def test_pictures_of_a_page_are_numbered_from_nought_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(style, "figure", lambda draw, height, quick: f"{draw} {height} {quick}")
    monkeypatch.setattr(html, "picture", lambda made, caption, i, told: f"{i}: {caption}, {told}, {made}")
    drawn = [("front", 3.0, "cost", "dots"), ("load", 2.0, "latency", "lines")]
    lines = ["cost, dots, front 3.0", "latency, lines, load 2.0"]
    assert plan_page.pictures(drawn) == html.pictures([f"{k}: {line} False" for k, line in enumerate(lines)])
    made = plan_page.pictures(drawn, quick=True, first=5)
    assert made == html.pictures([f"{k}: {line} True" for k, line in enumerate(lines, 5)])


def shown_by(drawing):
    draw, *rest = drawing
    return (draw.func, draw.args, *rest)


def test_drawings_of_a_pool_are_told_in_full():
    """At half the load that saturates it: 40 in flight, halfway between 30 at 0.4 and 50 at 0.6."""
    x, flight = np.array([0.4, 0.6]), np.array([30.0, 50.0])
    held = Record(stage=Record(name="short"), ttft_s=2.5, slots_count=120.4)
    load = Record(pool=held, operating_frac=0.5, knee_frac=0.7, load_frac=x, in_flight_count=flight)
    use = Record(pool=held, parts={"weights": 35 * 2**30, "KV": 22.5 * 2**30})
    assert shown_by(plan_page.latency_drawing(load)) == (
        *(plan_figures.latency_against_load, (load,), 3.2),
        "Pool 'short': latency against load. It runs at 50% of saturation; the knee is where 1 % more load begins to "
        "cost more than 1 % more TTFT.",
        "Line chart of TTFT and TPOT over their SLOs against load for the pool short: at the operating point, 50% of "
        "saturation, TTFT is 2,500 ms; the knee is at 70%.",
    )
    assert shown_by(plan_page.occupancy_drawing(load, use)) == (
        *(plan_figures.occupancy, (load, use), 3.2),
        "Pool 'short': requests in flight on one instance, and the slots that bound them.",
        "Line chart of requests in flight per instance of the pool short against load: 40 at the operating point, 120 "
        "slots.",
    )
    told = "short: weights 35 GiB, KV 22.5 GiB"
    assert shown_by(plan_page.memory_drawing([use, use])) == (
        *(plan_figures.memory_per_gpu, ([use, use],), 3.5, "Where the memory of one GPU goes."),
        f"Stacked bars of one GPU's memory. {told}; {told}.",
    )


def test_drawings_of_fleets_are_told_in_full():
    answer, told = fleets(), " Broken lines: the cheapest fleets as two pools. The full star: the recommended fleet, "
    told += "$10.00/h; empty stars: the alternatives below."
    assert [shown_by(one) for one in plan_page.fleet_drawings(answer)] == [
        (
            *(plan_figures.cost_front, (answer,), 3.2),
            f"Cost of fleets against their TTFT. Points: one-pool fleets, hollow where they miss an SLO.{told}",
            "Scatter plot of cost against TTFT of one-pool fleets of a, b, with the Pareto front of all kinds of "
            f"fleets that meet the SLOs.{told}",
        ),
        (
            *(plan_figures.throughput_front, (answer,), 3.2),
            "What a GPU yields against what a user feels, one-pool fleets.",
            "Scatter plot of output tokens per second and GPU against tokens per second of one user, with the Pareto "
            "front; left of the dashed line the TPOT SLO is missed in the mean.",
        ),
    ]
    rounded = 1.0 + 1e-10  # is the same
    answer.fleets.front = Record(usd_per_hour=np.array([5.0, 10.0]), ttft_s=np.array([1.8, 1.5 / rounded]))
    assert "quicker" not in plan_page.fleet_drawings(answer)[0][2]
    answer.fleets.front = Record(usd_per_hour=np.array([5.0, 10.0 * rounded]), ttft_s=np.array([1.8, 1.0]))
    answer.fleets.fronts = dict.fromkeys(("one pool", "two pools", "split"))
    (_, _, caption, _), _ = plan_page.fleet_drawings(answer)
    assert caption.endswith(
        "Broken lines: the cheapest fleets as two pools and split. The full star: the recommended fleet, $10.00/h, "
        "simpler than a fleet of several pools that is quicker at the same price; empty stars: the alternatives below."
    )
    told = "Cost of two pools against the threshold on total tokens, with the cost of one pool."
    drawn = plan_page.threshold_drawing(answer)
    assert shown_by(drawn) == (plan_figures.threshold_curve, (answer,), 3.2, told, f"Line chart. {told}")
    assert shown_by(plan_page.tornado_drawing(answer, CHANGES)) == (
        *(plan_figures.tornado, (answer, CHANGES), 3.9, "Cost of the cheapest plan when one input changes."),
        "Bar chart of the cheapest plan's cost when one input changes; the dearest: rate times 1.2, 130 USD/h.",
    )


def test_drawings_of_an_answer_are_told_in_full(monkeypatch):
    others = [("the one", FLEET), ("other", Record(usd_per_hour=1234.5, gpus=16))]
    monkeypatch.setattr(plan_tables, "alternatives", lambda answer: others)
    assert [shown_by(one) for one in plan_page.answer_drawings(PROMISED)] == [
        (
            *(answer_figures.promises, (PROMISED,), 2.1, "Does it keep its promises? Left of the SLO it does."),
            "Intervals of latencies over their SLOs: TTFT 1,000 ms (700 to 1,200); TPOT 40 ms (32 to 52).",
        ),
        (
            *(answer_figures.costs, (PROMISED, others), 1.62),
            "What the other fleets would cost. Fleets of the same layouts err together: the model may tell them apart "
            "although thin lines overlap.",
            "Bars of cost: the one 8 GPUs, $20.00/h; other 16 GPUs, $1,234.50/h.",
        ),
    ]


def test_what_was_asked_is_shown_number_by_number():
    assert plan_page._shown({"h100": 2.5, "h200": 1234.5}) == "h100: 2.5, h200: 1,234"
    assert [plan_page._shown(x) for x in ((1, 4096.0), ["bf16"], 0.25, "m", None)] == [
        *("1, 4,096", "bf16", "0.25", "m", "None"),
    ]


def test_what_a_slider_is_without_more_being_said():
    assert explore_page.Turned("a", "b", "c") == ("a", "b", "c", 1.0, 0.0, 0.0, "any")


def test_sliders_in_full():
    rate = explore_page.Turned("rate", "load", "req/s", reach=16.0)
    assert explore_page._slider(rate, 40.0, 10.0) == (  # from 10 / 16 to 160: 40 lies three quarters of the way up
        '<div class="dial"><label for="rate">load [req/s]</label>'
        '<input type="number" id="rate" name="rate" value="40" min="0" step="any" required>'
        '<input type="range" data-for="rate" min="0" max="1000" data-low="0.625" data-high="160" value="750" '
        'aria-label="load [req/s], slider"></div>'
    )
    gpus = explore_page.Turned("gpus", "at most", "GPUs", reach=4.0)
    assert explore_page._slider(gpus, math.inf, 16.0) == (
        '<div class="dial"><label for="gpus">at most [GPUs]</label>'
        '<input type="number" id="gpus" name="gpus" value="" min="0" step="any" placeholder=any>'
        '<input type="range" data-for="gpus" min="0" max="1000" data-low="4" data-high="64" data-open data-whole '
        'value="1000" aria-label="at most [GPUs], slider"></div>'
    )


def test_a_choice_in_full():
    assert explore_page._choice("kv", "KV & cache", {"": "any", 'x"y': "<x>"}, 'x"y') == (
        '<div><label for="kv">KV &amp; cache</label><select id="kv" name="kv"><option value="">any</option>'
        '<option value="x&quot;y" selected>&lt;x&gt;</option></select></div>'
    )


def test_a_twentieth_of_a_millisecond_is_a_difference():
    at = lambda s: Record(best=Record(bought_gpus=8, usd_per_hour=20.0, ttft_s=s, tpot_s=0.0))
    assert explore_page.difference(at(5e-5), at(0.0)) == "Against the start: +0 GPUs, +$0.00/h (+0%), TTFT +0.05 ms."
    assert explore_page.difference(at(4.9e-5), at(0.0)) == "As at the start."


def test_rows_have_as_many_cells_as_there_are_heads():
    for make in (html.table, lambda _, head, rows: html.card(head, rows)):
        with pytest.raises(ValueError, match="zip"):
            make("t", ["a", "b"], [["x", "y", "z"]])
    for letters, short in ((14, True), (15, False)):
        assert ('class="short"' in html.table("t", ["a"], [["x" * letters], ["y"]])) == short


def test_words_in_a_picture_are_those_that_were_written():
    """In letters of the page's system where ours are not there; the paper is the page's; sizes are left to it."""
    made = style.figure(lambda axes: axes.text(0.5, 0.5, 'a width="3pt" b'), quick=True)
    svg = html.picture(made, "caption", 0)
    assert 'a width="3pt" b</text>' in svg and "'DejaVu Sans', system-ui" in svg and svg.count("<svg ") == 1
    assert "#ffffff" not in svg and not re.search(r'<svg [^>]* (width|height)="', svg)
    page = html.page("T", [])
    assert page.index(style.css()) < page.index(html.shipped("page.css")) < page.index("</style>")


def test_words_in_the_plural_are_explained_by_their_singular():
    seen = set()
    made = glossary.linked("<p>slot, instances, pools, layouts, SLOs, in flight, 80 % interval</p>", seen)
    links = re.findall(r'<a class="word" href="#([^"]+)" title="([^"]+)">([^<]+)</a>', made)
    names = {"slot": "slots", "instances": "instance", "pools": "pool", "layouts": "layout", "SLOs": "SLO"}
    names |= {"in flight": "in flight", "80 % interval": "80 % interval"}
    anchors = "word-slots word-instance word-pool word-layout word-slo word-in-flight word-80-interval".split()
    assert [anchor for anchor, *_ in links] == anchors and [word for *_, word in links] == list(names)
    assert [told for _, told, _ in links] == [escape(glossary.WORDS[word]) for word in names.values()]
    assert glossary.entries({"pool"}) == (
        '<dl class="words">\n<dt id="word-pool">pool</dt><dd>Instances of one layout that share a queue of requests.'
        "</dd>\n</dl>"
    )


def test_lines_of_a_dashboard_stand_in_one_order():
    known = ["TTFT, mean [s]", "TTFT, P99 [s]", "time between tokens, mean [s]", "requests in flight"]
    compared = [Record(name=name, predicted=1.0) for name in known]
    seen = Record(rate_rps=7.0, prefix_hit_frac=0.25, reporter="vllm")
    found = Record(fleet=Record(name="mine", serves_rps=9.0, engine="vllm"), telemetry=seen, compared=compared)
    made = grafana.dashboard(found)
    assert made.splitlines()[1].startswith(' "title"')  # indented, so that changes of it can be read
    lines = {p["title"]: [t["legendFormat"] for t in p["targets"]] for p in json.loads(made)["panels"]}
    assert list(lines.items()) == [
        ("Requests a second", ["completed", "planned", "most within the SLOs"]),
        ("Time to first token", ["mean", "P99", "model, mean", "model, P99"]),
        ("Time between tokens", ["mean", "P99", "model, mean"]),
        ("Requests in flight", ["running", "waiting", "model"]),
        ("KV cache in use", ["fullest replica"]),
        ("Prefix-cache hits", ["hits", "planned"]),
    ]
