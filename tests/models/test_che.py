"""Che's approximation: against SciPy's root, against exact simulation where it holds, and where it does not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from scipy.optimize import brentq

from dmodels.models.cache import (
    characteristic_time,
    eviction_externality,
    lru_hit_frac,
    popularity,
    shuffled_hit_frac,
    stack_distances,
    ttl_hit_frac,
)
from dmodels.models.traffic import read_trace

hit_frac, shuffled = jax.jit(lru_hit_frac), jax.jit(shuffled_hit_frac)
time_of = jax.jit(characteristic_time)


def zipf(exponent, blocks=2_000):
    rate = np.arange(1.0, blocks + 1) ** -exponent
    return rate / rate.sum()


def measured(distances, sizes):
    return np.searchsorted(np.sort(distances), sizes, side="right") / len(distances)


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.3])
def test_within_two_points_of_simulation_under_the_irm(exponent):
    rate = zipf(exponent)
    stream = np.random.default_rng(1).choice(len(rate), 120_000, p=rate)
    sizes = np.round(np.geomspace(1, 1_999, 64))
    exact = measured(stack_distances(stream)[40_000:], sizes)
    assert np.abs(exact - hit_frac(sizes, rate, np.ones(2_000))).max() < (0.02 if exponent > 1 else 0.01)


def test_the_characteristic_time_is_scipys_root():
    rate, count = np.array([5.0, 0.3, 0.001]), np.array([3.0, 40.0, 900.0])
    sizes = np.array([0.0, 1e-3, 2.0, 50.0, 400.0, 942.9, 943.0, 5_000.0])
    found = np.asarray(time_of(sizes, rate, count))
    for size, time in zip(sizes[1:6], found[1:6], strict=True):
        root = brentq(lambda t, c=size: (count * -np.expm1(-rate * t)).sum() - c, 0, 1e6, xtol=1e-12, rtol=1e-13)
        assert time == pytest.approx(root, rel=1e-9)
    assert found[0] == 0 and np.isinf(found[6:]).all()
    np.testing.assert_allclose(np.asarray(hit_frac(sizes, rate, count))[[0, 6, 7]], [0, 1, 1])


def test_its_derivative_is_that_of_the_implicit_function():
    rate, count = zipf(0.9, 500), np.ones(500)
    total = lambda size, r: lru_hit_frac(jnp.array([size]), r, count)[0]
    slope, by_rate = jax.jit(jax.grad(total, argnums=(0, 1)))(60.0, rate)
    bump = np.zeros(500)
    bump[3] = 1e-6
    value = lambda size, r: float(hit_frac(np.array([size]), r, count)[0])
    assert slope == pytest.approx((value(60.01, rate) - value(59.99, rate)) / 0.02, rel=1e-5)
    everything, _ = jax.jit(jax.grad(total, argnums=(0, 1)))(500.0, rate)
    assert everything == 0
    assert by_rate[3] == pytest.approx((value(60.0, rate + bump) - value(60.0, rate - bump)) / 2e-6, rel=1e-4)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.integers(1, 1000)), min_size=4, max_size=4))
def test_hit_rates_rise_with_size_and_stay_between_zero_and_one(kinds):
    rate, count = np.array([k[0] for k in kinds]), np.array([float(k[1]) for k in kinds])
    sizes = np.linspace(0, count.sum() * 1.05, 64)
    found = np.asarray(hit_frac(sizes, rate, count))
    assert np.all(np.diff(found) >= -1e-12) and found[0] == 0 and abs(found[-1] - 1) < 1e-12
    assert np.all(found[:-4] >= sizes[:-4] / count.sum() - 1e-9)  # no worse than blocks that are all alike


def test_a_short_shuffled_trace_ends_at_its_first_uses(shared_data):
    """Mooncake's popularities: in random order within 0.2 points, in the trace's own order up to 14 points away."""
    trace = read_trace(shared_data / "mooncake_conversation.jsonl")
    uses, count = popularity(trace.block_ids)
    assert count @ uses == 288_500
    sizes = np.round(np.geomspace(10, 200_000, 64))
    closed = np.asarray(shuffled(sizes, uses, count))
    order = np.random.default_rng(0).permutation(trace.block_ids)
    assert np.abs(measured(stack_distances(order), sizes) - closed).max() < 2e-3
    real = measured(stack_distances(trace.block_ids, trace.block_starts), sizes)
    assert 0.13 < (real - closed).max() < 0.15  # conversations come back soon: recency is worth more than popularity
    steady = np.asarray(hit_frac(sizes, uses, count))
    assert (steady - real).max() > 0.6  # in steady state every block has been seen; here two thirds are first uses


def test_a_loop_longer_than_the_cache_never_hits():
    """Where the IRM fails the other way: 100 blocks in turn, popularities all alike."""
    distances = stack_distances(np.tile(np.arange(100), 20))
    assert measured(distances, np.array([99.0]))[0] == 0
    assert hit_frac(np.array([99.0]), np.array([1.0]), np.array([100.0]))[0] == pytest.approx(0.99)


def test_a_ttl_cache_is_exact_under_the_irm():
    """Poisson uses of 300 blocks in continuous time, a block dropped 5 s after its last use."""
    rng = np.random.default_rng(2)
    rate = zipf(0.8, 300) * 20.0
    block = rng.choice(300, 200_000, p=rate / rate.sum())
    when = np.cumsum(rng.exponential(1 / rate.sum(), len(block)))
    order = np.lexsort((when, block))
    gaps = np.diff(when[order])[np.diff(block[order]) == 0]
    runs = np.array([(part <= 5.0).mean() for part in np.array_split(rng.permutation(gaps), 50)])
    expected = float(ttl_hit_frac(np.array([5.0]), rate, np.ones(300))[0])
    assert abs(runs.mean() - expected) < 4 * runs.std(ddof=1) / np.sqrt(50) + 1e-3


def test_the_externality_is_what_others_lose():
    """One use-once block per ten accesses, put into an IRM stream: hits lost per block, against the closed form."""
    rate, size = zipf(0.9), 400.0
    rng = np.random.default_rng(3)
    stream = rng.choice(2_000, 600_000, p=rate)
    extra = np.sort(rng.choice(len(stream), len(stream) // 10, replace=False))
    mixed = np.insert(stream, extra, 10_000 + np.arange(len(extra)))
    before = (stack_distances(stream) <= size).sum()
    lost = (before - (stack_distances(mixed) <= size).sum()) / len(extra)
    time = time_of(np.array([size]), rate, np.ones(2_000))
    single = float(eviction_externality(time, rate, np.ones(2_000))[0])

    def shared(part):  # hits lost per block of a stream of use-once blocks, `part` of them per access
        shorter = brentq(lambda t: size + np.expm1(-rate * t).sum() - part * t, 1, 1e6, xtol=1e-9, rtol=1e-14)
        return rate @ (np.exp(-rate * shorter) - np.exp(-rate * float(time[0]))) / part

    assert lost == pytest.approx(shared(0.1), rel=0.02)
    assert single == pytest.approx(shared(1e-5), rel=1e-3) and single > lost


def test_nobody_is_harmed_where_everything_fits():
    rate, count = zipf(1.0, 50), np.ones(50)
    at = time_of(np.array([0.0, 1e-6, 49.9999999, 50.0]), rate, count)
    found = np.asarray(eviction_externality(at, rate, count))
    assert found[0] == 0 and found[1] < 1e-5 and np.isfinite(found).all() and found[3] == 0


def test_the_derivative_of_a_shuffled_trace_by_its_capacity():
    uses, count = jnp.array([2.0, 5.0]), jnp.array([30.0, 10.0])
    hit = lambda c: shuffled_hit_frac(c[None], uses, count)[0]
    expected = (hit(jnp.asarray(15.01)) - hit(jnp.asarray(14.99))) / 0.02
    assert float(jax.grad(hit)(jnp.asarray(15.0))) == pytest.approx(float(expected), rel=1e-4)


def test_one_block_in_one_place_is_never_let_go():
    assert np.isinf(characteristic_time(jnp.array([1.0]), jnp.array([2.0]), jnp.array([1.0]))).all()
    assert float(characteristic_time(jnp.array([0.0]), jnp.array([2.0]), jnp.array([1.0]))[0]) == 0.0


def test_where_nearly_everything_fits_the_rarest_blocks_pay():
    """After 2,000 seconds only blocks used once a second are ever missed: lambda T."""
    harm = eviction_externality(jnp.array([2000.0]), jnp.array([1.0, 2.0]), jnp.array([5.0, 5.0]))
    assert float(harm[0]) == pytest.approx(2000.0)


def test_one_rare_block_keeps_the_cache_from_holding_all():
    """50 blocks used five times and one used once: half a place short, they hit 1 - (1 - T)^5 of four of five uses."""
    short = optimize.brentq(lambda t: 50 * (1 - t) ** 5 + (1 - t) - 0.5, 0.0, 1.0)
    got = shuffled_hit_frac(jnp.array([50.5]), jnp.array([1.0, 5.0]), jnp.array([1.0, 50.0]))
    assert float(got[0]) == pytest.approx(200 * (1 - (1 - short) ** 5) / 251)
