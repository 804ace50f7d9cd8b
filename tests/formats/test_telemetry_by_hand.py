"""What scrapes of random replicas say, sample by sample in plain Python: other times on each, restarts, some silent."""

from __future__ import annotations

import io
import json
import math
from itertools import pairwise
from statistics import median
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.formats.telemetry import Histogram, observe, server, workload
from dmodels.formats.telemetry.flow import arrival_cv, joint, length_correlation
from dmodels.formats.telemetry.request_log import read_requests
from dmodels.formats.telemetry.series import Series

START = 1_760_000_000.0
BOUNDS = (10.0, 100.0, 1000.0)
#: Meaning -> the metric of each engine, as its release notes and dashboards call it.
METRICS = {
    "vllm": {
        **{"requests": "vllm:request_success_total", "running": "vllm:num_requests_running"},
        **{"waiting": "vllm:num_requests_waiting", "kv": "vllm:kv_cache_usage_perc"},
        **{"queries": "vllm:prefix_cache_queries_total", "hits": "vllm:prefix_cache_hits_total"},
        **{"input": "vllm:request_prompt_tokens", "output": "vllm:request_generation_tokens"},
        **{"ttft": "vllm:time_to_first_token_seconds", "itl": "vllm:inter_token_latency_seconds"},
        "e2e": "vllm:e2e_request_latency_seconds",
    },
    "sglang": {
        **{"requests": "sglang:num_requests_total", "running": "sglang:num_running_reqs"},
        **{"waiting": "sglang:num_queue_reqs", "kv": "sglang:token_usage"},
        **{"queries": "sglang:prompt_tokens_total", "hits": "sglang:cached_tokens_total"},
        **{"input": "sglang:prompt_tokens_histogram", "output": "sglang:generation_tokens_histogram"},
        **{"ttft": "sglang:time_to_first_token_seconds", "itl": "sglang:inter_token_latency_seconds"},
        "e2e": "sglang:e2e_request_latency_seconds",
    },
    "dynamo_frontend": {
        **{"requests": "dynamo_frontend_requests_total", "running": "dynamo_frontend_inflight_requests"},
        **{"waiting": "dynamo_frontend_queued_requests"},
        **{"input": "dynamo_frontend_input_sequence_tokens", "output": "dynamo_frontend_output_sequence_tokens"},
        "ttft": "dynamo_frontend_time_to_first_token_seconds",
        "itl": "dynamo_frontend_inter_token_latency_seconds",
        "e2e": "dynamo_frontend_request_duration_seconds",
    },
}
Samples = list[tuple[float, float]]


def counter(rng: np.random.Generator, times: list[float], most: int) -> Samples:
    """It grows, and now and then begins again."""
    value, found = float(rng.integers(50)), []
    for t in times:
        value = float(rng.integers(most)) if rng.random() < 0.1 else value + float(rng.integers(most))
        found.append((t, value))
    return found


def grown(samples: Samples) -> list[float]:
    return [b - a if b >= a else b for (_, a), (_, b) in pairwise(samples)]


def replica(rng: np.random.Generator, names: dict[str, str], pod: str) -> list[tuple[str, dict[str, str], Samples]]:
    times = sorted({START + float(t) for t in rng.choice(np.arange(200.0), int(rng.integers(6, 14)), replace=False)})
    found = [(names["requests"], {"pod": pod}, counter(rng, times, 30))]
    for what in ("running", "waiting"):
        found.append((names[what], {"pod": pod}, [(t, float(rng.integers(40))) for t in times]))
    if "kv" in names:
        found.append((names["kv"], {"pod": pod}, [(t, float(rng.random())) for t in times]))
        queries = counter(rng, times, 1000)
        found.append((names["queries"], {"pod": pod}, queries))
        found.append((names["hits"], {"pod": pod}, [(t, 0.3 * v) for t, v in queries]))
    scale = {"input": 1.0, "output": 1.0, "ttft": 1e-2, "itl": 1e-4, "e2e": 1e-1}
    for what, unit in scale.items():
        held, rows = np.zeros(len(BOUNDS) + 1), []  # requests of each bucket, in all until each sample
        for _ in times:
            came = rng.integers(1, 20, len(held)).astype(float)
            held = came if rng.random() < 0.1 else held + came  # a restart is one of all counters
            rows.append(held)
        of = lambda value, rows=rows: [(t, float(value(row))) for t, row in zip(times, rows, strict=True)]
        for k, bound in enumerate([*BOUNDS, math.inf]):
            le = "+Inf" if bound == math.inf else f"{unit * bound:g}"
            found.append((f"{names[what]}_bucket", {"pod": pod, "le": le}, of(lambda row, k=k: row[: k + 1].sum())))
        middle = unit * np.array([4.0, 50.0, 400.0, 1500.0])
        found.append((f"{names[what]}_sum", {"pod": pod}, of(lambda row, middle=middle: row @ middle)))
        found.append((f"{names[what]}_count", {"pod": pod}, of(np.sum)))
    return found


