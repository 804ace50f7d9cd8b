"""Optimum, bounds and prices of anarchy of placement games against brute force."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.tiered import interpreted
from dmodels.games.placement import (
    PlacementGame,
    best_bound,
    best_response_dynamics,
    complete,
    equilibria,
    fat_tree,
    greedy_optimum,
    isolated_s,
    line,
    placement,
    price_bound,
    price_of_anarchy,
    profiles_count,
    social_optimum,
    two_level,
    value_of_sharing,
)
from dmodels.games.placement.anarchy import random_placement
from dmodels.games.placement.optimum import variables_count
from tests.games.placement_brute import draw, truth

#: The package exports no name of it.
bound_module = importlib.import_module("dmodels.games.placement.bound")


def check(seed: int, count: int) -> None:
    """Optimum, greedy, bounds and intervals of `count` games, every other one with blocks of unequal size."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        arrays = draw(rng, sizes=k % 2 == 1)
        if k % 3 == 0:  # the exact inner minimum on a hierarchy
            n = len(arrays[0])
            d = fat_tree(n, (2,), tuple(np.sort(rng.integers(0, 6, 2)).astype(float)))
            arrays = (arrays[0], np.tile(arrays[1][:1], (n, 1)), arrays[2], d, *arrays[4:])
        game, t = PlacementGame(*arrays), truth(*arrays)
        least, nothing = t.social.min(), float((arrays[0] * arrays[4]).sum())
        slack = 1e-7 * (1 + nothing)
        s, greedy, bound = social_optimum(game), greedy_optimum(game), best_bound(game, iterations=15)
        np.testing.assert_allclose(placement(game, s.value.tier).social_s, least, atol=slack)
        assert s.certificate["lp_bound_s"] - slack <= s.certificate["bound_s"] <= least + slack
        assert s.flags == 0 and abs(s.certificate["bound_s"] - least) <= 10 * slack
        assert placement(game, greedy.value.tier).social_s >= least - slack
        assert greedy.value.social_s <= greedy.certificate["greedy_s"] + slack
        assert greedy.certificate["bound_s"] >= 0
        assert greedy.certificate["half_s"] - slack <= greedy.certificate["bound_s"] <= least + slack
        if k % 2 == 0:  # one size: at least half of the savings
            assert nothing - greedy.certificate["greedy_s"] >= (nothing - least) / 2 - slack
        assert bound.value <= least + slack
        assert bound.value <= max(price_bound(game, bound.certificate["prices"]), 0.0) + slack
        prices = rng.uniform(0, 5, arrays[1].shape)
        prices[~np.isfinite(arrays[2])] = 0.0
        assert price_bound(game, prices) <= least + slack  # any prices
        assert price_bound(game, s.certificate["prices"]) <= least + slack
        if k % 3 == 0:
            assert price_bound(game, s.certificate["prices"]) >= s.certificate["lp_bound_s"] - slack
        exact, loose = price_of_anarchy(game), price_of_anarchy(game, max_profiles=0, starts=2)
        assert exact.exact and exact.exists == int(t.stable.any())
        if t.stable.any() and least > 0:
            worst, best = t.social[t.stable].max() / least, t.social[t.stable].min() / least
            np.testing.assert_allclose([exact.lower, exact.upper], worst, rtol=1e-9)
            np.testing.assert_allclose([exact.stability_lower, exact.stability_upper], best, rtol=1e-9)
            assert loose.upper >= worst * (1 - 1e-7)
            if loose.exists == 1:
                assert loose.lower <= worst * (1 + 1e-7) and loose.stability_upper >= best * (1 - 1e-7)
                assert loose.stability_lower == 1 and loose.stability_upper <= loose.upper * (1 + 1e-9)
                if loose.optimum_bound_s > 0:
                    assert loose.stability_upper == pytest.approx(loose.best_s / loose.optimum_bound_s)
                assert loose.optimum_s <= loose.best_s and loose.worst_s <= loose.ceiling_s + slack
        elif not t.stable.any():
            assert np.isnan(exact.lower) and loose.exists == -1 and "no pure equilibrium" in str(exact)


def test_optimum_bounds_and_prices_hold_the_truth():
    check(0, 45)


