"""The placement game: costs by the definition, networks, and what is refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import floyd_warshall

from dmodels.core.errors import InputError
from dmodels.games.placement import PlacementGame, empty, isolated_s, levels, placement
from dmodels.games.placement import networks as net
from tests.games.placement_brute import draw, truth

seeds = st.integers(0, 2**31)


@given(seed=seeds, sizes=st.booleans())
def test_costs_follow_the_definition(seed, sizes):
    rng = np.random.default_rng(seed)
    arrays = draw(rng, sizes=sizes)
    game, t = PlacementGame(*arrays), truth(*arrays)
    for p in rng.integers(0, len(t.tiers), 5):
        np.testing.assert_allclose(placement(game, t.tiers[p]).cost_s, t.cost[p], atol=1e-12)


@given(seed=seeds, sizes=st.booleans())
def test_nobody_pays_more_at_an_equilibrium_than_alone(seed, sizes):
    arrays = draw(np.random.default_rng(seed), sizes=sizes)
    t, alone = truth(*arrays), isolated_s(PlacementGame(*arrays))
    assert (t.cost[t.stable] <= alone + 1e-9).all()
    n = len(alone)
    apart = (*arrays[:3], np.full((n, n), np.inf), *arrays[4:])
    np.testing.assert_allclose(alone, truth(*apart).cost.min(0), atol=1e-9)


def test_kernels_see_arrays_of_one_kind():
    """Whatever a game is made of: one number for all, a row for all, or arrays that may be written to."""
    wide = PlacementGame(np.ones((2, 3)), np.ones((2, 2)), np.ones((2, 2)), np.zeros((2, 2)), np.ones(3), np.ones(3))
    short = PlacementGame(np.ones((2, 3)), [1.0, 2.0], [1.0, np.inf], net.complete(2, 1.0), 5.0)
    kinds = {(part.flags.writeable, part.flags.c_contiguous) for game in (wide, short) for part in game.arrays()[:-1]}
    assert kinds == {(False, True)}


def test_recomputation_is_never_dearer_than_gamma():
    far = PlacementGame([[0.0], [3.0]], [1.0], [1.0], net.complete(2, 100.0), 5.0)
    assert placement(far, [[0], [-1]]).cost_s.tolist() == [0.0, 15.0]


def test_a_split_network_falls_into_two_games():
    gap = net.two_level(4, 2, 1.0, np.inf)
    whole = PlacementGame(np.ones((4, 2)), [1.0], [1.0], gap, 9.0)
    tier = [[0, -1], [-1, 0], [0, -1], [0, -1]]
    assert placement(whole, tier).cost_s.tolist() == [3.0, 3.0, 10.0, 10.0]


def test_zero_capacity_is_a_worker_that_reads_from_others():
    game = PlacementGame(np.ones((2, 1)), [1.0], [[1.0], [0.0]], net.complete(2, 2.0), 9.0)
    assert placement(game, [[0], [-1]]).cost_s.tolist() == [1.0, 3.0]
    with pytest.raises(InputError, match="worker 1 keeps 1 bytes in tier 0, which holds 0"):
        placement(game, [[-1], [0]])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("access_s", [-1.0], "access_s holds -1.0"),
        ("access_s", [np.nan], "access_s holds NaN or infinity"),
        ("demand_rps", [[-2.0, 1.0], [1.0, 1.0]], "demand_rps holds -2.0"),
        ("demand_rps", [1.0, 2.0], r"demand_rps has shape \(2,\)"),
        ("distance_s", [[0.0, -3.0], [1.0, 0.0]], "distance_s holds -3.0"),
        ("distance_s", [[0.0, np.nan], [1.0, 0.0]], "distance_s holds NaN"),
        ("distance_s", np.zeros((3, 3)), r"distance_s has shape \(3, 3\)"),
        ("recompute_s", np.inf, "recompute_s holds NaN or infinity"),
        ("recompute_s", [1.0, 2.0, 3.0], r"recompute_s has shape \(3,\)"),
        ("capacity_bytes", [-1.0], "capacity_bytes holds -1.0"),
        ("capacity_bytes", [1.0, 2.0], r"capacity_bytes has shape \(2,\)"),
        ("block_bytes", 0.0, "block_bytes holds 0"),
        ("block_bytes", [1.0, 2.0, 3.0], r"block_bytes has shape \(3,\)"),  # demand for blocks that are not described
        ("access_s", 1.0, r"access_s has shape \(\)"),
        ("access_s", [], r"access_s has shape \(0,\)"),
        (
            "access_s",
            np.ones((3, 2)),
            r"access_s has shape \(3, 2\); accepted for 2 workers and 2 blocks: \(2,\) or \(2, 2\)",
        ),
        ("recompute_s", [-1.0, 1.0], "recompute_s holds -1.0; accepted are finite numbers from 0"),
        ("recompute_s", [np.nan, -1.0], "recompute_s holds -1.0; accepted are finite numbers from 0"),
        (
            "capacity_bytes",
            [[0.0], [np.nan]],
            "capacity_bytes holds NaN or infinity; accepted are numbers from 0, inf included",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(field, value, said):
    good = {"demand_rps": np.ones((2, 2)), "access_s": [1.0], "capacity_bytes": [1.0],
            "distance_s": net.complete(2, 1.0), "recompute_s": 5.0}  # fmt: skip
    with pytest.raises(InputError, match=said) as error:
        PlacementGame(**{**good, field: value})
    assert "accepted" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", [-1.0, np.nan])
@pytest.mark.parametrize("field", ["demand_rps", "access_s", "capacity_bytes", "recompute_s", "block_bytes"])
def test_one_wrong_number_among_right_ones_is_refused(field, wrong):
    """Wherever it stands; and so is a block of nothing, while there may be no demand and no room."""
    shape = {"demand_rps": (2, 3), "recompute_s": (3,), "block_bytes": (3,)}.get(field, (2, 2))
    known = {"demand_rps": np.ones((2, 3)), "access_s": [1.0, 2.0], "capacity_bytes": [1.0, 4.0]}
    known |= {"distance_s": net.complete(2, 1.0), "recompute_s": 5.0}
    for place in np.ndindex(shape):
        value = np.ones(shape)
        PlacementGame(**known | {field: value})
        for bad in (wrong, 0.0) if field == "block_bytes" else (wrong,):
            value[place] = bad
            with pytest.raises(InputError, match=f"{field} holds"):
                PlacementGame(**known | {field: value})


def test_placements_that_are_none_are_refused():
    game = PlacementGame(np.ones((2, 2)), [1.0], [1.0], net.complete(2, 1.0), 5.0)
    for tier, said in (
        ([[-1, -1], [0, 0]], "worker 1 keeps 2 bytes in tier 0, which holds 1"),
        ([[0, 1], [-1, -1]], r"tier holds -1\.\.1; accepted are whole numbers from -1 to 0"),
        ([[0, -2], [-1, -1]], r"tier holds -2\.\.0; accepted are whole numbers from -1 to 0"),
        ([[0], [0]], r"tier has shape \(2, 1\); accepted: \(workers, blocks\) = \(2, 2\)"),
        ([[0.5, -1], [-1, -1]], "whole numbers"),
    ):
        with pytest.raises(InputError, match=said):
            placement(game, tier)
    assert placement(game, empty(game)).social_s == 20.0


def test_capacities_in_bytes_count_whole_blocks():
    game = PlacementGame(np.ones((1, 3)), [1.0], [5.5e9], [[0.0]], 5.0, block_bytes=2e9)
    assert game.arrays().slots.tolist() == [[2]]
    tenth = PlacementGame(np.ones((1, 3)), [1.0], [0.3], [[0.0]], 5.0, block_bytes=0.1)  # 0.3 / 0.1 = 2.9999...96
    assert tenth.arrays().slots.tolist() == [[3]]


def test_networks_of_known_distances():
    assert net.line(4, 2.0)[0].tolist() == [0.0, 2.0, 4.0, 6.0]
    assert net.line(3, [1.0, 5.0])[2].tolist() == [6.0, 5.0, 0.0]
    assert net.ring(5, 3.0)[0].tolist() == [0.0, 3.0, 6.0, 6.0, 3.0]
    assert (net.ring(5, 3.0, directed=True) + net.ring(5, 3.0, directed=True).T == 15 * (1 - np.eye(5))).all()
    tree = net.fat_tree(8, (2, 4), (1.0, 3.0, 9.0))
    assert tree[0].tolist() == [0.0, 1.0, 3.0, 3.0, 9.0, 9.0, 9.0, 9.0]
    assert net.line(1, 2.0).tolist() == net.ring(1, 2.0).tolist() == net.complete(1, 2.0).tolist() == [[0.0]]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: net.fat_tree(8, (4, 6), (1.0, 2.0, 3.0)), r"group_workers = \(4, 6\)"),
        (lambda: net.fat_tree(8, (0,), (1.0, 2.0)), r"group_workers = \(0,\)"),
        (lambda: net.fat_tree(8, (-2,), (1.0, 2.0)), r"group_workers = \(-2,\)"),
        (lambda: net.fat_tree(8, (2,), (1.0,)), "8 workers, 1 groups, 1 levels; accepted"),
        (lambda: net.fat_tree(0, (2,), (1.0, 2.0)), "0 workers, 1 groups, 2 levels; accepted"),
        (lambda: net.fat_tree(8, (2,), (1.0, -2.0)), "distances hold -2.0"),
        (lambda: net.ring(3, -1.0), "distances hold -1.0"),
        (lambda: net.ring(3, np.nan), "distances hold nan"),
        (lambda: net.line(3, [1.0, -1.0]), "distances hold -1.0"),
        (lambda: net.shortest_paths([[0.0, -3.0], [1.0, 0.0]]), "distances hold -3.0"),
        (lambda: net.shortest_paths(np.zeros((2, 3))), r"links_s has shape \(2, 3\)"),
        (lambda: net.shortest_paths(np.zeros(4)), r"links_s has shape \(4,\)"),
    ],
)
def test_networks_that_are_none_are_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        wrong()


@given(seed=seeds)
def test_shortest_paths_agree_with_scipy(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    links = np.where(rng.uniform(size=(n, n)) < 0.5, rng.uniform(0.1, 4, (n, n)), np.inf)
    np.fill_diagonal(links, 0.0)
    np.testing.assert_allclose(net.shortest_paths(links), floyd_warshall(links), rtol=1e-12)


@given(seed=seeds)
def test_hierarchies_are_recognised_and_others_are_not(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    order = rng.permutation(n)
    d = net.fat_tree(n, (2, 4), (1.0, 2.0, 7.0))[np.ix_(order, order)]
    found = net.levels(d)
    meet = (found.group[:, :, None] == found.group[:, None]).argmax(0)  # first level at which two workers meet
    off = ~np.eye(n, dtype=bool)
    np.testing.assert_array_equal(found.hop_s[meet][off], d[off])
    assert net.levels(net.line(n, 1.0)) is None and net.levels(net.ring(n, 1.0, directed=True)) is None
    assert net.levels(net.complete(n, 3.0)).hop_s.tolist() == [3.0]
    assert net.levels(np.zeros((1, 1))) is not None


def test_the_tree_of_one_and_of_two_workers():
    alone, pair = levels([[0.0]]), levels([[0.0, 3.0], [3.0, 0.0]])
    assert alone.hop_s.tolist() == [0.0] and alone.group.tolist() == [[0]]
    assert pair.hop_s.tolist() == [3.0] and pair.group.tolist() == [[0, 0]]
    assert levels([[0.0, 3.0], [2.0, 0.0]]) is None  # no one distance
    assert levels(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])) is None  # a line
