"""Closed forms of the calibration against Monte Carlo whose own error sets the tolerance; threshold discovery."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmodels.control.token_budget import adapt, bounds, failure_bound, threshold_settings
from dmodels.core.errors import InputError

BETA, RUNS = 0.95, 20_000


def ema(draw, cold, length, beta=BETA):
    """(final averages, final spreads) of `RUNS` streams, in NumPy."""
    c, s = np.full(RUNS, cold), np.zeros(RUNS)
    for _ in range(length):
        x = draw()
        c = beta * c + (1 - beta) * x
        s = beta * s + (1 - beta) * np.abs(x - c)
    return c, s


@pytest.mark.parametrize("count", [1, 50])
def test_bias_and_variance_of_the_average(count):
    rng = np.random.default_rng(count)
    c, _ = ema(lambda: rng.gamma(9.0, 2.01 / 9.0, RUNS), 4.0, count)  # mean 2.01, sigma 0.67
    error = c.std() / np.sqrt(RUNS)
    assert abs(c.mean() - 2.01 - float(bounds.bias(float(count), 4.0, 2.01))) < 4 * error
    expected = float(bounds.variance(float(count), 2.01 / 3))
    kurtosis = ((c - c.mean()) ** 4).mean() / c.var() ** 2
    assert abs(c.var(ddof=1) / expected - 1) < 4 * np.sqrt((kurtosis - 1) / RUNS)


def test_spread_is_not_a_standard_deviation():
    """0.768 sigma for normal observations; a far smaller share of it for heavy tails."""
    rng = np.random.default_rng(0)
    _, s = ema(lambda: rng.normal(3.0, 0.4, RUNS), 3.0, 300)
    assert abs(s.mean() - float(bounds.spread_mean(0.4))) < 4 * s.std() / np.sqrt(RUNS)
    rare = np.random.default_rng(1)
    _, s = ema(lambda: 3.0 + (rare.random(RUNS) < 1e-3) * 10.0, 3.0, 300)
    assert s.mean() < 0.15 * 10 * np.sqrt(1e-3)


def test_responses_to_converge():
    for true, eps in ((2.01, 0.035), (4.48, 0.016), (3.52, 0.02)):
        n = float(bounds.responses_to(eps, 4.0, true))
        assert abs(float(bounds.bias(n, 4.0, true))) <= eps * true
        assert n == 0 or abs(float(bounds.bias(n - 1, 4.0, true))) > eps * true
    assert float(bounds.responses_to(0.01, 4.0, 4.0)) == 0.0


def test_miss_bounds_hold_and_the_general_one_is_tight():
    rng = np.random.default_rng(2)
    for draw, sigma in ((rng.normal(3, 0.5, RUNS), 0.5), (3 + 0.5 * (rng.exponential(1, RUNS) - 1), 0.5)):
        for k in (0.5, 1.0, 2.0):
            share = (draw < 3 - k * sigma).mean()
            assert share <= float(bounds.miss_bound(3 - k * sigma, 3.0, sigma)) + 1e-12
    k = 2.0  # Cantelli's two-point law attains it: c - k sigma with probability 1/(1+k^2), else c + sigma/k
    p = 1 / (1 + k * k)
    assert p * -k + (1 - p) / k == pytest.approx(0) and p * k**2 + (1 - p) / k**2 == pytest.approx(1)
    assert float(bounds.miss_bound(-k, 0.0, 1.0)) == pytest.approx(p)
    assert float(bounds.miss_normal(3 - 0.768 * 0.5, 3.0, 0.5)) == pytest.approx(0.2213, abs=1e-3)  # the paper's rule
    assert float(bounds.miss_bound(5.0, 3.0, 0.5)) == 1.0


def test_sigmas_for_covers_the_noise_of_the_average():
    """Padding by k sigma below an average that is itself noisy: misses stay under delta, for a two-point law too."""
    delta = 0.1
    k = float(bounds.sigmas_for(delta))
    p = 1 / (1 + k**2 * (1 + BETA) / 2)
    rng = np.random.default_rng(3)
    low = np.sqrt((1 - p) / p)
    draw = lambda: np.where(rng.random(RUNS) < p, -low, 1 / low)
    c, _ = ema(draw, 0.0, 200)
    missed = (draw() < c - k).mean()
    assert missed < delta + 4 * np.sqrt(delta / RUNS)
    for delta in (0.5, 0.1, 0.01):  # Cantelli on a ratio less its average, whose variances add up, is met exactly
        k, both = bounds.sigmas_for(delta), 0.5 * np.sqrt(1 + (1 - BETA) / (1 + BETA))
        assert float(bounds.miss_bound(3.0 - k * 0.5, 3.0, both)) == pytest.approx(delta)
    assert float(bounds.sigmas_for(0.01)) == pytest.approx(10.1, abs=0.05)


def test_threshold_rule_and_jensen():
    assert float(bounds.threshold_frac(0.2, 3.0, 0.5, 3.0)) == pytest.approx((3 - 2 * 0.5) / 3)
    rng = np.random.default_rng(4)
    c = rng.lognormal(0.0, 0.4, 400_000)
    short = 1 - 1 / (c.mean() * (1 / c).mean())
    assert short == pytest.approx(float(bounds.jensen_frac(0.4)), abs=4e-3)


def test_table_4_cells_need_noise():
    """Every printed ratio lies below its expectation; CJK's needs ratios that scatter by 13 % or more."""
    printed = {4.48: 4.41, 3.52: 3.47, 2.01: 2.08, 3.81: 3.74}
    for true, shown in printed.items():
        assert shown < true + float(bounds.bias(50.0, 4.0, true))
    assert float(bounds.least_sigma(2.08, 50.0, 4.0, 2.01)) / 2.01 == pytest.approx(0.132, abs=2e-3)


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_an_error_that_is_met_exactly_after_so_many_responses_takes_no_further_one(count):
    """From 4 to 2 the error is as large as the ratio at first, and decays by a twentieth."""
    assert float(bounds.responses_to(0.95**count, 4.0, 2.0)) == count


