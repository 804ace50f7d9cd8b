"""Sentences and tables say what their records say: records with numbers of their own, and the words by hand."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace as Record

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from dmodels import SLO as RealSLO
from dmodels import Workload
from dmodels.report import (
    answer_figures,
    explore_page,
    glossary,
    grafana,
    html,
    parted,
    plan_json,
    plan_notes,
    plan_page,
    plan_tables,
    plan_words,
    replay_tables,
    risk_tables,
    style,
    text,
)
from dmodels.studies.explore import at_rest
from dmodels.studies.plan import GROWTH, Margins, Stretch, Tail, question
from dmodels.studies.plan.margins import MOST_SURE
from tests.report.records import asked, fleet, pool, row


def load(name, operating, knee, growth, **more):
    x = np.array([0.5, 0.9, 0.95, 0.99])
    return Record(
        pool=pool(name, **more),
        operating_frac=operating,
        knee_frac=knee,
        growth=growth,
        load_frac=x,
        ttft_s=np.array([0.3, 0.6, 0.8, 3.0]),
    )


def grown(factor, keeps, saturates=False, ttft=0.5, tpot=0.04, drain=math.nan):
    return Record(factor=factor, keeps_slo=keeps, saturates=saturates, ttft_s=ttft, tpot_s=tpot, drain_s=drain)


def risks(first, loads, bursts, losses, stale=()):
    return Record(first=first, loads=loads, bursts=bursts, losses=losses, stale=list(stale), burst_s=60.0)


def test_risks_of_two_pools():
    short, long = load("short", 0.8, 0.7, 1.25), load("long", 0.4, 0.6, 2.5)
    answer = Record(
        best=Record(pools=[short.pool, long.pool]),
        question=asked(),
        headroom_frac=0.18,
        ensured=None,
        survives_loss=False,
    )
    losses = [
        Record(pool=short.pool, after=grown(1.5, False), spare_usd_per_hour=4.0),
        Record(pool=long.pool, after=grown(1.5, False, True, math.inf, math.inf, math.inf), spare_usd_per_hour=6.5),
    ]
    bursts = [grown(1.1, True), grown(1.5, False), grown(2.0, False, True, 9.0, math.inf, 90.0)]
    stale = [
        Record(pool=short.pool, herd_s=0.25, memory_s=5400.0),
        Record(pool=long.pool, herd_s=3.0, memory_s=math.inf),
    ]
    found = risks(short, [short, long], bursts, losses, stale)
    saturation, burst, failure, telemetry = risk_tables.sentences(answer, found)
    assert saturation == (
        "Saturation: the short pool runs at 80% of the rate at which it saturates, beyond its knee at 70%; the rate "
        "may grow by 18% before an SLO breaks and by 25% before queues grow without end."
    )
    assert (
        burst.startswith("Burst: 1.5 times the rate breaks an SLO; ")
        and "(gaps of CV 1; this workload's: 2.5)" in burst
    )
    assert failure == (
        "Failure: losing one instance of the short pool or the long pool breaks an SLO; a spare for each costs "
        "$10.50/h."
    )
    assert "readings younger than 250 ms (the short pool)" in telemetry
    assert row(risk_tables.load_table(found)) == [
        {
            "pool": name,
            "load": share,
            "knee at": knee,
            "saturates at a rate": growth,
            "TTFT now [ms]": 400.0,
            "TTFT at 95 % load [ms]": 800.0,
        }
        for name, share, knee, growth in (("short", "80%", "70%", "x 1.25"), ("long", "40%", "60%", "x 2.50"))
    ]
    one, two, three = row(risk_tables.burst_table(answer, found))
    assert one == {
        "rate": "x 1.1",
        "TTFT P99 [ms]": "500",
        "TPOT P99 [ms]": "40",
        "SLOs kept": "yes",
        "queue gone after": "-",
    }
    assert (two["SLOs kept"], two["queue gone after"]) == ("no", "-")
    assert (three["TPOT P99 [ms]"], three["SLOs kept"], three["queue gone after"]) == (
        "no bound",
        "no: saturates",
        "1.5 min",
    )
    one_spare = [losses[0], Record(pool=long.pool, after=grown(1.5, True), spare_usd_per_hour=6.5)]
    failure = risk_tables.sentences(answer, risks(short, [short, long], bursts, one_spare, stale))[2]
    assert failure == "Failure: losing one instance of the short pool breaks an SLO; a spare for each costs $4.00/h."
    lost = row(risk_tables.loss_table(answer, found))
    assert [(r["pool"], r["lost"], r["a spare costs [USD/h]"]) for r in lost] == [
        ("short", "1 of 3", 4.0),
        ("long", "1 of 3", 6.5),
    ]
    assert lost[1]["queue gone after"] == "never"
    assert row(risk_tables.stale_table(found)) == [
        {"pool": "short", "instances": 3, "herds beyond": "250 ms", "a reading is forgotten after": "1.5 h"},
        {"pool": "long", "instances": 3, "herds beyond": "3 s", "a reading is forgotten after": "any age"},
    ]


def test_risks_of_one_pool():
    only = load("all", 0.5, 0.6, 2.0, instances=1, request_share_frac=1.0)
    answer = Record(best=Record(pools=[only.pool]), question=asked(), headroom_frac=GROWTH[-1] - 1, ensured=object())
    alone = Record(pool=only.pool, after=None, spare_usd_per_hour=4.0)
    said = risk_tables.sentences(answer, risks(only, [only], [grown(1.5, True)], [alone]))
    assert "the pool runs at 50%" in said[0] and "before its knee at 60%" in said[0] and "by at least 1" in said[0]
    assert said[1].startswith("Burst: no burst asked about breaks an SLO; here arrivals are Poisson; the bursts of the")
    assert said[2] == (
        "Failure: the pool (100% of requests) is one instance; while it is down nothing serves its requests; "
        "one more costs $4.00/h."
    )
    assert said[3].startswith("Stale telemetry: no pool has a choice")
    (lost,) = row(risk_tables.loss_table(answer, risks(only, [only], [], [alone])))
    assert lost["SLOs kept"].startswith("no") and lost["lost"] == "1 of 1"
    both = [alone, Record(pool=pool("long"), after=None, spare_usd_per_hour=1.0)]
    answer.best.pools.append(both[1].pool)
    said = risk_tables.sentences(answer, risks(only, [only], [], both))[2]
    assert "(100% of requests) and the long pool (25% of requests) are one instance each" in said
    assert "one more of each costs $5.00/h" in said
    assert "before its knee at 50%" in risk_tables.sentences(answer, risks(load("all", 0.5, 0.5, 2.0), [], [], both))[0]
    held = Record(pool=only.pool, after=grown(1.5, True), spare_usd_per_hour=4.0)
    said = risk_tables.sentences(answer, risks(only, [only], [], [held]))[2]
    assert said == "Failure: each pool may lose one instance and still meet the SLOs."


def test_classes_on_one_fleet_and_regions_together():
    kept = Record(name="chat", priority=2, metric="TTFT", bound_s=2.0, by_priority_s=1.5, in_order_s=3.0)
    together = plan_tables.together_table(Record(kept=[kept], instances=3, layout="h100_sxm tp1"))
    assert together[0] == "All classes on 3 x h100_sxm tp1, replayed under vLLM's scheduler"
    assert row(together) == [
        {
            "class": "chat",
            "priority": 2,
            "metric": "TTFT",
            "SLO [ms]": 2000.0,
            "by priority [ms]": 1500.0,
            "first come first served [ms]": 3000.0,
        }
    ]
    none, fleet = Record(region="east", share_frac=1.0, best=None, usd_per_hour=math.inf), Record(bought_gpus=8)
    fleet.name, fleet.decomposition = "one pool", lambda: "8 GPUs = 2 x 4 h100_sxm"
    half = Record(region="west", share_frac=0.5, best=fleet, usd_per_hour=16.0)
    alone, together = (row(plan_tables.regions_table(Record(alone=[none], together=t))) for t in ([], [half]))
    assert alone == [{"region": "east", "traffic": "100%", "GPUs": "-", "USD/h": "infeasible", "fleet": "-"}]
    said = {"region": "west", "traffic": "50%", "GPUs": 8, "USD/h": 16.0, "fleet": "one pool: 2 x 4 h100_sxm"}
    assert together == [said]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.004, "4 ms"), (1.0, "1 s"), (59.0, "59 s"), (60.0, "1 min"), (3600.0, "1 h"), (7200, "2 h"), (math.nan, "-")],
)
def test_times_as_a_person_says_them(value, words):
    assert risk_tables.seconds(value) == words and risk_tables.seconds(math.inf) == "any age"


def promise(metric, measured, bound, **more):
    known = {"pool": "all", "low_s": 0.9 * measured, "high_s": 1.1 * measured, "kept_frac": 0.985, "worst_s": 3.0}
    known |= {"worst_start_s": 120.0, "predicted_s": 1.2, "error_frac": -0.2, "sure": True}
    found = known | {"holds": measured <= bound} | more
    return Record(metric=metric, measured_s=measured, bound_s=bound, **found)


def replayed(*promises, **more):
    known = {
        "name": "one pool",
        "gpus": 12,
        "instances": (2, 4),
        "policy": "jsq",
        "source": "day.csv",
        "percentile": 0.99,
    }
    known |= {"requests_count": 12345, "period_s": 600.0, "window_s": 60.0, "overloaded": False, "held_count": 5}
    known |= {"days_count": 7, "holds": all(p.holds for p in promises)}
    return Record(promises=promises, **known | more)


def test_replays():
    late = promise("TTFT", 2.5, 2.0, sure=False, pool="short")
    unknown = dict.fromkeys(("low_s", "predicted_s", "error_frac"), math.nan)
    found = replayed(late, promise("TPOT", 0.04, 0.05), promise("E2E", 9.0, math.inf, **unknown))
    title, head, _ = replay_tables.table(found)
    assert title == "Replay of one pool (12 GPUs, 2 + 4 instances, jsq routing): day.csv, 12,345 requests in 600 s"
    assert "P99 [ms]" in head and "worst minute [ms]" in head
    one, two, three = row(replay_tables.table(found))
    assert one == {
        "pool": "short",
        "SLO": "TTFT",
        "P99 [ms]": "2,500",
        "95 % interval": "2,250 to 2,750",
        "bound [ms]": "2,000",
        "kept": "98.50%",
        "worst minute [ms]": "3,000",
        "begins [s]": 120.0,
        "closed form [ms]": "1,200",
        "its error": "-20%",
        "verdict": "missed, not surely",
    }
    assert two["verdict"] == "holds" and two["bound [ms]"] == "50"
    assert (three["verdict"], three["kept"], three["bound [ms]"]) == ("no bound", "-", "-")
    assert (three["95 % interval"], three["closed form [ms]"], three["its error"]) == ("too few requests", "-", "-")
    assert "worst 5 s [ms]" in replay_tables.table(replayed(window_s=5.0))[1]
    assert replay_tables.missed(found) == (
        "MISSED in the replay of day.csv: TTFT of short (2,500 ms against 2,000, kept by 98.5%)."
    )
    over = replayed(late, overloaded=True)
    assert replay_tables.missed(over).endswith("Overloaded: waits keep growing.")
    checks = Record(replays=[over, found], smallest=(3, 5), smallest_gpus=16)
    assert "has 16 GPUs (3 + 5 instances)." in replay_tables.verdict(checks)
    assert "MISSED" in replay_tables.verdict(checks)
    good = Record(replays=[replayed(promise("TTFT", 1.0, 2.0))], smallest=None, smallest_gpus=None)
    assert replay_tables.verdict(good) == (
        "Verified: every SLO holds in the replay of day.csv. No number of instances of these pools holds."
    )
    assert len(replay_tables.tables(Record(best=None), checks)) == 2
    assert replay_tables.tables(Record(best=None), None) == []
    (page,) = plan_page._replays(Record(best=None), checks)
    assert all(html.table(*one) in page for one in replay_tables.tables(Record(best=None), checks))
    assert replay_tables.verdict(checks)[:20] in page and plan_page._replays(Record(best=None), None) == []
    assert len(replay_tables.tables(Record(best=Record(replayed=found)), None)) == 1


def test_how_replays_sized_a_fleet():
    how = Record(formula_gpus=10, same_formula_gpus=12, gpus=16, smallest_gpus=14, next_gpus=20)
    best = Record(replayed=replayed(promise("TTFT", 1.0, 2.0)))
    answer = Record(best=best, ensured=how, question=asked(trace=object()), outside=[])
    (said,) = replay_tables.notes(answer)
    assert said == (
        "Replay: 10 GPUs by the formula (12 of these pools), 16 by the replay of day.csv, where the SLOs take 14 at "
        "least; what is beyond is for other days. It holds on 5 of 7 other days (halves and quarters at the planned "
        "rate, and resamples). For another stretch of such traffic, as long and at the same mean rate, "
        "20 GPUs (--size-for next)."
    )
    answer.question = asked(trace=object(), size_for=Stretch.NEXT, margins=Record(words="20 % headroom"))
    how.smallest_gpus = how.gpus
    assert "where the SLOs take 16 at least with 20 % headroom. It holds on" in replay_tables.notes(answer)[0]
    how.smallest_gpus = 14
    how.same_formula_gpus, how.formula_gpus = 1, 1
    answer.outside = ["load 0.95", "bursts"]
    said, checked = replay_tables.notes(answer)
    assert (
        "Replay: 1 GPU by the formula, 16 by" in said and "take 14 at least with 20 % headroom; what is beyond" in said
    )
    assert said.endswith("It is sized for another stretch of such traffic, as long and at the same mean rate.")
    assert checked == "The closed forms are off here: load 0.95; bursts; the replay decides."
    unseen = Record(best=Record(replayed=None), ensured=None, question=asked(), outside=["x"])
    assert replay_tables.notes(unseen) == ["The closed forms are off here: x; --verify replays the fleet."]
    assert replay_tables.notes(Record(best=None)) == []


def test_what_pays_and_what_costs():
    tails = [Tail(0.02, 30_000.0, 5.0, 0.9), Tail(0.001, 100_000.0, 45.0, 0.1)]
    offers = [
        Record(what="FP8", flags="--weights fp8", saves_frac=0.4, usd_per_hour=12.0, takes="a checkpoint"),
        Record(what="a cache", flags="--prefix-hits", saves_frac=1.0, usd_per_hour=9.5, takes="memory"),
    ]
    long, other = plan_notes.advice(offers, tails)
    assert long.startswith(
        "Long requests: 2% of the requests (from 30,000 tokens) make 90% of the cost: without them $5.00/h"
    )
    assert other == (
        "Not asked, but it pays, by the closed forms: FP8 (--weights fp8) saves 40% and takes a checkpoint; a cache "
        "(--prefix-hits) would do, at $9.50/h and takes memory."
    )
    assert "make all of the cost: without them $5.00/h" in plan_notes.advice([], [Tail(0.02, 3e4, 5.0, 1.0)])[0]
    assert plan_notes.advice([], []) == []
    most = Record(target="rate", value=41.256, more_value=45.0, more_gpus=2, worth_per_gpu=1.872)
    assert plan_notes.advice([], [], most) == [
        "41.26 req/s is the largest rate that can be kept with what there is; with 2 more GPUs 45 req/s (1.872 req/s "
        "per GPU, by the closed forms)."
    ]
    tight = Record(target="ttft", value=0.5, more_value=0.4, more_gpus=1, worth_per_gpu=-0.1)
    assert plan_notes.advice([], [], tight) == [
        "500 ms is the tightest TTFT SLO that can be kept with what there is; with 1 more GPU 400 ms (100 ms per GPU, "
        "by the closed forms)."
    ]


def test_requests_beyond_the_context():
    admitted = Record(
        refused_frac=0.03, cut_frac=0.02, limit_tokens=8192.0, longest_tokens=40_000.0, none=False, rate_rps=19.4
    )
    answer = Record(best=None, priced=Record(admitted=admitted), question=asked(), ensured=None, outside=[])
    (said,) = plan_notes.notes(answer)
    assert said.startswith(
        "Context: 5% of the requests are longer than the 8,192 tokens that the config of m allows "
        "(the longest takes 40,000)."
    )
    assert "The prompts of 3% fill it alone" in said and "which is 19.4 of 20 req/s" in said
    assert "The answers of 2% would run past it" in said
    admitted.cut_frac, admitted.none = 0.0, True
    (said,) = plan_notes.notes(answer)
    assert (
        "Context: 3%" in said
        and "The prompts fill it alone, and engines refuse them: nothing is left to serve." in said
    )
    admitted.refused_frac = 0.0
    assert plan_notes.notes(answer) == []


def test_classes_and_regions():
    kind = lambda name, ttft, share, best: Record(
        requests=Record(name=name, slo=Record(ttft_s=ttft, tpot_s=0.05)),
        share_frac=share,
        best=best,
        plan=Record(sure_frac=0.8),
        usd_per_hour=best.usd_per_hour,
    )
    chat, jobs = kind("chat", 2.0, 0.98, fleet(4, 10.0)), kind("jobs", 60.0, 0.02, fleet(12, 30.004))
    apart = Record(shares=[chat, jobs], fits=True, gpus=16, usd_per_hour=40.0)
    one = lambda usd: Record(best=fleet(20, usd))
    assert "they take $40.00/h (16 GPUs), 20% less than the one fleet" in plan_notes.classes_told(one(50.0), apart)[0]
    assert "(16 GPUs), 60% more than the one fleet" in plan_notes.classes_told(one(25.0), apart)[0]
    assert "as much as" in plan_notes.classes_told(one(40.1), apart)[0]
    assert "apart they take $40.00/h (16 GPUs)." in plan_notes.classes_told(Record(best=None), apart)[0]
    assert plan_notes.classes_told(one(1.0), None) == []
    rows = row(plan_tables.classes_table(apart))
    assert rows[1] == {
        "class": "jobs",
        "requests": "2%",
        "TTFT SLO [ms]": 60_000.0,
        "TPOT SLO [ms]": 50.0,
        "GPUs": 12,
        "USD/h": 30.0,
        "cost": "75%",
        "probability": "0.8",
        "fleet": "one pool: 12 x 1 h100",
    }
    jobs.best, apart.fits, apart.gpus = None, False, None
    assert plan_notes.classes_told(one(1.0), apart) == [
        "Classes of requests: fleets apart do not do, nothing meets the SLOs of jobs."
    ]
    last = row(plan_tables.classes_table(apart))[1]
    assert (last["GPUs"], last["USD/h"], last["cost"], last["fleet"]) == ("-", "infeasible", "-", "-")
    jobs.best = fleet(12, 30.0)
    assert plan_notes.classes_told(one(1.0), apart)[0].endswith("they take more than there is.")
    east, west = (
        Record(region=name, share_frac=share, best=fleet(gpus, usd), usd_per_hour=usd)
        for name, share, gpus, usd in (("east", 0.75, 8, 20.004), ("west", 0.25, 4, 12.0))
    )
    found = Record(alone=[east, west], together=(), fits=True, usd_per_hour=20.0, served_frac=1.0)
    assert plan_notes.regions_told(found) == ["Regions: the fleet lies in east; west takes $12.00/h."]
    west.best = None
    assert plan_notes.regions_told(found) == ["Regions: the fleet lies in east; west cannot serve it alone."]
    assert row(plan_tables.regions_table(found))[1]["USD/h"] == "infeasible"
    west.best = fleet(4, 12.0)
    found = Record(alone=[], together=(east, west), fits=False, usd_per_hour=32.0, served_frac=0.9)
    (said,) = plan_notes.regions_told(found)
    assert "together they serve at most 90% of it, at $32.00/h: east 75% with 8 GPUs" in said
    first = row(plan_tables.regions_table(found))[0]
    assert first == {"region": "east", "traffic": "75%", "GPUs": 8, "USD/h": 20.0, "fleet": "one pool: 8 x 1 h100"}
    assert plan_notes.regions_told(None) == []


def test_a_dashboard_asks_for_what_the_model_expects():
    compared = [Record(name="TTFT, mean [s]", predicted=0.5), Record(name="TTFT, P99 [s]", predicted=1.5)]
    compared += [
        Record(name="time between tokens, mean [s]", predicted=0.025),
        Record(name="requests in flight", predicted=40.0),
    ]
    seen = Record(rate_rps=7.0, prefix_hit_frac=math.nan, reporter="vllm")
    found = Record(fleet=Record(name="mine", serves_rps=9.0, engine="vllm"), telemetry=seen, compared=compared)
    made = json.loads(grafana.dashboard(found))
    panels = {p["title"]: {t["legendFormat"]: t["expr"] for t in p["targets"]} for p in made["panels"]}
    units = {p["title"]: p["fieldConfig"]["defaults"]["unit"] for p in made["panels"]}
    rate = panels["Requests a second"]
    assert (rate["planned"], rate["most within the SLOs"]) == ("vector(7)", "vector(9)")
    assert rate["completed"].startswith("sum(rate(vllm:e2e_request_latency_seconds_count[")
    first, token = panels["Time to first token"], panels["Time between tokens"]
    assert (first["model, mean"], first["model, P99"], token["model, mean"]) == (
        "vector(0.5)",
        "vector(1.5)",
        "vector(0.025)",
    )
    assert "time_to_first_token_seconds_sum" in first["mean"] and first["P99"].startswith("histogram_quantile(0.99, ")
    assert "time_to_first_token" not in token["mean"] and "token" in token["mean"]
    counters = [expr for lines in panels.values() for expr in lines.values() if "rate(" in expr]
    assert len(counters) == 6  # a rate is of a counter of its own over Grafana's window
    for expr in counters:
        assert len(re.findall(r"rate\([\w:]+\[\$__rate_interval\]\)", expr)) == expr.count("rate(")
    for mean in (first["mean"], token["mean"]):  # seconds of all requests over how many there were, as counters grow
        seconds, count = re.fullmatch(
            r"sum\(rate\((\S+)_sum\[\S+\]\)\) / sum\(rate\((\S+)_count\[\S+\]\)\)", mean
        ).groups()
        assert seconds == count
    assert re.search(r"sum by \(le\) \(rate\(\S+_bucket\[", first["P99"])
    flight = panels["Requests in flight"]
    assert flight["running"].startswith("sum(") and flight["waiting"].startswith("sum(")  # over replicas
    assert panels["KV cache in use"]["fullest replica"].startswith("max(")
    assert panels["Requests a second"]["completed"].startswith("sum(rate(")
    assert flight["model"] == "vector(40)" and "running" in flight["running"] and "waiting" in flight["waiting"]
    assert panels["Prefix-cache hits"].keys() == {"hits"}  # nothing was planned
    hits, queries = panels["Prefix-cache hits"]["hits"].split(" / ")
    assert "hits" in hits and "queries" in queries
    assert units["Time to first token"] == "s" and units["Requests a second"] == "reqps"
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in made["panels"]]
    assert places == [(0, 0), (12, 0), (0, 8), (12, 8), (0, 16), (12, 16)]
    assert {(p["gridPos"]["w"], p["gridPos"]["h"]) for p in made["panels"]} == {(12, 8)}  # no gap, none over another
    assert [p["id"] for p in made["panels"]] == [1, 2, 3, 4, 5, 6]
    orders = [[t["legendFormat"] for t in p["targets"]] for p in made["panels"][1:3]]
    assert orders == [["mean", "P99", "model, mean", "model, P99"], ["mean", "P99", "model, mean"]]  # in one order
    assert made["uid"] is None and made["schemaVersion"] == 39  # which Grafana imports as a new board
    assert [t["refId"] for t in made["panels"][1]["targets"]] == ["A", "B", "C", "D"]
    assert all(p["fieldConfig"]["defaults"]["min"] == 0 for p in made["panels"])  # a small change looks like one
    assert (made["time"], made["refresh"]) == ({"from": "now-6h", "to": "now"}, "1m")
    plain = {key: made[key] for key in ("title", "editable", "templating")}
    assert plain == {
        "title": "dmodels: mine, plan against reality",
        "editable": True,
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
    }
    sources = [one["datasource"] for panel in made["panels"] for one in (panel, *panel["targets"])]
    assert len(sources) > 12 and all(one == {"type": "prometheus", "uid": "${datasource}"} for one in sources)
    assert grafana.dashboard(found).endswith("}\n")
    seen.reporter = "sglang"
    other = json.loads(grafana.dashboard(Record(fleet=None, telemetry=seen, compared=[])))
    assert other["title"] == "dmodels: telemetry, plan against reality"
    assert "sglang:" in other["panels"][0]["targets"][0]["expr"] and len(other["panels"][0]["targets"]) == 2
    found.telemetry.reporter, found.fleet.engine = "dynamo_frontend", "sglang"  # the cache is the engine's to report
    asked = [panel["targets"][0]["expr"] for panel in json.loads(grafana.dashboard(found))["panels"]]
    assert "dynamo_frontend_request_duration" in asked[0] and "sglang:token_usage" in asked[4]


def test_the_difference_to_the_start():
    at = lambda gpus, usd, ttft, tpot: Record(best=Record(bought_gpus=gpus, usd_per_hour=usd, ttft_s=ttft, tpot_s=tpot))
    start, none = at(8, 20.0, 1.0, 0.04), Record(best=None)
    tell = explore_page.difference
    assert (
        tell(at(12, 30.0, 1.25, 0.03), start)
        == "Against the start: +4 GPUs, +$10.00/h (+50%), TTFT +250 ms, TPOT -10 ms."
    )
    assert tell(at(6, 15.0, 1.0, 0.04), start) == "Against the start: -2 GPUs, -$5.00/h (-25%)."
    assert tell(start, start) == "As at the start."
    assert tell(none, none) == "Nothing serves this, as at the start."
    assert tell(none, start) == "At the start there was a fleet."
    assert tell(start, none) == "At the start nothing served this."


@pytest.mark.parametrize("gpus", [-3, 0, 2])
@pytest.mark.parametrize("usd", [-0.5, 0.0, 0.25, 3.0])
@pytest.mark.parametrize("slower_s", [-0.2, 0.0, 1e-3, 1.5])
def test_a_difference_is_read_back_as_it_is(gpus, usd, slower_s):
    at = lambda gpus, usd, s: Record(best=Record(bought_gpus=gpus, usd_per_hour=usd, ttft_s=s, tpot_s=s))
    told = explore_page.difference(at(8 + gpus, 20.0 + usd, 2.0 + slower_s), at(8, 20.0, 2.0))
    told = told.replace("$", "").replace(",", "")
    if not (gpus or usd or slower_s):
        assert told == "As at the start."
        return
    words = told.split()
    number = lambda word: float(word.rstrip("/hms"))
    assert int(words[words.index("GPUs") - 1]) == gpus and number(words[words.index("GPUs") + 1]) == usd
    assert words[words.index("GPUs") + 1].startswith("-") == (usd < 0)
    for name in ("TTFT", "TPOT"):
        assert (number(words[words.index(name) + 1]) if name in words else 0.0) == pytest.approx(1e3 * slower_s)


def test_cells_and_tables_of_a_page():
    told = [text.cell(x) for x in (9999.4, 10_000.4, 12.0, 0.00012345, math.nan, math.inf, True, 1234, "x")]
    assert told == "9,999|10,000|12|0.0001234|-|inf|True|1,234|x".split("|")
    assert text.share(0.0) == "0%" and text.share(0.12345) == "12.3%" and text.share(1.0) == "100%"
    page = html.table("T & t", ["name", "count", "words"], [["a<b", 1200, "x"], ["c", 3.5, "y"]])
    assert "<caption>T &amp; t</caption>" in page and "a&lt;b" in page and 'data-name="count"' in page
    assert '<th scope="col" role="columnheader" class="number">count</th>' in page and "1,200" in page
    assert (
        '<td role="cell" data-name="words">x</td>' in page and '<th scope="row" role="rowheader" class="short">' in page
    )
    assert 'class="short"' not in html.table("t", ["name"], [["a name of many letters"], ["b"]])
    some = html.table("t", ["name", 'of "x"'], [["a", 2.5], ["b", "infeasible"]])  # not all of them numbers
    assert 'class="number"' not in some and some.count('data-name="of &quot;x&quot;"') == 2
    assert 'class="number"' not in html.table("t", ["name", "count"], [])
    assert html.card(["GPUs", "USD"], [[8, 2.5]]) == (
        '<dl class="card"><div><dd>8</dd><dt>GPUs</dt></div><div><dd>2.5</dd><dt>USD</dt></div></dl>'
    )
    assert "<details>" in html.section("S", "x", shut=True) and "<details>" not in html.section("S", "x")
    assert answer_figures._time(0.9994) == "999 ms" and answer_figures._time(1.0) == "1 s"
    assert glossary.linked("tp2pp1dp1ep1 of a pool").count('href="#word-layout"') == 1


def test_numbers_from_a_thousand_on_are_whole_and_have_commas():
    """What rounds to a thousand, too; below, four digits at most, and none that say nothing."""
    for shown in (text.cell, style.number):
        assert [shown(x) for x in (999.0, 1000.0, 1000.4, -1000.4)] == ["999", "1,000", "1,000", "-1,000"]
    assert [text.cell(x) for x in (999.94, 999.96, -999.96, 1.00001, 0.0)] == ["999.9", "1,000", "-1,000", "1", "0"]
    assert all(
        float(text.cell(x).replace(",", "")) == pytest.approx(x, rel=5.1e-4) for x in np.geomspace(1e-6, 1e6, 97)
    )


def test_parts_of_a_page_hold_all_that_they_are_given():
    assert html.pictures(["<a>1</a>", "<b>2</b>"]) == '<div class="pictures">\n<a>1</a>\n<b>2</b>\n</div>'
    page = html.report("T", ["one & two", "three"], ["<a>1</a>"], [("caption", ["h"], [["cell"]])])
    order = [page.index(part) for part in ("one &amp; two", "three", "<a>1</a>", "<caption>caption", ">cell</th>")]
    assert order == sorted(order)


#: The end of a field's name -> its unit on a slider, and how many of it there are in the field's own unit.
UNITS = {"rps": ("req/s", 1), "tokens": ("tokens", 1), "frac": ("%", 100), "s": ("ms", 1000), "count": ("per pool", 1)}
UNITS["gpus"] = ("GPUs", 1)


def test_sliders_have_the_units_of_what_they_turn():
    for field, dial in explore_page.FIELDS.items():
        name, _, unit = field.rpartition("_")
        assert (dial.unit, dial.factor) == UNITS[unit], field
        assert name not in ("ttft", "tpot") or dial.label == f"{name.upper()} SLO"
    names = [dial.name for dial in explore_page.FIELDS.values()]
    assert len(set(names)) == len(names)
    labels = {dial.name: dial.label for dial in explore_page.FIELDS.values()}
    assert [labels[name] for name in ("isl", "osl")] == ["mean input", "mean output"]
    assert labels["cached"].startswith("input ")


def test_words_are_linked_where_they_are_read_first_on_the_open_page_and_in_each_section():
    parts = ["<p>slots</p>", "<section><p>slots, KV</p></section>", "<p>KV</p>", "<section><p>KV</p></section>"]
    *made, words = plan_page._explained(parts)
    assert [re.findall(r'href="#word-([^"]+)"', part) for part in made] == [["slots"], ["slots", "kv"], [], ["kv"]]
    assert re.findall(r'<dt id="word-([^"]+)"', words) == ["slots", "kv"]


def test_sliders_stand_where_their_numbers_are():
    """Over the logarithm of what lies between the number at rest over and times its reach, or over it from nothing;
    GPUs are those that are bought at the start."""
    asked = question("llama-3.1-8b", ["h100", "h200"], Workload.fixed(1000.0, 200.0, 10.0), RealSLO(2.0, 0.08))
    start = Record(best=Record(bought_gpus=16, gpus=12))
    rest = at_rest(asked)
    prices = {"h100_sxm": 2.0, "h200_sxm": 3.0}
    turned = replace(rest, rate_rps=30.0, tpot_s=0.05, headroom_frac=0.25, max_gpus=24.0, price_usd_per_hour=prices)
    own = {"rate": 30.0, "tpot": 50.0, "headroom": 25.0, "gpus": 24.0, "price_h100_sxm": 2.0, "price_h200_sxm": 3.0}
    still = {"rate": 10.0, "isl": 1000.0, "osl": 200.0, "ttft": 2000.0, "tpot": 80.0, "gpus": 16.0}
    still |= {f"price_{name}": float(asked.gpus[name].price_usd_per_hour) for name in prices}
    reach = {"rate": 16, "isl": 8, "osl": 8, "ttft": 8, "tpot": 8, "gpus": 4, **{f"price_{name}": 4 for name in prices}}
    ends = {"cached": 95.0, "headroom": 100.0, "spare": 4.0}
    for dials, now in ((rest, {}), (turned, own)):
        page = explore_page._controls(asked, dials, start)
        found = re.findall(
            r'<label for="(\w+)">[^<]*</label><input type="number" id="\1" name="\1" value="([^"]*)".*?'
            r'data-for="\1" min="0" max="1000" data-low="([^"]*)" data-high="([^"]*)".*?value="(\d+)"',
            page,
        )
        assert {name for name, *_ in found} == still.keys() | ends.keys()
        steps = dict(re.findall(r'<input type="number" id="(\w+)"[^>]* step="(\w+)"', page))
        assert {name for name, step in steps.items() if step == "1"} == {"spare"}
        empty = dict(re.findall(r'<input type="number" id="(\w+)"[^>]* (placeholder=any|required)>', page))
        assert empty.keys() == steps.keys() and [n for n, told in empty.items() if told != "required"] == ["gpus"]
        whole = set(re.findall(r'data-for="(\w+)"[^>]*data-whole', page))
        assert whole == {"spare", "gpus"} and re.findall(r'data-for="(\w+)"[^>]*data-open', page) == ["gpus"]
        for name, typed, low, high, place in found:
            low, high, place = float(low), float(high), int(place) / 1000
            if name in ends:
                assert (low, high) == (0.0, ends[name]) and high * place == pytest.approx(float(typed), abs=0.1)
            else:
                assert low * reach[name] == pytest.approx(still[name]) == pytest.approx(high / reach[name])
            if name == "gpus" and not now:
                assert typed == "" and place == 1.0  # any number
                continue
            assert float(typed) == pytest.approx(now.get(name, still.get(name, 0.0)))
            if name in reach:
                assert low * (high / low) ** place == pytest.approx(float(typed), rel=4e-3)


def test_names_of_a_file_of_ones_own_do_not_end_an_attribute():
    made, seen = explore_page._slider(explore_page.Turned('x"y', 'of "x"', "USD/h", reach=4.0), 2.0, 2.0), []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: seen.append(dict(attrs))
    reader.feed(made)
    assert [one.get("name") or one.get("for") or one.get("data-for") for one in seen[1:]] == ['x"y'] * 3
    assert seen[-1]["aria-label"] == 'of "x" [USD/h], slider'


def test_of_more_gpus_than_may_be_bought_the_slider_stands_at_those_that_may():
    asked = question("llama-3.1-8b", ["h100"], Workload.fixed(1000.0, 200.0, 10.0), RealSLO(2.0, 0.08), max_gpus=12)
    for bought, middle in ((16, 12.0), (8, 8.0)):
        page = explore_page._controls(asked, at_rest(asked), Record(best=Record(bought_gpus=bought)))
        low, high = re.search(r'data-for="gpus"[^>]* data-low="([^"]*)" data-high="([^"]*)"', page).groups()
        assert (4 * float(low), float(high) / 4) == (middle, middle)
    page = explore_page._controls(asked, at_rest(asked), Record(best=None))
    assert 'data-for="gpus" min="0" max="1000" data-low="3" data-high="48"' in page


def test_what_is_chosen_from_a_list():
    asked = question("llama-3.1-8b", ["h100", "h200"], Workload.fixed(1000.0, 200.0, 10.0), RealSLO(2.0, 0.08))
    turned = replace(at_rest(asked), gpu="h200_sxm", kv="fp8")
    page = explore_page._controls(asked, turned, Record(best=None))
    listed = dict(re.findall(r'<select id="(\w+)" name="\1">(.*?)</select>', page))
    found = {name: re.findall(r'<option value="([^"]*)"( selected)?>([^<]*)', text) for name, text in listed.items()}
    labels = re.findall(r'<label for="(\w+)">([^<]*)</label><select', page)
    assert labels == [("gpu", "GPU type"), ("weights", "weights"), ("kv", "KV cache")]
    sliders = dict(re.findall(r'<label for="(\w+)">([^<]*)</label><input type="number"', page))
    assert sliders["rate"] == "load [req/s]" and sliders["price_h200_sxm"] == "price of h200_sxm [USD/h]"
    assert [(value, words) for value, _, words in found["gpu"]] == [
        ("", "any of them"),
        ("h100_sxm", "only h100_sxm"),
        ("h200_sxm", "only h200_sxm"),
    ]
    assert {name: [value for value, on, _ in rows if on] for name, rows in found.items()} == {
        "gpu": ["h200_sxm"],
        "weights": [""],
        "kv": ["fp8"],
    }
    for name in ("weights", "kv"):  # what was asked comes first, and not again
        values = [value for value, _, _ in found[name]]
        assert values[0] == "" and found[name][0][2] not in values and len(set(values)) == len(values)
    assert {"fp4", "int4"} <= {value for value, _, _ in found["weights"]}
    assert [value for value, _, _ in found["kv"]] == ["", "bf16", "fp8"]  # no engine has a cache of fewer bits
    one = question("llama-3.1-8b", ["h100"], Workload.fixed(1000.0, 200.0, 10.0), RealSLO(2.0, 0.08))
    assert re.findall(
        r'<select id="gpu" name="gpu">(.*?)</select>', explore_page._controls(one, at_rest(one), Record(best=None))
    ) == ['<option value="" selected>h100_sxm</option>']


def test_one_fleet_by_priority_in_words():
    layout = Record(gpus=2, gpu="h100", parallel="tp2pp1dp1ep1")
    late = [
        Record(name="chat", metric="TTFT", by_priority_s=2.5, bound_s=2.0),
        Record(name="jobs", metric="TTFT", by_priority_s=60.0, bound_s=60.0),  # just kept
    ]
    found = Record(instances=3, layout=layout, gpus=6, usd_per_hour=18.5, kept=late, holds=True)
    for plain, words in ((3, "takes as many of"), (5, "takes 5 of"), (None, "takes more than was tried of")):
        found.in_order_instances = plain
        said, why = plan_notes.together_told(found)
        assert said.startswith("One fleet by priority: 6 GPUs = 3 x 2 h100 (tp2pp1dp1ep1) at $18.50/h keep every")
        assert words in said and "A priority orders who waits" in why
    found.holds = False
    assert plan_notes.together_told(found)[0].endswith(
        "up to 3 x 2 h100 (tp2pp1dp1ep1) nothing keeps every class's SLOs (chat TTFT 2,500 ms)."
    )
    assert plan_notes.together_told(None) == []


def test_where_no_one_fleet_is_the_answer_the_cheapest_of_the_others_is():
    answer = Record(best=None, question=asked(workload_name="chats"), priced=Record(admitted=Record(refused_frac=0.0)))
    together = Record(holds=True, usd_per_hour=50.0, gpus=20, kept=[], instances=3, layout="h100_sxm tp1")
    share = Record(requests=Record(name="chat", slo=Record(ttft_s=2.0, tpot_s=0.05)), share_frac=1.0, usd_per_hour=40.0)
    share.best, share.plan = fleet(16, 40.0), Record(sure_frac=0.0)
    apart = Record(fits=True, gpus=16, usd_per_hour=40.0, shares=[share])
    sites = [
        Record(region=name, share_frac=0.5, best=fleet(gpus, usd), usd_per_hour=usd)
        for name, gpus, usd in (("east", 8, 20.0), ("west", 4, 10.0))
    ]
    regions = Record(together=sites, alone=[], fits=True, usd_per_hour=30.0)
    told = lambda **found: parted.parted(answer, **found)
    best = told(apart=apart, together=together, regions=regions)
    assert (best.how, best.gpus, best.usd_per_hour) == ("fleets in several regions", 12, 30.0)
    assert list(best.fleets) == ["east", "west"] and best.table == plan_tables.regions_table(regions)
    best = told(apart=apart, together=together)
    assert (best.how, best.gpus, best.usd_per_hour) == ("a fleet for each class of requests", 16, 40.0)
    # 40 dollars an hour, 365 days of 24 hours
    assert best.sentence(answer) == (
        "Deploy 16 GPUs as a fleet for each class of requests for 20 req/s of chats with m: $40.00/h, $350,400/year."
    )
    assert best.card[2] == [[16, "29,200", "a fleet for each class of requests"]]
    assert list(best.fleets) == ["chat"] and best.table == plan_tables.classes_table(apart)
    best = told(together=together)
    assert (best.how, best.gpus, best.launches) == ("one fleet by priority", 20, [])
    assert best.usd_per_hour == 50.0 and best.table == plan_tables.together_table(together)
    together.holds = apart.fits = regions.fits = False
    assert told(apart=apart, together=together, regions=regions) is None is told()
    together.holds, answer.best = True, fleet(1, 1.0)
    assert told(together=together) is None


def test_fleets_apart_are_started_one_after_the_other(monkeypatch):
    monkeypatch.setattr(parted, "command", lambda x, question: f"serve {x.stage.name} of {question}")
    part = lambda question, *pools: Record(best=Record(pools=pools), plan=Record(question=question))
    fleets = {"chat": part("this", pool("short", 3), pool("long", 1)), "none": Record(best=None)}
    made = parted.Parted("apart", 8, 10.0, None, fleets | {"jobs": part("that", pool("all", 2))})
    assert made.launches == [
        *("# chat, short: 3 x", "serve short of this", "# chat, long: 1 x", "serve long of this"),
        *("# jobs, all: 2 x", "serve all of that"),
    ]
    assert made.card == ("In short", ["GPUs", "USD a month", "as"], [[8, "7,300", "apart"]])


def test_what_another_input_costs_and_why_layouts_fell():
    answer = Record(priced=Record(admitted=Record(refused_frac=0.1)), formula_usd_per_hour=20.0, ensured=None)
    change = lambda factor, usd, refused=0.1: Record(
        what="rate", factor=factor, usd_per_hour=usd, name="one pool", refused_frac=refused
    )
    title, _, rows = plan_tables.sensitivity_table(answer, [change(1.25, 25.0), change(0.5, 11.0, 0.2)])
    assert rows[0][:3] == ["rate", "x 1.25", 25.0] and rows[0][-1] == "one pool"
    assert rows[1][1:3] == ["x 0.5", 11.0] and rows[1][-1] == "one pool, 20% refused"
    assert "25" in rows[0][3] and "45" in rows[1][3] and "closed forms" not in title
    answer.ensured = Record()
    assert "by the closed forms" in plan_tables.sensitivity_table(answer, [])[0]
    fell = Record(layout="h100 tp1", binding="memory", have="80 GB", need="140 GB", fix="tp2")
    assert row(plan_tables.rejections_table((fell,))) == [
        {"layout": "h100 tp1", "binds": "memory", "have": "80 GB", "need": "140 GB", "smallest fix": "tp2"}
    ]
    use = Record(pool=pool("all", layout=Record(gpu="h100")), parts={"weights": 15.0 * 2**30, "KV": 2.5 * 2**30})
    use.gpu_bytes = 79.18 * 2**30
    (memory,) = row(plan_tables.memory_table([use]))
    assert memory == {"pool": "all", "GPU": "h100", "weights [GiB]": 15.0, "KV [GiB]": 2.5, "all [GiB]": 79.18}
    assert [plan_words.per_year(x) for x in (999_499, 999_500, 2.34e6)] == [
        "$999,499/year",
        "$1.00 M/year",
        "$2.34 M/year",
    ]


def test_pools_and_their_sum():
    """As replayed where they were, and where the requests of a pool are its own; a decoder has no first token alone."""
    sure = Record(ttft=(0.8, 1.5), tpot=(0.9, 1.2))
    one = lambda name, instances, role: pool(
        name,
        instances,
        role,
        layout="h100 tp2",
        gpus=2 * instances,
        usd_per_hour=5.123 * instances,
        usd_per_year=43_800.2 * instances,
        confidence=sure,
        tpot_s=0.04,
        decode_count=7.25,
        slots_count=63.9,
    )
    pools = [one("short", 3, "serve"), one("long", 1, "prefill")]
    seen = lambda x, metric: {"TTFT": x.ttft_s, "TPOT": x.tpot_s}[metric]
    best = Record(pools=pools, gpus=8, usd_per_hour=20.492, usd_per_year=175_200.8, ttft_s=0.7, tpot_s=0.041)
    best.seen, best.replayed, best.in_turn = seen, None, False
    answer = Record(best=best, question=asked(), priced=Record(admitted=Record(refused_frac=0.0)))
    short, long, together = row(plan_tables.pools_table(answer))
    assert (short["requests"], short["instances"], short["GPUs"], short["USD/h"]) == ("25.0%", 3, 6, 15.37)
    assert (short["USD/year"], short["in flight"], short["slots"]) == (131_401, 7.2, 63)
    assert "400" in short["TTFT P99 [ms]"] and "320" in short["TTFT P99 [ms]"] and "600" in short["TTFT P99 [ms]"]
    assert "40" in short["TPOT P99 [ms]"] and "36" in short["TPOT P99 [ms]"] and "48" in short["TPOT P99 [ms]"]
    assert (long["TPOT P99 [ms]"], long["in flight"], long["slots"]) == ("-", "-", 63)
    assert list(together.values())[:9] == ["together", "100.0%", 4, "", 8, 20.49, 175_201, "700", "41"]
    for replayed, in_turn, refused, words in (
        (None, False, 0.0, "latencies with their"),
        (Record(), False, 0.0, "latencies as replayed, with their"),
        (Record(), True, 0.0, "latencies of stages by the closed forms, together as replayed, with their"),
        (None, False, 0.1, "; requests are shares of those served"),
    ):
        best.replayed, best.in_turn, answer.priced.admitted.refused_frac = replayed, in_turn, refused
        assert words in plan_tables.pools_table(answer)[0]
    best.pools = pools[:1]
    assert len(plan_tables.pools_table(answer)[2]) == 1


def test_the_answer_in_sentences():
    """What to deploy, beside the cheapest single pool or the cheapest estimate; how sure; who else may be as cheap."""
    best, base = fleet(8, 20.0, "two pools"), fleet(12, 25.0)
    best.pools = [pool("short", layout=Record(gpu="h100"), confidence=Record(provenance="calibrated on h100"))]
    best.usd_per_year, best.gpus_low, best.gpus_high, best.node_gpus, best.kind = 175_200.0, 7.0, 10.0, 1, "two pools"
    other = fleet(9, 21.0, "split")
    sure = Record(provenance="calibrated on h200")
    other.kind, other.pools = "split", [pool("prefill", layout=Record(gpu="h200"), confidence=sure)]
    answer = Record(best=best, baseline=base, cheapest=best, sure_frac=0.509, indistinguishable=lambda: [other])
    answer.question, answer.priced = asked(workload_name="chats"), Record(admitted=Record(refused_frac=0.25))
    first, second, third, last = plan_words.sentences(answer)
    assert first == (
        "Deploy 8 GPUs = 8 x 1 h100 as two pools for 20 req/s of chats with m (25% of them refused: longer than the "
        "model's context): $20.00/h, $175,200/year."
    )
    assert second == "The cheapest single pool takes 12 GPUs = 12 x 1 h100 at $25.00/h; this saves 20.0%."
    assert "with a probability of 0.5;" in third and "the fleet is 7 to 10 GPUs (calibrated on h100)." in third
    assert last == "Within that error its cost cannot be told from that of split (9 h200)."
    best.pools, other.usd_per_hour = [*best.pools, pool("long", layout=Record(gpu="h100"), confidence=sure)], 22.4
    assert plan_words.sentences(answer)[-1].endswith("that of split (9 h200; fewer pools, for 12% more).")
    best.pools = best.pools[:1]
    lone = fleet(7, 18.0, "split")
    lone.gpus_low, lone.gpus_high, best.pools[0].usd_per_hour = 7.0, 7.0, 20.0
    lone.pools = [pool("prefill", instances=2, usd_per_hour=10.0), pool("decode", instances=1, usd_per_hour=8.0)]
    for each in lone.pools:
        each.layout, each.confidence = best.pools[0].layout, Record(provenance="calibrated on h100", shared_frac=1.0)
    answer.cheapest, best.gpus_low, best.gpus_high = lone, 8.0, 8.0
    assert plan_words.sentences(answer)[1].endswith(
        "10.0% less, but nothing stands in for its only decode instance; a second costs $8.00/h."
    )
    lone.pools[1].instances = 2
    assert plan_words.sentences(answer)[1].endswith(
        "less, which the model's error does not tell from this, for more pools to run."
    )
    lone.pools = lone.pools[:1]
    assert plan_words.sentences(answer)[1].endswith("less, which the model's error does not tell from this.")
    answer.cheapest, best.gpus_low = best, 7.0
    answer.baseline, answer.sure_frac, best.gpus_high, best.bought_gpus = best, 0.0, math.inf, 16
    best.node_gpus, answer.indistinguishable = 4, lambda: []
    first, second = plan_words.sentences(answer)
    assert "for 16 GPUs in whole nodes of 4, 8 of them idle." in first
    assert "misses an SLO more likely than not" in second and "the fleet is 7 GPUs or more, and at the slow" in second
    best.gpus_low = best.gpus_high = 1.0
    assert "the fleet stays at 1 GPU (" in plan_words.sentences(answer)[1]
    answer.best, answer.priced.layouts = None, [1, 2, 3]
    answer.rejections = [Record(layout="h100 tp1", binding="memory", have="80 GB", need="140 GB", fix="tp2")]
    answer.rejections.append(Record(layout="l4 tp1", binding="TPOT", have="90 ms", need="50 ms", fix="h100"))
    there = ("No fleet serves this", ["binds", "there", "needed"], [["memory", "80 GB", "140 GB"]])  # by the nearest
    assert plan_words.card(answer) == there
    assert plan_words.sentences(answer) == [
        "Nothing among 3 layouts serves 20 req/s of chats with m (25% of them refused: longer than the model's "
        "context) within the SLOs.",
        "The nearest is h100 tp1: memory binds (80 GB there, 140 GB needed); smallest fix: tp2.",
    ]


def test_three_sentences_say_what_four_do():
    """Word for word, and of the cheapest fleet what it was chosen from and what binds in each of its pools."""
    best, base = fleet(8, 20.0, "two pools"), fleet(12, 25.0)
    known = {"layout": Record(gpu="h100"), "confidence": Record(provenance="measured")}
    best.pools = [pool("short", binding="TPOT", **known), pool("long", binding="memory", **known)]
    best.usd_per_year, best.gpus_low, best.gpus_high, best.node_gpus, best.kind = 175_200.0, 7.0, 10.0, 1, "two pools"
    other = Record(name="Split", gpus=9, kind="split", pools=best.pools[:1], usd_per_hour=20.0)
    answer = Record(best=best, baseline=base, cheapest=best, sure_frac=0.75, indistinguishable=lambda: [other])
    answer.question, answer.priced = asked(workload_name="chats"), Record(admitted=Record(refused_frac=0.0))
    words = lambda parts: re.findall(
        r"[a-z0-9$%.,/]*[a-z0-9%]", " ".join(parts).lower().replace(" and within", " within")
    )
    told = plan_words.in_three_sentences(answer)
    assert len(told) == 3 and words(told) == words(plan_words.sentences(answer)) and all(t[-1] == "." for t in told)
    answer.baseline, answer.priced.layouts, answer.priced.schemes = best, [1, 2, 3], [1, 2]
    told = plan_words.in_three_sentences(answer)
    why = "It is the cheapest of 3 layouts, put together in 2 ways; one instance less would break "
    assert told[1] == f"{why}TPOT (short) and memory (long)." and len(told) == 3
    answer.cheapest = fleet(7, 19.0, "split")
    answer.cheapest.pools = [pool("all", layout=Record(gpu="h100"), confidence=Record(provenance="assumed"))]
    assert "19.00/h" in plan_words.in_three_sentences(answer)[1]  # another is cheaper, by an estimate
    answer.cheapest, best.pools = best, best.pools[:1]
    assert plan_words.in_three_sentences(answer)[1] == f"{why}TPOT."
    answer.best = None
    answer.rejections = [Record(layout="h100 tp1", binding="memory", have="80 GB", need="140 GB", fix="tp2")]
    told = plan_words.in_three_sentences(answer)
    assert told[0].startswith("Nothing among 3 layouts serves ") and told[0].endswith(" within the SLOs.")
    assert told[1:] == [
        "The nearest is h100 tp1: memory binds (80 GB there, 140 GB needed).",
        "The smallest change that would help: tp2.",
    ]


def test_alternatives_stand_once_each_under_the_first_name_they_have():
    """Best of each kind, the cheapest estimate, the best of each type; dollars of a million tokens by the hour."""
    best, split, cheap = fleet(8, 36.0), fleet(4, 50.004, "split"), fleet(6, 30.0)
    other = fleet(16, 60.0)
    for d, high in ((best, 12.0), (split, math.inf), (cheap, 6.0), (other, 16.0)):
        d.gpus_low, d.gpus_high, d.usd_per_year = d.gpus, high, 8760 * d.usd_per_hour
        d.tokens_per_s, d.ttft_s, d.tpot_s = 2000.0, 0.5, 0.04
        d.pools = [pool("all", layout=Record(gpu="h200" if d is other else "h100"))]
    answer = Record(best=best, kinds=[best, split], cheapest=cheap, by_gpu=[best, split, other], question=asked())
    found = row(plan_tables.alternatives_table(answer))
    assert [(r["alternative"], r["GPUs"], r["80 % interval"]) for r in found] == [
        ("recommended: one pool", 8, "8 to 12"),
        ("split", 4, "4 to infeasible"),
        ("cheapest estimate: one pool", 6, "6 to 6"),
        ("only h200: one pool", 16, "16 to 16"),
    ]
    assert found[0]["USD/Mtoken out"] == pytest.approx(5.0) and found[0]["USD/year"] == 315_360  # 7.2 million an hour
    assert (found[1]["pools"], found[1]["USD/h"]) == ("4 x 1 h100", 50.0)
    assert [d for _, d in plan_tables.alternatives(answer)] == [best, split, cheap, other]
    assert found[2]["TTFT P99 [ms]"] == 500 and found[2]["TPOT P99 [ms]"] == 40
    for answer.cheapest in (None, best):
        assert [d for _, d in plan_tables.alternatives(answer)] == [best, split, other]


def test_a_page_is_a_whole_document():
    """Every element that begins ends, in turn; what is given stands in it once, in order, under its title."""
    made = html.page("A & B", ["<p>first</p>", "<p>second</p>"], '<meta name="x">\n')
    open_, seen = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append(tag)
            open_.extend([tag] * (tag != "meta"))

        def handle_endtag(self, tag):
            assert open_.pop() == tag

        def handle_data(self, data):
            seen.extend([data.strip()] * (bool(data.strip()) and open_[-1] != "style"))

    Reader().feed(made)
    assert not open_ and made.startswith("<!doctype html>") and made.endswith("</html>\n")
    head = ["html", "head", "meta", "title", "A & B", "meta", "style", "meta"]
    assert seen == [*head, "body", "main", "h1", "A & B", "p", "first", "p", "second"]


def test_of_a_probability_no_more_is_told_than_was_looked_for():
    """Rounded down; a share of all requests that is refused is told only where some are served."""
    told = [plan_words.chance(Record(sure_frac=p)) for p in (0.0, 0.5, 0.619, MOST_SURE - 1e-3, MOST_SURE, 1.0)]
    assert told == ["below 0.5", "0.5", "0.61", "0.97", "at least 0.97", "at least 1"]
    answer = Record(question=asked(workload_name="chats"), priced=Record(admitted=Record(refused_frac=0.0)))
    for refused, words in ((0.0, ""), (0.01, " (1% of them refused: longer than the model's context)"), (1.0, "")):
        answer.priced.admitted.refused_frac = refused
        assert plan_words.load(answer) == f"20 req/s of chats with m{words}"


def test_headroom_is_at_least_what_was_looked_for_only_where_the_last_of_it_held():
    for growth in (*GROWTH, 0.5 * (GROWTH[-2] + GROWTH[-1]), 0.999 * GROWTH[-1]):
        told = plan_words.headroom(Record(headroom_frac=growth - 1.0))
        assert told.startswith("at least ") == (growth == max(GROWTH))
        assert float(told.rpartition(" ")[2].rstrip("%")) == pytest.approx(100 * growth - 100, abs=0.51)


def test_what_was_asked_is_told_by_its_own_name():
    """Every key is a field of the question, its limits, margins, SLOs or engine, and holds that field's value."""
    asked = question(
        "llama-3.1-8b",
        ["h100_sxm"],
        Workload([900.0, 100.0], [50.0, 70.0], [0.25, 0.75], rate_rps=3.0),
        RealSLO(2.0, 0.05, 9.0, 0.95),
        prices_usd_per_hour={"h100_sxm": 2.25},
        **{"weights": "fp8", "kv": ("bf16", "fp8"), "tp": (2, 8), "pp": (1, 3), "wide_ep": (0, 16)},
        **{"max_gpus": 64.0, "inventory": {"h100_sxm": 40.0}, "node_gpus": 4, "max_usd_per_hour": 99.0},
        margins=Margins(0.3, 2, 0.75),
    )
    told = plan_json.inputs(Record(question=asked))
    plain = lambda value: list(value) if isinstance(value, tuple) else value
    seconds = {f"slo_{name}_ms": getattr(asked.slo, f"{name}_s") for name in ("ttft", "tpot", "e2e")}
    homes = (asked, asked.margins, asked.workload, asked.engine, asked.model)
    for name, value in told.items():
        if name in seconds:
            assert value == pytest.approx(1e3 * float(seconds[name]))
        elif name not in ("model", "gpus", "workload", "price_usd_per_hour", "slo_percentile"):
            assert value == next(plain(getattr(home, name)) for home in homes if hasattr(home, name)), name
    assert told["price_usd_per_hour"] == {"h100_sxm": 2.25} and told["slo_percentile"] == 0.95
    assert (told["model"], told["gpus"], told["workload"]) == ("llama-3.1-8b", ["h100_sxm"], asked.workload_name)


