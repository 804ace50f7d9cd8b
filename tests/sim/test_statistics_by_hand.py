"""What a run is said to show, counted out: where it settles, its batches, when it is outrun, and its recordings."""

from __future__ import annotations

import itertools
import math
from statistics import fmean, stdev

import jax
import numpy as np
import pytest

from dmodels import Workload
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.models.traffic import Trace
from dmodels.sim import arrivals, estimate, recordings, verify
from dmodels.sim.recordings import Recording
from dmodels.sim.requests import Requests, Served

#: Student's points of 95 %: degrees of freedom -> quantile, as printed in any table.
STUDENT = {1: 12.706, 3: 3.182, 4: 2.776, 7: 2.365, 9: 2.262, 11: 2.201, 17: 2.110, 19: 2.093}


def cut_by_trying(values, batch=5):
    """MSER-5: of every cut in the first half the one whose rest has the least squared standard error; the first."""
    means = [fmean(values[k * batch : (k + 1) * batch]) for k in range(len(values) // batch)]
    error = lambda rest: sum((y - fmean(rest)) ** 2 for y in rest) / len(rest) ** 2
    errors = [error(means[d:]) for d in range(len(means) // 2 + 1)]
    return errors.index(min(errors)) * batch, errors.index(min(errors)) == len(means) // 2


def test_a_warm_up_by_trying_every_cut():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(50, 160))
        x = rng.normal(size=n) + rng.uniform(0, 9) * np.exp(-np.arange(n) / rng.uniform(1, 60))
        drop, late = cut_by_trying(x.tolist())
        told, flag = estimate.warmup_count(x)
        assert told == drop and bool(flag & Flag.NOT_CONVERGED) == late
    assert estimate.warmup_count(np.arange(49.0)) == (0, int(Flag.NOT_CONVERGED))
    holes = np.r_[np.full(40, 9.0), np.zeros(160)] + np.random.default_rng(0).normal(size=200)
    holes[[3, 60, 61, 62, 63, 64]] = np.nan  # a batch of nothing but holes counts as the mean of all
    filled = holes.copy()
    filled[3], filled[60:65] = np.nanmean(holes[:5]), np.nanmean(holes)
    assert estimate.warmup_count(holes)[0] == cut_by_trying(filled.tolist())[0]


def test_intervals_of_batches_by_their_definition():
    """Equal batches of the last values; means, or the quantile of all beside those of the batches."""
    for seed, batches in ((0, 4), (1, 5), (2, 10), (3, 20)):
        x = np.random.default_rng(seed).exponential(size=10 * batches + 3)
        rows = np.split(x[3:], batches)
        means = [fmean(row) for row in rows]
        told = estimate.batch_means(x, batches)
        assert told.value == pytest.approx(fmean(means)) and told.samples == batches
        assert told.half_width == pytest.approx(STUDENT[batches - 1] * stdev(means) / batches**0.5, rel=2e-4)
        assert (told.low + told.high) / 2 == pytest.approx(told.value)
        told = estimate.batch_quantile(x, 0.8, batches)
        whole, each = np.quantile(x[3:], 0.8), [np.quantile(row, 0.8) for row in rows]
        spread = math.sqrt(sum((one - whole) ** 2 for one in each) / (batches - 1) / batches)
        assert (told.value, told.samples) == (pytest.approx(whole), batches)
        assert told.half_width == pytest.approx(STUDENT[batches - 1] * spread, rel=2e-4)
        for found, values in ((told, each), (estimate.batch_means(x, batches), means)):
            deviations = [value - fmean(values) for value in values]
            lag = sum(a * b for a, b in itertools.pairwise(deviations)) / sum(d * d for d in deviations)
            assert bool(found.flags & Flag.NOT_CONVERGED) == (lag > 1.96 / batches**0.5)
    with pytest.raises(InputError, match="at least two batches of two"):
        estimate.batch_means(np.ones(7), 4)


def test_replications_are_looked_at_when_half_as_many_again_have_run():
    for target, at_most, ran in ((10.0, 256, 8), (1e-9, 40, 40), (1e-9, 17, 17)):
        values = []

        def run(key, values=values):
            values.append(float(jax.random.normal(key)))
            return {"a": 5.0 + values[-1], "b": 5.0}

        found = estimate.replicate(run, jax.random.key(1), target, at_most=at_most)
        assert len(values) == ran == found["a"].samples
        assert found["a"].value == pytest.approx(5.0 + fmean(values))
        assert bool(found["a"].flags) == (target < 1) and found["b"].flags == 0 and found["b"].half_width == 0
    sizes = [8, 12, 18, 27, 40, 60]
    values = []
    wide = lambda key: {"a": 10.0 + (5.0 if len(values.append(1) or values) % 2 else -5.0)}
    told = estimate.replicate(wide, jax.random.key(0), 0.2)  # 5 x 2.0 / sqrt(n) is 2 at 25
    assert told["a"].samples in sizes and told["a"].samples == 27
    assert told["a"].holds(10.0) and not told["a"].holds(13.0) and told["a"].holds(13.0, 1.5)


def outrun_by_looking(served: Served) -> bool:
    """Unions of the spans in which somebody waits, and who is admitted in them, one request at a time."""
    service = fmean(served.end_s - served.admitted_s)
    spans: list[list[float]] = []
    for came, taken in zip(served.arrival_s, served.admitted_s, strict=True):
        if taken - came > 0.05 * service:
            if spans and came <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], taken)
            else:
                spans.append([came, taken])
    busy = sum(end - begin for begin, end in spans)
    run = served.arrival_s[-1] - served.arrival_s[0]
    taken = sum(begin < t <= end for begin, end in spans for t in served.admitted_s)
    return busy > run / 2 and taken / busy < (served.arrival_s.size - 1) / run


def test_a_run_is_outrun_where_waiting_spans_say_so():
    told = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(20, 90))
        arrival = np.cumsum(rng.exponential(1.0, n))
        servers, free, admitted = int(rng.integers(1, 4)), [0.0] * 3, []
        took = rng.exponential(servers * rng.uniform(0.6, 1.5), n)
        for a, s in zip(arrival, took, strict=True):
            k = min(range(servers), key=lambda k: free[k])
            admitted.append(max(a, free[k]))
            free[k] = admitted[-1] + s
        admitted = np.array(admitted)
        served = Served(arrival, admitted, admitted, admitted + took, np.ones(n))
        assert verify.outrun(served) == outrun_by_looking(served)
        quick = Served(*(1e-4 * column for column in served[:4]), served.output_tokens)  # all of it in milliseconds
        assert verify.outrun(quick) == verify.outrun(served)
        told.append(verify.outrun(served))
    assert 10 < sum(told) < 50
    two = np.array([0.0, 1.0])
    assert verify.outrun(
        Served(two, 10 * two, 10 * two, 10 * two + 1, np.ones(2))
    )  # one a second came, one in nine left
    assert not verify.outrun(Served(two, 1.5 * two, 1.5 * two, 1.5 * two + 1, np.ones(2)))  # half of the time, no more
    assert not verify.outrun(Served(two, 1.9 * two, 1.9 * two, 1.9 * two + 1, np.ones(2)))  # one in 0.9 s left
    assert not verify.outrun(Served(0 * two, 5 * two, 5 * two, 5 * two + 1, np.ones(2)))  # all at one instant
    one = Served(*(np.zeros(1) for _ in range(5)))
    assert not verify.outrun(one) and not verify.outrun(served.at(np.zeros(0, int)))


