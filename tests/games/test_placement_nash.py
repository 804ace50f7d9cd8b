"""Best responses, dynamics and all equilibria of placement games against brute force by the definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.tiered import interpreted
from dmodels.games.placement import (
    PlacementGame,
    best_response,
    best_response_dynamics,
    complete,
    equilibria,
    fat_tree,
    gains_s,
    hierarchical_equilibrium,
    hierarchy,
    isolated_s,
    placement,
    profiles_count,
    pure_equilibrium,
    two_level,
)
from dmodels.games.placement.response import CYCLE_BYTES, equilibrium_flag
from tests.games.placement_brute import draw, truth


def check(seed: int, count: int, sizes: bool) -> int:
    """All of it on `count` games; how many had no equilibrium."""
    rng = np.random.default_rng(seed)
    without = 0
    for _ in range(count):
        arrays = draw(rng, sizes=sizes)
        game, t = PlacementGame(*arrays), truth(*arrays)
        assert profiles_count(game) == len(t.tiers)
        s = equilibria(game)
        assert {x.tobytes() for x in s.value.tiers} == {x.astype(np.int8).tobytes() for x in t.tiers[t.stable]}
        assert bool(s.flags & int(Flag.INFEASIBLE)) == (not t.stable.any())
        np.testing.assert_allclose(np.sort(s.value.social_s), np.sort(t.social[t.stable]), atol=1e-9)
        np.testing.assert_allclose(s.value.optimum_s, t.social.min(), atol=1e-9)
        np.testing.assert_allclose(placement(game, s.value.optimum).social_s, t.social.min(), atol=1e-9)
        np.testing.assert_allclose(s.value.nearest_gain_s, max(t.gain.max(1).min(), 0), atol=1e-9)
        without += not t.stable.any()
        p = int(rng.integers(len(t.tiers)))
        np.testing.assert_allclose(gains_s(game, t.tiers[p]), t.gain[p], atol=1e-9)
        i = int(rng.integers(game.workers_count))
        move = best_response(game, t.tiers[p], i)
        after = t.tiers[p].copy()
        after[i] = move.value
        assert move.flags == 0 and move.steps == 1
        paid = placement(game, after).cost_s[i]
        np.testing.assert_allclose(
            [paid, move.certificate["gain_s"]], [t.cost[p][i] - t.gain[p][i], t.gain[p][i]], atol=1e-9
        )
        play = best_response_dynamics(game, t.tiers[p], order=rng.permutation(game.workers_count))
        if play.flags:
            circle = play.certificate["cycle"]
            assert len(circle) > 1 and len({c.tobytes() for c in circle}) > 1
            assert play.certificate["gain_s"].max() > 0
            assert play.certificate["gain_s"].max() == min(gains_s(game, c).max() for c in circle)
            moved = [(a != b).any(1).sum() for a, b in itertools.pairwise([circle[-1], *circle])]
            assert moved == [1] * len(circle)  # one worker moves at a time, and the last of it leads to the first
        else:
            assert gains_s(game, play.value.tier).max() <= 1e-9
    return without


@pytest.mark.parametrize("sizes", [False, True])
def test_equilibria_and_responses_equal_brute_force(sizes):
    check(0, 20 if sizes else 100, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [False, True])
def test_equilibria_and_responses_equal_brute_force_in_thousands_of_games(sizes):
    check(1, 600 if sizes else 4000, sizes)


@settings(max_examples=settings.default.max_examples // 6)
@given(seed=st.integers(0, 2**31))
def test_a_hierarchy_with_one_limited_tier_has_an_equilibrium(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    d = fat_tree(n, (2,), tuple(np.sort(rng.integers(0, 5, 2)).astype(float)))
    room, gamma = rng.integers(0, 3, (n, 1)).astype(float), rng.integers(1, 9, m).astype(float)
    demand = rng.integers(0, 5, (n, m)).astype(float)
    game = PlacementGame(demand, [1.0], room, d, gamma)
    s = hierarchical_equilibrium(game)
    t = truth(demand, np.ones((n, 1)), room, d, gamma, np.ones(m))
    assert t.stable.any() and s.flags == 0
    assert s.value.tier.tobytes() in {x.astype(np.int8).tobytes() for x in t.tiers[t.stable]}


def test_many_workers_and_blocks_of_a_hierarchy_come_to_rest(patience, monkeypatch):
    """More blocks than workers and fewer, on three levels: nobody gains, and play took what the argument allows it.
    Interpreted: nothing is compiled for games of this size."""
    monkeypatch.setattr(hierarchy, "_raise_floors", interpreted(hierarchy._raise_floors))
    rng, moved = np.random.default_rng(7), 0
    for _ in range(30):
        n, m = int(rng.integers(3, 9)), int(rng.integers(2, 9))
        d = fat_tree(n, (2, 4), tuple(np.sort(rng.integers(0, 6, 3)).astype(float)))
        room = rng.integers(1, 4, (n, 1)).astype(float)
        game = PlacementGame(
            rng.integers(0, 6, (n, m)).astype(float), [1.0], room, d, rng.integers(2, 9, m).astype(float)
        )
        s = hierarchical_equilibrium(game)
        kept = (s.value.tier >= 0).sum(1)
        assert s.flags == 0 and gains_s(game, s.value.tier).max() <= 1e-9 and (kept <= room[:, 0]).all()
        assert 0 <= s.steps <= room.sum() * n * m * 4 and not (s.value.tier >= 0)[game.demand_rps == 0].any()
        moved += int(s.steps)
    assert moved > 50
    endless = hierarchical_equilibrium(game.replace(capacity_bytes=np.full((n, 1), np.inf)))
    assert endless.steps == 0 and ((endless.value.tier == 0) == (game.demand_rps > 0)).all()


@pytest.mark.slow
def test_thousands_of_hierarchies():
    rng = np.random.default_rng(3)
    for _ in range(5000):
        n, m = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        d = fat_tree(n, (2, 4), tuple(np.sort(rng.integers(0, 6, 3)).astype(float)))
        order = rng.permutation(n)
        capacity = np.stack([rng.integers(0, 5, n), np.full(n, np.inf)], 1)[:, : int(rng.integers(1, 3))]
        access = np.sort(rng.integers(0, 4, capacity.shape[1]))
        game = PlacementGame(
            rng.integers(0, 6, (n, m)), access, capacity, d[np.ix_(order, order)], rng.integers(1, 9, m)
        )
        assert hierarchical_equilibrium(game).flags == 0


def test_what_the_polynomial_algorithm_does_not_take_is_said():
    two = PlacementGame(np.ones((2, 3)), [1.0, 2.0], [1.0, 1.0], complete(2, 1.0), 5.0)
    one = two.replace(capacity_bytes=np.array([1.0, 9.0]))
    for game, said in (
        (two, "2 limited tiers"),
        (two.replace(block_bytes=np.array([1.0, 1.0, 2.0])), "block_bytes differ"),
        (two.replace(access_s=np.array([[1.0, 2.0], [1.0, 3.0]])), "access_s differs"),
        (one.replace(distance_s=np.array([[0.0, 1.0], [2.0, 0.0]])), "ultrametric"),
    ):
        with pytest.raises(InputError, match=said):
            hierarchical_equilibrium(game)
    slow = PlacementGame(np.ones((2, 3)), [1.0, 2.0, 2.0], [1.0, 1.0, np.inf], complete(2, 1.0), 5.0)
    assert hierarchical_equilibrium(slow).flags == 0  # nobody needs a limited tier that is as slow as one without limit


def test_nobody_keeps_what_it_reads_as_fast_from_another():
    """Each has the block that it needs most at 1 s, and the other at 2 s from the neighbour or its own slow tier."""
    game = PlacementGame([[5.0, 1.0], [1.0, 5.0]], [1.0, 2.0], [1.0, np.inf], complete(2, 1.0), 9.0)
    s = hierarchical_equilibrium(game)
    assert s.value.tier.tolist() == [[0, -1], [-1, 0]] and s.value.social_s == 2 * (5.0 + 2.0)
    cheap = hierarchical_equilibrium(game.replace(recompute_s=np.array(1.0)))  # nor what is computed again as fast
    assert (cheap.value.tier == -1).all() and cheap.value.social_s == 2 * (5.0 + 1.0)


def test_floors_raised_by_hand(patience, monkeypatch):
    """Two workers with a place each keep the block that they read 5 times a second, at 1 s. When the floor of the other
    is gone, of which a copy would save a worker 2 s a read, one of them takes it in if that is more than the 1 s that
    its own copy saves it, as the neighbour keeps one, too."""
    monkeypatch.setattr(hierarchy, "_raise_floors", interpreted(hierarchy._raise_floors))
    for rate, moves, tier in ((2.0, 0, [[0, -1], [0, -1]]), (3.0, 1, [[-1, 0], [0, -1]])):
        s = hierarchical_equilibrium(PlacementGame([[5.0, rate]] * 2, [1.0], [1.0], complete(2, 1.0), 3.0))
        assert s.value.tier.tolist() == tier and s.steps == moves and s.flags == 0
        assert s.certificate["gain_s"].tolist() == [0.0, 0.0] and list(s.certificate) == ["gain_s"]
        assert s.value.cost_s.tolist() == ([5 + 2 * 3.0] * 2 if moves == 0 else [5 * 2 + 3.0, 5 + 3 * 2.0])


def test_coordinated_play_lowers_the_social_cost_and_ends():
    rng = np.random.default_rng(5)
    for k in range(60):
        arrays = draw(rng, sizes=k % 4 == 0)
        game, t = PlacementGame(*arrays), truth(*arrays)
        p = int(rng.integers(len(t.tiers)))
        s = best_response_dynamics(game, t.tiers[p], coordinated=True)
        assert s.flags == 0 and t.social.min() - 1e-9 <= s.value.social_s <= t.social[p] + 1e-9
        could_save = []
        for i in range(game.workers_count):  # no worker can lower it alone
            same = (np.delete(t.tiers, i, 1) == np.delete(s.value.tier, i, 0)).all((1, 2))
            assert t.social[same].min() >= s.value.social_s - 1e-9
            same = (np.delete(t.tiers, i, 1) == np.delete(t.tiers[p], i, 0)).all((1, 2))
            could_save.append(t.social[p] - t.social[same].min())
        now = best_response_dynamics(game, t.tiers[p], coordinated=True, max_rounds=0)
        np.testing.assert_allclose(now.certificate["gain_s"], could_save, atol=1e-9)
        assert now.steps == 0 and now.flags == Flag.NOT_CONVERGED and now.value.social_s == pytest.approx(t.social[p])


def test_profiles_of_large_games_are_not_counted_one_by_one():
    three = PlacementGame(np.ones((2, 40_000)), [0.1, 1.0, 2.0], [64.0, 800.0, 1600.0], complete(2, 1.0), 5.0)
    assert profiles_count(three) == np.inf
    one_slot = PlacementGame(np.ones((2, 1000)), [1.0], [1.0], complete(2, 1.0), 5.0)
    assert profiles_count(one_slot) == 1001**2
    nearly_all = lambda m: PlacementGame(np.ones((1, m)), [1.0], [m - 1.0], [[0.0]], 5.0)  # what is left out is chosen
    assert (
        profiles_count(nearly_all(40)) == 2.0**40 - 1
        and profiles_count(nearly_all(3)) == 7
        and profiles_count(nearly_all(60)) == np.inf
    )
    # 5e14 ways to keep 26 of 52 blocks are still counted, 2e15 of 27 of 54 are not
    assert profiles_count(nearly_all(52)) == 2.0**52 - 1 and profiles_count(nearly_all(54)) == np.inf

    uneven = lambda m: PlacementGame(np.ones((1, m)), [1.0, 2.0], [1.0, 1.0], [[0.0]], 5.0, np.arange(1.0, m + 1.0))
    assert profiles_count(uneven(3)) == 3 and profiles_count(uneven(15)) == np.inf


def test_a_game_that_is_too_large_is_refused_with_its_size():
    game = PlacementGame(np.ones((3, 2)), [1.0], [1.0], complete(3, 1.0), 5.0)
    with pytest.raises(InputError, match=r"the game has 27 profiles; accepted are at most 26;"):
        equilibria(game, 26)


@pytest.mark.parametrize("sizes", [1.0, 2.0])
def test_who_keeps_all_that_it_reads_and_pays_nothing_is_at_rest(sizes):
    """Reads for nothing and room for every block: no sum of costs leaves a last digit for which to move."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rates = rng.random((1, 20)) * (rng.random((1, 20)) < 0.6)
        game = PlacementGame(rates, [0.0], [40.0], [[0.0]], 3.0 * rng.random(20), rng.integers(1, 1 + sizes, 20))
        s = pure_equilibrium(game, max_profiles=0, starts=0)
        assert s.flags == 0 and s.certificate["factor"] == 1.0 and s.value.social_s == isolated_s(game).sum() == 0.0
        assert (s.value.tier[0] >= 0).tolist() == (rates[0] > 0).tolist()
        assert best_response(game, s.value.tier, 0).certificate["gain_s"] == 0.0


