"""What answers of games say of themselves, worked out from their own other numbers, and queues that were simulated."""

from __future__ import annotations

import heapq
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels.core.flags import Flag, describe
from dmodels.core.tiered import interpreted
from dmodels.games.anarchy import AFFINE_ATOMIC, bounds
from dmodels.games.placement import (
    PlacementGame,
    best_response_dynamics,
    complete,
    equilibria,
    greedy_optimum,
    isolated_s,
    price_of_anarchy,
    pure_equilibria,
    two_level,
    value_of_sharing,
)
from dmodels.games.placement.anarchy import PlacementPrice, random_placement
from dmodels.games.placement.existence import approximate_equilibrium, pure_equilibrium
from dmodels.games.placement.sharing import Sharing
from dmodels.games.resource import PrefillQueue
from tests.games.placement_brute import draw, rows, truth


def late_frac(rate, service_s, scv, servers, slo_s, arrival_scv, n=120_000, seed=0):
    """Share of customers of a GI/G/c line that leave later than the SLO: gamma gaps, lognormal services."""
    rng = np.random.default_rng(seed)
    came = np.cumsum(rng.gamma(1 / arrival_scv, arrival_scv / rate, n))
    sigma = math.sqrt(math.log1p(scv))
    took = service_s * np.exp(sigma * rng.normal(size=n) - sigma**2 / 2)
    free, late = [0.0] * servers, 0
    for a, s in zip(came.tolist(), took.tolist(), strict=True):
        begun = max(a, heapq.heappop(free))
        heapq.heappush(free, begun + s)
        late += begun + s - a > slo_s
    return late / n