def test_what_settled_is_from_the_cut_to_the_longest_life_before_the_end():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n = 400
        arrival = np.cumsum(rng.exponential(1.0, n))
        took = rng.exponential(rng.uniform(3, 60), n) + 20 * np.exp(-np.arange(n) / 30)
        served = Served(arrival, arrival + 0.5 * took, arrival + 0.7 * took, arrival + took, np.ones(n))
        begin, _ = cut_by_trying(took.tolist())
        last = arrival[-1] - np.quantile(took, 0.999)
        kept = [i for i in range(begin, n) if arrival[i] < last]
        kept = kept if len(kept) >= n // 4 else list(range(begin, n))
        assert verify.steady(served).tolist() == kept
    with pytest.raises(InputError, match="at least 200"):
        verify.steady(served.at(np.arange(199)))


def test_metrics_of_a_trace_are_those_of_its_requests():
    rng = np.random.default_rng(2)
    n = 240
    arrival = np.cumsum(rng.exponential(1.0, n))
    wait, first, rest = (rng.exponential(scale, n) for scale in (0.01, 0.5, 3.0))
    tokens = rng.integers(1, 9, n)
    admitted = arrival + wait
    served = Served(arrival, admitted, admitted + first, admitted + first + rest * (tokens > 1), tokens)
    told = verify.trace_metrics(served, 0.9, 10)
    several = tokens > 1
    columns = {"ttft": wait + first, "tpot": (rest / np.maximum(tokens - 1, 1))[several], "wait": wait}
    columns["e2e"] = wait + first + rest * several
    parts = [f"{k}_{what}_s" for k in ("ttft", "tpot", "e2e", "wait") for what in ("mean", "p90")]
    assert [*told] == ["requests_count", *parts]
    for name, values in columns.items():
        assert told[f"{name}_mean_s"].value == pytest.approx(fmean(values[values.size % 10 :]))
        assert told[f"{name}_p90_s"].value == pytest.approx(np.quantile(values[values.size % 10 :], 0.9))
        assert told[f"{name}_mean_s"].samples == 10
    assert told["requests_count"] == (n, n, n, 1, 0)  # counted, once