def test_of_a_long_cycle_the_first_placements_are_shown(monkeypatch):
    """As many as fill 256 MiB, or but a few bytes here; and nothing else changes."""
    assert CYCLE_BYTES == 256 * 2**20
    none = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)
    whole = best_response_dynamics(none)
    circle = whole.certificate["cycle"]
    assert len(circle) == len({c.tobytes() for c in circle}) == 6 and whole.flags == Flag.NOT_CONVERGED  # once round
    monkeypatch.setattr("dmodels.games.placement.response.CYCLE_BYTES", 3 * circle[0].nbytes)
    short = best_response_dynamics(none)
    assert np.array_equal(short.certificate["cycle"], circle[:3]) and short.flags == Flag.NOT_CONVERGED


def test_of_a_cycle_the_placement_is_told_at_which_nobody_gains_much():
    """Three workers, four blocks, a place in each of two tiers: of eight placements in turn the fifth and the sixth
    leave one worker 2 s to gain; others 4 s and more, and each of them somebody nothing."""
    rates = [[3.0, 7.0, 7.0, 8.0], [4.0, 7.0, 7.0, 9.0], [3.0, 7.0, 7.0, 9.0]]
    near = [[0.0, 2.0, 2.0], [2.0, 0.0, 2.0], [3.0, 3.0, 0.0]]
    game = PlacementGame(rates, [1.0, 2.0], [1.0, 1.0], near, 5.0)
    s = best_response_dynamics(game)
    most = [gains_s(game, placed).max() for placed in s.certificate["cycle"]]
    assert s.flags == Flag.NOT_CONVERGED and most == [4.0, 7.0, 5.0, 8.0, 2.0, 2.0, 7.0, 7.0]
    assert s.certificate["gain_s"].max() == 2.0 and (s.value.tier == s.certificate["cycle"][4]).all()
    assert s.value.cost_s.tolist() == placement(game, s.value.tier).cost_s.tolist()


