"""Selfish caching without capacities, and the cache paradox."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.games.placement import (
    PlacementGame,
    Rise,
    Risk,
    at_risk,
    best_response_dynamics,
    complete,
    equilibria,
    line,
    more_memory,
    paradox_search,
    price_of_anarchy,
    pure_equilibrium,
    random_placement,
    ring,
    rises,
)
from proofs.placement.caching import (
    CachingGame,
    caching_cost_s,
    caching_equilibrium,
    caching_range,
    line_price_bound,
    line_range,
)
from tests.games.placement_brute import truth


def brute(game):
    """(costs of equilibria, least cost) by the definition."""
    n = len(game.distance_s)
    pays = {kept: caching_cost_s(game, kept) for kept in itertools.product((False, True), repeat=n)}
    flip = lambda kept, i: (*kept[:i], not kept[i], *kept[i + 1 :])
    stable = [c.sum() for kept, c in pays.items() if all(not pays[flip(kept, i)][i] < c[i] for i in range(n))]
    return stable, min(c.sum() for c in pays.values())


def test_costs_by_hand():
    game = CachingGame(line(3, 1.0), 5.0, [1.0, 2.0, 3.0], 7.0)
    assert caching_cost_s(game, [True, False, False]).tolist() == [5.0, 2.0, 6.0]
    assert caching_cost_s(game, [False] * 3).tolist() == [7.0, 14.0, 21.0]
    assert np.isinf(caching_cost_s(game.replace(recompute_s=np.array(np.inf)), [False] * 3)).all()


def test_ranges_equal_brute_force():
    rng = np.random.default_rng(0)
    for k in range(150):
        n = int(rng.integers(1, 6))
        d = rng.integers(0, 6, (n, n)).astype(float)
        gamma = np.inf if k % 2 else float(rng.integers(0, 9))
        game = CachingGame(d, rng.integers(0, 7, n), rng.integers(0, 4, n), gamma)
        stable, least = brute(game)
        s = caching_range(game)
        assert s.certificate["equilibria_count"] == len(stable) and s.value.optimum_s == least
        assert bool(s.flags & int(Flag.INFEASIBLE)) == (not stable)
        if stable:
            assert (s.value.best_s, s.value.worst_s) == (min(stable), max(stable))
            assert caching_cost_s(game, s.value.worst).sum() == s.value.worst_s


def test_prices_of_known_networks():
    assert caching_range(CachingGame(complete(6, 1.0), 3.0)).certificate["price_of_anarchy"] == 1.0
    star = np.full((7, 7), 2.0)
    star[0], star[:, 0] = 1.0, 1.0
    assert caching_range(CachingGame(star, 2.0)).certificate["price_of_anarchy"] <= 2.0  # Chun: at most 2 on a star
    assert caching_range(CachingGame(line(10, 1.0), 9.0)).certificate["price_of_anarchy"] == pytest.approx(
        line_range(10, 9.0).worst_s / line_range(10, 9.0).optimum_s
    )
    assert line_price_bound(10, 0.5) == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: CachingGame(np.zeros((2, 3)), 1.0),
        lambda: CachingGame(complete(2, 1.0), -1.0),
        lambda: CachingGame(complete(2, 1.0), 1.0, [1.0, -1.0]),
        lambda: CachingGame(-complete(2, 1.0), 1.0),
        lambda: CachingGame(complete(2, 1.0), 1.0, 1.0, -1.0),
        lambda: caching_range(CachingGame(complete(25, 1.0), 1.0)),
        lambda: caching_equilibrium(CachingGame(ring(3, 1.0, directed=True), 1.5)),
        lambda: line_range(0, 1.0),
    ],
)
def test_bad_input_is_refused(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(("worker", "tier"), [(3, 0), (-1, 0), (0, 2), (0, -1)])
def test_memory_is_added_where_there_is_a_tier(worker, tier):
    game = PlacementGame(np.ones((3, 1)), [1.0, 2.0], [1.0, 1.0], complete(3, 1.0), 5.0)
    with pytest.raises(InputError, match=rf"worker {worker}, tier {tier}; accepted: 0\.\.2, 0\.\.1"):
        more_memory(game, worker, tier)


def test_more_memory_adds_to_one_tier_of_one_worker():
    game = PlacementGame(np.ones((2, 2)), [1.0, 2.0], [1.0, 3.0], complete(2, 1.0), 5.0, block_bytes=[1.0, 2.0])
    assert more_memory(game, 1, 1).capacity_bytes.tolist() == [[1.0, 3.0], [1.0, 5.0]]
    assert more_memory(game, 0, extra_bytes=0.5).capacity_bytes.tolist() == [[1.5, 3.0], [1.0, 3.0]]


def test_the_optimum_never_rises_and_risks_are_what_enumeration_says():
    rng = np.random.default_rng(1)
    for _ in range(25):
        n, m = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        game = PlacementGame(rng.integers(0, 5, (n, m)), [1.0], rng.integers(0, 2, (n, 1)), line(n, 1.0), 4.0)
        found = rises(game)
        assert all(r.optimum_s[1] <= r.optimum_s[0] + 1e-9 for r in found)
        risk = at_risk(game)
        assert risk.exact and risk.at_risk == any(r.paradox for r in found)
        assert risk.safe == (not risk.at_risk)
        assert (np.array([r.worst_s[1] for r in found]) <= risk.ceiling_s + 1e-9).all()


def test_adding_memory_can_take_the_equilibria_away():
    game = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [[1.0, 1.0], [1.0, 0.0]], complete(2, 2.0), 5.0)
    risk = at_risk(game)
    assert risk.at_risk and np.isinf(risk.after_s[risk.worker * 2 + risk.tier == 3]) and "never settles" in str(risk)
    lost = rises(game)[3]  # of which the least cost is known all the same
    assert (lost.worker, lost.tier) == (1, 1) and np.isnan([lost.worst_s[1], lost.best_s[1]]).all()
    assert lost.optimum_s == (40.0, 36.0) and not lost.paradox


def test_of_several_plays_the_dearest_end_counts_and_one_without_end_most():
    """The first of five plays is the one of one play; others, in other orders of turns, can only add to the risk."""
    rng = np.random.default_rng(38)
    near, demand = rng.integers(1, 5, (5, 5)).astype(float), rng.integers(0, 6, (5, 6))
    access, room = np.sort(rng.integers(0, 3, (5, 2)), axis=1), rng.integers(1, 3, (5, 2))
    game = PlacementGame(demand, access, room, near, rng.integers(4, 10, 6))
    one, several = (at_risk(game, 2.0, [3, 1], max_profiles=0, plays=plays) for plays in (1, 5))
    endless, now = np.isinf(several.after_s), best_response_dynamics(game).value.tier
    for worker, tier, paid in zip(one.worker, one.tier, one.after_s, strict=True):  # a single play is nobody's choice
        play = best_response_dynamics(more_memory(game, worker, tier, 2.0), now)
        assert paid == (np.inf if play.flags else play.value.social_s)
    for seed in range(1, 5):
        drawn = at_risk(game, 2.0, [3, 1], max_profiles=0, plays=1, rng=np.random.default_rng(seed))
        assert drawn.after_s.tolist() == one.after_s.tolist()
    assert not several.exact and (several.after_s >= one.after_s).all() and np.isfinite(one.after_s[endless]).any()
    assert (several.after_s[~endless] > 1.001 * one.after_s[~endless]).any()
    assert (several.after_s <= several.ceiling_s)[~endless].all()
    unsaid, said = (
        at_risk(game, 2.0, [3, 1], max_profiles=0, **more)
        for more in ({}, {"start": None, "together": False, "plays": 3, "rng": np.random.default_rng(0)})
    )
    assert unsaid.after_s.tolist() == said.after_s.tolist() and unsaid.worker.tolist() == said.worker.tolist()
    assert unsaid.before_s == best_response_dynamics(game).value.social_s
    start = random_placement(game, np.random.default_rng(2))
    elsewhere = at_risk(game, 2.0, [3, 1], start, max_profiles=0, plays=1)
    assert elsewhere.before_s == best_response_dynamics(game, start).value.social_s < unsaid.before_s


def test_what_is_said_of_a_risk():
    """The dearest addition, by how much in per cent, and what is proved."""

    def said(after, ceiling, worker=2, exact=False):
        each = np.arange(len(after))
        return str(Risk(10.0, np.array(after), 0 * each + worker, each, np.array(ceiling), exact))

    assert said([10.0, 12.0], [30.0, 30.0]) == (
        "at risk: more memory in tier 1 of worker 2 can raise the cost of reads by 20 %"
    )
    assert said([25.0], [30.0], worker=-1) == (
        "at risk: more memory in tier 0 of all workers can raise the cost of reads by 150 %"
    )
    assert said([np.inf, 12.0], [30.0, 30.0], worker=0) == (
        "at risk: with more memory in tier 0 of worker 0 selfish placement never settles"
    )
    assert said([10.0, 9.0], [15.0, 12.0]) == (
        "no addition that was tried raises the cost; a rise above 50 % is impossible"
    )
    assert said([10.0], [10.0]).startswith("safe: ") and said([10.0], [15.0], exact=True).startswith("safe: ")


def test_a_cost_that_is_the_same_but_for_rounding_has_not_risen():
    """A ten-thousandth of a per cent is a rise; the last digits of a sum are none, and nothing is not above nothing."""
    one = np.zeros(1, int)
    for before, after, risen in ((0.3, 0.1 + 0.2, False), (10.0, 10.00001, True), (0.0, 0.0, False), (0.0, 1.0, True)):
        assert Rise(0, 0, (before, after), (before, before), (before, before)).paradox == risen
        for exact in (False, True):
            risk = Risk(before, np.array([after]), one, one, np.array([after]), exact)
            assert risk.at_risk == risen != risk.safe
    with np.errstate(divide="raise"):
        assert str(risk) == "at risk: more memory in tier 0 of worker 0 can raise the cost of reads by inf %"


def test_as_many_profiles_as_are_allowed_are_all_looked_at():
    """Two workers with a place each and two blocks have nine profiles, and twelve after one of them has two places."""
    game = PlacementGame([[2.0, 1.0], [1.0, 2.0]], [1.0], [1.0], complete(2, 1.0), 5.0)
    assert [at_risk(game, max_profiles=most).exact for most in (11, 12)] == [False, True]
    one = PlacementGame([[3.0]], [1.0], [1.0], [[0.0]], 5.0)  # kept or not
    assert at_risk(one, max_profiles=2).exact


@pytest.mark.parametrize(
    ("most", "module", "looks"),
    [
        (2e6, "pure_equilibria", lambda game: equilibria(game).steps == 169),
        (1e5, "pure_equilibria", lambda game: len(rises(game)) == 4),
        (2e4, "paradox", lambda game: at_risk(game).exact),
        (3e5, "anarchy", lambda game: price_of_anarchy(game).exact),
        (2e5, "existence", lambda game: pure_equilibrium(game).certificate["exists"] == 0),
    ],
    ids=["equilibria", "rises", "at_risk", "price_of_anarchy", "pure_equilibrium"],
)
def test_how_many_profiles_are_looked_at_unless_more_are_allowed(most, module, looks, monkeypatch):
    """A small game that is said to have as many, and one more."""
    rates = np.tile([2.0, 3.0, 4.0], (2, 1))
    room = [[1.0, 1.0], [1.0, 0.0]] if module == "paradox" else [1.0, 1.0]
    game, seen = PlacementGame(rates, [1.0, 2.0], room, complete(2, 2.0), 5.0), []
    for count in (most, most + 1):
        monkeypatch.setattr(f"dmodels.games.placement.{module}.profiles_count", lambda _, count=count: count)
        try:
            seen.append(looks(game))
        except InputError as refused:
            assert f"accepted are at most {most:.3g}" in str(refused)
            seen.append(False)
    assert seen == [True, False]


def test_a_search_for_paradoxes_finds_those_of_every_game():
    """Three workers in a row that ask for two blocks or not, with a place each or none, reads for nothing, a prefill
    of 4 s: two games in which one more place makes the worst equilibrium dearer, out of 288."""
    chain, worst = line(3, 1.0), {}

    def dearest(demand, capacity):
        if (demand, capacity) not in worst:
            arrays = np.array(demand, float).T, np.zeros((3, 1)), np.array(capacity, float)[:, None]
            t = truth(*arrays, chain, np.full(2, 4.0), np.ones(2))
            worst[demand, capacity] = t.social[t.stable].max()
        return worst[demand, capacity]

    wanted = []
    asked = list(itertools.product((0, 1), repeat=3))
    for demand in itertools.combinations_with_replacement(asked, 2):
        for capacity in itertools.product((0, 1), repeat=3):
            for worker in range(3):
                more = tuple(room + (k == worker) for k, room in enumerate(capacity))
                if dearest(demand, more) > dearest(demand, capacity) + 1e-9:
                    wanted.append((np.array(demand).T.tolist(), list(capacity), worker))
    found = list(paradox_search(3, 2, (0, 1), chain, (0, 1)))
    assert [(g.demand_rps.tolist(), g.capacity_bytes[:, 0].tolist(), r.worker) for g, r in found] == wanted != []
    assert all(r.paradox and r.tier == 0 and g.access_s == [0.0] and g.recompute_s == 4.0 for g, r in found)


def test_a_cluster_that_never_settles_has_nothing_to_compare_with():
    none = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)
    for most in (0, 1e5):
        with pytest.raises(InputError, match="does not settle"):
            at_risk(none, max_profiles=most)


def test_everywhere_at_once_and_large_games():
    rng = np.random.default_rng(0)
    game = PlacementGame(rng.zipf(1.5, (8, 40)).clip(max=99), [0.1], [5.0], complete(8, 1.0), 20.0)
    risk = at_risk(game, extra_bytes=40.0, together=True)
    assert not risk.exact and risk.safe and risk.worker.tolist() == [-1] and str(risk).startswith("safe")