def played(of: Recording) -> list[tuple[float, float]]:
    """(time, prompt) of what is played for `warm_s` before the recording, from its end backwards, and then it."""
    rows = list(zip(of.time_s, of.input_tokens, strict=True))
    found, begin = [(of.warm_s + t, x) for t, x in rows], of.warm_s
    while begin > 0:
        begin -= of.period_s
        found = [(begin + t, x) for t, x in rows if begin + t >= 0] + found
    return found


def test_a_recording_is_played_backwards_from_its_end_before_it_counts():
    rng = np.random.default_rng(0)
    time = np.sort(rng.uniform(0, 9, 30))
    prompts = np.arange(11.0, 41.0)
    of = Recording(time, prompts, prompts - 7, prompts - 9, 10.0, "x")
    for life in (1.0, 2.0, 2.5, 7.0, 14.0, 29.0, 31.0, 500.0):
        warm = of.warm(life)
        expected = 0.0 if 5 * life <= 10.0 else min(life, 30.0)
        assert warm.warm_s == expected
        found, asked = warm.requests(), played(warm)
        np.testing.assert_allclose(found.arrival_s, [t for t, _ in asked])
        assert found.input_tokens.tolist() == [x for _, x in asked]
        assert found.output_tokens.tolist() == [x - 7 for _, x in asked]
        assert found.cached_tokens.tolist() == [x - 9 for _, x in asked]
        assert (found.arrival_s[-30:] >= warm.warm_s).all() and found.arrival_s[0] >= 0
        fast = of.faster(50.0).warm(life / 50).requests()  # of a fifth of a second
        np.testing.assert_allclose(50 * fast.arrival_s, found.arrival_s)


def test_a_faster_recording_and_a_part_of_one():
    """Six requests in 12 s; the third to the fifth span from 4 to 10 s, and come at the rate of the whole."""
    time, prompts = np.array([0.0, 1.0, 4.0, 5.0, 8.0, 10.0]), np.arange(10.0, 16.0)
    of = Recording(time, prompts, prompts + 1, prompts - 1, 12.0, "x")
    fast = of.faster(4.0)
    assert fast.time_s.tolist() == (time / 4).tolist() and (fast.period_s, fast.source) == (3.0, "x")
    assert all(getattr(fast, name) is getattr(of, name) for name in ("input_tokens", "output_tokens", "cached_tokens"))
    part = of.part(1 / 3, 5 / 6)
    assert (
        part.time_s.tolist() == [0.0, 1.0, 4.0] and part.period_s == 6.0
    )  # 6 s for three is 2 s each, as in the whole
    assert [part.input_tokens.tolist(), part.output_tokens.tolist()] == [[12, 13, 14], [13, 14, 15]]
    assert part.cached_tokens.tolist() == [11, 12, 13]
    last = of.part(0.5, 1.0)
    assert last.time_s == pytest.approx(np.array([0.0, 3.0, 5.0]) * 6 / 7) and last.period_s == 6.0
    tiny = of.faster(1e12).part(0.5, 1.0)  # what counts as one instant is measured in gaps
    assert 1e12 * tiny.time_s == pytest.approx(last.time_s)
    assert [of.part(*ends).input_tokens.tolist() for ends in ((1.0, 1.0), (0.0, 0.0), (0.5, 0.5))] == [[15], [10], [13]]