def test_a_right_cold_start_needs_no_responses():
    assert float(bounds.responses_to(0.035, 2.0, 2.0)) == 0.0
    assert float(bounds.responses_to(0.5, 2.5, 2.0)) == 0.0  # off by a quarter, and half is allowed


def test_quantile_slack_of_ratios_from_one_to_six():
    assert float(bounds.quantile_slack(10_000.0, 1.0, 6.0)) == pytest.approx((math.log(6) + 0.1) / 500, rel=1e-12)
    assert float(bounds.quantile_slack(10_000.0, 2.0, 6.0)) == pytest.approx((math.log(3) + 0.1) / 500, rel=1e-12)


def test_cantelli_at_one_deviation_and_at_the_mean():
    assert [float(bounds.miss_bound(n, 4.0, 2.0)) for n in (2.0, 4.0, 5.0)] == [0.5, 1.0, 1.0]
    assert float(bounds.miss_bound(4.0, 4.0, 0.0)) == 1.0


def test_no_margin_is_wider_than_the_context():
    assert float(bounds.threshold_frac(0.5, 4.0, 1.0, 2.0)) == 1.0
    assert float(bounds.threshold_frac(0.5, 4.0, 1.0, 6.0)) == 0.5
    assert float(bounds.threshold_frac(0.01, 1.0, 1.0, 1.0)) == 0.0  # nor is there less than none


def test_failures_stay_within_the_bound_for_streams_made_to_hurt():
    """A pool that fails whenever the threshold is above a boundary that jumps, and one that fails at random."""
    params = threshold_settings(64.0, 65536.0, target_frac=0.02, step=0.05)
    rng, count = np.random.default_rng(1), 4000
    boundary = np.where(np.arange(count) // 500 % 2, 3000.0, 20000.0)
    for fails in (lambda b, k: b > boundary[k], lambda b, k: rng.random() < min(1.0, b / 1e6)):
        tokens, failures = 65536.0, 0
        for k in range(count):
            failed = bool(fails(tokens, k))
            failures += failed
            tokens = min(65536.0, max(64.0, tokens * np.exp(0.05 * (0.02 - failed))))
        assert 64.0 < tokens < 65536.0 or failures == 0
        assert failures / count <= float(failure_bound(count, 65536.0, params))
    assert float(adapt(4096.0, 100.0, 2.0, params)) == pytest.approx(4096.0)  # on target: it stays
    assert [float(adapt(b, n, e, params)) for b, n, e in ((100.0, 1, 50), (60000.0, 1000, 0))] == [64.0, 65536.0]


def test_bad_limits_of_a_threshold_are_refused():
    said = "low_tokens 8192.0, high_tokens 4096.0, target_frac 0.01, step 0.05; accepted"
    with pytest.raises(InputError, match=said):
        threshold_settings(8192.0, 4096.0)
    assert threshold_settings(5.0, 9.0) == threshold_settings(5.0, 9.0, 0.01, 0.05) == (0.01, 0.05, 5.0, 9.0)
