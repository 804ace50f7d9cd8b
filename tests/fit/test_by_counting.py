"""Errors, repetitions, intervals and sweeps of measured rows, counted out on small tables."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from statistics import fmean, median
from types import SimpleNamespace as Record

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.fit import descent, hierarchy, predict, silicon
from dmodels.fit.conformal import LEVELS, METRICS, Quantiles, bounds, calibrate, group_names, narrowest
from dmodels.fit.descent import Weighing
from dmodels.fit.knee import bracket
from dmodels.fit.layouts import layouts
from dmodels.fit.load_sweeps import load_sweeps
from dmodels.fit.measured import Machine, rows_of
from dmodels.fit.points import fp8_formats, to_points
from dmodels.fit.protocols import folds
from dmodels.fit.recipes import Layout, recipe, side
from dmodels.fit.rows import Row, Table, measurement, parse_row, release
from dmodels.fit.runs import Settings
from dmodels.formats.measurements import LatencyStats, LoadPoint
from tests.fit.test_rows import AGG

FLAT = Layout(2.0)
PLAIN = Row(
    **{"id": "r", "model_path": "meta-llama/Llama-3.1-8B-Instruct", "system": "h100_sxm", "backend": "vllm"},
    **{"precision": "", "gemm_dtype": "", "moe_dtype": "", "mode": "agg", "isl": 1000.0, "osl": 100.0},
    **{
        "concurrency": 4.0,
        "decode": FLAT,
        "prefill": FLAT,
        "stated": True,
        "draft_tokens": 0.0,
        "stream_interval": 1.0,
    },
)


def measured(rng, count):
    """Rows of few configurations, releases and days, some of them copies of one another."""
    found = []
    for k in range(count):
        row = replace(
            PLAIN,
            id=f"r{k}",
            isl=float(rng.choice([500, 1000])),
            concurrency=float(rng.choice([4, 8])),
            release=str(rng.choice(["0.18.0", "0.19.0"])),
            source=f"x; measured=2026-0{rng.integers(1, 4)}-05; y" if rng.random() < 0.8 else "unknown",
            ttft_s=float(np.exp(rng.normal(-1.0, 0.9))),
            tpot_s=float(np.exp(rng.normal(-4.0, 0.5))),
        )
        found.append(replace(found[-1], id=f"r{k}", system=row.system) if found and rng.random() < 0.2 else row)
    return found


def groups_of(rows):
    """Rows of one model, lengths and load, each measurement once: numbers of those that were repeated."""
    found = {}
    for i, row in enumerate(rows):
        same = found.setdefault((row.isl, row.concurrency), {})
        same.setdefault((round(1e3 * row.ttft_s, 2), round(1e3 * row.tpot_s, 2)), i)
    return [list(g.values()) for g in found.values() if len(g) > 1]


def apart(a, b):
    return abs(a / b - 1.0)


def test_repetitions_their_disagreement_and_what_no_model_can_do():
    for seed in range(6):
        rows = measured(np.random.default_rng(seed), 24)
        groups = groups_of(rows)
        assert predict.repeats(rows) == groups and groups
        kinds, floor = {}, {"ttft": [], "tpot": []}
        for group in groups:
            for i, j in itertools.permutations(group, 2):
                a, b = rows[i], rows[j]
                kind = "other release"
                if a.release == b.release:
                    kind = "same release, same day" if a.day == b.day else "same release, other day"
                for metric in floor:
                    x, y = (getattr(row, f"{metric}_s") for row in (a, b))
                    kinds.setdefault((kind, metric), []).append(apart(x, y))
            for metric, values in floor.items():
                own = [getattr(rows[i], f"{metric}_s") for i in group]
                centre = math.exp(fmean(map(math.log, own)))
                values += [apart(centre, x) for x in own]
        told, least = predict.disagreement(rows), predict.noise_floor(rows)
        assert {(kind, metric) for kind in told for metric in told[kind]} == set(kinds)
        for (kind, metric), values in kinds.items():
            check(told[kind][metric], values)
        for metric, values in floor.items():
            check(least[metric], values)


def check(told, values):
    assert told.count == len(values)
    assert (told.median, told.mean) == (pytest.approx(median(values)), pytest.approx(fmean(values)))
    assert told.p90 == pytest.approx(np.percentile(values, 90))


def test_outliers_one_by_one():
    """More than the root of 3 off the median of one's repetitions, or 3 off what is predicted; each once a metric."""
    rows = measured(np.random.default_rng(1), 30)
    predicted = np.log([[row.ttft_s, row.tpot_s] for row in rows]) + np.random.default_rng(2).normal(0, 0.8, (30, 2))
    expected = []
    for j, metric in enumerate(("ttft", "tpot")):
        value = lambda i, metric=metric: getattr(rows[i], f"{metric}_s")
        odd = set()
        for group in groups_of(rows):
            centre = math.exp(median(math.log(value(i)) for i in group))
            odd |= {i for i in group if max(value(i) / centre, centre / value(i)) > 3**0.5}
            expected += [(i, metric, centre, "disagrees with its repetitions") for i in group if i in odd]
        for i in range(30):
            told = math.exp(predicted[i, j])
            if max(value(i) / told, told / value(i)) > 3 and i not in odd:
                expected.append((i, metric, told, "far from any calibrated value"))
    found = predict.outliers(rows, predicted)
    assert len(expected) > 8 and len(found) == len(expected)
    for one, (i, metric, other, why) in zip(found, expected, strict=True):
        assert (one.id, one.metric, one.reason) == (rows[i].id, metric, why)
        assert (one.measured_ms, one.other_ms) == pytest.approx((1e3 * getattr(rows[i], f"{metric}_s"), 1e3 * other))