def test_a_sample_is_the_beginning_of_each_fiftieth():
    rng = np.random.default_rng(1)
    time = np.sort(rng.uniform(0, 500.0, 4000))
    of = Recording(time, np.arange(4000.0), np.arange(4000.0) + 1, np.arange(4000.0) + 2, 500.0, "x")
    sample = of.sampled(1000)
    rows = [i for i, t in enumerate(time) if t % 10.0 < 2.5]
    assert sample.input_tokens.tolist() == rows and sample.output_tokens.tolist() == [i + 1 for i in rows]
    assert sample.cached_tokens.tolist() == [i + 2 for i in rows] and sample.warm_s == 0.0
    factor = (500.0 / 4000 * len(rows)) / (50 * 2.5)
    times = [factor * (2.5 * (time[i] // 10.0) + time[i] % 10.0) for i in rows]
    np.testing.assert_allclose(sample.time_s, times)
    assert sample.period_s == pytest.approx(125.0 * factor) and sample.source == "x"


def test_another_day_is_stretches_of_this_one():
    """Each from its beginning on, over the end to the start; at the rate of the whole."""
    rng = np.random.default_rng(3)
    time = np.sort(rng.uniform(0, 100.0, 200))
    of = Recording(time, np.arange(200.0), np.ones(200), np.zeros(200), 100.0, "x")
    for seed in range(5):
        begins, rows, times = np.random.default_rng(seed), [], []
        for k in range(4):
            begin = begins.uniform(0.0, 100.0)
            after = sorted(((t - begin) % 100.0, i) for i, t in enumerate(time))
            rows += [i for late, i in after if late < 25.0]
            times += [late + 25.0 * k for late, _ in after if late < 25.0]
        found = of.resampled(seed, 4)
        assert found.input_tokens.tolist() == rows
        np.testing.assert_allclose(found.time_s, np.array(times) * len(rows) / 200)
        assert found.period_s == pytest.approx(len(rows) / 2)


def test_what_a_trace_is_recorded_as():
    """At the rate asked for of all requests; one at least of each kind of token, and no more cached than asked."""
    when = np.array([3.0, 4.0, 7.0, 8.0])
    trace = Trace(
        "t", when, np.array([0.0, 50.0, 200.0, 90.0]), np.array([0.0, 60.0, 3.0, 9.0]), np.array([5.0, 9.0, 0.0, 99.0])
    )
    found = recordings.recorded(trace, 2.0, 100.0)
    assert recordings.takes(trace, 100.0).tolist() == [True, True, False, True]
    np.testing.assert_allclose(found.time_s, np.array([0.0, 1.0, 5.0]) * 0.3)  # four in 20/3 s, at two a second
    assert found.input_tokens.tolist() == [1.0, 50.0, 90.0] and found.output_tokens.tolist() == [1.0, 50.0, 9.0]
    assert found.cached_tokens.tolist() == [1.0, 9.0, 90.0] and found.period_s == 2.0
    assert "own arrival times" in found.source and recordings.takes(trace).all()


@pytest.mark.parametrize("cv", [1.0, 2.0])
def test_drawn_recordings_have_the_rate_and_the_burstiness_asked_for(cv):
    work = Workload([300.0], [20.0], [1.0], [120.0], rate_rps=4.0).replace(arrival_cv=np.float64(cv))
    found = recordings.drawn(work, 5, 6000)
    gaps = np.diff(found.time_s)
    assert (gaps.mean(), gaps.std() / gaps.mean()) == (pytest.approx(0.25, rel=0.1), pytest.approx(cv, rel=0.1))
    assert set(found.input_tokens) == {300.0} and set(found.output_tokens) == {20.0} and found.warm_s == 0.0
    assert set(found.cached_tokens) == {120.0} and found.source == (
        "Poisson arrivals (there is no trace)"
        if cv == 1
        else "independent arrivals with gaps of CV 2 (there is no trace)"
    )
    assert found.period_s == max(1500.0, found.time_s[-1]) and ("Poisson" in found.source) == (cv == 1)
    assert (recordings.drawn(work, 6, 6000).time_s != found.time_s).any()
    key = jax.random.split(jax.random.key(5))[0]
    again = arrivals.poisson(key, 4.0, 6000) if cv == 1 else arrivals.gamma(key, 4.0, cv, 6000)
    np.testing.assert_array_equal(found.time_s, again)


@pytest.mark.parametrize(
    "columns, why",
    [
        (([[0.0]], 1, 1), "one time per request"),
        (([0.0, -1.0], 1, 1), "not finite or not in order"),
        (([0.0, np.nan], 1, 1), "not finite or not in order"),
        (([0.0, 1.0], [1, 1, 1], 1), "input_tokens: shape"),
        (([0.0, 1.0], [[1, 1]], 1), "input_tokens: shape"),
        (([0.0], 0, 1), "input_tokens: 0; accepted: whole numbers from 1"),
        (([0.0], 1, 0.4), "output_tokens: 0; accepted: whole numbers from 1"),
        (([0.0], 5, 1, -1), "cached_tokens: -1; accepted: whole numbers from 0"),
        (([0.0], 5, 1, 6), "cached_tokens exceed input_tokens"),
    ],
)
def test_requests_that_cannot_be(columns, why):
    with pytest.raises(InputError, match=why):
        Requests.checked(*columns)


def test_requests_that_can_be():
    found = Requests.checked([0.0, 0.0], [5.4, 6.6], 2, [5, 3])
    assert [column.tolist() for column in found] == [[0.0, 0.0], [5, 7], [2, 2], [5, 3]]
    assert found.prefill_tokens.tolist() == [1, 4]  # one is computed again