@pytest.mark.parametrize("arrival_scv", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("servers, load, slo_s", [(1, 0.7, 3.0), (4, 0.85, 2.0)])
def test_late_first_tokens_are_those_of_a_simulated_line(servers, load, slo_s, arrival_scv):
    """Bursty or even arrivals; the law is an approximation: within a quarter, and three points."""
    rate = load * servers / 0.5
    truth = late_frac(rate, 0.5, 0.6, servers, slo_s, arrival_scv)
    told = float(PrefillQueue(rate, 0.5, 0.6, 0.5, slo_s, arrival_scv=arrival_scv)(2.0 * servers))
    assert told == pytest.approx(truth, rel=0.25, abs=0.03)


def games(count, seed, *most, sizes=False):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield draw(rng, *most, sizes=sizes)


def ratio(cost, least):
    return cost / least if least > 0 else (1.0 if cost == 0 else math.inf if cost > 0 else math.nan)


@pytest.mark.parametrize("exact_variables", [0, 6000])
@pytest.mark.parametrize("max_profiles", [0, 3e5])
def test_a_price_is_made_of_the_costs_beside_it(max_profiles, exact_variables, monkeypatch):
    """Worst and best over the least known, the ceiling over the bound; flags and words agree with what was found."""
    monkeypatch.setattr("dmodels.games.placement.anarchy.EXACT_VARIABLES", exact_variables)
    loose = 0
    for arrays in games(14, 5) if max_profiles else games(5, 5, 4, 7, sizes=True):
        game = PlacementGame(*arrays)
        p = price_of_anarchy(game, max_profiles=max_profiles, starts=2)
        assert p.exact == (max_profiles > 0) and p.ceiling_s == pytest.approx(isolated_s(game).sum())
        if p.exists == 1:
            assert p.lower == pytest.approx(ratio(p.worst_s, p.optimum_s))
            assert p.stability_upper == pytest.approx(ratio(p.best_s, p.optimum_bound_s))
            assert p.best_s <= p.worst_s <= p.ceiling_s * (1 + 1e-9) and p.equilibria_count >= 1
            top, low = (p.worst_s, p.best_s) if p.exact else (p.ceiling_s, p.optimum_s)
            assert p.stability_lower == pytest.approx(ratio(low, p.optimum_s) if p.exact else 1.0)
            assert p.upper == pytest.approx(ratio(top, p.optimum_bound_s))
            assert not p.flags and f"{p.lower:.4g}" in str(p) and (" to " in str(p)) != p.exact
            assert not p.exact or p.equilibria_count == truth(*arrays).stable.sum()
        else:
            assert math.isnan(p.lower) and math.isnan(p.worst_s) and p.equilibria_count == 0
            assert p.flags & (Flag.INFEASIBLE if p.exact else Flag.NOT_CONVERGED)
            assert p.exact or p.upper == pytest.approx(ratio(p.ceiling_s, p.optimum_bound_s))
        loose += p.optimum_bound_s < p.optimum_s * (1 - 1e-6)
    assert loose or exact_variables or max_profiles  # the bound by prices is not always the optimum


def test_a_price_by_hand():
    """Two pairs without a path between them. The first pair is read (5, 2) times a second and settles at 22 s, where
    21 s would do; the other (3, 1) and (3, 2) times, at 13 s, which is the least, or at 14 s. Alone they pay 22 and
    8 + 13 s. By enumeration, and by play from many starts."""
    rates = np.zeros((4, 4))
    rates[:2, :2], rates[2:, 2:] = [[5.0, 2.0], [5.0, 2.0]], [[3.0, 1.0], [3.0, 2.0]]
    game = PlacementGame(rates, [1.0], [1.0], two_level(4, 2, 1.0, math.inf), [3.0, 3.0, 5.0, 5.0])
    ends, least = (36.0, 35.0, 43.0), (34.0, 34.0)
    told = price_of_anarchy(game)
    assert told == (36 / 34, 36 / 34, 35 / 34, 35 / 34, True, 1, *ends, *least, 2, 0)
    played = price_of_anarchy(game, max_profiles=0)
    assert tuple(played) == pytest.approx((36 / 34, 43 / 34, 1.0, 35 / 34, False, 1, *ends, *least, 2, 0))


def test_a_price_in_words():
    """A point where the game was enumerated, else an interval; what is not known is said."""
    price = PlacementPrice(1.25, 1.5, 1.0, 1.1, False, 1, 5.0, 4.0, 6.0, 4.0, 4.0, 2, np.int32(0))
    assert str(price) == "price of anarchy 1.25 to 1.5" and str(price._replace(exact=True)) == "price of anarchy 1.25"
    assert str(price._replace(exists=0)).startswith("no pure equilibrium exists")
    unknown = price._replace(exists=-1, lower=math.nan, flags=np.int32(Flag.NOT_CONVERGED))
    assert str(unknown) == f"price of anarchy nan to 1.5 ({describe(int(Flag.NOT_CONVERGED))})"
    saved = "pooling saves 20.0 % of the cost of reads; central placement saves another 25.0 % (at most 37.5 %)"
    for unit in (1.0, 1e-3):
        selfish, together = (SimpleNamespace(social_s=unit * cost) for cost in (16.0, 12.0))
        assert str(Sharing(20.0 * unit, selfish, together, 10.0 * unit, np.int32(0))) == saved
    nothing = Sharing(0.0, SimpleNamespace(social_s=0.0), SimpleNamespace(social_s=0.0), 0.0, np.int32(0))
    assert (nothing.pooling_frac, nothing.coordination_frac) == (0.0, (0.0, 0.0))


def test_the_nearest_that_play_passed_is_kept():
    """Of games without an equilibrium: from the empty tiers and from each start in turn, the least of largest gains."""
    seen = 0
    for k in range(3):
        rates = np.tile([2.0, 3.0, 4.0], (2, 1)) + 0.05 * np.random.default_rng(k).uniform(size=(2, 3))
        near = 2.0 + 0.1 * k
        arrays = (
            rates,
            np.tile([1.0, 2.0], (2, 1)),
            np.ones((2, 2)),
            near * (1 - np.eye(2)),
            np.full(3, 5.0),
            np.ones(3),
        )
        if truth(*arrays).stable.any():
            continue
        game = PlacementGame(*arrays)
        found, rng = pure_equilibrium(game, max_profiles=0, starts=3), np.random.default_rng(0)
        tries = []
        for k in range(4):
            start = random_placement(game, rng) if k else None
            order = rng.permutation(game.workers_count) if k else None
            tries.append(best_response_dynamics(game, start, order, max_rounds=100))
        best = min(tries, key=lambda s: s.certificate["gain_s"].max())
        calm = approximate_equilibrium(game, best.value.tier)
        least = min(s.certificate["gain_s"].max() for s in (*tries, calm))
        assert found.certificate["gain_s"].max() == pytest.approx(least) and found.flags == Flag.NOT_CONVERGED
        assert found.certificate["exists"] == -1
        assert np.array_equal(found.certificate["cycle"], best.certificate["cycle"])  # the first of equals
        assert found.steps == sum(int(s.steps) for s in (*tries, calm))
        seen += 1
    assert seen >= 2


def test_play_starts_eight_times_at_random_unless_told_otherwise(monkeypatch):
    """From the placements and in the orders of a generator that is seeded with 0."""
    drawn = []
    game = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)
    for room in ("anarchy", "existence"):
        monkeypatch.setattr(
            f"dmodels.games.placement.{room}.random_placement",
            lambda *asked: drawn.append(random_placement(*asked).tolist()) or np.array(drawn[-1]),
        )
    for ask in (price_of_anarchy, pure_equilibrium):
        unsaid = ask(game, max_profiles=0)
        said = ask(game, max_profiles=0, starts=8, rng=np.random.default_rng(0))
        assert len(drawn) == 16 and drawn[:8] == drawn[8:] and str(unsaid) == str(said)
        drawn.clear()