def test_bounds_count_order_statistics():
    """Of n errors a new one is below the k-th smallest with probability k/(n + 1); the least k that is enough."""
    for n in (5, 39, 40, 99, 200):
        e = np.sort(np.random.default_rng(n).normal(size=n))
        for level in (0.8, 0.95):
            enough = [k for k in range(1, n + 1) if k / (n + 1) >= (1 + level) / 2 - 1e-12]
            top = min(enough, default=n)
            assert bounds(e[::-1], level) == [e[n - top], e[top - 1]]


def test_intervals_of_machines_left_out_by_leaving_each_out():
    """Every machine's rows against the bounds of all others; what their level's share of misses is, on both sides."""
    rng = np.random.default_rng(4)
    n, machines = 400, np.array([f"m{k}" for k in rng.integers(0, 8, 400)])
    shift = dict(zip(sorted(set(machines)), rng.normal(0, 0.6, 8), strict=True))
    errors = rng.normal(0, 0.3, (n, 2)) + np.array([[shift[m], 0.5 * shift[m]] for m in machines])
    names = [group_names("pair", "h100_sxm", "vllm", "agg", True) for _ in range(n)]
    told, plain = calibrate(errors, names, [], machines=machines), calibrate(errors, names, [])
    assert names[0] == ["pair/agg/stated", "pair/agg", "pair", "all"] and set(told.groups) == set(names[0])
    widened = []
    for j, metric in enumerate(METRICS):
        for key, level in LEVELS.items():
            misses = []
            for machine in sorted(set(machines)):
                low, high = bounds(errors[machines != machine, j], level)
                misses += [max(low - e, e - high) for e in errors[machines == machine, j]]
            place = min(math.ceil((n + 1) * level - 1e-9), n)
            wider = max(sorted(misses)[place - 1], 0.0)
            low, high = plain.groups["pair"][metric][key]
            assert told.groups["pair"][metric][key] == pytest.approx([low - wider, high + wider])
            assert told.groups["all"][metric][key] == plain.groups["all"][metric][key]
            widened.append(wider)
    assert max(widened) > 0.05


def test_a_machine_left_out_is_held_against_the_narrowest_group_of_the_others():
    """Stated rows err little, assumed ones much; a group of which too few are left without the machine is skipped."""
    rng = np.random.default_rng(8)
    machines, stated = np.array([f"m{k}" for k in rng.integers(0, 4, 240)]), rng.random(240) < 0.6
    errors = rng.normal(0, np.where(stated, 0.1, 1.0)[:, None], (240, 2)) + 0.3 * (machines == "m0")[:, None]
    few = (machines == "m1") | (rng.random(240) < 0.25)
    names = [group_names("pair", "", "", "agg" if f else "disagg", bool(s)) for f, s in zip(few, stated, strict=True)]
    told = calibrate(errors, names, [], machines=machines).groups
    for j, metric in enumerate(METRICS):
        for key, level in LEVELS.items():
            misses = []
            for i in range(240):
                for name in names[i]:
                    rest = [errors[k, j] for k in range(240) if machines[k] != machines[i] and name in names[k]]
                    if len(rest) >= 60:
                        low, high = bounds(rest, level)
                        misses.append(max(low - errors[i, j], errors[i, j] - high))
                        break
            wider = max(sorted(misses)[min(math.ceil(241 * level - 1e-9), 240) - 1], 0.0)
            for name in {name for row in names for name in row} - {"all"}:
                own = [errors[k, j] for k in range(240) if name in names[k]]
                assert (name in told) == (len(own) >= 60)
                if name in told:
                    low, high = bounds(own, level)
                    assert told[name][metric][key] == pytest.approx([low - wider, high + wider])