@pytest.mark.parametrize("there", [True, False])
def test_the_page_of_dials_shows_the_answer_and_its_pictures_or_says_why_not(there, monkeypatch):
    answer, start, dials, asked = object(), object(), object(), Record(model_name="m", workload_name="w")
    known = {id(answer): "answer", id(start): "start", id(dials): "dials", id(asked): "asked"}
    told = lambda name: lambda *given: f"<i>{name} {[known[id(x)] for x in given]}</i>"
    for name in ("_controls", "answer_fragment", "pictures_fragment"):
        monkeypatch.setattr(explore_page, name, told(name))
    made = explore_page.explore_page(asked, dials, start, answer if there else None, "2 < 3")
    parts = dict(re.findall(r'<\w+ id="(\w+)"[^>]*>\s*(.*?)\s*</(?:p|div)>', made, flags=re.DOTALL))
    shown = {
        "answer": "<i>answer_fragment ['answer', 'start']</i>",
        "pictures": "<i>pictures_fragment ['answer']</i>",
    }
    assert parts == {"status": "2 &lt; 3"} | (shown if there else dict.fromkeys(shown, ""))
    assert ('class="bad"' in made) == (not there) and "_controls ['asked', 'dials', 'start']" in made
    assert "<title>Explore: m, w</title>" in made


