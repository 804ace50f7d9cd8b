"""Arrival processes: rates, burstiness, determinism, and keys that are used once."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.core.lengths import TotalsCdf, iterations_by_total, partial_iterations
from dmodels.core.workload import Workload
from dmodels.sim import arrivals, lengths

KEY = jax.random.key(17)
PROCESSES = {
    "poisson": lambda key: arrivals.poisson(key, 5.0, 4000),
    "gamma": lambda key: arrivals.gamma(key, 5.0, 2.0, 4000),
    "markov": lambda key: arrivals.markov_modulated(key, [1.0, 20.0], [9.0, 3.0], 4000),
}


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_same_key_same_bits_other_key_other_times(process):
    np.testing.assert_array_equal(process(KEY), process(KEY))
    assert not np.array_equal(process(KEY), process(jax.random.key(18)))


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_times_are_float64_and_in_order_whatever_the_caller_configured(process):
    with jax.enable_x64(False):
        times = process(KEY)
    assert times.dtype == np.float64 and (np.diff(times) >= 0).all() and times[0] >= 0
    np.testing.assert_array_equal(times, process(KEY))


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_no_key_is_used_twice(process):
    with jax.debug_key_reuse(True):
        process(jax.random.key(3))


def test_the_key_check_sees_reuse():
    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        key = jax.random.key(0)
        arrivals.poisson(key, 1.0, 8)
        arrivals.poisson(key, 1.0, 8)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_gamma_gaps_have_the_rate_and_the_variation_asked_for(cv):
    gaps = np.diff(arrivals.gamma(KEY, 4.0, cv, 60_000))
    stderr = cv / 4.0 / np.sqrt(gaps.size)
    assert abs(gaps.mean() - 0.25) <= 4 * stderr + 1e-12
    np.testing.assert_allclose(gaps.std() / gaps.mean(), cv, rtol=0.05, atol=1e-9)


def test_markov_modulated_rate_and_overdispersion():
    """Long-run rate (1 x 9 + 20 x 3)/12; counts over windows far more dispersed than Poisson's 1."""
    times = arrivals.markov_modulated(KEY, [1.0, 20.0], [9.0, 3.0], 400_000)
    windows = np.histogram(times, np.arange(0, times[-1], 60.0))[0]
    stderr = windows.std() / np.sqrt(windows.size)
    assert abs(windows.mean() - 60 * 69 / 12) < 5 * stderr
    assert windows.var() / windows.mean() > 10


def test_times_stay_in_order_where_gaps_are_tiny():
    """With CV 3 many gaps are far below the rounding of the sum; a parallel prefix sum would step back there."""
    assert (np.diff(arrivals.gamma(KEY, 30.0, 3.0, 60_000)) >= 0).all()


def test_one_state_is_poisson():
    gaps = np.diff(arrivals.markov_modulated(KEY, [3.0], [0.5], 100_000))
    np.testing.assert_allclose([gaps.mean() * 3, gaps.std() / gaps.mean()], 1.0, rtol=0.02)


def test_a_profile_counts_arrivals_where_its_rate_is():
    unit = arrivals.poisson(KEY, 1.0, 30_000)
    times = arrivals.in_profile(unit, [0.0, 100.0, 110.0, 150.0], [5.0, 200.0, 0.0, 10.0])
    counts = np.histogram(times, [0.0, 100.0, 110.0, 150.0, 250.0])[0]
    assert counts[2] == 0
    for count, mean in zip(counts[[0, 1, 3]], (500, 2000, 1000), strict=True):
        assert abs(count - mean) < 5 * np.sqrt(mean)


