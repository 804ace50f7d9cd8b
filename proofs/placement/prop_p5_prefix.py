r"""NEW-31. With chained hashes a cache that evicts tails first wastes no hit: block and prefix accounting agree.

A request can use a block only if all blocks before it hit too. Where an identifier names a whole prefix (a hash of the
block and of its parent's hash), every use of a block is a use of its head at the same moment. LRU that touches a
request's blocks from last to first, and the optimum with ties broken towards the head, hold a block only together with
its whole head, so that every hit can be used, at every size.

Proof. LRU: after each request the head of every block it touched is above it in the stack, and a block not touched now
keeps its head above it or sees it moved to the top: ranks rise along a prefix. Optimum: the head's interval since its
last use ends at the same moment and begins no earlier, so any place that would take the tail's takes the head's (1, 2).

**Verdict: proved.** Where it ends: (3) touched from first to last, as a stream of single accesses is, LRU keeps tails
without heads; (4) hashes of the block alone (not chained) break it too.
"""

import itertools
from fractions import Fraction as F

import numpy as np

from dmodels.models.cache import belady_distances, stack_distances, usable
from proofs.cases import every
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-31",
    source=DMODELS,
    where="models/stack_distance.usable",
    says="With chained hashes and tails evicted first, every hit of LRU and of the optimum can be used",
    verdict=Verdict.PROVED,
    means="Counting block hits is honest for an engine that evicts the ends of prefixes first; for one that evicts "
    "block by block in reading order it is too optimistic, and the cache holds dead tails.",
)


def flat(requests):
    ids = np.array([b for r in requests for b in r], np.int64)
    return ids, np.concatenate([[0], np.cumsum([len(r) for r in requests])])


def shares(distances, starts, size):
    """Hit shares by (blocks, usable blocks), exactly."""
    n = len(distances)
    return F(int((distances <= size).sum()), n), F(int((usable(distances, starts) <= size).sum()), n)


def chained():
    """All sequences of three requests over the prefixes of a tree: texts of up to three letters of two."""
    texts = [t for n in (1, 2, 3) for t in itertools.product((0, 1), repeat=n)]
    number = {t: i for i, t in enumerate(texts)}
    for three in itertools.product(texts, repeat=3):
        yield [[number[t[: k + 1]] for k in range(len(t))] for t in three]


def test_every_hit_can_be_used_in_all_small_traces():  # 1
    for requests in every(chained(), "sequences of three requests"):
        ids, starts = flat(requests)
        for distances in (stack_distances(ids, starts), belady_distances(ids, starts)):
            for size in range(1, 8):
                blocks, used = shares(distances, starts, size)
                assert blocks == used


def test_ranks_rise_along_every_prefix():  # 2
    for requests in chained():
        ids, starts = flat([*requests, [0, 2, 6], [1, 5, 13]])
        for distances in (stack_distances(ids, starts), belady_distances(ids, starts)):
            for a, b in itertools.pairwise(starts):
                assert np.all(np.diff(distances[a:b][np.isfinite(distances[a:b])]) >= 0)


def test_in_reading_order_tails_outlive_their_heads():  # 3
    requests = [[0, 1], [2], [0, 1]]
    ids, starts = flat(requests)
    tail_first, reading = stack_distances(ids, starts), stack_distances(ids)
    assert shares(tail_first, starts, 2) == (F(1, 5), F(1, 5))  # block 0 was kept
    cache, hits = [], []  # by hand, two places, last used last; all of a request is looked up first
    for request in requests:
        hits.append([b in cache for b in request])
        for b in request:
            cache = [*(x for x in cache if x != b), b][-2:]
    assert hits[2] == [False, True]  # block 1 outlived its head
    assert reading[3] == 3.0  # and the stream says the same of the head


def test_hashes_without_a_parent_break_it():  # 4: block 7 after two different heads
    ids, starts = flat([[1, 7], [2, 3], [2, 7], [9, 7]])
    distances = stack_distances(ids, starts)
    blocks, used = shares(distances, starts, 4)
    assert blocks > used