def test_the_pictures_of_dials_are_those_of_the_answer_and_a_line_for_each_pool(monkeypatch):
    """Each once, and none with another's number, which would give two elements of a page one id."""
    drawing = lambda name: (None, 3.0, name, name)
    seen = []
    monkeypatch.setattr(plan_page, "answer_drawings", lambda answer: [drawing("promises"), drawing("costs")])
    monkeypatch.setattr(plan_page, "fleet_drawings", lambda answer: [drawing("cost front"), drawing("throughput")])
    monkeypatch.setattr(plan_page, "latency_drawing", drawing)
    monkeypatch.setattr(explore_page, "loads", lambda answer: ["pool one", "pool two"])
    monkeypatch.setattr(style, "figure", lambda draw, height, quick: (height, quick))
    monkeypatch.setattr(
        html, "picture", lambda made, caption, i, told: seen.append((caption, i, made[1])) or f"<i>{caption}</i>"
    )
    made = explore_page.pictures_fragment(Record(best=object()))
    assert re.findall("<i>(.*?)</i>", made) == ["promises", "costs", "cost front", "throughput", "pool one", "pool two"]
    assert len({i for _, i, _ in seen}) == 6
    quick = {caption: quick for caption, _, quick in seen}  # all but the two whose margins hold long names
    assert not quick.pop("promises") and not quick.pop("costs") and all(quick.values())
    assert re.findall("<i>(.*?)</i>", explore_page.pictures_fragment(Record(best=None))) == ["cost front", "throughput"]
    assert seen[-1][2] and seen[-2][2]


