"""HBM as leader: its followers' answer is the best there is, and no threshold beats knowing the future."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dmodels.models.cache import (
    THRESHOLDS,
    Leader,
    Policy,
    best_threshold,
    leader,
    replay,
    stack_distances,
)

requests = st.lists(st.lists(st.integers(0, 7), max_size=4, unique=True), min_size=1, max_size=12)


def flat(listed):
    ids = np.array([b for request in listed for b in request], np.int64)
    return ids, np.concatenate([[0], np.cumsum([len(r) for r in listed], dtype=np.int64)]).astype(np.int64)


def course(listed, size, steps, threshold):
    """(hits, blocks in HBM after each request): frequencies kept for ever, decayed one step at a time."""
    frequency, held, used, hits, after, now, clock = {}, [], {}, [], [], 0, 0
    for r, request in enumerate(listed):
        for _ in range(int(steps[r]) - now):
            frequency = {b: f - 1 for b, f in frequency.items() if f > 1}
        now = int(steps[r])
        hits.append([b in held for b in request])
        for b in request:
            frequency[b] = max(2 * frequency.get(b, 0), 1)
            if b not in held and (len(held) < size or frequency[b] >= threshold):
                held.append(b)
        leaving = sorted((b for b in held if b not in request), key=lambda b: (frequency.get(b, 0), used[b]))
        for b in [*leaving, *(b for b in request[::-1] if b in held)][: max(len(held) - size, 0)]:
            held.remove(b)
        for b in request[::-1]:
            clock += 1
            used[b] = clock
        after.append(set(held))
    return hits, after


def best_answer(listed, hits, after, size):
    """Most misses of HBM that `size` places below can serve: binary choices of what to keep, as a linear programme."""
    last, keep = {}, []
    for r, request in enumerate(listed):
        for b, hit in zip(request, hits[r], strict=True):
            if b in last and not hit:  # to be kept below after each request since, whenever HBM does not hold it
                keep.append([g for g in range(last[b], r) if b not in after[g]])
            last[b] = r
    if not keep or not size:
        return 0
    gaps = np.array([[g in k for k in keep] for g in range(len(listed))], float)
    return round(-linprog(-np.ones(len(keep)), A_ub=gaps, b_ub=np.full(len(gaps), size), bounds=(0, 1)).fun)


@settings(max_examples=40)
@given(requests, st.integers(0, 4), st.integers(0, 3), st.integers(1, 3), st.integers(1, 4))
def test_the_followers_answer_is_the_optimum(listed, size, first, second, every):
    ids, starts = flat(listed)
    steps = np.arange(len(listed)) // every
    found = leader(ids, starts, size, [first, second], [1.0, 2.0, 4.0], steps)
    for k, threshold in enumerate((1, 2, 4)):
        hits, after = course(listed, size, steps, threshold)
        served = found.tier_frac[k] * max(len(ids), 1)
        assert round(served[0]) == sum(map(sum, hits))
        assert round(served[1]) == best_answer(listed, hits, after, first)
        assert round(served[1] + served[2]) == best_answer(listed, hits, after, first + second)


@given(requests, st.integers(0, 4), st.integers(0, 3))
def test_no_threshold_beats_knowing_the_future(listed, size, lower):
    ids, starts = flat(listed)
    found = leader(ids, starts, size, [lower, np.inf])
    assert np.all(np.cumsum(found.tier_frac, axis=1) <= np.cumsum(found.bound_frac)[None, :] + 1e-12)
    tier_s = np.array([0.0, 1.0, 5.0])
    index, costs, least = best_threshold(found, tier_s, 20.0)
    assert least <= costs[index] + 1e-12 and costs[index] == costs.min() and len(costs) == len(THRESHOLDS)
    reused = np.isfinite(stack_distances(ids, starts)).mean() if len(ids) else 0.0
    np.testing.assert_allclose(found.tier_frac.sum(axis=1), reused)  # the unlimited tier serves what is left


def test_promotion_keeps_a_scan_out_of_hbm():
    """Two blocks between scans of six: storing all, one place of two is the scan's; a threshold of 2 keeps both."""
    stream = np.array([b for k in range(20) for b in [0, 1, *range(100 + 6 * k, 106 + 6 * k)]])
    found = leader(stream, None, 2, [np.inf], [1.0, 2.0])
    assert np.round(found.tier_frac[:, 0] * len(stream)).tolist() == [18, 38]
    everything = replay(stream, None, 2, Policy.LRU).hit.mean()
    assert everything == 0


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
