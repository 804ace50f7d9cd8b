"""Pre-copy against a round-by-round simulation; downtime, convergence, contention and break-even."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.core.flags import Flag
from dmodels.models import migration
from dmodels.models import migration as mig


def by_rounds(volume, link, dirty, stop):
    """(rounds, total, downtime, sent): copy, and copy what became dirty meanwhile, until little is left."""
    rounds, total, sent, left = 0, 0.0, 0.0, volume
    while left > stop:
        seconds = left / link
        total, sent, rounds = total + seconds, sent + left, rounds + 1
        left = dirty * seconds
    return rounds, total + left / link, left / link, sent + left


@settings(max_examples=80)
@given(volume=st.floats(1e6, 1e11), link=st.floats(1e8, 1e12), q=st.floats(1e-6, 0.95), stop=st.floats(1e3, 1e6))
def test_rounds_are_a_geometric_series(volume, link, q, stop):
    rounds, total, downtime, sent = by_rounds(volume, link, q * link, stop)
    got = mig.precopy(volume, link, q * link, stop)
    near_edge = abs(np.log(stop / volume) / np.log(q) - round(np.log(stop / volume) / np.log(q))) < 1e-6
    if not near_edge:
        assert float(got.rounds_count) == rounds
        np.testing.assert_allclose([got.total_s, got.downtime_s, got.sent_bytes], [total, downtime, sent], rtol=1e-6)
    assert float(got.downtime_s) <= stop / link * (1 + 1e-6)
    assert float(got.total_s) <= volume / (link - q * link) * (1 + 1e-9)
    assert float(got.sent_bytes) == pytest.approx(float(got.total_s) * link)


def test_downtime_forgets_the_length_only_with_a_threshold():
    sizes = jnp.array([1e8, 1e9, 1e10])
    stop = mig.precopy(sizes, 1e10, 1e8, 1e6)
    assert (np.asarray(stop.downtime_s) <= 1e-4).all()
    fixed = mig.precopy_rounds(sizes, 1e10, 1e8, 2.0)
    np.testing.assert_allclose(np.asarray(fixed.downtime_s) / np.asarray(sizes), 1e-4 / 1e10)  # in proportion


@pytest.mark.parametrize("q", [0.5, 1.0, 1.5])
def test_convergence_needs_the_link_to_outrun_the_writer(q):
    got = mig.precopy(1e9, 1e9, q * 1e9, 1e6)
    assert bool(got.flags & Flag.OVERLOAD) == (q >= 1) and np.isfinite(got.total_s) == (q < 1)
    rounds = mig.precopy_rounds(1e9, 1e9, q * 1e9, 3.0)
    assert float(rounds.sent_bytes) == pytest.approx(1e9 * (1 + q + q**2 + q**3))


def test_qwen_over_nvlink_needs_one_round():
    """57,344 B a token: 2,048 tokens are 117 MB; at 50 ms a token and 150 GB/s the second copy is under a kilobyte."""
    got = mig.precopy(2048 * 57344.0, 150e9, 57344.0 / 0.05, 57344.0)
    assert float(got.rounds_count) == 1.0 and float(got.downtime_s) < 1e-8


@settings(max_examples=80)
@given(
    kappa=st.floats(0.01, 10),
    beta=st.floats(0, 5),
    alpha=st.one_of(st.just(0.0), st.floats(1e-4, 1)),
    base=st.floats(0, 3),
    fixed=st.floats(0, 3),
)
def test_break_even_is_where_moving_starts_to_win(kappa, beta, alpha, base, fixed):
    at = float(mig.break_even_tokens(kappa, 1.0, beta, alpha, base, fixed))
    move = lambda l: fixed + kappa * l
    compute = lambda l: base + beta * l + alpha * l * l
    if np.isfinite(at):
        beyond = at * (1 + 1e-6) + np.array([1e-3, 1.0, 100.0])
        assert (compute(beyond) - move(beyond) >= -1e-6 * (1 + move(beyond))).all()
        if at > 0:
            assert compute(at) == pytest.approx(move(at), rel=1e-6, abs=1e-6)
    else:
        assert compute(1e9) <= move(1e9) * (1 + 1e-9)


def test_the_hand_over_adds_to_the_downtime_and_to_the_whole():
    plain, slow = (migration.precopy(1e9, 1e10, 1e9, 1e6, handover_s=s) for s in (0.0, 0.5))
    assert float(slow.downtime_s - plain.downtime_s) == pytest.approx(0.5)
    assert float(slow.total_s - plain.total_s) == pytest.approx(0.5)
    assert float(slow.sent_bytes) == float(plain.sent_bytes)


def test_fixed_rounds_that_never_shrink_are_flagged():
    at = lambda q: int(migration.precopy_rounds(1e9, 1e9, q * 1e9, 3.0).flags)
    assert at(0.5) == 0 and at(1.0) == int(Flag.OVERLOAD) == at(1.5)
    same = migration.precopy_rounds(1e9, 1e9, 1e9, 3.0)  # q = 1: four copies of the whole
    assert float(same.sent_bytes) == pytest.approx(4e9) and float(same.rounds_count) == 3
    assert float(migration.precopy_rounds(1e9, 1e10, 1e9, 1.0).sent_bytes) == pytest.approx(1.1e9)


@pytest.mark.parametrize(
    "link, beta, alpha, base, fixed, tokens",
    [
        (1.0, 3.0, 0.0, 0.0, 1.0, 1.0),  # 1 + 2 l against 3 l
        (1.0, 2.0, 1.0, 0.0, 1.0, 1.0),  # 1 + 2 l against 2 l + l^2
        (2.0, 2.0, 1.0, 0.0, 2.0, 1.0),  # 2 + l against 2 l + l^2
        (0.5, 2.0, 1.0, 1.0, 0.0, 1.0),  # 4 l against 1 + 2 l + l^2: they touch
        (1.0, 1.0, 1.0, 5.0, 0.0, 0.0),  # 2 l against 5 + l + l^2: moving always wins
        (2.0, 2.0, 1.0, 1.0, 0.9, 0.0),  # moving wins from the first token
        (2.0, 1.0, 0.0, 1.0, 0.0, 0.0),  # same slope, recomputing starts dearer
        (2.0, 1.0, 0.0, 0.0, 1.0, math.inf),  # same slope, moving starts dearer
        (2.0, 1.0, 0.0, 1.0, 1.0, math.inf),  # the same at every length: never quicker
        (1.0, 1.0, 0.0, 0.0, 0.0, math.inf),  # moving is twice as slow per token
        (1.0, 3.0, 0.0, 1.0, 0.0, 0.0),  # recomputing dearer from the start
    ],
)
def test_break_even_of_moving_and_computing_two_bytes_a_token(link, beta, alpha, base, fixed, tokens):
    got = migration.break_even_tokens(2.0, link, beta, alpha, base, fixed)
    assert float(got) == pytest.approx(tokens)


def test_where_only_the_length_counts_a_thousand_tokens_break_even():
    """2 bytes a token at 1 kB/s take 2 s, and so do 1 s in proportion and 1 s by the square."""
    assert float(migration.break_even_tokens(2.0, 1e3, 1e-3, 1e-6)) == pytest.approx(1000.0)


def test_an_empty_cache_is_moved_at_once():
    moved = migration.precopy_rounds(0.0, 1e9, 5e8, 3.0)
    assert [float(x) for x in moved[:4]] == [3.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_rounds_of_a_move_do_not_depend_on_the_unit_of_bytes(unit):
    """1 GB over 0.5 GB/s, dirtied at 0.05 GB/s, down to 1 MB: 1, 0.1, 0.01 and 0.001 of it in 2.222 s."""
    moved = migration.precopy(1e9 * unit, 5e8 * unit, 5e7 * unit, 1e6 * unit)
    assert [float(moved.rounds_count), int(moved.flags)] == [3.0, 0]
    assert [float(moved.total_s), float(moved.downtime_s)] == pytest.approx([2.222, 0.002])
    assert float(moved.sent_bytes) == pytest.approx(1.111e9 * unit)


def test_a_cache_below_the_threshold_is_sent_at_once():
    moved = migration.precopy(1e3, 1e9, 5e8, 1e6)
    assert [float(x) for x in moved[:4]] == pytest.approx([0.0, 1e-6, 1e-6, 1e3])


def test_two_fixed_rounds_and_the_hand_over():
    """1, 0.1 and 0.01 GB over 10 GB/s."""
    moved = migration.precopy_rounds(1e9, 1e10, 1e9, 2.0)
    assert [float(x) for x in moved[:4]] == pytest.approx([2.0, 0.111, 0.001, 1.11e9])
