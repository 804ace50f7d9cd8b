"""Residence and lost hits of small traces, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.models.cache import Leader, best_threshold, leader, lost_hits, residence_accesses

pytestmark = pytest.mark.usefixtures("op_by_op")


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


def test_what_no_leader_exceeds_with_one_place_above_and_below():
    """1 2 1 3 1: with the future known one place catches both returns of 1, one below it nothing more."""
    found = leader(np.array([1, 2, 1, 3, 1]), None, 1, [1.0], [1.0])
    assert found.bound_frac.tolist() == pytest.approx([0.4, 0.0])
    both = leader(np.array([1, 2, 1, 2]), None, 1, [1.0], [1.0])  # one place keeps one of them, two keep both
    assert both.bound_frac.tolist() == pytest.approx([0.25, 0.25])
    assert leader(np.array([], int), None, 1, [1.0], [1.0]).bound_frac.tolist() == [0.0, 0.0]


def test_the_best_threshold_is_the_cheapest_on_average():
    found = Leader(np.array([1.0, 2.0]), np.array([[0.2, 0.4], [0.4, 0.0]]), np.array([0.4, 0.2]))
    best, costs, least = best_threshold(found, np.array([1.0, 10.0]), 100.0)
    assert best == 0 and costs.tolist() == pytest.approx([44.2, 60.4]) and least == pytest.approx(42.4)