def test_the_answer_of_dials_is_told_whole_in_turn(monkeypatch):
    """Card, difference, sentences, notes, tables; of an answer without a fleet, what fell in place of its pools."""
    for module, name, found in (
        (plan_words, "card", ("title", ["cards"], [["of 1"]])),
        (plan_words, "in_three_sentences", ["One.", "Two."]),
        (plan_tables, "pools_table", ("pools", ["p"], [["short"]])),
        (plan_tables, "alternatives_table", ("alternatives", ["a"], [["split"]])),
        (plan_tables, "rejections_table", ("rejections", ["r"], [["memory"]])),
        (explore_page, "notes", ["a note"]),
    ):
        monkeypatch.setattr(module, name, lambda *given, found=found: found)
    monkeypatch.setattr(explore_page, "difference", lambda now, then: f"{now.gpus - then.gpus:+d} GPU")
    for best, last in (
        (object(), ["pools", "p", "short", "alternatives", "a", "split"]),
        (None, ["rejections", "r", "memory"]),
    ):
        made = explore_page.answer_fragment(Record(best=best, rejections=(), gpus=3), Record(gpus=2))
        words = [word.strip() for word in re.findall(r">([^<]+)<", made) if word.strip()]
        assert words[:5] == ["of 1", "cards", "+1 GPU", "One. Two.", "a note"] and words[6:] == last
        assert "replays" in words[5]
        assert re.findall(r'<p class="(\w+)">', made) == ["difference", "answer"]


