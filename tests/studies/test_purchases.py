"""The cheapest memory to buy, against every purchase that there is: traces of a few blocks, tiers of a few."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels import Parallel, Trace, catalog
from dmodels.core.records import float64
from dmodels.models.cache import stack_distances
from dmodels.studies.place import PrefillBill, Purchase, Tier, at_sizes, bill, buy
from dmodels.studies.place.buy import cheapest, needed_blocks
from dmodels.studies.place.cost import AtSizes

LLAMA, H100, TP4 = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), Parallel(tp=4)


def asked(seed: int, count: int, alike: bool = False, requests: int = 40):
    """Requests for one to six blocks of a few texts; `count` tiers with room for up to three blocks each."""
    rng = np.random.default_rng(seed)
    texts = rng.integers(0, 4, requests)
    rows = [[8 * int(text) + k for k in range(rng.integers(1, 7))] for text in texts]
    starts, ids = np.cumsum([0, *map(len, rows)]), np.concatenate(rows)
    trace = Trace("few", np.arange(1.0 * requests), np.diff(starts) * 512.0, np.full(requests, 10.0), 0.0, ids, starts)
    distances = np.asarray(stack_distances(ids, starts), float)
    reads = np.sort(rng.choice([1e9, 2e9, 5e9, 2e10, 5e10, 3e11], count, replace=False))[::-1]
    reads[-2:] = reads[-1] if alike else reads[-2:]
    prices = np.sort(rng.choice([0.1, 0.3, 1.0, 3.0, 9.0], count, replace=False))[::-1]
    weights = np.full(count, 160.0 * 2**20)
    weights[0] /= 4  # each of four GPUs keeps its part
    rooms = rng.integers(0, 4, count)
    tiers = [
        Tier(f"tier {k}", float(room * weights[k]), float(read), 1e-5, float(usd))
        for k, (room, read, usd) in enumerate(zip(rooms, reads, prices, strict=True))
    ]
    return tiers, weights, bill(tiers, weights, distances, PrefillBill(trace, distances, LLAMA, H100, TP4))


@pytest.mark.parametrize(
    ("count", "seed", "alike"),
    [
        (2, 0, True),  # tiers as fast as each other
        *(
            pytest.param(n, k, False, marks=pytest.mark.slow if k >= n else ())
            for n, seeds in ((1, 3), (2, 3), (3, 5))
            for k in range(seeds)
        ),
    ],
)
def test_no_purchase_is_cheaper(count, seed, alike):
    """Bounds half way between no purchase that helps and the fastest, and hits up to all that there are."""
    buy_and_try_all(*asked(seed, count, alike))


def test_no_purchase_is_cheaper_where_fewer_blocks_are_used_again_than_sizes_are_tried():
    tiers, weights, state = asked(1, 2, requests=9)
    assert 5 < len(state.sorted_distances) < 24
    buy_and_try_all(tiers, weights, state)


def test_no_purchase_is_cheaper_among_four_tiers():
    tiers, weights, state = asked(3, 4, requests=9)
    assert state.sorted_distances[-1] <= 12
    buy_and_try_all(tiers, weights, state)


def buy_and_try_all(tiers, weights, state):
    usd = [tier.usd_per_gib * weight / 2**30 for tier, weight in zip(tiers, weights, strict=True)]
    most = int(state.sorted_distances[-1])
    added = np.array(list(itertools.product(range(most + 1), repeat=len(tiers))), float)
    at = at_sizes(state, state.blocks[None, :] + added)
    ceiling = len(state.sorted_distances) / state.accesses
    for part, hits in ((0.2, 0.5), (0.5, 0.8), (0.9, 1.0)):
        target = hits * ceiling
        bound = float(part * at.first_token_s.min() + (1 - part) * at.first_token_s.max())
        for latency in (bound, math.inf):
            good = (at.hit_frac >= target - 1e-12) & (at.first_token_s <= latency)
            least = min(cost for cost, does in zip(added @ np.array(usd), good, strict=True) if does)
            found, _ = cheapest(state, tiers, weights, target, latency, 0.0)
            assert found.usd == pytest.approx(least, rel=1e-9), (part, hits, latency, found)
            assert found.hit_frac >= target - 1e-12 and found.first_token_s <= latency
            assert (found.saved_usd_per_hour, found.payback_h) == (0.0, math.inf if found.usd else 0.0)
    least_s = float(at.first_token_s.min()) * (1 + 1e-12)  # the fastest that there is can be bought
    good = (at.hit_frac >= ceiling - 1e-12) & (at.first_token_s <= least_s)
    found, _ = cheapest(state, tiers, weights, ceiling, least_s, 0.0)
    assert found.usd == pytest.approx((added[good] @ np.array(usd)).min(), rel=1e-9) and found.first_token_s <= least_s
    paid, _ = cheapest(state, tiers, weights, ceiling, math.inf, 1e-3)
    assert 0 < paid.saved_usd_per_hour < 0.1 and paid.payback_h == pytest.approx(paid.usd / paid.saved_usd_per_hour)


def test_what_is_dear_by_the_gib_may_be_cheap_by_the_block():
    """Each of four GPUs keeps a quarter of a block: at twice the price of a GiB it is half as dear."""
    tiers, weights, state = asked(0, 2)
    tiers = [tier._replace(usd_per_gib=usd) for tier, usd in zip(tiers, (2.0, 1.0), strict=True)]
    found, _ = cheapest(state, tiers, weights, len(state.sorted_distances) / state.accesses, math.inf, 0.0)
    assert list(found.added_gib) == ["tier 0"]


def test_sizes_are_tried_again_between_the_neighbours_of_the_best():
    axis = np.array([0.0, 100.0, 300.0, 700.0])
    for best, low, high in ((0.0, 0, 100), (100.0, 0, 300), (300.0, 100, 700), (700.0, 300, 700)):
        finer = buy._around(axis, best)
        assert (finer[0], finer[-1]) == (low, high) and best in finer and len(finer) >= 48
        assert (np.diff(finer) <= np.ceil((high - low) / 47)).all()


def test_a_share_of_all_reads_takes_as_many_blocks_as_the_last_of_them_lies_deep():
    """k of n hit where the k-th least distance fits; a share is k / n, in whatever digits a machine has for it."""
    for reads in (7, 49, 100):
        state = SimpleNamespace(accesses=reads, sorted_distances=np.arange(1.0, reads - 1.0) * 3)  # of two first uses
        least = [needed_blocks(state, hits / reads) for hits in range(reads + 1)]
        assert least == [*(3.0 * hits for hits in range(reads - 1)), math.inf, math.inf]
        assert needed_blocks(state, 0.01 / reads) == 3.0 and needed_blocks(state, 1.01 / reads) == 6.0


def test_what_each_tier_alone_would_cost_and_spare(monkeypatch):
    """Half of eight reads hit with ten blocks, and there are six: four more, of 2 GiB in HBM and of 1 GiB in DRAM."""
    tiers = [Tier("HBM", 8.0 * 2**30, 1e12, 0.0, 375.0), Tier("DRAM", 2.0 * 2**30, 1e10, 0.0, 5.0)]
    weights = np.array([2.0, 1.0]) * 2**30
    spent = {6.0: 3.0, 10.0: 2.5, 11.0: 3.5, 12.0: 2.0}
    costs = SimpleNamespace(at=lambda sizes: (np.array([spent[size] for size in sizes]), None))
    state = SimpleNamespace(accesses=8, blocks=np.array([4.0, 2.0]), limited=np.array([True, True]), costs=costs)
    state.sorted_distances = np.array([1.0, 2.0, 5.0, 10.0, 11.0])
    asked = []

    def at_sizes(given, blocks):
        assert given is state
        asked.append(blocks.tolist())
        return AtSizes(*(np.array([0.0, first]) + blocks.sum(axis=1) * [0.0, 1.0] for first in (0.5, 0.25, 0.125)))

    monkeypatch.setattr(buy, "at_sizes", at_sizes)
    dram, hbm = buy.purchases(state, tiers, weights, 0.5, 32.0)
    assert asked == [[[4.0, 2.0], [8.0, 2.0]], [[4.0, 2.0], [4.0, 6.0]]]
    assert dram == Purchase("DRAM alone", {"DRAM": 4.0}, 20.0, 10.5, 10.25, 10.125, 16.0, 1.25)
    assert hbm == Purchase("HBM alone", {"HBM": 8.0}, 3000.0, 10.5, 10.25, 10.125, 16.0, 187.5)
    (enough, _) = buy.purchases(state, tiers, weights, 0.25, 32.0)
    assert enough == Purchase("HBM alone", {}, 0.0, 6.5, 6.25, 6.125, 0.0, 0.0)
    worse, _ = buy.purchases(state, tiers, weights, 0.625, 32.0)
    assert (worse.usd, worse.saved_usd_per_hour, worse.payback_h) == (25.0, -16.0, math.inf)
    state.limited = np.array([True, False])
    assert [row.name for row in buy.purchases(state, tiers, weights, 0.5, 32.0)] == ["HBM alone"]


@float64
def test_a_hierarchy_as_it_stands_by_counting():
    """Of eight reads two are first uses; three lie within the two blocks of HBM, one within the three of DRAM, two
    further out. A block of 100 bytes takes 0.1 s and what its rate says; one that is computed again takes 9 s."""
    tiers = [Tier("HBM", 250.0, 1000.0, 0.1), Tier("DRAM", 300.0, 500.0, 0.1), Tier("net", math.inf, 100.0, 0.1)]
    distances = np.array([math.inf, 1.0, 2.0, 3.0, math.inf, 2.0, 9.0, 40.0])
    spent = {math.inf: (2.0, 7e9), 5.0: (3.0, 8e9), 1.0: (4.0, 9e9)}
    asked = lambda sizes: tuple(np.array([spent[size] for size in sizes]).T)
    costs = SimpleNamespace(at=asked, block_s=9.0, requests_count=4, least_flop=1e9)
    state = bill(tiers, np.full(3, 100.0), distances, costs)
    assert state.blocks.tolist() == [2.0, 3.0, math.inf] and state.limited.tolist() == [True, True, False]
    assert state.tier_frac.tolist() == [3 / 8, 1 / 8, 2 / 8] and state.read_s.tolist() == pytest.approx([0.2, 0.3, 1.1])
    load = (3 * 0.2 + 1 * 0.3 + 2 * 1.1) / 8
    assert (state.access_s, state.first_token_s) == pytest.approx((load + 2 / 8 * 9.0, 2.0 + 8 / 4 * load))
    assert (state.miss_s, state.recomputed_flop, state.distinct) == (9.0, 6e9, 40.0) and state.costs is costs
    assert (state.accesses, state.requests, state.sorted_distances.tolist()) == (8, 4, [1, 2, 2, 3, 9, 40])
    at = at_sizes(state, np.array([[2.0, 3.0, math.inf], [1.0, 0.0, 0.0], [0.0, 5.0, 0.0], [1.0, 0.0, 0.0]]))
    assert at.hit_frac.tolist() == [0.5, 1 / 8, 0.5, 1 / 8]
    loads = np.array([load, 0.2 / 8, 4 * 0.3 / 8, 0.2 / 8])
    assert at.first_token_s == pytest.approx(np.array([2.0, 4.0, 3.0, 4.0]) + 2.0 * loads)
    assert at.access_s == pytest.approx(loads + np.array([2, 7, 4, 7]) / 8 * 9.0)
    never = bill(tiers[:1], np.full(1, 100.0), np.full(3, math.inf), SimpleNamespace(**vars(costs) | {"at": the_same}))
    assert (never.distinct, never.tier_frac.tolist(), never.access_s) == (0.0, [0.0], 9.0)


def the_same(sizes):
    return np.full(len(sizes), 5.0), np.full(len(sizes), 1e9)