@pytest.mark.slow
def test_optimum_bounds_and_prices_hold_the_truth_in_a_thousand_games():
    check(1, 1000)


@pytest.fixture
def as_python(patience, monkeypatch):
    """The loops interpreted: nothing is compiled for games of this size."""
    for name in ("tree_blocks", "dual_blocks"):
        monkeypatch.setattr(bound_module, name, interpreted(getattr(bound_module, name)))


def test_copies_that_prices_ask_for_cost_what_is_said_and_none_cost_less(as_python):
    """One block: by the tree's programme, and by trying every choice of a tier, or none, for every worker."""
    rng = np.random.default_rng(8)
    for _ in range(40):
        n, tiers = int(rng.integers(2, 6)), int(rng.integers(1, 3))
        distance = fat_tree(n, (2,), tuple(np.sort(rng.integers(0, 6, 2)).astype(float)))
        access = np.tile(np.sort(rng.integers(0, 4, tiers)).astype(float), (n, 1))
        demand, capacity = rng.integers(0, 6, (n, 1)).astype(float), rng.integers(0, 3, (n, tiers)).astype(float)
        recompute, size = rng.integers(2, 12, 1).astype(float), rng.integers(1, 3, 1).astype(float)
        prices = rng.integers(0, 7, (n, tiers)) / 2.0
        arrays = PlacementGame(demand, access, capacity, distance, recompute, size).arrays()
        bound, used = bound_module._Lagrangian(arrays).at(prices)
        room = bound_module._Lagrangian(arrays).room

        def cost(kept, at=(demand, access, capacity, distance, recompute, size, prices)):
            rates, reads, rooms, hops, again, block, dear = at
            if any(t >= 0 and block[0] > rooms[i, t] for i, t in enumerate(kept)):
                return np.inf
            held = [(i, t) for i, t in enumerate(kept) if t >= 0]
            near = [min([again[0], *(hops[i, j] * (i != j) + reads[j, t] for j, t in held)]) for i in range(len(kept))]
            return rates[:, 0] @ near + sum(dear[place] * block[0] for place in held)

        least = min(map(cost, itertools.product(range(-1, tiers), repeat=n)))
        paid = (prices * np.where(prices > 0, room, 0.0)).sum()
        assert bound + paid == pytest.approx(least, abs=1e-9)
        assert ((used > 0).sum(1) <= 1).all() and np.isin(used, (0.0, size[0])).all()
        assert cost([int(row.argmax()) if row.any() else -1 for row in used]) == pytest.approx(least, abs=1e-9)


def cost_of_copies(kept, demand, access, capacity, distance, recompute, size, prices):
    """Reads of one block by everyone from the nearest copy, or its prefill, and the prices of the places kept."""
    held = [(i, t) for i, t in enumerate(kept) if t >= 0]
    if any(size[0] > capacity[place] for place in held):
        return np.inf
    near = [min([recompute[0], *(distance[i, j] + access[j, t] for j, t in held)]) for i in range(len(kept))]
    return demand[:, 0] @ near + sum(prices[place] * size[0] for place in held)