def test_groups_from_narrow_to_wide():
    known = group_names("known", "h100_sxm", "vllm", "disagg", False)
    assert known[0] == "known/disagg/assumed/h100_sxm/vllm" and known[1] == "known/disagg/assumed/vllm"
    assert known[2:] == ["known/disagg/assumed", "known/disagg", "known", "all"]
    assert narrowest({"b": 1, "all": 2}, ["a", "b", "all"]) == 1 and narrowest({"all": 2}, ["a", "all"]) == 2
    with pytest.raises(LookupError):
        narrowest({}, ["a", "all"])
    span = {m: {k: [-math.log(2.0), math.log(3.0)] for k in LEVELS} for m in METRICS}
    found = Quantiles({"all": span}).multipliers("known", "x", "vllm", "agg")
    for one in (one for by in found.values() for one in by.values()):
        assert tuple(one) == pytest.approx((0.5, 3.0))


def test_predictions_of_tuned_servers_are_divided_and_their_interval_is_the_factors(monkeypatch):
    from dmodels.fit.tuned import Tuned

    monkeypatch.setattr(predict, "tuned_factor", lambda system: Tuned(2.0, 1.6, 2.5, 9, f"told of {system}"))
    record = {"id": "a", "ttft_ms": 100.0, "tpot_ms": 10.0}
    (told,) = predict._tuned(predict.Predictions([record], [PLAIN], [])).values
    for metric, value in (("ttft", 50.0), ("tpot", 5.0)):
        assert told[f"{metric}_ms"] == value
        assert told[f"{metric}_lo80_ms"] == pytest.approx(value * 2.0 / 2.5)
        assert told[f"{metric}_hi80_ms"] == pytest.approx(value * 2.0 / 1.6)
        for end in ("lo", "hi"):  # of a lognormal error: 1.96 deviations for 1.2816
            wide, narrow = (math.log(told[f"{metric}_{end}{level}_ms"] / value) for level in (95, 80))
            assert wide / narrow == pytest.approx(1.96 / 1.2816, rel=1e-3)
    assert told.keys() == set(predict.COLUMNS)


def test_a_prediction_has_the_interval_of_its_own_kind(monkeypatch):
    """What is known of a row decides: its release with its model's architecture, its deployment, how it was stated."""
    rows = [
        replace(PLAIN, id="new"),
        replace(PLAIN, id="known", release="0.18.0", mode="disagg", stated=False, backend="sglang"),
    ]
    deployed = predict.hierarchy.row_levels(rows[0])[-1]
    known = Record(levels=["release+family=sglang+0.18.0+llama", deployed])
    asked = []

    def novelty(system, model, deployment, release):
        asked.append((system, model, deployment, release))
        return f"novelty {len(asked)}"

    def multipliers(*kind):
        asked.append(kind)
        scale = len(asked)
        return {
            m: {k: (1 / (j + i + scale), j + i + scale) for i, k in enumerate(LEVELS)} for j, m in enumerate(METRICS)
        }

    monkeypatch.setattr(predict, "to_points", lambda table: ("points", table))
    monkeypatch.setattr(predict, "quantiles", lambda: Record(novelty=novelty, multipliers=multipliers))
    times = np.array([[0.4, 0.02], [0.6, 0.03]])
    monkeypatch.setattr(predict, "predict_log", lambda points, kept, effects: np.log(times) if kept is rows else None)
    found = predict.predict(Table(rows, ["bad"]), known)
    same = predict.hierarchy.row_levels(rows[1])[-1] == deployed
    model = PLAIN.model_path
    assert asked == [
        ("h100_sxm", model, True, False),
        ("novelty 1", "h100_sxm", "vllm", "agg", True),
        ("h100_sxm", model, same, True),
        ("novelty 3", "h100_sxm", "sglang", "disagg", False),
    ]
    assert found.rejected == ["bad"] and found.rows is rows
    for record, (ttft, tpot), scale in zip(found.values, 1e3 * times, (2, 4), strict=True):
        wanted = {"ttft_ms": ttft, "tpot_ms": tpot}
        for j, (metric, value) in enumerate(zip(METRICS, (ttft, tpot), strict=True)):
            for i, level in enumerate(LEVELS):
                wanted |= {
                    f"{metric}_lo{level}_ms": value / (i + j + scale),
                    f"{metric}_hi{level}_ms": value * (i + j + scale),
                }
        assert {name: value for name, value in record.items() if name != "id"} == pytest.approx(wanted)
        assert record.keys() == set(predict.COLUMNS)
    assert METRICS == ("ttft", "tpot") and [record["id"] for record in found.values] == ["new", "known"]
    text = predict.to_csv(found).splitlines()
    assert text[0] == ",".join(predict.COLUMNS) and text[1].startswith("new,400,20,") and len(text) == 3