def test_placements_at_random_fill_the_fastest_tier_that_has_room():
    rng = np.random.default_rng(2)
    for _ in range(40):
        demand, access, capacity, *rest = draw(rng, sizes=True)
        game = PlacementGame(demand, access, capacity, *rest)
        tier, size = random_placement(game, np.random.default_rng(1)), rest[2]
        for row, room in zip(tier, capacity, strict=True):
            used = np.array([size[row == t].sum() for t in range(len(room))])
            assert (used <= room + 1e-9).all()
            left = size[row == -1]
            assert not left.size or left.min() > (room - used).max() - 1e-9


def test_profiles_are_counted(patience, monkeypatch):
    """And what each costs, interpreted: nothing is compiled for games of this size."""
    monkeypatch.setattr(pure_equilibria, "_all_costs", interpreted(pure_equilibria._all_costs))
    for drawn in games(12, 3):
        game, t = PlacementGame(*drawn), truth(*drawn)
        every = equilibria(game)
        np.testing.assert_allclose(np.sort(every.value.social_s), np.sort(t.social[t.stable]), atol=1e-9)
        assert every.value.optimum_s == pytest.approx(t.social.min(), abs=1e-9) and every.steps == len(t.tiers)
        assert every.value.nearest_gain_s == pytest.approx(max(t.gain.max(1).min(), 0.0), abs=1e-9)
        assert every.certificate["gain_s"].shape == (t.stable.sum(), len(drawn[0]))
        assert every.certificate["gain_s"].max(initial=0.0) <= 1e-9
        arrays = game.arrays()
        count = math.prod(len(rows(arrays.demand.shape[1], c, arrays.size)) for c in arrays.capacity)
        assert len(t.tiers) == count and len(equilibria(game, count).value.tiers) == t.stable.sum()


def test_bounds_of_known_classes():
    """Christodoulou and Koutsoupias; Aland and others (Table 1); Roughgarden; M/M/1 beside several servers."""
    assert AFFINE_ATOMIC == bounds.polynomial_atomic(1) == 2.5
    assert bounds.AFFINE_NONATOMIC == pytest.approx(float(bounds.polynomial_nonatomic(1.0)))
    assert bounds.AFFINE_WEIGHTED == pytest.approx(bounds.polynomial_weighted(1)) == pytest.approx(2.618, abs=1e-3)
    assert [bounds.polynomial_atomic(d) for d in (2, 3, 4, 5)] == pytest.approx([9.583, 41.54, 267.6, 1514.0], rel=1e-3)
    assert [bounds.polynomial_weighted(d) for d in (2, 3, 4)] == pytest.approx([9.909, 47.82, 277.0], rel=1e-3)
    assert [float(bounds.polynomial_nonatomic(d)) for d in (2.0, 3.0, 4.0)] == pytest.approx(
        [1.626, 1.896, 2.151], abs=1e-3
    )
    assert [float(bounds.softmax_regret(2.0, m)) for m in (2, 3, 5)] == pytest.approx([0.557, 0.926, 1.436], abs=2e-3)
    assert float(bounds.pole_price(3.0, 2.0)) == 9.0