def test_a_game_played_by_hand():
    """Rates of 3 and 1, and of 3 and 2; a place each at 1 s, 1 s to the other, 5 s without a copy. Who is first takes
    block 0, and the other the other: with nobody to move in the second round."""
    game = PlacementGame([[3.0, 1.0], [3.0, 2.0]], [1.0], [1.0], complete(2, 1.0), 5.0)
    played = {
        "as numbered": (best_response_dynamics(game), [[0, -1], [-1, 0]], [3 * 1 + 1 * 2.0, 3 * 2 + 2 * 1.0]),
        "turned": (best_response_dynamics(game, order=[1, 0]), [[-1, 0], [0, -1]], [3 * 2 + 1 * 1.0, 3 * 1 + 2 * 2.0]),
        "from one": (best_response_dynamics(game, [[0, -1], [-1, -1]]), [[0, -1], [-1, 0]], [5.0, 8.0]),
        "cut short": (best_response_dynamics(game, max_rounds=1), [[0, -1], [-1, 0]], [5.0, 8.0]),
        "not played": (best_response_dynamics(game, max_rounds=0), [[-1, -1], [-1, -1]], [20.0, 25.0]),
    }
    for how, (s, tier, paid) in played.items():
        assert s.value.tier.tolist() == tier and s.value.cost_s.tolist() == paid and s.value.social_s == sum(paid)
        assert s.steps == {"from one": 1, "not played": 0}.get(how, 2)
        assert s.flags == (Flag.NOT_CONVERGED if how in ("cut short", "not played") else 0)
        # alone, either would take the three reads a second of block 0 at 1 s
        assert s.certificate["gain_s"].tolist() == ([12.0, 12.0] if how == "not played" else [0.0, 0.0])
        assert s.certificate["cycle"].shape == (0, 2, 2)
    move = best_response(game, played["not played"][0].value.tier, 1)
    assert move.value.tolist() == [0, -1] and move.certificate == {"cost_s": 3 * 1 + 2 * 5.0, "gain_s": 12.0}
    slow = PlacementGame([[2.0, 1.0]], [1.0, 5.0], [1.0, 1.0], [[0.0]], 5.0)  # a place as slow as a prefill
    move = best_response(slow, [[-1, -1]], 0)
    assert move.value.tolist() == [0, -1] and move.certificate == {"cost_s": 2.0 + 5.0, "gain_s": 8.0}