def test_what_clients_pay_in_any_network_is_at_most_the_least_cost(as_python):
    """One block: no choice of copies is below it, all rates and prices alike change nothing but the unit, a place that
    is used is worth its price, and none that has no room is. Without prices everyone reads from the nearest place."""
    rng, tight, copies = np.random.default_rng(18), 0, 0
    for _ in range(40):
        n, tiers = int(rng.integers(2, 5)), int(rng.integers(1, 3))
        distance = rng.integers(1, 6, (n, n)).astype(float)
        distance = np.minimum(distance, distance.T) * (1 - np.eye(n))
        for k in range(n):
            distance = np.minimum(distance, distance[:, [k]] + distance[[k]])
        access = rng.integers(0, 4, (n, tiers)) + 0.1 * rng.random((n, tiers))
        demand, capacity = rng.integers(0, 6, (n, 1)).astype(float), rng.integers(0, 3, (n, tiers)).astype(float)
        recompute, size = rng.integers(2, 12, 1).astype(float), rng.integers(1, 3, 1).astype(float)
        prices = rng.integers(0, 7, (n, tiers)) / 2.0
        asked = demand, access, capacity, distance, recompute, size

        def dual(scale, asked=asked, prices=prices):
            found = bound_module._Lagrangian(PlacementGame(scale * asked[0], *asked[1:]).arrays())
            assert found.nodes is None  # not a tree
            bound, used = found.at(scale * prices)
            return bound + (scale * prices * np.where(prices > 0, found.room, 0.0)).sum(), used

        value, used = dual(1.0)
        least = min(cost_of_copies(kept, *asked, prices) for kept in itertools.product(range(-1, tiers), repeat=n))
        assert value <= least + 1e-9
        tight += value == pytest.approx(least)
        smaller, same = dual(2.0**-7)
        assert smaller == pytest.approx(value / 2**7) and (same == used).all()
        # nobody pays for two places, and all pay for a read of their own
        free = capacity >= size[0]
        reads = [min([recompute[0], *(distance[i] + access.T).T[free]]) for i in range(n)]
        assert prices[used > 0].sum() * size[0] + demand[:, 0] @ reads <= value + 1e-9
        for place in zip(*np.nonzero(used), strict=True):
            worth = demand[:, 0] @ np.maximum(recompute[0] - distance[:, place[0]] - access[place], 0.0)
            assert used[place] == size[0] <= capacity[place] and worth >= prices[place] * size[0] - 1e-9
            copies += 1
    assert tight > 25 and copies > 25


def test_of_two_places_that_are_alike_one_is_paid_for(as_python):
    """A worker with two tiers of one speed, which are not a tree because those of a second, idle worker differ."""
    game = PlacementGame([[5.0], [0.0]], [[1.0, 1.0], [1.0, 2.0]], [1.0, 1.0], [[0.0, 0.0], [9.0, 0.0]], 8.0)
    value, used = bound_module._Lagrangian(game.arrays()).at(np.full((2, 2), 3.0))
    assert used.sum() == 1.0 and value == 5.0 * 1.0 + 3.0 - 4 * 3.0  # its reads and its place, less all places
    # nor on one switch: without prices the second reads at 1 s + 1 s from the first, or at 4 s from its own tier
    game = PlacementGame([[0.0], [5.0]], [[1.0], [4.0]], [1.0], complete(2, 1.0), 8.0)
    assert price_bound(game, np.zeros((2, 1))) == 5.0 * 2.0
    assert price_bound(game.replace(access_s=np.array([[2.0], [2.0]])), np.zeros((2, 1))) == 5.0 * 2.0


def test_intervals_by_greedy_and_prices_hold_the_truth_too(monkeypatch):
    """As of games that are too large for an exact optimum: its bound lies below it, and both prices' intervals hold."""
    monkeypatch.setattr("dmodels.games.placement.anarchy.EXACT_VARIABLES", 0)
    rng, apart = np.random.default_rng(11), 0
    for _ in range(40):
        arrays = draw(rng)
        t = truth(*arrays)
        least = t.social.min()
        if not t.stable.any() or least == 0:
            continue
        found = price_of_anarchy(PlacementGame(*arrays), max_profiles=0, starts=1)
        worst, best = t.social[t.stable].max() / least, t.social[t.stable].min() / least
        assert found.lower <= worst * (1 + 1e-9) <= found.upper * (1 + 1e-7)
        assert found.stability_lower <= best * (1 + 1e-9)
        assert found.exists < 1 or best <= found.stability_upper * (1 + 1e-7)
        assert found.optimum_bound_s <= least * (1 + 1e-9) <= found.optimum_s * (1 + 1e-7)
        assert found.exists < 1 or found.optimum_s <= found.best_s
        if found.optimum_bound_s < found.optimum_s * (1 - 1e-6):  # the optimum may be as cheap as the bound
            assert found.exists < 1 or found.stability_upper * found.optimum_bound_s >= found.best_s * (1 - 1e-9)
            apart += 1
    assert apart > 0