def marked(names, **more):
    """A record whose every field holds a number of its own, and what is given."""
    return Record(**{name: 2.0 + k / 7 for k, name in enumerate(names.split())} | more)


def test_a_document_holds_each_field_under_its_own_name(monkeypatch):
    """Fleets and pools: seconds in milliseconds, everything else as it is, from the record that has such a field."""
    layout = marked("gpus", parallel="tp2", gpu="h100", weights="fp8", kv="bf16")
    confidence = Record(ttft=(0.5, 2.0), tpot=(0.25, 4.0), provenance="measured")
    numbers = (
        "usd_per_hour request_share_frac max_model_len_tokens ttft_s tpot_s e2e_s decode_count load_frac slots_count"
    )
    pool = marked(
        numbers, layout=layout, confidence=confidence, stage=Record(name="short", role="serve"), binding="TTFT"
    )
    pool.instances, pool.gpus, pool.extrapolated = 3, 6, ("E2E",)
    fleet_numbers = "gpus bought_gpus gpus_low gpus_high usd_per_hour usd_per_year ttft_s tpot_s e2e_s"
    fleet = marked(fleet_numbers, kind="two pools", name="two", router={"policy": "jsq"}, pools=[pool], replayed=None)
    fleet.seen = lambda x, metric: {"TTFT": 0.125, "TPOT": 0.375, "E2E": 0.625}[metric]  # as replayed
    monkeypatch.setattr(plan_json, "command", lambda x, question: f"serve {x.stage.name}")
    shown = plan_json._plain(Record(question=None), fleet)
    (inside,) = shown.pop("pools")
    other = {"fleet_gpus": "gpus", "replay": "replayed", "pool_gpus": "gpus", "pool_instances": "instances"}
    other |= {"gpus_per_instance": "gpus", "layout": "parallel", "latency_provenance": "provenance"}
    for document, homes in ((shown, [fleet]), (inside, [pool.stage, layout, confidence, pool])):
        for key, value in document.items():
            name = other.get(key, key)
            if key.endswith("_ms"):
                continue
            homes_of = [layout] if key == "gpus_per_instance" else [pool] if key.startswith("pool_") else homes
            expected = (
                "serve short" if key == "command" else next(getattr(h, name) for h in homes_of if hasattr(h, name))
            )
            assert value == (list(expected) if isinstance(expected, tuple) else expected), key
    for metric in ("ttft", "tpot", "e2e"):
        assert shown[f"{metric}_ms"] == pytest.approx(1e3 * getattr(fleet, f"{metric}_s"), rel=5e-4)
    assert (inside["ttft_ms"], inside["tpot_ms"], inside["e2e_ms"]) == (125, 375, 625)
    assert (inside["ttft_interval80_ms"], inside["tpot_interval80_ms"]) == ([62.5, 250], [93.75, 1500])