def test_what_is_predicted_though_it_means_little_is_said():
    with pytest.warns(UserWarning, match="backend lmdeploy, mlc is none of .*; predicted as an engine without"):
        predict._warn_of([PLAIN, replace(PLAIN, backend="mlc"), replace(PLAIN, backend="lmdeploy")])
    short = [replace(PLAIN, id=f"r{k}", osl=osl) for k, osl in enumerate((2.0, 1.0, 1.0))]
    with pytest.warns(UserWarning, match="osl is 1 in 2 rows, r1 the first: an answer of one token has no TPOT"):
        predict._warn_of(short)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict._warn_of([PLAIN, short[0]])


def test_sweeps_are_told_apart_sorted_and_held_against_themselves():
    """Loads in any order; the throughput of each by Little's law; what falls by more than 15 % is said, and no less."""
    loads, ttft = [8.0, 2.0, 4.0, 16.0], {2.0: 0.2, 4.0: 0.21, 8.0: 0.17, 16.0: 0.9}
    tpot = {2.0: 0.020, 4.0: 0.022, 8.0: 0.026, 16.0: 0.0355}
    rows = [replace(PLAIN, concurrency=n, ttft_s=ttft[n], tpot_s=tpot[n]) for n in loads]
    others = [replace(row, isl=2000.0) for row in rows[:2]]
    (found,) = load_sweeps([*rows, *others])
    assert found.concurrency_count == (2.0, 4.0, 8.0, 16.0) and found.ttft_s == tuple(ttft[n] for n in sorted(loads))
    rates = [n / (ttft[n] + (0.9 * 100 - 1) * tpot[n]) for n in sorted(loads)]
    assert found.throughput_rps == pytest.approx(rates) and found.tpot_s == tuple(tpot[n] for n in sorted(loads))
    falls = [said for said in found.contradictions if "falls" in said]
    assert len(falls) == 1 and falls[0].startswith("TTFT falls from 210 to 170 ms between 4 and 8 in flight")
    assert found.ttft_jump_count == bracket(sorted(loads), found.ttft_s, 3.0) == (math.inf, math.inf)
    line = np.polyfit(sorted(loads), found.tpot_s, 1)
    assert (found.step_per_sequence_s, found.step_base_s) == pytest.approx(tuple(line), rel=0.1)
    assert found.name == "meta-llama/Llama-3.1-8B-Instruct on h100_sxm, vllm, tp2dp1"
    slower = [replace(row, tpot_s=2 * row.tpot_s) if row.concurrency == 16 else row for row in rows]
    (found,) = load_sweeps(slower)
    assert any("throughput falls" in said and "between 8 and 16" in said for said in found.contradictions)


@pytest.mark.parametrize("latency, expected", [([1, 2.5, 9, 30], (2.0, 4.0)), ([1, 2, 4, 30], (4.0, 8.0))])
def test_the_first_jump_of_a_latency(latency, expected):
    assert bracket([1.0, 2.0, 4.0, 8.0], latency, 1.5) == expected


