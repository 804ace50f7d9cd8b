"""Intervals cover what they promise, warm-ups are found, and sequential runs stop when they are precise."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.sim import estimate

RNG = np.random.default_rng


def autoregressive(rng, n, phi=0.9):
    from scipy.signal import lfilter

    return lfilter([1.0], [1.0, -phi], rng.normal(size=n + 500))[500:]


def coverage(one, truth, runs=400):
    rngs = [RNG(i) for i in range(runs)]
    return np.mean([one(rng).holds(truth) for rng in rngs])


def test_replication_intervals_cover():
    hit = coverage(lambda rng: estimate.mean_of(rng.exponential(2.0, 30), 0.9), 2.0)
    assert 0.84 < hit < 0.95  # 90 %, less a little for the skew of the exponential; four standard errors are 6 points


def test_the_interval_of_two_and_of_three_values():
    """Student's tables: 12.706 with one degree of freedom, 4.303 with two; deviations of 1 and sqrt(3) / sqrt(n)."""
    assert estimate.mean_of([0.0, 2.0]).half_width == pytest.approx(12.706, rel=1e-4)
    assert estimate.mean_of([0.0, 3.0, 3.0]).half_width == pytest.approx(4.3027, rel=1e-4)


def test_batch_means_cover_where_plain_errors_do_not():
    def plain(rng):
        return estimate.mean_of(autoregressive(rng, 20_000), 0.95)

    hit = coverage(lambda rng: estimate.batch_means(autoregressive(rng, 20_000), 20), 0.0)
    assert 0.91 < hit < 0.985
    assert coverage(plain, 0.0) < 0.6


def test_batches_that_are_too_short_say_so():
    assert estimate.batch_means(autoregressive(RNG(0), 4000, 0.999), 40).flags & Flag.NOT_CONVERGED
    assert estimate.batch_means(1e-6 * autoregressive(RNG(0), 4000, 0.999), 40).flags & Flag.NOT_CONVERGED
    assert estimate.batch_means(RNG(0).normal(size=4000), 40).flags == 0


def test_quantiles_of_correlated_series_cover():
    truth = 2.3263478740 / np.sqrt(1 - 0.9**2)  # normal 99 % point of the stationary law
    hit = coverage(lambda rng: estimate.batch_quantile(autoregressive(rng, 60_000), 0.99), truth, 200)
    assert 0.88 < hit <= 1.0


def test_intervals_of_quantiles_are_as_wide_as_series_differ():
    """Student's point of 19 degrees of freedom times the deviation of the values of many series."""
    told = [estimate.batch_quantile(RNG(i).exponential(size=20_000), 0.95) for i in range(200)]
    spread = np.std([one.value for one in told])
    assert np.sqrt(np.mean([one.half_width**2 for one in told])) == pytest.approx(2.093 * spread, rel=0.15)


def test_extreme_quantiles_of_short_series_are_flagged():
    assert estimate.batch_quantile(np.arange(100.0), 0.99, 10).flags & Flag.EXTRAPOLATED
    for q, few in ((0.99, True), (0.01, True), (0.9, False), (0.1, False)):  # of 200 in a batch 2 beyond, or 20
        told = estimate.batch_quantile(RNG(5).normal(size=2000), q, 10)
        assert told.flags == (Flag.EXTRAPOLATED if few else 0)


def test_warmup_drops_the_transient_and_little_else():
    rng = RNG(1)
    drops = []
    for _ in range(20):
        x = rng.normal(size=5000)
        x[:600] += 8.0 * np.exp(-np.arange(600) / 150.0)
        drops.append(estimate.warmup_count(x)[0])
    assert 250 < np.median(drops) < 1000
    assert np.median([estimate.warmup_count(rng.normal(size=5000))[0] for _ in range(20)]) < 500


def test_a_run_that_never_settles_is_flagged():
    assert estimate.warmup_count(np.arange(1000.0))[1] & Flag.NOT_CONVERGED
    assert estimate.warmup_count(np.ones(7))[1] & Flag.NOT_CONVERGED


def test_missing_values_do_not_move_the_warmup():
    x = RNG(2).normal(size=2000) + np.r_[np.full(200, 9.0), np.zeros(1800)]
    holes = x.copy()
    holes[::7] = np.nan
    assert abs(estimate.warmup_count(holes)[0] - estimate.warmup_count(x)[0]) < 100


def test_replications_stop_when_precise_enough():
    seen = []

    def run(key):
        seen.append(jax.random.key_data(key).tolist())
        return {"value": 10.0 + float(jax.random.normal(key))}

    loose = estimate.replicate(run, jax.random.key(0), target_frac=0.2)
    assert loose["value"].samples == 8 and loose["value"].flags == 0
    tight = estimate.replicate(run, jax.random.key(0), target_frac=0.02)
    assert tight["value"].half_width <= 0.02 * tight["value"].value and tight["value"].samples > 60
    assert len({tuple(s) for s in seen[8:]}) == tight["value"].samples  # every replication had a key of its own
    hopeless = estimate.replicate(run, jax.random.key(0), target_frac=1e-6, at_most=12)
    assert hopeless["value"].flags & Flag.NOT_CONVERGED


def test_common_random_numbers_narrow_a_comparison():
    rng = RNG(3)
    shared = rng.exponential(5.0, 40)
    a, b = shared + rng.normal(0, 0.1, 40) + 0.3, shared + rng.normal(0, 0.1, 40)
    paired = estimate.difference(a, b)
    assert paired.low > 0 and paired.half_width < 0.1
    assert estimate.mean_of(rng.exponential(5.0, 40)).half_width > 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: estimate.mean_of([1.0]),
        lambda: estimate.batch_means([1.0, 2.0, 3.0], 20),
        lambda: estimate.difference([1.0, 2.0], [1.0]),
        lambda: estimate.mean_of([1.0, 2.0], confidence=1.5),
        lambda: estimate.replicate(lambda key: {"x": 1.0}, jax.random.key(0), at_least=1),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InputError):
        call()


def test_a_series_that_never_moves_is_known_exactly():
    seven = estimate.Estimate(7.0, 7.0, 7.0, 20, 0)
    assert estimate.batch_means(np.full(400, 7.0)) == seven == estimate.batch_quantile(np.full(400, 7.0), 0.5)
    assert estimate.mean_of([np.nan, 1.0]).flags == int(Flag.NONFINITE)