def test_room_for_part_of_a_block_is_no_room():
    rng = np.random.default_rng(12)
    w = rng.zipf(1.7, (4, 12)).clip(max=60).astype(float)
    whole, part = (PlacementGame(w, [0.1, 1.0], room, two_level(4, 2, 0.5, 2.0), 12.0) for room in ([2, 3], [2.9, 3.8]))
    prices = rng.uniform(0, 3, (4, 2))
    for answer in (
        lambda game: price_bound(game, prices),
        lambda game: best_bound(game, iterations=8).value,
        lambda game: greedy_optimum(game).value.social_s,
        lambda game: isolated_s(game).sum(),
        lambda game: value_of_sharing(game, iterations=3).selfish.social_s,
    ):
        assert float(answer(part)) == pytest.approx(float(answer(whole)), rel=1e-12)


def test_a_pool_that_never_settles_is_told():
    """Two workers, three blocks, a place in each of two tiers: none of its profiles is an equilibrium."""
    found = value_of_sharing(
        PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)
    )
    assert found.flags & Flag.NOT_CONVERGED and "never settles" in str(found)


def test_lagrange_bound_is_near_a_known_optimum():
    rng = np.random.default_rng(2)
    w = rng.zipf(1.7, (6, 30)).clip(max=60).astype(float)
    game = PlacementGame(w, [0.1, 1.0], [3.0, 5.0], two_level(6, 3, 0.5, 2.0), 12.0)
    exact = social_optimum(game, time_limit_s=20.0, rel_gap=1e-3)
    found = best_bound(game, exact.value.social_s, 150)
    low, high = float(found.value), exact.value.social_s
    assert 0.9983 * high <= low <= high + 1e-9
    np.testing.assert_allclose(price_bound(game, found.certificate["prices"]), low, rtol=1e-12)


def test_on_one_switch_sixty_steps_lead_to_the_bound_of_the_linear_relaxation():
    game = PlacementGame(np.random.default_rng(7).integers(0, 9, (4, 10)), [0.5], [2.0], complete(4, 1.0), 8.0)
    exact = social_optimum(game)
    low, high = float(best_bound(game, exact.value.social_s).value), float(exact.certificate["lp_bound_s"])
    assert 0.99999 * high <= low <= high * (1 + 1e-9)


def test_bounds_on_a_line_come_from_a_dual():
    rng = np.random.default_rng(4)
    game = PlacementGame(rng.integers(0, 9, (5, 12)), [0.5], [2.0], line(5, 1.0), 8.0)
    exact = social_optimum(game)
    assert 0.992 * exact.value.social_s <= best_bound(game).value <= exact.value.social_s + 1e-9


def test_a_bound_on_a_line_is_the_sum_of_those_of_its_blocks():
    """At given prices each block is alone; what the places cost all together is paid once."""
    rng = np.random.default_rng(15)
    rates, prices = rng.integers(0, 9, (4, 70)).astype(float), rng.uniform(0.0, 9.0, (4, 1))
    of = lambda w: price_bound(PlacementGame(w, [0.5], [1.0], line(4, 1.0), 8.0), prices)
    alone = [of(rates[:, [b]]) for b in range(70)]
    assert of(rates) == pytest.approx(sum(alone) + 69 * prices.sum(), rel=1e-12) and len(set(alone)) > 30


@pytest.mark.parametrize("prices", [[[-1.0]], [[np.nan]], [1.0]])
def test_bad_prices_are_refused(prices):
    shape = r"\(1, 1\)" if np.ndim(prices) == 2 else r"\(1,\)"
    said = rf"^prices of shape {shape}; accepted: numbers from 0, \(workers, tiers\) \(1, 1\)$"
    with pytest.raises(InputError, match=said):
        price_bound(PlacementGame([[3.0, 1.0]], [1.0], [1.0], [[0.0]], 5.0), prices)


def test_programmes_that_are_too_large_are_refused():
    """A place for each worker and block, and what is missing at each of 20 to 40 distances: 1,220 of all workers."""
    game = PlacementGame(np.ones((40, 4000)), [1.0], [5.0], line(40, 1.0), 50.0)
    assert variables_count(game) == (40 + 1220) * 4000
    with pytest.raises(InputError, match=r"has 5040000 variables; accepted are at most 400000;"):
        social_optimum(game)


def test_what_greedy_proves_alone():
    """All prefills cost 20 s, greedy saves 12 of them, and nothing saves more than twice as much."""
    game = PlacementGame([[3.0, 1.0]], [1.0], [1.0], [[0.0]], 5.0)
    assert greedy_optimum(game).certificate["half_s"] == 20.0 - 2 * 12.0
    assert greedy_optimum(game.replace(block_bytes=np.array([1.0, 0.5]))).certificate["half_s"] == -np.inf