def test_folds_hold_out_a_fifth_each_and_machines_whole():
    rows = [replace(PLAIN, ttft_s=0.1 + k, system=("h100_sxm", "l4")[k % 2]) for k in range(53)]
    sizes = [int(mask.sum()) for mask in folds(rows, "random")]
    assert len(sizes) == 5 and max(sizes) - min(sizes) <= 1
    for protocol, count in (("gpu", 2), ("pair", 2), ("architecture", 1)):
        masks = list(folds(rows, protocol))
        assert len(masks) == count and sum(int(mask.sum()) for mask in masks) == 53
        for mask in masks:
            assert len({row.system for row, out in zip(rows, mask, strict=True) if out}) == (2 if count == 1 else 1)


def test_what_points_of_load_generators_become():
    """Nominal lengths are a ninth longer than drawn ones; flags fill what a file leaves out, and contradict nothing."""
    point = LoadPoint(
        **{"form": "csv", "where": "f: line 2", "input_tokens": 900.0, "output_tokens": 90.0, "throughput_rps": 2.0},
        **{"ttft": LatencyStats(0.1), "tpot": LatencyStats(0.01), "e2e": LatencyStats(1.2), "release": "v0.19.1rc2"},
        **{"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100", "engine": "vllm", "tp": 2, "dp": 4, "ep": 99},
    )
    (row,) = rows_of([point]).rows
    assert (row.isl, row.osl, row.concurrency) == pytest.approx((1000.0, 100.0, 2.4))
    assert row.decode == row.prefill == Layout(2.0, 4.0, 8.0) and (row.system, row.release) == ("h100_sxm", "0.19.1")
    assert (row.precision, row.gemm_dtype, row.mode, row.ttft_s, row.tpot_s) == ("", "", "agg", 0.1, 0.01)
    (row,) = rows_of([replace(point, throughput_rps=0.1, precision="fp8", tp=0)], Machine(tp=8)).rows
    assert (row.concurrency, row.precision, row.decode.tp, row.decode.ep) == (1.0, "fp8", 8.0, 32.0)
    for change, machine, why in (
        ({}, Machine(tp=4), "the file says tp 2, not --tp 4"),
        ({"gpu": ""}, Machine(), "states no GPU; --gpu NAME adds it"),
        ({"engine": ""}, Machine(), "states no engine"),
        ({"tp": 0}, Machine(), "states no tensor parallelism"),
        ({}, Machine(model="qwen3-8b"), "the file says meta-llama/Llama-3.1-8B-Instruct, not --model qwen3-8b"),
    ):
        with pytest.raises(InputError, match=why):
            rows_of([replace(point, **change)], machine)
    middle = replace(point, ttft=LatencyStats(p50_s=0.2), tpot=LatencyStats(p50_s=0.02))
    assert (rows_of([middle]).rows[0].ttft_s, rows_of([middle]).rows[0].tpot_s) == (0.2, 0.02)  # where no mean is told
    table = rows_of([replace(point, tpot=LatencyStats()), point])
    assert len(table.rows) == 1 and "streaming" in table.rejected[0].reason
    assert (table.rejected[0].id, table.rejected[0].line) == ("f: line 2", 0)  # the point says where, file and line


def test_a_run_of_which_nothing_is_known_is_a_plain_one():
    """Drafts not known, a message a token, no looks left out, nothing compiled, lengths drawn, one slot a client."""
    plain = Settings()
    assert (plain.draft_tokens, plain.stream_interval, plain.extra_clients) == (None, 1.0, 0.0)
    assert parse_row(AGG).draft_tokens == 0.0  # and none are assumed
    assert plain.polling(1.0) == plain.polling(1e4) == plain.compiling(1e9) == 0.0 and not plain.equal_lengths


def test_settings_by_the_number_of_clients():
    run = Settings(poll_steps=(2.0, 8.0), compile_s=3.0)
    assert [run.polling(n) for n in (1, 15, 16, 99)] == [2.0, 2.0, 8.0, 8.0]
    assert [run.compiling(n) for n in (16_384, 16_385)] == [0.0, 3.0]