def test_greedy_takes_the_copy_that_saves_most_per_byte_each_time():
    """Among blocks of unequal size: every copy that has room is weighed anew before each step. More could not be saved
    than by all that would then still help, in parts, where there is room."""
    for arrays in games(12, 8, 4, 7, sizes=True):
        game = PlacementGame(*arrays)
        a = game.arrays()
        (n, m), tiers = a.demand.shape, a.access.shape[1]
        pays = np.repeat(np.asarray(a.recompute)[:, None], n, axis=1)
        room, steps = np.array(a.capacity, float), 0
        while True:
            saved = {
                (b, j, t): (a.demand[:, b] * np.maximum(pays[b] - a.distance[:, j] - a.access[j, t], 0)).sum()
                for b in range(m)
                for j in range(n)
                for t in range(tiers)
                if a.size[b] <= room[j, t] * (1 + 1e-12)
            }
            b, j, t = max(saved, key=lambda at: saved[at] / a.size[at[0]], default=(0, 0, 0))
            if not saved.get((b, j, t)):
                break
            room[j, t] -= a.size[b]
            pays[b] = np.minimum(pays[b], a.distance[:, j] + a.access[j, t])
            steps += 1
        found = greedy_optimum(game, polish=False)
        assert found.certificate["greedy_s"] == pytest.approx((a.demand * pays.T).sum(), rel=1e-9)
        assert found.steps == steps and found.value.social_s == found.certificate["greedy_s"]
        # what else each place could save, cut at will: the least of all prices of a byte, room and surpluses together
        left = 0.0
        for j, t in np.ndindex(a.capacity.shape):
            worth = (a.demand.T * np.maximum(pays - a.distance[:, j] - a.access[j, t], 0)).sum(1)
            worth = np.where(a.size <= a.capacity[j, t], worth, 0.0)
            room, prices = a.capacity[j, t], [0.0, *(worth / a.size)]
            left += min(price * room + np.maximum(worth - price * a.size, 0.0).sum() for price in prices)
        bound, half = found.certificate["bound_s"], found.certificate["half_s"]
        assert bound == pytest.approx(max(found.certificate["greedy_s"] - left, half, 0.0), rel=1e-9, abs=1e-9)
        polished = best_response_dynamics(game, found.value.tier, coordinated=True)
        assert greedy_optimum(game).value.social_s == pytest.approx(polished.value.social_s)


def test_play_that_does_not_settle_goes_on_from_where_it_is_with_larger_moves_only():
    """Two limited tiers each."""
    shares, seen, rng = (1e-12, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0), set(), np.random.default_rng(3)
    for _ in range(25):
        game = PlacementGame(
            np.sort(rng.uniform(1, 5, 3)) * rng.uniform(0.9, 1.1, (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0
        )
        tier, steps, calm = None, 0, approximate_equilibrium(game, max_rounds=4)
        for share in shares:
            s = best_response_dynamics(game, tier, max_rounds=4, worth_frac=share)
            tier, steps = s.value.tier, steps + int(s.steps)
            if not s.flags:
                break
        assert np.array_equal(calm.value.tier, tier) and calm.steps == steps
        assert calm.certificate["worth_frac"] == pytest.approx(share)
        assert bool(calm.flags) == (share > 1e-12)
        seen.add(share)
    assert len(seen) > 2


def test_what_sharing_is_worth_by_trying_every_placement():
    """Alone: each worker's best with nobody to read from; in a pool at an equilibrium; no placement below the bound."""
    apart = 0
    for arrays in games(30, 21):
        demand, access, capacity, _, recompute, size = arrays
        found, t = value_of_sharing(PlacementGame(*arrays), iterations=5), truth(*arrays)
        each = zip(demand, access, capacity, strict=True)
        alone = [truth(w[None], a[None], c[None], np.zeros((1, 1)), recompute, size).social.min() for w, a, c in each]
        assert found.isolated_s == pytest.approx(sum(alone))
        where = [np.flatnonzero((t.tiers == part.tier).all((1, 2))) for part in (found.selfish, found.coordinated)]
        (at,), (together,) = where
        assert found.selfish.social_s == pytest.approx(t.social[at]) and bool(found.flags) != t.stable[at]
        assert (
            found.coordinated.social_s == pytest.approx(t.social[together])
            and t.social[together] <= t.social[at] + 1e-9
        )
        assert found.bound_s <= t.social.min() + 1e-7
        apart += found.bound_s < found.coordinated.social_s - 1e-6
        if found.isolated_s > 0 and found.selfish.social_s > 0:
            assert found.pooling_frac == pytest.approx((sum(alone) - t.social[at]) / sum(alone))
            low, high = found.coordination_frac
            assert found.selfish.social_s * (1 - low) == pytest.approx(t.social[together], abs=1e-9)
            assert found.selfish.social_s * (1 - high) == pytest.approx(found.bound_s, abs=1e-9)
            for share in (found.pooling_frac, low, high):
                assert f"{100 * share:.1f} %" in str(found)
        else:
            assert found.pooling_frac == (1.0 if found.isolated_s > 0 else 0.0)
    assert apart > 0