def test_where_no_time_is_given_the_placement_is_greedys_and_the_bound_holds():
    game = PlacementGame(
        np.random.default_rng(0).integers(0, 9, (4, 8)),
        [0.5, 2.0],
        [2.0, 3.0],
        line(4, 1.0),
        9.0,
        1.0 + np.arange(8) % 3,
    )
    s, exact = social_optimum(game, time_limit_s=0.0), social_optimum(game)
    assert s.value.social_s == greedy_optimum(game).value.social_s >= exact.value.social_s >= s.certificate["bound_s"]
    assert s.flags == Flag.NOT_CONVERGED and s.certificate["gap_s"] > 0 and exact.flags == 0
    assert s.steps == 0 <= exact.steps


def test_a_minute_and_a_billionth_are_what_the_solver_gets_unless_told_otherwise(monkeypatch):
    told, solve = [], scipy.optimize.milp
    spy = lambda *asked, options, **more: (told.append(options), solve(*asked, options=options, **more))[1]
    monkeypatch.setattr("scipy.optimize.milp", spy)
    game = PlacementGame([[3.0, 1.0]], [1.0], [1.0], [[0.0]], 5.0)
    for more in ({}, {"time_limit_s": 60.0, "rel_gap": 1e-9}, {"time_limit_s": 5.0, "rel_gap": 0.1}):
        assert social_optimum(game, **more).value.social_s == 8.0
    assert told == [{"time_limit": 60.0, "mip_rel_gap": 1e-9}] * 2 + [{"time_limit": 5.0, "mip_rel_gap": 0.1}]
    # two places of the worker's own, and a prefill or not, of two blocks
    assert variables_count(game) == 4
    monkeypatch.setattr("dmodels.games.placement.optimum.MOST_VARIABLES", 4)
    assert social_optimum(game).value.social_s == 8.0
    monkeypatch.setattr("dmodels.games.placement.optimum.MOST_VARIABLES", 3)
    with pytest.raises(InputError, match="has 4 variables; accepted are at most 3;"):
        social_optimum(game)


def test_steps_towards_a_bound_are_sixty_and_of_a_pool_twenty_unless_told_otherwise():
    """On a line, where a few do not reach it."""
    rates = np.random.default_rng(2).zipf(1.7, (4, 10)).clip(max=60).astype(float)
    game = PlacementGame(rates, [0.1], [3.0], line(4, 0.5), 12.0)
    unsaid, said = best_bound(game), best_bound(game, iterations=60)
    assert unsaid.value == said.value > best_bound(game, iterations=2).value
    assert (unsaid.flags, unsaid.steps, said.steps) == (0, 60, 60)
    tiers = [best_response_dynamics(game, coordinated=True, max_rounds=rounds).value.tier for rounds in (1, 2)]
    paid = [placement(game, tier).social_s for tier in tiers]
    unsaid, *said = (
        best_bound(game, iterations=3, **more).certificate["prices"].tolist()
        for more in ({}, {"tier": tiers[1]}, {"target_s": paid[1], "tier": tiers[1]}, {"tier": tiers[0]})
    )
    assert unsaid == said[0] == said[1] != said[2]  # from two rounds of play for all, towards what these cost
    pool = PlacementGame(np.random.default_rng(2).integers(0, 9, (4, 8)), [0.5], [2.0], line(4, 1.0), 8.0)
    unsaid, said, more = value_of_sharing(pool), value_of_sharing(pool, 20, 100), value_of_sharing(pool, 21, 100)
    assert unsaid.bound_s == said.bound_s < more.bound_s