def test_rows_of_clients_beyond_the_batch():
    """A run that is listed with an extra client has as many slots as the row says clients, and one client more; kernels
    are compiled where the first prompts of all clients fill more than a step."""
    import dmodels.fit.runs as runs

    listed = [dict(run) for run in runs._runs()]
    extra = [run for run in listed if float(run["extra_clients"])]
    compiled = [run for run in listed if float(run["compile_s"])]
    assert extra and compiled
    found = runs._runs
    try:
        plain = {key: "" for key in listed[0]} | {"model": ".*", "date": "", "image": "", "draft_tokens": "0"}
        plain |= {"stream_interval": "1", "poll_steps": "0", "compile_s": "7", "extra_clients": "2"}
        runs._runs = lambda: [plain]
        row = parse_row(AGG)
        assert (row.concurrency, row.decode.batch, row.prefill.batch) == (66.0, 64.0, 64.0)
        assert row.compile_s == 7.0  # 66 prompts of 1,024 tokens
        assert parse_row(AGG | {"isl": "200", "osl": "9000"}).compile_s == 0.0
    finally:
        runs._runs = found


def test_spellings_of_recipes_versions_and_formats():
    assert side("3xtp4", "16") == Layout(4.0, 1.0, 1.0, 3.0, 16.0) and side("2xdp8") == Layout(1.0, 8.0, 1.0, 2.0)
    assert recipe({"model_path": "nobody"}, 4.0, 1.0, 1.0, 1.0) == (None, False)
    versions = ("v0.5.8.post1", "1.2", "0.11.0rc3", "main", "")
    assert [release(text) for text in versions] == ["0.5.8", "1.2", "0.11.0", "", ""]
    fp8 = [replace(PLAIN, precision="fp8", gemm_dtype=g, moe_dtype="fp8") for g in ("fp8_block", "fp8", "fp8_block")]
    assert fp8_formats([*fp8, PLAIN]) == {"vllm+llama": ("fp8_block", "fp8")}
    assert measurement(replace(PLAIN, ttft_s=0.123456, tpot_s=0.01)) == ("h100_sxm", "123.46", "10.00")


def test_rows_that_cannot_run_are_rejected_in_their_own_words():
    good = replace(PLAIN, ttft_s=0.1, tpot_s=0.01)
    rows = [
        good,
        replace(good, id="big", model_path="meta-llama/Llama-3.1-405B-Instruct"),
        replace(good, id="odd", decode=Layout(3.0)),
    ]
    points, kept = to_points(Table(rows, []))
    assert [row.id for row in kept.rows] == ["r"] and points.isl.tolist() == [900.0] and points.osl.tolist() == [90.0]
    told = {one.id: one.reason for one in kept.rejected}
    assert told["big"].startswith("does not fit") and "1000 + 100 tokens in 98%" in told["big"]
    assert told["odd"].startswith("no engine runs") and "decode tp3 dp1 ep1" in told["odd"]


def test_every_number_of_a_point_is_its_rows():
    rows = [
        replace(
            PLAIN,
            id=str(k),
            mode=("agg", "disagg")[k % 2],
            backend=("vllm", "sglang", "trtllm")[k % 3],
            isl=1000.0 + k,
            osl=100.0 + k,
            concurrency=4.0 + k,
            decode=Layout(2.0, 1.0, 1.0, 2.0 + k, 50.0 + k if k else math.inf),
            prefill=Layout(1.0, 2.0, 1.0, 3.0 + k) if k else Layout(2.0, 1.0, 1.0, 2.0),
            draft_tokens=float(k % 2),
            stream_interval=1.0 + k,
            poll_steps=5.0 + k,
            compile_s=0.5 * k,
            equal_lengths=k == 2,
            ttft_s=0.1,
            tpot_s=0.01,
        )
        for k in range(3)
    ]
    points, kept = to_points(Table(rows, []))
    assert kept.rows == rows
    for k, row in enumerate(rows):
        told = {name: float(getattr(points, name)[k]) for name in vars(points) if np.ndim(getattr(points, name)) == 1}
        share = 1.0 if row.equal_lengths else 0.9
        wanted = {"isl": share * row.isl, "osl": share * row.osl, "decode_batch": min(row.decode.batch, 1e9)}
        wanted |= {"decode_instances": row.decode.instances, "prefill_instances": row.prefill.instances}
        wanted |= {"separate": float(k > 0), "prompts_first": float(row.backend == "sglang")}
        wanted |= {"gathers": float(row.backend == "trtllm"), "beside_rows": 1.0}  # no GPU here runs FlashAttention 2
        for name in ("concurrency", "draft_tokens", "stream_interval", "poll_steps", "compile_s", "equal_lengths"):
            wanted[name] = float(getattr(row, name))
        assert {name: told[name] for name in wanted} == pytest.approx(wanted) and told.keys() - wanted == {
            "utilization"
        }
        for ours, layout in ((points.decode, row.decode), (points.prefill, row.prefill)):
            assert [float(x[k]) for x in (ours.tp, ours.pp, ours.dp, ours.ep)] == [layout.tp, 1.0, layout.dp, layout.ep]
    # the search has instances that do both first, in the order of what was measured; only the others have a shift
    backwards, told = to_points(Table(rows[::-1], []))
    problem = silicon.problem_of(backwards, told.rows)[0]
    both, apart, shift = problem.halves
    assert [np.ravel(part.concurrency).tolist() for part in (both, apart)] == [
        [rows[0].concurrency],
        [rows[2].concurrency, rows[1].concurrency],
    ]
    assert np.shape(shift) == (2, len(hierarchy.NAMES)) and np.shape(problem.measured) == (3, 2)