def test_a_document_of_a_plan_holds_each_part_under_its_own_name(monkeypatch):
    monkeypatch.setattr(plan_json, "_plain", lambda answer, fleet: f"plain {fleet}")
    monkeypatch.setattr(plan_json, "sentences", lambda answer: ["said"])
    monkeypatch.setattr(plan_json, "notes", lambda answer: ["noted"])
    monkeypatch.setattr(plan_json, "advice", lambda suggested, tail: ["advised"])
    fell = Record(layout="tp1", binding="memory", have="80 GB", need="140 GB", fix="tp2")
    thing = lambda name: Record(to_dict=lambda: name)
    answer = marked(
        "headroom_frac sure_frac points_count", best="best", cheapest="cheapest", kinds=["kind"], by_gpu=["gpu"]
    )
    answer.priced, answer.by_threshold = Record(admitted=Record(refused_frac=0.25, cut_frac=0.125)), ((1024.0, 9.0),)
    answer.rejections, answer.ensured, answer.outside, answer.survives_loss = [fell], thing("ensured"), ("load",), True
    shown = plan_json.result(answer, [Record(what="rate")], [thing("suggested")], [thing("tail")])
    assert shown == {
        **{"feasible": True, "summary": ["said"], "notes": ["noted", "advised"]},
        **{"refused_frac": 0.25, "cut_off_frac": 0.125, "recommended": "plain best", "cheapest": "plain cheapest"},
        **{"alternatives": ["plain kind"], "by_gpu": ["plain gpu"], "rejections": [vars(fell)]},
        **{"two_pools_usd_per_hour_by_threshold_tokens": {1024.0: 9.0}, "sensitivity": [{"what": "rate"}]},
        **{"suggestions": ["suggested"], "longest_requests": ["tail"], "ensured": "ensured"},
        **{"outside_of_checked": ["load"], "rate_headroom_frac": answer.headroom_frac},
        **{"survives_loss_of_an_instance": True, "keeps_slos_probability": answer.sure_frac},
        "points_count": answer.points_count,
    }
    answer.best = answer.cheapest = answer.ensured = None
    shown = plan_json.result(answer, [])
    assert not shown["feasible"] and shown["recommended"] is shown["cheapest"] is shown["ensured"] is None


