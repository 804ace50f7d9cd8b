"""Eviction policies against plain dictionaries; the optimum bounds them all; what a threshold keeps out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.models.cache import Policy, belady_distances, decay_steps, replay, stack_distances, usable_hits

blocks = st.integers(0, 8)
requests = st.lists(st.lists(blocks, max_size=5), min_size=1, max_size=14)
policies = st.sampled_from(list(Policy))


def flat(listed):
    ids = np.array([b for request in listed for b in request], np.int64)
    return ids, np.concatenate([[0], np.cumsum([len(r) for r in listed], dtype=np.int64)]).astype(np.int64)


def plain(listed, capacity, policy, steps, threshold, forget):
    """(hits, gone) of a dictionary of frequencies that is decayed step by step and sorted at every request."""
    frequency, used, held, left, hits, gone, now, clock = {}, {}, set(), {}, [], [], 0, 0
    for r, request in enumerate(listed):
        for _ in range(int(steps[r]) - now if policy is Policy.KVBM else 0):
            frequency = {b: f - 1 for b, f in frequency.items() if f > 1}
        now = int(steps[r])
        hits += [b in held for b in request]
        gone += [-1 if b in held else left.get(b, -1) for b in request]
        own = list(dict.fromkeys(request))
        for b in own:
            f = frequency.get(b, 0)
            frequency[b] = {Policy.LRU: 1, Policy.LFU: f + 1, Policy.KVBM: max(2 * f, 1)}[policy]
            if b not in held and (len(held) < capacity or frequency[b] >= threshold):
                held.add(b)
        last = own[::-1]  # from the tail; a block in two places counts where it stands first
        others = sorted((b for b in held if b not in own), key=lambda b: (frequency.get(b, 0), used[b]))
        for b in [*others, *(b for b in last if b in held)]:
            if len(held) > capacity:
                held.remove(b)
                left[b] = r
                if forget:
                    frequency.pop(b, None)
        for b in last:
            clock += 1
            used[b] = clock
            if b not in held:
                left[b] = r
                if forget:
                    frequency.pop(b, None)
    return hits, gone


@given(requests, st.integers(0, 10), policies, st.sampled_from([0, 1, 2, 4]), st.booleans(), st.data())
def test_a_replay_is_that_of_a_dictionary(listed, capacity, policy, threshold, forget, data):
    ids, starts = flat(listed)
    steps = np.cumsum(data.draw(st.lists(st.integers(0, 2), min_size=len(listed), max_size=len(listed))))
    found = replay(ids, starts, capacity, policy, steps, threshold, forget)
    hits, gone = plain(listed, capacity, policy, steps, threshold, forget)
    assert found.hit.tolist() == hits
    assert found.gone.tolist() == gone


@given(requests, st.integers(0, 10))
def test_least_recently_used_is_its_stack_distance(listed, capacity):
    ids, starts = flat(listed)
    np.testing.assert_array_equal(replay(ids, starts, capacity).hit, stack_distances(ids, starts) <= capacity)


@given(requests, st.integers(0, 9))
def test_what_least_recently_used_holds_a_larger_cache_holds_too(listed, capacity):
    ids, starts = flat(listed)
    small, large = (replay(ids, starts, c).hit for c in (capacity, capacity + 1))
    assert not np.any(small & ~large)


@given(requests, st.integers(0, 10), policies, st.sampled_from([0, 2]), st.booleans())
def test_no_policy_has_more_hits_than_belady(listed, capacity, policy, threshold, forget):
    listed = [list(dict.fromkeys(r)) for r in listed]
    ids, starts = flat(listed)
    steps = np.arange(len(listed)) // 2
    hit = replay(ids, starts, capacity, policy, steps, threshold, forget).hit
    assert hit.sum() <= (belady_distances(ids, starts) <= capacity).sum()


@given(requests, policies)
def test_above_all_blocks_only_first_uses_miss(listed, policy):
    ids, starts = flat(listed)
    hit = replay(ids, starts, np.inf, policy).hit
    np.testing.assert_array_equal(hit, np.isfinite(stack_distances(ids, starts)))


def test_a_scan_empties_least_recently_used_and_not_the_frequencies():
    """Four blocks asked for twice a round, and thirty that are never asked for again in between."""
    rounds = [[1], [2], [3], [4], [1], [2], [3], [4]]
    listed = [r for k in range(10) for r in [*rounds, *([1000 + 30 * k + i] for i in range(30))]]
    ids, starts = flat(listed)
    lru = replay(ids, starts, 6, Policy.LRU).hit.sum()
    kvbm = replay(ids, starts, 6, Policy.KVBM).hit.sum()
    assert lru == 40 and kvbm == 76


def test_doubling_outlives_every_decay():
    """Eight hits in the first minute, and a block is worth 256: at a step a minute it blocks a slot for four hours."""
    listed = [[1]] * 9 + [[2 + i % 3] for i in range(300)]
    steps = np.r_[np.zeros(9), np.arange(300)]
    ids, starts = flat(listed)
    assert replay(ids, starts, 3, Policy.KVBM, steps).hit.sum() < 8 + 60  # two slots for three blocks in turn: 0 hits
    assert replay(ids, starts, 3, Policy.LRU).hit.sum() == 8 + 297


def test_hits_after_the_first_miss_cannot_be_used():
    hit = np.array([True, False, True, False, True, True])
    assert usable_hits(hit, np.array([0, 3, 3, 4, 6])).tolist() == [True, False, False, False, True, True]
    assert usable_hits(np.array([], bool), np.array([0, 0])).tolist() == []


def test_mistakes_are_named():
    ids = np.array([1, 2])
    with pytest.raises(InputError, match=r"capacity_blocks = -1: accepted"):
        replay(ids, None, -1)
    with pytest.raises(InputError, match="capacity_blocks = nan"):
        replay(ids, None, float("nan"))
    with pytest.raises(InputError, match="decay_steps: accepted are 2 whole numbers"):
        replay(ids, None, 1, Policy.KVBM, np.array([1, 0]))
    with pytest.raises(InputError, match="every_s = 0"):
        decay_steps(np.zeros(1), 0)