def test_separate_instances_serve_the_prompts_and_answers_of_their_row(monkeypatch):
    """Where a prompt's token takes 1 ms and an answer's as many us as it has; three in the first message."""
    asked = {}

    def serve(*_, prefill, decode, isl, osl, **told):
        asked.update(told, prefill=prefill.tp, decode=decode.tp)
        return Record(ttft_s=1e-3 * isl, tpot_s=1e-6 * osl)

    monkeypatch.setattr(descent, "serve_disaggregated", serve)
    machines = {"prefill": Layout(1.0, 1.0, 1.0, 3.0), "decode": Layout(4.0, 1.0, 1.0, 2.0, 60.0)}
    row = replace(PLAIN, mode="disagg", isl=1000.0, osl=200.0, concurrency=8.0, stream_interval=3.0, **machines)
    points, _ = to_points(Table([replace(row, ttft_s=0.1, tpot_s=0.01)], []))
    isl, osl = 0.9 * 1000.0, 0.9 * 200.0  # lengths are drawn from a tenth less on
    u, shift = (np.zeros((1, len(hierarchy.NAMES))) for _ in range(2))
    shift[0, hierarchy.NAMES.index("prefill_layer_us")] = np.log(3.0)
    found = descent.of_separate_instances(points, u, shift)
    assert found.tolist() == [pytest.approx([1e-3 * isl + 2 * 1e-6 * osl, 1e-6 * osl])]
    named = ("prefill", "decode", "prefill_instances", "decode_instances", "concurrency", "decode_batch")
    assert [float(asked[name][0]) for name in named] == [1.0, 4.0, 3.0, 2.0, 8.0, 60.0]
    slower = asked["prefill_efficiency"].prefill_layer_us / asked["efficiency"].prefill_layer_us
    assert float(slower[0]) == pytest.approx(3.0)


def test_prefill_instances_have_the_kernels_of_their_own_layout():
    """Those that an instance of this layout which decodes, too, has."""
    wide, narrow = Layout(4.0), Layout(1.0)
    apart = replace(PLAIN, mode="disagg", prefill=wide, decode=narrow)
    both = [replace(PLAIN, prefill=layout, decode=layout) for layout in (narrow, wide)]
    own, other = silicon.origins(both)
    assert silicon.shifts([apart, *both]) == pytest.approx(np.stack([other - own, 0.0 * own, 0.0 * own]))
    assert (other != own).any()


@pytest.mark.parametrize(
    "gpus, clients, decode",
    [
        (8, 200, Layout(8.0)),  # what a node holds is one instance
        (16, 255, Layout(8.0, 1.0, 8.0, 1.0)),
        (27, 100, Layout(8.0, 1.0, 8.0, 2.0)),
        (28, 100, Layout(8.0, 1.0, 8.0, 3.0)),
        (16, 256, Layout(1.0, 8.0, 8.0, 1.0)),  # from sixteen clients a GPU on: one wide instance of two thirds
        (24, 400, Layout(1.0, 16.0, 16.0, 1.0)),
        (48, 800, Layout(1.0, 32.0, 32.0, 1.0)),
    ],
)
def test_a_sum_of_instances_is_divided_by_the_number_of_clients(gpus, clients, decode):
    cells = {"tp_size": str(gpus), "moe_tp_size": str(gpus), "moe_ep_size": "1", "batch_size": str(clients)}
    row = parse_row(AGG | cells)
    assert (row.decode, row.stated, row.concurrency) == (decode, gpus == 8, clients)
    assert row.prefill == (decode if gpus == 8 else Layout(1.0, 4.0, 4.0, 0.0))