def test_the_card_of_a_plan_tells_what_binds_where_it_is_fullest():
    best = fleet(8, 20.0)
    best.usd_per_year, best.bought_gpus = 120_000.0, 16
    best.pools = [pool(f"{load_frac}", load_frac=load_frac, binding=f"at {load_frac}") for load_frac in (0.3, 0.9, 0.5)]
    answer = Record(best=best, sure_frac=0.75, headroom_frac=0.1, ensured=None, question=asked())
    shown = dict(zip(*(lambda head, rows: (head, rows[0]))(*plan_words.card(answer)[1:]), strict=True))
    assert list(shown.items()) == [
        ("GPUs", 16),
        ("USD a month", "10,000"),
        ("probability that the SLOs hold", "0.75"),
        ("growth of the load that it bears", "10%"),
        ("one instance less breaks", "at 0.9"),
    ]
    for ensured, trace in ((Record(next_gpus=24), None), (None, object())):
        answer.ensured, answer.question = ensured, asked(trace=trace)
        assert plan_words.card(answer)[1][4:] == ["one instance less breaks"]
    answer.ensured, answer.question = Record(next_gpus=24), asked(trace=object())
    _, head, (cells,) = plan_words.card(answer)
    assert (head[4:], cells[4:]) == (["GPUs for another stretch", "one instance less breaks"], [24, "at 0.9"])