def test_up_to_a_billionth_of_its_cost_a_worker_gains_by_rounding_alone():
    profile = placement(PlacementGame([[3.0], [2.0]], [1.0], [0.0], complete(2, 1.0), 1.0), [[-1], [-1]])
    assert profile.cost_s.tolist() == [3.0, 2.0]
    for gain, flag in (([0.0, 0.0], 0), ([3e-9, 0.0], 0), ([0.0, 3e-9], Flag.NOT_CONVERGED)):
        assert equilibrium_flag(profile, np.array(gain)) == flag


def test_hundreds_of_blocks_settle_at_an_equilibrium():
    rng = np.random.default_rng(0)
    w = rng.zipf(1.5, (16, 400)).clip(max=500) * rng.uniform(0.5, 1.0, (16, 400))
    s = best_response_dynamics(PlacementGame(w, [0.1, 2.0], [20.0, 60.0], two_level(16, 8, 0.5, 4.0), 60.0))
    assert s.flags == 0 and (s.certificate["gain_s"] <= 1e-12 * s.value.cost_s).all()
    assert ((s.value.tier == 0).sum(1) <= 20).all() and ((s.value.tier == 1).sum(1) <= 60).all()


def test_existence_is_settled_by_theorem_by_enumeration_or_by_play():
    none = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)
    s = pure_equilibrium(none)
    assert s.certificate["exists"] == 0 and s.flags == int(Flag.INFEASIBLE) and len(s.certificate["cycle"]) > 1
    played = pure_equilibrium(none, max_profiles=0)  # play alone proves nothing
    assert played.certificate["exists"] == -1 and played.flags == int(Flag.NOT_CONVERGED)
    assert played.certificate["gain_s"].max() >= s.certificate["gain_s"].max() == 1.0
    assert played.certificate["factor"] > 1 < s.certificate["factor"]
    assert s.steps == equilibria(none).steps == 169
    by_theorem = pure_equilibrium(none.replace(capacity_bytes=np.array([1.0, 3.0])), max_profiles=0, starts=0)
    assert by_theorem.certificate["exists"] == 1 and by_theorem.certificate["factor"] == pytest.approx(1)
    moves = hierarchical_equilibrium(none.replace(capacity_bytes=np.array([1.0, 3.0]))).steps
    assert (by_theorem.flags, by_theorem.steps) == (0, moves) and not len(by_theorem.certificate["cycle"])
    rng = np.random.default_rng(8)
    for _ in range(40):
        arrays = draw(rng)
        game, t = PlacementGame(*arrays), truth(*arrays)
        s = pure_equilibrium(game)
        assert s.certificate["exists"] == int(t.stable.any()) and bool(s.flags) != t.stable.any()
        np.testing.assert_allclose(s.certificate["gain_s"].max(), max(t.gain.max(1).min(), 0), atol=1e-9)
