"""The price of storing a block that is never used again: such blocks are put in, and what others lose is counted."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.cache import (
    characteristic_time,
    eviction_externality,
    lost_hits,
    residence_accesses,
    stack_distances,
)
from dmodels.models.traffic import read_trace


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.floats(0.01, 8))
def test_residence_solves_littles_law(stream, size):
    stream = np.array(stream, np.int64)
    time = float(residence_accesses(stream, np.array([size]))[0])
    last, held = {}, 0.0
    if not np.isfinite(time):
        return
    for i, block in enumerate(stream):
        held += min(i - last[block], time) if block in last else 0.0
        last[block] = i
    assert (held + len(last) * time) / len(stream) == pytest.approx(size, rel=1e-9)


def test_under_the_irm_it_is_the_closed_form():
    rate = np.arange(1.0, 2_001) ** -0.9
    rate /= rate.sum()
    stream = np.random.default_rng(5).choice(2_000, 400_000, p=rate)
    sizes, ones = np.array([100.0, 400.0, 1_000.0]), np.ones(2_000)
    closed = jax.jit(lambda size: eviction_externality(characteristic_time(size, rate, ones), rate, ones))(sizes)
    np.testing.assert_allclose(lost_hits(stream, None, sizes), closed, rtol=0.05)


def test_on_the_mooncake_trace_others_lose_what_it_says(shared_data):
    """A request of one block, used once, after every second request: lost hits per block, at four sizes."""
    trace = read_trace(shared_data / "mooncake_conversation.jsonl")
    sizes = np.array([3_000.0, 7_000.0, 20_000.0, 50_000.0])
    ids, starts = trace.block_ids, trace.block_starts
    added = starts[2::2]  # behind requests 1, 3, ...
    mixed = np.insert(ids, added, 10**9 + np.arange(len(added)))
    cuts = np.concatenate([starts[1:], added])
    tie = np.concatenate([np.zeros(len(starts) - 1), np.ones(len(added))])
    grown = np.concatenate([np.diff(starts), np.ones(len(added), np.int64)])[np.lexsort((tie, cuts))]
    before = np.sort(stack_distances(ids, starts))
    after = np.sort(stack_distances(mixed, np.concatenate([[0], np.cumsum(grown)])))
    count = lambda d: np.searchsorted(d, sizes, side="right")
    lost = (count(before) - count(after)) / len(added)
    np.testing.assert_allclose(lost_hits(ids, starts, sizes), lost, rtol=0.35)
    assert lost.max() > 0.1


def test_nobody_loses_where_everything_fits_or_nothing_is_reused():
    stream = np.tile(np.arange(5), 10)
    assert lost_hits(stream, None, np.array([0.0, 50.0, 1e9])).tolist() == [0, 0, 0]
    assert lost_hits(np.arange(10), None, np.array([1.0, 5.0, 10.0])).tolist() == [0, 0, 0]
    assert lost_hits(np.array([], np.int64), None, np.array([0.0, 3.0])).tolist() == [0, 0]


def test_beyond_the_last_gap_only_last_uses_take_places():
    """Two gaps of 2 and six last uses in 8 accesses: T = 3 holds 2 x 2 + 6 x 3 = 22 accesses x blocks; T = 8 all."""
    ids = np.array([1, 2, 1, 2, 3, 4, 5, 6])
    assert residence_accesses(ids, np.array([1.0, 2.75, 6.4, 6.5])).tolist() == pytest.approx([1, 3, 47.2 / 6, np.inf])


def test_three_blocks_in_turn_hit_all_or_nothing():
    """From three places on six of nine accesses hit; between 2 and 4 places 3 hits a place, and T(3) = 3."""
    ids = np.tile([1, 2, 3], 3)
    assert lost_hits(ids, None, np.array([3.0])).tolist() == pytest.approx([3.0 * 6 / 2 / 9])
    assert lost_hits(ids, None, np.array([5.0]), width=0.5).tolist() == [0.0]  # all fit: nobody is pushed out


def test_half_a_place_for_one_block():
    """Four accesses to it: T = 1/2, three of four hit from one place on."""
    assert lost_hits(np.ones(4, int), None, np.array([0.5])).tolist() == pytest.approx([0.5 * 3 / 4])
