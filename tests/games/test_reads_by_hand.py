"""Who reads which block from whom, and what one worker's choices cost all, from the definition: every reader looks at
every copy."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core.tiered import interpreted
from dmodels.games.placement import PlacementGame, kernels
from dmodels.games.placement.bound_dual import dual_blocks
from dmodels.games.placement.bound_dual import reads as network_reads
from tests.games.placement_brute import draw

pytestmark = pytest.mark.usefixtures("patience")


def games(count):
    """(arrays, a placement in which any worker may keep any block: room does not matter here, generator)."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        a = PlacementGame(*draw(rng, 4, 4)).arrays()
        yield a, rng.integers(-1, a.access.shape[1], a.demand.shape).astype(np.int8), rng


def reads(a, tier, i, b, without=()):
    """(seconds, server) of every way in which i may get b, the cheapest first; -1: it is computed again."""
    held = [(a.distance[i, j] + a.access[j, tier[j, b]], j) for j in range(len(tier)) if tier[j, b] >= 0]
    return [*sorted(one for one in held if one[1] not in without and one[0] < a.recompute[b]), (a.recompute[b], -1)]


def social(a, tier, b):
    return sum(a.demand[k, b] * reads(a, tier, k, b)[0][0] for k in range(len(tier)))


def kept(tier, i, b, t):
    changed = tier.copy()
    changed[i, b] = t
    return changed


def test_the_cheapest_read_and_the_next():
    for a, tier, rng in games(40):
        n, m = tier.shape
        out, near = interpreted(kernels.outside)(tier, a), interpreted(kernels.nearest_two)(tier, a)
        for b in range(m):
            for i in range(n):
                ways = reads(a, tier, i, b)
                assert out[b, i] == reads(a, tier, i, b, without=(i,))[0][0]
                assert near.first[i, b] == ways[0][0] and near.second[i, b] == ways[min(1, len(ways) - 1)][0]
                assert near.server[i, b] == ways[0][1]
        pays = [sum(a.demand[i, b] * reads(a, tier, i, b)[0][0] for b in range(m)) for i in range(n)]
        assert interpreted(kernels.costs)(tier, a) == pytest.approx(pays)
        j, before = int(rng.integers(n)), tier.copy()
        tier[j] = rng.integers(-1, a.access.shape[1], m)
        interpreted(kernels.renew_outside)(before[j], j, tier, a, out)
        np.testing.assert_array_equal(out, interpreted(kernels.outside)(tier, a))


def test_what_one_more_copy_and_one_other_choice_cost_all():
    for a, tier, rng in games(40):
        (n, m), tiers, i = tier.shape, a.access.shape[1], int(rng.integers(tier.shape[0]))
        asked, by_choice = (0, m, a, interpreted(kernels.nearest_two)(tier, a), i), np.zeros((m, tiers + 1))
        interpreted(kernels._social_costs)(*asked, by_choice)
        saved, more = np.empty((tiers, m, n)), np.empty((n, tiers))
        interpreted(kernels.savings)(0, m, tier, a, np.ascontiguousarray(a.access.T), saved)
        for b in range(m):
            wanted = [social(a, kept(tier, i, b, t), b) for t in (*range(tiers), -1)]
            assert by_choice[b] == pytest.approx(wanted)
            for j in range(n):
                without = social(a, kept(tier, j, b, -1), b)
                each = [without - social(a, kept(tier, j, b, t), b) for t in range(tiers)]
                assert saved[:, b, j] == pytest.approx(each)
            now = np.array([reads(a, tier, k, b)[0][0] for k in range(n)])
            interpreted(kernels.gains)(a, now, b, more)
            for j in range(n):
                for t in range(tiers):
                    read = a.distance[:, j] + a.access[j, t]
                    assert more[j, t] == pytest.approx((a.demand[:, b] * np.maximum(now - read, 0.0)).sum())


def test_what_clients_pay_for_a_block_is_what_they_pay_for_it_alone():
    """And the places that they pay for in full: of blocks of all sizes and rates, beside each other and one by one."""
    for a, _, rng in games(6):
        prices, m = rng.integers(0, 9, a.access.size) / 2.0, a.demand.shape[1]
        network, found = (
            network_reads(a.distance, a.access, a.recompute),
            (np.empty(m), np.zeros((m, prices.size), bool)),
        )
        interpreted(dual_blocks)(0, m, a, prices, network, found)
        for b in range(m):
            own = a._replace(demand=a.demand[:, [b]], recompute=a.recompute[[b]], size=a.size[[b]])
            alone = np.empty(1), np.zeros((1, prices.size), bool)
            interpreted(dual_blocks)(0, 1, own, prices, network, alone)
            assert found[0][b] == alone[0][0] and (found[1][b] == alone[1][0]).all()


def test_prices_of_places_bound_what_any_choice_saves():
    """A block goes where its read and its place cost least together; places that are not paid for are given away."""
    for a, tier, rng in games(40):
        m, tiers, i = tier.shape[1], a.access.shape[1], int(rng.integers(tier.shape[0]))
        prices, out = rng.integers(0, 9, tiers).astype(float), interpreted(kernels.outside)(tier, a)
        paid, most = interpreted(kernels.stays)(tier[i], i, a, out, prices)
        own = sum(a.demand[i, b] * reads(a, tier, i, b)[0][0] for b in range(m))
        least = -sum(price * slots for price, slots in zip(prices, a.slots[i], strict=True))
        for b in range(m):
            open_ = [t for t in range(tiers) if a.slots[i][t] > 0]
            least += min(
                [
                    a.demand[i, b] * out[b, i],
                    *(a.demand[i, b] * min(a.access[i, t], out[b, i]) + prices[t] for t in open_),
                ]
            )
        assert (paid, most) == pytest.approx((own, own - least))