def at(samples: Samples, t: float) -> float:
    """The last sample; a replica that is not there yet, or no longer, holds nothing."""
    if not samples[0][0] <= t <= samples[-1][0]:
        return 0.0
    return [v for when, v in samples if when <= t][-1]


def so_far(samples: Samples, t: float) -> float:
    """What a counter grew by until then, evenly between samples."""
    total = 0.0
    for ((a, _), (b, _)), step in zip(pairwise(samples), grown(samples), strict=True):
        total += step * min(max((t - a) / (b - a), 0.0), 1.0)
    return total


def write(folder, series, name="answer.json"):
    result = [
        {"metric": {"__name__": name, **labels}, "values": [[t, f"{v:.12g}"] for t, v in samples]}
        for name, labels, samples in series
    ]
    (folder / name).write_text(json.dumps({"status": "success", "data": {"result": result}}), encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("engine", METRICS)
def test_rates_gauges_and_hits_sample_by_sample(engine, tmp_path):
    names = METRICS[engine]
    for seed in range(6):
        rng = np.random.default_rng([seed, len(engine)])
        series = [one for k in range(int(rng.integers(1, 4))) for one in replica(rng, names, f"pod-{k}")]
        seen = observe([write(tmp_path, series)])
        of = lambda what, series=series: [samples for name, _, samples in series if name == names.get(what)]
        counts, gauges = of("requests"), of("running") + of("waiting")
        times = sorted({t for samples in counts for t, _ in samples})
        flight = [sum(at(samples, t) for samples in gauges) for t in times]
        completed = [sum(so_far(samples, t) for samples in counts) for t in times]
        came = [
            max(c1 - c0 + f1 - f0, 0.0)
            for (c0, c1), (f0, f1) in zip(pairwise(completed), pairwise(flight), strict=True)
        ]
        gaps = [b - a for a, b in pairwise(times)]
        everything = sum(sum(grown(samples)) for samples in counts)
        assert seen.reporter == engine and seen.replicas_count == len(counts)
        assert (seen.start_s, seen.end_s) == (times[0], times[-1]) and seen.time_s == tuple(times[1:])
        assert seen.requests_count == pytest.approx(everything)
        assert seen.in_flight_grown_count == pytest.approx(flight[-1] - flight[0])
        rates = [n / gap for n, gap in zip(came, gaps, strict=True)]
        assert seen.rates_rps == pytest.approx(rates) and seen.peak_rps == pytest.approx(max(rates))
        span = times[-1] - times[0]
        assert seen.rate_rps == pytest.approx(max(everything + flight[-1] - flight[0], 0.0) / span)
        for what, mean, peak in (
            ("running", seen.running_mean_count, seen.running_peak_count),
            ("waiting", seen.waiting_mean_count, None),
        ):
            held = [sum(at(samples, t) for samples in of(what)) for t in times]  # all are sampled at the same times
            assert mean == pytest.approx(sum(held) / len(held)) and (peak is None or peak == max(held))
        if "kv" in names:
            assert seen.kv_peak_frac == pytest.approx(max(v for samples in of("kv") for _, v in samples))
            assert seen.prefix_hit_frac == pytest.approx(0.3, rel=0.2)
        else:
            assert math.isnan(seen.kv_peak_frac) and math.isnan(seen.prefix_hit_frac)
        restarts = sum(b < a for samples in counts for (_, a), (_, b) in pairwise(samples))
        wide = sum(gap > 5 * median(gaps) for gap in gaps)
        assert sum(int(n.split()[0]) for n in seen.notices) == restarts + wide


@pytest.mark.parametrize("engine", METRICS)
def test_histograms_bucket_by_bucket(engine, tmp_path):
    """Of all replicas; quantiles linear within a bucket, none beyond the last bound."""
    names = METRICS[engine]
    for seed in range(4):
        rng = np.random.default_rng([seed, 7, len(engine)])
        series = [one for k in range(2) for one in replica(rng, names, f"pod-{k}")]
        seen = observe([write(tmp_path, series)])
        for what, told in (
            *(("input", seen.input_tokens), ("output", seen.output_tokens)),
            *(("ttft", seen.ttft_s), ("itl", seen.itl_s), ("e2e", seen.e2e_s)),
        ):
            total = lambda part, le=None, what=what, series=series: sum(
                sum(grown(samples))
                for name, labels, samples in series
                if name == f"{names[what]}_{part}" and labels.get("le") == le
            )
            ends = list(dict.fromkeys(label["le"] for n, label, _ in series if n == f"{names[what]}_bucket"))
            below = [total("bucket", le) for le in ends]
            below = [max(below[: k + 1]) for k in range(len(below))]
            counts = [b - a for a, b in pairwise([0.0, *below])]
            assert told.counts == pytest.approx(counts) and told.bounds == tuple(float(le) for le in ends[:-1])
            assert told.count == pytest.approx(below[-1]) and told.mean == pytest.approx(total("sum") / below[-1])
            for share in (0.1, 0.5, 0.9, 0.99):
                k = next(k for k, b in enumerate(below) if b >= share * below[-1])
                assert told.beyond(share) == (k == len(below) - 1)
                low, high = ([0.0, *told.bounds][k], told.bounds[min(k, len(told.bounds) - 1)])
                inside = (share * below[-1] - ([0.0, *below][k])) / counts[k]
                assert told.quantile(share) == pytest.approx(low + inside * (high - low))


@pytest.mark.parametrize(
    "mean, beyond, believed",
    [(4.9, 0, False), (5.1, 0, True), (50.0, 0, True), (199.0, 0, True), (201.0, 0, False), (201.0, 1, True)],
)
def test_a_sum_at_odds_with_its_buckets_is_noticed(mean, beyond, believed, tmp_path):
    """Ten requests of 10 to 100 tokens: up to twice outside may be lost samples; one beyond every bound may be any."""
    name, count = METRICS["vllm"]["input"], 10 + beyond
    ends = {"10": 0, "100": 10, "+Inf": count}
    series = [(f"{name}_bucket", {"le": le}, [(START, 0.0), (START + 9, float(n))]) for le, n in ends.items()]
    series += [
        (f"{name}_{part}", {}, [(START, 0.0), (START + 9, v)]) for part, v in (("count", count), ("sum", mean * count))
    ]
    path = write(tmp_path, series)
    if believed:
        assert observe([path]).input_tokens.mean == pytest.approx(mean)
    else:
        with pytest.raises(InputError, match=f"a mean of {mean:g} by its sum, but of 10 to 100 by its buckets"):
            observe([path])
    silent = observe([write(tmp_path, series[:-1])]).input_tokens  # half way between what the buckets allow
    assert silent.mean == pytest.approx((10 * 55 + beyond * 150) / count)


def test_a_bucket_is_filled_at_the_same_shares_as_every_other():
    """Weights of the buckets, the histogram's mean, and one power of 1/8, 3/8, 5/8, 7/8 in all; whole tokens from 1."""
    for mean in (3.5e10, 5.2e10, 7.5e10):  # so wide that rounding is nothing
        of = Histogram((2e10, 6e10, 1e11), (30.0, 50.0, 0.0, 20.0), mean)
        values, weights = (column.reshape(3, 4) for column in of.atoms())
        assert weights == pytest.approx(np.repeat([0.3, 0.5, 0.2], 4).reshape(3, 4) / 4)
        assert float((values * weights).sum()) == pytest.approx(mean)
        shares = (values - np.array([[0.0], [2e10], [1e11]])) / np.array([[2e10], [4e10], [1e11]])
        power = np.log(shares) / np.log([1 / 8, 3 / 8, 5 / 8, 7 / 8])
        assert np.ptp(power) < 1e-3 * power.mean()
    small = Histogram((2.0,), (5.0, 0.0), 0.5).atoms()[0]
    assert small.min() == 1.0 and (small == small.round()).all()


def test_a_workload_is_lengths_hits_and_burstiness(tmp_path):
    """Every prompt with every answer; of each prompt the same share is cached, rounded down."""
    rng = np.random.default_rng(3)
    seen = observe([write(tmp_path, replica(rng, METRICS["vllm"], "a"))])
    taken = workload(seen, 2.5)
    x, y = seen.input_tokens.atoms()[0], seen.output_tokens.atoms()[0]
    pairs = [(a, b) for a in x for b in y]
    assert np.asarray(taken.input_tokens).tolist() == [a for a, _ in pairs]
    assert np.asarray(taken.output_tokens).tolist() == [b for _, b in pairs]
    cached = [math.floor(seen.prefix_hit_frac * a) for a, _ in pairs]
    assert np.asarray(taken.cached_tokens).tolist() == cached and float(taken.rate_rps) == 2.5
    assert float(taken.arrival_cv) == (1.0 if math.isnan(seen.arrival_cv) else seen.arrival_cv)


def test_the_spread_of_arrivals_from_few_intervals():
    """Half the mean squared step of neighbours over the mean count, its logarithm pulled to none by its own error;
    an interval of another length has no neighbours."""
    rng = np.random.default_rng(8)
    for count in (9, 10, 30):
        came, gaps = rng.poisson(12.0, count).astype(float), np.full(count, 15.0)
        gaps[4] = 60.0 if count == 30 else 15.0
        steps = [b - a for k, (a, b) in enumerate(pairwise(came)) if {gaps[k], gaps[k + 1]} == {15.0}]
        mean = sum(came[gaps == 15.0]) / (gaps == 15.0).sum()
        dispersion = sum(s * s for s in steps) / len(steps) / (2 * mean)
        error = (3 + 1 / mean) / len(steps)
        assert arrival_cv(came, gaps) == pytest.approx(dispersion ** (0.5 / (1 + error)))
    assert (
        math.isnan(arrival_cv(came[:0], gaps[:0]))
        and math.isnan(arrival_cv(came[:8], gaps[:8]))
        and math.isnan(arrival_cv(np.zeros(20), np.full(20, 15.0)))
    )


def test_the_correlation_of_lengths_from_few_intervals():
    """Residuals of each interval's sums from its requests times the means, on two replicas together."""
    rng = np.random.default_rng(5)
    rows, series = [], {"n": [], "x": [], "y": []}
    for pod in ("a", "b"):
        each = [(n, n * rng.normal(100, 20), n * rng.normal(30, 8)) for n in rng.integers(0, 9, 6)]
        rows += [row for row in each if row[0]]
        for name, column in zip(series, zip(*each, strict=True), strict=True):
            total = np.concatenate([[0.0], np.cumsum(column)])
            series[name].append(Series(name, {"pod": pod}, np.arange(7.0), total))
    n, x, y = (sum(column) for column in zip(*rows, strict=True))
    left = [((a - k * x / n) / k**0.5, (b - k * y / n) / k**0.5) for k, a, b in rows]
    found = sum(u * v for u, v in left) / math.sqrt(sum(u * u for u, _ in left) * sum(v * v for _, v in left))
    pulled = found / (1 + (1 - found**2) ** 2 / len(rows) / 0.09)
    assert len(rows) >= 8 and length_correlation(*series.values()) == pytest.approx(pulled)
    assert math.isnan(length_correlation(*(group[:1] for group in series.values())))


def test_more_correlation_than_lengths_allow_is_the_most_they_allow():
    """The longest prompts with the longest answers: nearly all of the weight is where both are long."""
    x, left, y, right = np.array([1.0, 10.0]), np.array([0.9, 0.1]), np.array([1.0, 2.0]), np.array([0.5, 0.5])
    for asked, best in ((0.99, [[0.5, 0.4], [0.0, 0.1]]), (-0.99, [[0.4, 0.5], [0.1, 0.0]])):
        np.testing.assert_allclose(joint((x, left), (y, right), asked), best, atol=0.01)
    np.testing.assert_allclose(joint((x[:1], left[:1] / 0.9), (y, right), 0.5), [[0.5, 0.5]])


def test_lengths_are_joined_whatever_their_unit():
    """Both margins and the correlation are kept, in tokens as in millions of them; without one nothing is joined."""
    rng = np.random.default_rng(4)
    x, y = np.sort(rng.lognormal(6.0, 1.0, 5)), np.sort(rng.lognormal(5.0, 1.0, 4))
    left, right = (w / w.sum() for w in (rng.random(5), rng.random(4)))
    for asked in (0.3, -0.2):
        told = joint((x, left), (y, right), asked)
        np.testing.assert_allclose(told.sum(1), left, rtol=1e-6)
        np.testing.assert_allclose(told.sum(0), right, rtol=1e-6)
        covered = x @ told @ y - (left @ x) * (right @ y)
        spread = math.sqrt((left @ (x - left @ x) ** 2) * (right @ (y - right @ y) ** 2))
        assert covered / spread == pytest.approx(asked, abs=1e-5)
        np.testing.assert_allclose(joint((1e-6 * x, left), (1e-6 * y, right), asked), told, rtol=1e-9)
    np.testing.assert_allclose(joint((x, left), (y, right), 0.0), np.outer(left, right))


def test_a_server_is_asked_for_the_last_hours_in_steps_that_it_answers(monkeypatch):
    """Each engine's names once; at most 11,000 samples of a series, and none nearer than scrapes are."""
    asked: list[dict[str, Any]] = []

    def answer(url, timeout):
        asked.append({key: value for key, (value,) in parse_qs(urlsplit(url).query).items()})
        assert url.startswith("http://prometheus:9090/api/v1/query_range?") and timeout > 1
        return io.BytesIO(b"{}")

    monkeypatch.setattr(server, "urlopen", answer)
    for hours, step in ((6.0, 22), (1.0, 15), (1000.0, 3600)):
        asked.clear()
        assert list(server.ask("http://prometheus:9090/", hours)) == [{}] * 3
        for one in asked:
            span = int(one["end"]) - int(one["start"])
            assert abs(span - 3600 * hours) <= 1 and int(one["step"]) == step and span / step < 11_000
    for one, engine in zip(asked, METRICS, strict=True):
        for what, name in METRICS[engine].items():
            parts = [f"{name}_(bucket|sum|count)"] if what in ("input", "output", "ttft", "itl", "e2e") else [name]
            assert all(part in one["query"] for part in parts)


ROWS = [
    {"request_id": "b", "came": 105.0, "scheduled": 105.5, "first": 106.0, "last": 108.0, "input": 20, "output": 11},
    {"request_id": "a", "came": 100.0, "scheduled": 100.25, "first": 101.0, "last": 101.0, "input": 7, "output": 1},
    {"request_id": "c", "came": 103.0, "scheduled": 103.0, "first": 104.5, "last": 109.0, "input": 9, "output": 46},
]
#: What engines and others call the columns.
STYLES = [
    dict(zip(("came", "scheduled", "first", "last", "input", "output"), names.split(), strict=True))
    for names in (
        "queued_ts scheduled_ts first_token_ts last_token_ts input_toks output_toks",
        "arrival_s scheduled_s first_token_s end_s input_tokens output_tokens",
        "arrival_time scheduled_s first_token_s last_token_s prompt_tokens completion_tokens",
    )
]


@pytest.mark.parametrize("style", STYLES)
def test_a_servers_log_in_the_order_of_arrival(style, tmp_path):
    """Times from the first arrival on; JSON lines or a table; how the engine was started lies beside it."""
    rows = [{style.get(key, key): value for key, value in row.items()} for row in ROWS]
    lines = "\n".join(json.dumps(row | {"text": "x", "queued_other": 1}) for row in rows)
    table = "\n".join(",".join(map(str, row)) for row in (rows[0], *(row.values() for row in rows)))
    (tmp_path / "run").mkdir()
    for text in (lines, table):
        (tmp_path / "run" / "requests.jsonl").write_text(text, encoding="utf-8")
        log = read_requests(tmp_path / "run")
        assert (log.name, log.ids, dict(log.engine)) == ("run", ("a", "c", "b"), {})
        assert log.arrival_s.tolist() == [0.0, 3.0, 5.0] and log.scheduled_s.tolist() == [0.25, 3.0, 5.5]
        assert log.first_token_s.tolist() == [1.0, 4.5, 6.0] and log.end_s.tolist() == [1.0, 9.0, 8.0]
        assert log.input_tokens.tolist() == [7, 9, 20] and log.output_tokens.tolist() == [1, 46, 11]
    started = {"vllm_version": "0.19.0", "engine_kwargs": {"max_num_seqs": 64}}
    (tmp_path / "run" / "meta.json").write_text(json.dumps(started), encoding="utf-8")
    assert dict(read_requests(tmp_path / "run").engine) == {"release": "0.19.0", "max_num_seqs": 64}
    slow = [
        row | {style["first"]: 1000 * row[style["first"]], style["last"]: 1000 * row[style["last"]]} for row in rows
    ]
    (tmp_path / "slow.jsonl").write_text("\n".join(map(json.dumps, slow)), encoding="utf-8")
    with pytest.raises(InputError, match=r"150 s for each output token \(median\).*in milliseconds"):
        read_requests(tmp_path / "slow.jsonl")
    for change, why in (
        ({style["first"]: 104.0}, "request 1 has its first token before it came"),
        ({style["last"]: 105.5}, "request 1 has its first token before it came, or after its last"),
        ({style["output"]: 0}, "a request of 0 tokens"),
        ({style["input"]: 1e15}, "1e[+]15 in request 1; accepted: below 1e15"),
    ):
        (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, [rows[0] | change, *rows[1:]])))
        with pytest.raises(InputError, match=why):
            read_requests(tmp_path / "bad.jsonl")