@given(rate=st.floats(1e-3, 1e5), start=st.floats(-1e6, 1e6))
def test_replay_rescales_every_gap_by_one_factor(rate, start):
    trace = np.array([0.0, 0.1, 0.1, 3.0, 3.5, 9.0])
    times = arrivals.replay(start + trace, rate, count=12)
    gaps = np.diff(trace)
    np.testing.assert_allclose(np.diff(times[:6]) / np.diff(times)[-1], gaps / gaps[-1], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(times[6] * rate, 6, rtol=1e-9)  # one period: six requests at the rate
    np.testing.assert_allclose(np.diff(times[6:]), np.diff(times[:6]), rtol=1e-6, atol=1e-9 / rate)


@pytest.mark.parametrize("rate", [None, 2.0])
def test_replay_again_begins_a_mean_gap_after_the_end(rate):
    """Gaps of 1 and 2.5 s: rounds of three requests, each 3 x 1.75 s or, at two a second, 1.5 s after the last."""
    times = arrivals.replay([5.0, 6.0, 8.5], rate, count=9)
    np.testing.assert_allclose(times[3:] - times[:-3], 5.25 if rate is None else 1.5)


def test_replay_at_its_own_rate_is_the_trace():
    np.testing.assert_allclose(arrivals.replay([5.0, 6.0, 8.5]), [0.0, 1.0, 3.5])


@pytest.mark.parametrize(
    "call",
    [
        lambda: arrivals.poisson(KEY, -1.0, 5),
        lambda: arrivals.poisson(KEY, np.nan, 5),
        lambda: arrivals.gamma(KEY, 1.0, -0.1, 5),
        lambda: arrivals.markov_modulated(KEY, [0.0, 0.0], [1.0, 1.0], 5),
        lambda: arrivals.markov_modulated(KEY, [1.0], [1.0, 1.0], 5),
        lambda: arrivals.in_profile([1.0], [1.0], [1.0]),
        lambda: arrivals.replay([1.0]),
        lambda: arrivals.replay([2.0, 1.0, 3.0]),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InputError):
        call()


def test_draws_follow_the_support_and_keep_its_means():
    workload = Workload([100.0, 2000.5], [10.25, 300.0], [0.8, 0.2], cached_tokens=[20.0, 0.0])
    drawn = lengths.draw(KEY, workload, 200_000)
    for column, mean in zip(drawn, (workload.mean_input_tokens, workload.mean_output_tokens, 16.0), strict=True):
        assert abs(column.mean() - mean) < 5 * column.std() / np.sqrt(column.size)
    assert (drawn.cached_tokens <= drawn.input_tokens).all()


def test_draws_from_a_cdf_have_its_exact_moments():
    """Sampled iterations against sums over whole numbers, which use no sampling."""
    cdf = TotalsCdf([512, 2048, 8192], [0.5, 0.9, 1.0], share_mean_frac=0.1, share_std_frac=0.05)
    drawn = lengths.draw_totals(KEY, cdf, 400_000)
    iterations = -(-drawn.input_tokens // 512) + drawn.output_tokens
    exact = float(partial_iterations(cdf, np.inf))
    assert abs(iterations.mean() - exact) < 4 * iterations.std() / np.sqrt(iterations.size)
    total = drawn.input_tokens + drawn.output_tokens
    assert total.max() <= 8192 and abs((total <= 2048).mean() - 0.9) < 0.003
    assert iterations_by_total(cdf).size == 8192


def test_a_modulated_stream_begins_in_a_state_as_often_as_it_is_in_it():
    """50 requests a second for a tenth of the time, else one in a hundred seconds: of 300 streams 30 begin at once."""
    keys, rates, stays = jax.random.split(jax.random.key(3), 300), [0.01, 50.0, 0.01], [70.0, 10.0, 20.0]
    first = np.array([arrivals.markov_modulated(key, rates, stays, 1)[0] for key in keys])
    assert 15 <= (first < 0.5).sum() <= 48


def test_totals_of_a_cdf_fill_each_bucket_to_its_ends():
    """1 to 4 and 5 to 6 tokens, three quarters in the first: each whole number as often as its fellows."""
    cdf = TotalsCdf([4.0, 6.0], [0.75, 1.0], 0.5, 0.0, 0.5, 0.5)
    long = lengths.draw_totals(KEY, cdf, 40_000)
    total = long.input_tokens + long.output_tokens
    seen = np.bincount(total[total > 1], minlength=7)[2:] / 40_000
    np.testing.assert_allclose(seen, [0.1875 * 2, 0.1875, 0.1875, 0.125, 0.125], atol=0.01)  # of one token two are made


def test_a_profile_is_gone_through_piece_by_piece():
    """Each arrival comes where so much work is done, a piece of time after the other; some have no rate."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 7))
        starts, rates = np.append(0.0, np.cumsum(rng.uniform(0.1, 3.0, n - 1))), rng.uniform(0.1, 5.0, n)
        rates[:-1][rng.random(n - 1) < 0.3] = 0.0
        unit = np.sort(rng.uniform(0.0, 20.0, 30))
        expected = []
        for u in unit:
            for begin, end, rate in zip(starts, [*starts[1:], np.inf], rates, strict=True):
                if rate and begin + u / rate <= end:
                    expected.append(begin + u / rate)
                    break
                u -= rate * (end - begin)
        np.testing.assert_allclose(arrivals.in_profile(unit, starts, rates), expected)
    assert arrivals.in_profile([0.0], [0.0, 3.0], [1.0, 2.0]).tolist() == [0.0]
    assert arrivals.in_profile([], [0.0], [1.0]).size == arrivals.replay([0.0, 1.0], count=0).size == 0


def test_the_shortest_requests_are_a_token_and_no_more_is_cached_than_asked():
    """Support points between whole numbers, or below one, are drawn as both neighbours, or as one."""
    work = Workload([0.25, 2.5], [0.25, 1.5], [0.5, 0.5], [0.25, 2.5])
    found = lengths.draw(KEY, work, 400)
    assert [sorted(set(column.tolist())) for column in found] == [[1, 2, 3], [1, 2], [0, 1, 2, 3]]
    assert (found.cached_tokens <= found.input_tokens).all() and all(column.dtype == np.int64 for column in found)
    none = lengths.draw(KEY, work, 0)
    assert [column.size for column in none] == [0, 0, 0]


def test_an_answers_share_is_rounded_down_and_clipped():
    """29 % of the total to the whole token below, at least one; a wide share is one of its ends."""
    long = lengths.draw_totals(KEY, TotalsCdf([100.0], [1.0], 0.29, 0.0, 0.29, 0.29), 4000)
    total = long.input_tokens + long.output_tokens
    assert set(total) == set(range(2, 101))  # of one token two are made
    assert long.output_tokens.tolist() == [max(1, 29 * int(n) // 100) for n in total]
    assert not long.cached_tokens.any() and all(column.dtype == np.int64 for column in long)
    wide = lengths.draw_totals(KEY, TotalsCdf([999.0, 1000.0], [0.0, 1.0], 0.3, 50.0, 0.2, 0.4), 4000)
    assert set(wide.input_tokens + wide.output_tokens) == {1000}
    ends = [(wide.output_tokens == tokens).mean() for tokens in (200, 400)]
    assert ends == pytest.approx([0.5, 0.5], abs=0.04) and sum(ends) > 0.99


def test_a_metronome_strikes_at_the_end_of_each_gap():
    for process in (arrivals.deterministic(4.0, 3), arrivals.gamma(KEY, 4.0, 0.0, 3)):
        assert process.tolist() == [0.25, 0.5, 0.75]
    assert arrivals.in_profile([0.0, 1.0], [0.0, 3.0], [0.0, 2.0]).tolist() == [0.0, 3.5]


def test_the_largest_draw_is_of_the_last_point(monkeypatch):
    """Ten tenths are less than 1 by what a float rounds, and a CDF may end a billionth below."""
    numbers = iter([1.0 - 2.0**-53, 0.5] * 2 + [0.0])
    monkeypatch.setattr(lengths, "sample", lambda law, key, count, *_: np.full(count, next(numbers)))
    tenths = Workload(np.arange(1.0, 11.0), np.arange(11.0, 21.0), np.full(10, 0.1))
    found = lengths.draw(KEY, tenths, 2)
    assert [column.tolist() for column in found] == [[10, 10], [20, 20], [0, 0]]
    last = lengths.draw_totals(KEY, TotalsCdf([10.0, 50.0], [0.5, 1.0 - 5e-10], 0.5), 1)
    assert (last.output_tokens.tolist(), last.input_tokens.tolist()) == ([15], [16])  # half of 31, in the middle
