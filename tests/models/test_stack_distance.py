"""Stack distances: equal to a plain cache of every size, to brute force for the optimum, and what the trace shows."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from dmodels.core.errors import InputError
from dmodels.models.cache import belady_distances, hit_frac, previous, stack_distances, usable
from dmodels.models.traffic import BLOCK_TOKENS, prefix_hits, read_trace

requests = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=14)


def flat(listed):
    """(ids, starts) of a list of requests."""
    ids = np.array([b for request in listed for b in request], np.int64)
    return ids, np.concatenate([[0], np.cumsum([len(r) for r in listed], dtype=np.int64)]).astype(np.int64)


def lru_hits(listed, capacity):
    """Hits of an ordered dictionary that is cut to `capacity` after each request."""
    cache, hits = OrderedDict(), []
    for request in listed:
        hits += [block in cache for block in request]
        for block in reversed(request):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


def uses(listed):
    """(request of the previous use, request of this use) per access that has one, as lists of equal length."""
    last, found = {}, []
    for r, request in enumerate(listed):
        found += [(last[b], r) if b in last else None for b in request]
        last |= dict.fromkeys(request, r)
    return found


def most_hits(listed, capacity):
    """The most hits any choice of kept blocks gives: a linear programme, whole because intervals are unimodular."""
    found = [u for u in uses([list(dict.fromkeys(r)) for r in listed]) if u is not None]
    if not found or capacity == 0:
        return 0
    gaps = np.array([[a <= g < b for a, b in found] for g in range(len(listed) - 1)], float)
    solved = linprog(-np.ones(len(found)), A_ub=gaps, b_ub=np.full(len(gaps), capacity), bounds=(0, 1))
    return round(-solved.fun)


@given(requests)
def test_a_distance_is_the_least_capacity_that_hits(listed):
    ids, starts = flat(listed)
    distances = stack_distances(ids, starts)
    for capacity in range(12):
        assert (distances <= capacity).tolist() == lru_hits(listed, capacity)


@given(st.lists(st.integers(-5, 5), max_size=40))
def test_a_stream_of_single_accesses_is_the_textbook_s(stream):
    single = stack_distances(np.array(stream, np.int64))
    for i, block in enumerate(stream):
        before = [k for k in range(i) if stream[k] == block]
        assert single[i] == (len(set(stream[before[-1] : i])) if before else np.inf)


@given(requests)
def test_belady_is_the_optimum_of_a_linear_programme_at_every_capacity(listed):
    listed = [list(dict.fromkeys(r)) for r in listed]
    ids, starts = flat(listed)
    distances = belady_distances(ids, starts)
    for capacity in range(7):
        assert (distances <= capacity).sum() == most_hits(listed, capacity)
    assert np.array_equal(np.isinf(distances), np.isinf(stack_distances(ids, starts)))


def classical_min(stream, capacity):
    """Hits of MIN that must store what it fetches: the resident block whose next use is furthest leaves first."""
    cache, hits = set(), 0
    for i, block in enumerate(stream):
        hits += block in cache
        if block not in cache and capacity:
            if len(cache) == capacity:
                cache.remove(max(cache, key=lambda b: stream.index(b, i) if b in stream[i:] else len(stream)))
            cache.add(block)
    return hits


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(0, 6))
def test_belady_lies_between_the_classical_min_at_this_size_and_one_more(stream, capacity):
    hits = (belady_distances(np.array(stream, np.int64)) <= capacity).sum()
    assert classical_min(stream, capacity) <= hits <= classical_min(stream, capacity + 1)


@given(requests)
def test_the_prefix_accounting_is_the_first_miss_of_each_request(listed):
    ids, starts = flat(listed)
    distances = stack_distances(ids, starts)
    found = usable(distances, starts)
    for capacity in (0, 1, 3, 8):
        expected = []
        for a, b in pairwise(starts):
            expected += np.cumprod(distances[a:b] <= capacity).astype(bool).tolist()
        assert (found <= capacity).tolist() == expected


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=12))
def test_chained_hashes_make_both_accountings_agree(texts):
    listed = [[hash(tuple(text[: k + 1])) for k in range(len(text))] for text in texts]
    ids, starts = flat(listed)
    for distances in (stack_distances(ids, starts), belady_distances(ids, starts)):
        np.testing.assert_array_equal(usable(distances, starts), distances)


@given(requests)
def test_shares_of_hits(listed):
    ids, starts = flat(listed)
    distances = stack_distances(ids, starts)
    found = hit_frac(distances, np.arange(12))
    assert found.tolist() == [sum(lru_hits(listed, c)) / max(len(ids), 1) for c in range(12)]


def test_empty_traces_and_empty_requests():
    none = np.array([], np.int64)
    for function in (stack_distances, belady_distances):
        assert function(none).shape == (0,) and function(none, np.zeros(1)).shape == (0,)
        assert function(np.array([4, 4]), np.array([0, 0, 1, 1, 2])).tolist() == [np.inf, 1.0]
    assert usable(none, np.zeros(1)).shape == (0,) and previous(none).shape == (0,)


@pytest.mark.parametrize("starts", [[0, 1], [1, 3], [0, 2, 1, 3], [], [[0, 3]]])
def test_starts_that_do_not_cover_the_accesses_are_refused(starts):
    with pytest.raises(InputError, match="starts: accepted"):
        stack_distances(np.arange(3), np.array(starts))


@pytest.mark.parametrize("ids", [np.zeros((2, 2), int), np.array([0.5])])
def test_identifiers_are_whole_numbers_in_one_dimension(ids):
    with pytest.raises(InputError, match="ids: "):
        belady_distances(ids)


def test_the_whole_mooncake_trace(shared_data):
    """12,031 requests and 288,500 accesses: 48 % go to blocks used once, and the hit rate saturates at 36.6 %."""
    trace = read_trace(shared_data / "mooncake_conversation.jsonl")
    lru = stack_distances(trace.block_ids, trace.block_starts)
    best = belady_distances(trace.block_ids, trace.block_starts)
    assert len(trace) == 12_031 and len(lru) == 288_500
    _, uses_count = np.unique(trace.block_ids, return_counts=True)
    assert round((uses_count == 1).sum() / len(lru), 3) == 0.481 and round((uses_count == 1).mean(), 3) == 0.758
    assert round(np.isfinite(lru).mean(), 3) == 0.366
    for capacity in (100, 1_000, 10_000, 30_000):  # the trace's own reader, which keeps an ordered dictionary
        cut = np.add.reduceat(usable(lru, trace.block_starts) <= capacity, trace.block_starts[:-1])
        tokens = np.minimum(cut * BLOCK_TOKENS, trace.input_tokens - 1)
        np.testing.assert_array_equal(prefix_hits(trace, capacity), tokens)
        assert (lru <= capacity).sum() < (best <= capacity).sum()
    np.testing.assert_array_equal(usable(lru, trace.block_starts), lru)
    np.testing.assert_array_equal(usable(best, trace.block_starts), best)