@pytest.mark.parametrize(
    "clients, decode, engine, model, expected",
    [
        # one GPU cannot hold it: the layout was lost, and rows of so many clients are wide
        (255, (1, 1), "vllm", "deepseek-ai/DeepSeek-R1", Layout(4.0, 1.0, 1.0, 4.0)),
        (256, (1, 1), "vllm", "deepseek-ai/DeepSeek-R1", Layout(1.0, 32.0, 32.0, 1.0)),
        (256, (1, 1), "vllm", "meta-llama/Llama-3.1-8B", Layout(1.0, 1.0, 1.0, 4.0)),
        (3, (8, 1), "vllm", "deepseek-ai/DeepSeek-R1", Layout(8.0, 1.0, 1.0, 3.0)),
        (3, (8, 1), "sglang", "deepseek-ai/DeepSeek-R1", Layout(8.0, 1.0, 1.0, 1.0)),
        (255, (8, 1), "sglang", "deepseek-ai/DeepSeek-R1", Layout(8.0, 1.0, 1.0, 1.0)),
        (256, (8, 1), "sglang", "deepseek-ai/DeepSeek-R1", Layout(1.0, 8.0, 8.0, 1.0)),
        (8, (24, 1), "sglang", "deepseek-ai/DeepSeek-R1", Layout(1.0, 24.0, 24.0, 1.0)),
        (8, (16, 16), "sglang", "deepseek-ai/DeepSeek-R1", Layout(16.0, 1.0, 16.0, 1.0)),
        (127, (4, 4), "sglang", "deepseek-ai/DeepSeek-R1", Layout(4.0, 1.0, 4.0, 1.0)),
        (128, (4, 4), "sglang", "deepseek-ai/DeepSeek-R1", Layout(1.0, 4.0, 4.0, 1.0)),
        (128, (4, 1), "sglang", "deepseek-ai/DeepSeek-R1", Layout(4.0, 1.0, 1.0, 1.0)),
    ],
)
def test_separate_rows_that_say_no_layout(clients, decode, engine, model, expected):
    cells = {"decode_tp_size": str(decode[0]), "decode_moe_ep_size": str(decode[1]), "decode_batch_size": "1"}
    cells |= {"silicon_data_source": f"silicon_concurrency={clients}", "backend": engine, "model_path": model}
    told = layouts({"prefill_tp_size": "2", "prefill_moe_ep_size": "2", **cells}, "disagg")
    lost = decode == (1, 1) and "DeepSeek" in model
    assert told.decode == expected and told.concurrency == clients and not told.stated
    assert told.prefill == (Layout(1.0, 4.0, 1.0, 0.0) if lost else Layout(1.0, 2.0, 2.0, 0.0))


def test_copies_share_the_weight_of_one_and_guessed_layouts_count_less(monkeypatch):
    monkeypatch.setattr(silicon, "origins", lambda rows: np.array([[row.tpot_s] for row in rows]))
    base = replace(PLAIN, ttft_s=0.1, tpot_s=0.01)
    apart = replace(base, mode="disagg", prefill=base.decode._replace(tp=1.0), tpot_s=0.03)
    rows = [base, apart, replace(base, id="copy", stated=False)]
    points, kept = to_points(Table(rows, []))
    assert kept.rows == rows
    for keep, weights in ((None, [1.0, 0.3, 2.0]), (np.array([1, 0, 1]), [1.0, 0.3, 0.0])):
        problem, known, centre = silicon.problem_of(points, rows, keep=keep, weighing=Weighing(weight=2.0))
        order = [rows[0], rows[2], rows[1]]  # those on instances of their own come last
        assert problem.weight == pytest.approx(np.array(weights))
        assert np.exp(problem.measured) == pytest.approx(np.array([[row.ttft_s, row.tpot_s] for row in order]))
        assert not centre.any() and problem.origin[:, 0] == pytest.approx([row.tpot_s for row in order])
        for path, row in zip(problem.paths, order, strict=True):
            assert [known[k] for k in path] == list(silicon.hierarchy.row_levels(row))