@settings(max_examples=settings.default.max_examples // 6)
@given(seed=st.integers(0, 2**31))
def test_sharing_is_ordered(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.choice([1, 2, 4])), int(rng.choice([1, 4, 7]))
    game = PlacementGame(rng.integers(0, 9, (n, m)), [0.5], [2.0], complete(n, 1.0), 8.0)
    s = value_of_sharing(game, iterations=5)
    assert s.bound_s <= s.coordinated.social_s + 1e-9 <= s.selfish.social_s + 2e-9
    assert s.selfish.social_s <= s.isolated_s + 1e-9 == isolated_s(game).sum() + 1e-9
    low, high = s.coordination_frac
    assert 0 <= s.pooling_frac <= 1 and -1e-12 <= low <= high + 1e-12 and "pooling saves" in str(s)


def test_a_memory_for_one_block_and_a_half():
    """Two blocks of two bytes, three bytes, reads that cost nothing where a prefill costs 2 s: half a block is worth
    a second to the linear relaxation, and nothing to who must keep whole ones."""
    s = social_optimum(PlacementGame(np.ones((1, 2)), np.zeros(1), np.array([3.0]), np.zeros((1, 1)), 2.0, 2.0))
    assert s.value.social_s == pytest.approx(2.0) and s.certificate["bound_s"] == pytest.approx(2.0)
    assert s.certificate["lp_bound_s"] == pytest.approx(1.0)
    assert s.certificate["prices"] == pytest.approx(1.0)


def test_blocks_that_fill_a_memory_but_for_rounding_are_kept_in_it():
    """Three tenths of a byte hold three blocks of a tenth, and one of a tenth and two tenths, whoever places them."""
    three = PlacementGame(np.ones((1, 3)), [0.0], [0.3], [[0.0]], 5.0, 0.1)
    every = [[0, 0, 0]]
    for tier in (
        greedy_optimum(three, polish=False).value.tier,
        social_optimum(three).value.tier,
        best_response_dynamics(three).value.tier,
        random_placement(three, np.random.default_rng(0)),
        *equilibria(three).value.tiers,
    ):
        assert tier.tolist() == every
    assert profiles_count(three) == 8 and isolated_s(three).sum() == best_bound(three).value == 0.0
    one = PlacementGame([[1.0]], [0.0], [0.3], [[0.0]], 5.0, 0.1 + 0.2)
    assert social_optimum(one).value.tier == greedy_optimum(one, polish=False).value.tier == [[0]]
    # for each byte the small block saves more, and leaves no room for the other, which saves more by itself
    either = PlacementGame([[10.0, 5.0]], [0.0], [0.3], [[0.0]], 1.0, [0.1 + 0.2, 0.1])
    greedy = greedy_optimum(either, polish=False)
    assert (
        greedy.value.social_s == 10.0 and greedy.certificate["bound_s"] <= 5.0 == social_optimum(either).value.social_s
    )


@pytest.mark.parametrize(
    "rates, room, recompute, cost",
    [
        (np.zeros((2, 2)), 0.0, 5.0, 0.0),  # nobody asks, and nothing has room
        (np.zeros((2, 2)), 1.0, 5.0, 0.0),  # nobody asks
        (np.ones((2, 2)), 0.0, 5.0, 20.0),  # nothing has room
        (np.ones((2, 2)), 0.0, 0.5, 2.0),  # nor is a read worth it
        (np.ones((2, 2)), 2.0, 0.5, 2.0),  # a read is not worth it
        (np.ones((2, 2)), 2.0, 1.0, 4.0),  # it is worth nothing
    ],
)
def test_where_nothing_can_be_saved_the_cost_is_that_of_all_prefills(rates, room, recompute, cost):
    game = PlacementGame(rates, [1.0], [room], complete(2, 1.0), recompute)
    s, greedy = social_optimum(game), greedy_optimum(game)
    assert (s.value.social_s, int(s.flags)) == (cost, 0) and not s.certificate["prices"].any()
    assert [float(s.certificate[name]) for name in ("bound_s", "lp_bound_s", "gap_s")] == pytest.approx([cost, cost, 0])
    assert s.steps == 0 and s.certificate["prices"].shape == (2, 1)
    assert (greedy.value.social_s, int(greedy.steps)) == (cost, 0) and greedy.certificate["bound_s"] == cost
    assert float(best_bound(game).value) == pytest.approx(cost)
    for most in (0, 1e5):
        p = price_of_anarchy(game, max_profiles=most, starts=1)
        assert p[:4] == pytest.approx([1.0] * 4) and p.worst_s == p.best_s == p.ceiling_s == p.optimum_s == cost


def test_a_worker_alone_is_at_the_optimum_and_two_that_never_settle_are_nowhere():
    """The first finds one cost from wherever it starts. Of the second, none of whose profiles is an equilibrium (60 s
    if all read by prefill, 36 s at best), play knows no worst and no best one, and that none would cost above 40 s."""
    alone = price_of_anarchy(PlacementGame([[3.0, 2.0]], [1.0], [1.0], [[0.0]], 5.0), max_profiles=0, starts=4)
    assert alone[:4] == pytest.approx([1.0] * 4) and alone.equilibria_count == 1
    assert alone.worst_s == alone.best_s == alone.optimum_s == 3.0 + 2.0 * 5.0
    none = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)
    looked, played = price_of_anarchy(none), price_of_anarchy(none, max_profiles=0, starts=2)
    assert looked.exact and looked.exists == 0 and looked.flags == Flag.INFEASIBLE and np.isnan(looked[:4]).all()
    assert not played.exact and played.exists == -1 and played.flags == Flag.NOT_CONVERGED
    assert np.isnan([played.lower, played.stability_lower]).all()
    assert [played.upper, played.stability_upper] == pytest.approx([40.0 / 36.0] * 2)
    for p in (looked, played):
        assert np.isnan([p.worst_s, p.best_s]).all() and p.equilibria_count == 0
        assert [p.ceiling_s, p.optimum_s, p.optimum_bound_s] == pytest.approx([40.0, 36.0, 36.0])


def test_up_to_a_size_the_optimum_is_exact_and_beyond_it_lies_above_either_bound(monkeypatch):
    rng, loose = np.random.default_rng(5), 0
    for _ in range(8):
        arrays = draw(rng, sizes=True)
        game, least = PlacementGame(*arrays), truth(*arrays).social.min()
        size = variables_count(game)
        monkeypatch.setattr("dmodels.games.placement.anarchy.EXACT_VARIABLES", size)
        assert price_of_anarchy(game, 0, starts=0).optimum_bound_s == pytest.approx(least)
        monkeypatch.setattr("dmodels.games.placement.anarchy.EXACT_VARIABLES", size - 1)
        bound = price_of_anarchy(game, 0, starts=0).optimum_bound_s
        each = greedy_optimum(game).certificate["bound_s"], float(best_bound(game).value)
        assert max(each) * (1 - 1e-9) <= bound <= least * (1 + 1e-9)
        loose += bound < least * (1 - 1e-6)
    assert loose


def test_a_gap_that_was_allowed_is_no_failure():
    """At half of the cost HiGHS may stop at the first placement; what it says of the rest holds, and the answer is no
    dearer than what greedy finds at once."""
    rng, apart = np.random.default_rng(1), 0
    for _ in range(4):
        rates, room = rng.integers(0, 9, (5, 8)), rng.integers(2, 7, (5, 2))
        distance, size = rng.integers(1, 6, (5, 5)), rng.integers(1, 4, 8)
        game = PlacementGame(rates, [0.5, 2.0], room, distance, 9.0, size)
        s = social_optimum(game, rel_gap=0.5)
        assert s.flags == 0 and s.certificate["gap_s"] == s.value.social_s - s.certificate["bound_s"]
        assert 0 <= s.certificate["lp_bound_s"] <= s.certificate["bound_s"] <= s.value.social_s
        assert s.value.social_s == placement(game, s.value.tier).social_s <= greedy_optimum(game).value.social_s
        apart += s.certificate["gap_s"] > 0.01 * s.value.social_s
    assert apart


def test_a_tier_without_an_end_holds_all_and_has_no_price():
    """Of three blocks at 4 s a read the one that is read most lies in a place at 1 s."""
    game = PlacementGame([[2.0, 3.0, 1.0]], [1.0, 4.0], [1.0, np.inf], [[0.0]], 9.0)
    s, greedy = social_optimum(game), greedy_optimum(game)
    assert s.value.social_s == greedy.value.social_s == 3 * 1.0 + (2.0 + 1.0) * 4.0
    assert s.value.tier.tolist() == greedy.value.tier.tolist() == [[1, 0, 1]] and s.certificate["prices"][0, 1] == 0.0
    assert s.certificate["bound_s"] == pytest.approx(15.0) and greedy.certificate["bound_s"] <= 15.0 + 1e-9
