"""Exact equilibria: branch and prune against all m^n profiles, in exact integers, ties included."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.games import routing
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import LatencyCurve, affine
from dmodels.studies.router_costs import grouped_game

#: a, b, d in seconds, saturation and order of the pole: the defaults of `dmodels route`.
PAPER = [[0.005], [0.02], [0.01], [64.0], [2.0]]


def every_profile(f, c):
    """(profiles, cost, is_nash) of all m^n profiles by the definition, in exact integers."""
    n, m = c.shape
    profiles = np.array(list(itertools.product(range(m), repeat=n)))
    loads = (profiles[:, :, None] == np.arange(m)).sum(1)
    rows = np.arange(n)
    here = f[profiles, np.take_along_axis(loads, profiles, 1) - 1] + c[rows, profiles]
    stay = np.ones(len(profiles), bool)
    for k in range(m):
        there = f[k, np.minimum(loads[:, k], n - 1)][:, None] + c[None, :, k]
        stay &= ((profiles == k) | (here <= there)).all(1)
    return profiles, here.sum(1), stay


def random_game(rng, kind, most_requests=6):
    """Integer latencies and miss costs: kinds are nondecreasing, arbitrary, and flat with many ties."""
    n, m = int(rng.integers(1, most_requests + 1)), int(rng.integers(1, 5))
    f = rng.integers(0, 3 if kind == "ties" else 9, (m, n))
    if kind != "arbitrary":
        f = np.sort(f, axis=1)
    c = rng.integers(0, 2 if kind == "ties" else 7, (n, m))
    return f, c


def as_game(f, c):
    """The same game: omega times (1 - overlap) is the integer miss cost to rounding."""
    omega = max(1, c.max())
    return RoutingGame(f.astype(float), 1.0 - c / omega, omega)


def check(rng, kind, count, most_requests):
    for _ in range(count):
        agree(*random_game(rng, kind, most_requests))


def agree(f, c):
    _, cost, nash = every_profile(f, c)
    assert nash.any()  # the exact potential says so, for every f and every overlap
    s = routing.nash_range(as_game(f, c))
    assert int(s.flags) == 0 and bool(s.certificate["complete"])
    np.testing.assert_allclose([s.value.best_s, s.value.worst_s], [cost[nash].min(), cost[nash].max()], atol=1e-9)
    assert s.certificate["gain_s"] <= 1e-9  # both are equilibria by the definition
    for flow, said in ((s.value.best_flow, s.value.best_s), (s.value.worst_flow, s.value.worst_s)):
        at = routing.worker_of_each(flow)
        np.testing.assert_allclose(routing.social_cost_s(as_game(f, c), at), said, atol=1e-9)


@pytest.mark.parametrize("workers", [63, 64, 65, 100, 130])
def test_more_workers_than_a_word_has_bits(workers):
    """Two requests, each with a cache on some of the workers, those beyond the 64th too."""
    rng = np.random.default_rng(workers)
    for _ in range(6):
        f = np.sort(rng.integers(0, 9, (workers, 2)), axis=1)
        agree(f, np.where(rng.random((2, workers)) < 0.1, 0, rng.integers(5, 9, (2, workers))))


@pytest.mark.parametrize("kind", ["nondecreasing", "arbitrary", "ties"])
def test_workers_that_are_alike_hide_no_equilibrium(kind):
    rng = np.random.default_rng(5)
    for _ in range(40):
        f, c = random_game(rng, kind, 5)
        kinds = rng.integers(0, min(len(f), 2), 5)
        agree(f[kinds], c[:, kinds])


def test_idle_workers_change_nothing():
    """64 requests on workers of which five have a cache: more than 69 are never in use, and all is still exact."""
    few, many = (
        routing.nash_range(grouped_game(64, 5, LatencyCurve(*np.full((5, m), PAPER)), 0.015), 2000) for m in (70, 200)
    )
    assert int(few.flags) == 0 == int(many.flags)
    np.testing.assert_allclose(few.value[:4], many.value[:4], rtol=1e-12)


@pytest.mark.parametrize("kind", ["nondecreasing", "arbitrary", "ties"])
def test_best_and_worst_equilibrium_equal_brute_force(kind):
    check(np.random.default_rng(0), kind, 150, 6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nondecreasing", "arbitrary", "ties"])
def test_best_and_worst_equilibrium_equal_brute_force_in_thousands_of_games(kind):
    check(np.random.default_rng(1), kind, 2000, 7)
    check(np.random.default_rng(2), kind, 60, 8)


def test_groups_are_as_good_as_their_requests():
    """A group with a count is the same game as its requests one by one; also a group of size 0 changes nothing."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        f, c = np.sort(rng.integers(0, 9, (3, 7)), axis=1), rng.integers(0, 7, (2, 3))
        counts = np.array([3, 4, 0])
        rows = np.vstack([c, [[9, 0, 9]]])
        omega = 10.0
        grouped = routing.nash_range(RoutingGame(f.astype(float), 1 - rows / omega, omega, counts))
        single = routing.nash_range(RoutingGame(f.astype(float), 1 - np.repeat(rows, counts, axis=0) / omega, omega))
        np.testing.assert_allclose(grouped.value[:4], single.value[:4], atol=1e-9)
        assert (grouped.value.worst_flow.sum(-1) == counts).all()


def test_equal_loads_hide_different_costs():
    """Two requests, each at home: cost 2. Swapped: 2 + 2 omega, and still nobody moves while omega <= f(2) - f(1)."""
    game = RoutingGame(affine([1.0, 1.0], 0.0), np.eye(2), 0.75)
    s = routing.nash_range(game)
    np.testing.assert_allclose([s.value.best_s, s.value.worst_s], [2.0, 3.5])


def test_hundreds_who_start_at_one_worker_move_one_by_one_until_nobody_gains():
    """Two workers and 300 requests: half go to one that is as fast, a third to one that is half as fast."""
    for slow, elsewhere in ((1.0, 150), (2.0, 100)):
        alike = RoutingGame(np.outer([1.0, slow], np.arange(1.0, 301.0)), np.zeros((1, 2)), 0.0, np.array([300]))
        found, loads = routing.nash_range(alike).value, np.array([300 - elsewhere, elsewhere])
        cost = float(loads @ (np.array([1.0, slow]) * loads))
        assert found[:4] == pytest.approx([cost] * 4) and found.worst_flow.tolist() == [loads.tolist()]


def test_the_box_budget_still_bounds_every_equilibrium():
    rng = np.random.default_rng(4)
    game = RoutingGame(affine([1.0, 0.7, 1.3], [0.0, 2.0, 1.0]), rng.uniform(size=(5, 3)), 9.0, [12, 7, 9, 4, 8])
    exact, cut = routing.nash_range(game), routing.nash_range(game, max_boxes=1)
    assert int(exact.flags) == 0 and int(cut.flags) == Flag.NOT_CONVERGED
    assert bool(exact.certificate["complete"]) and not cut.certificate["complete"] and cut.steps == 1 < exact.steps
    assert cut.value.best_floor_s <= exact.value.best_s <= cut.value.best_s
    assert cut.value.worst_s <= exact.value.worst_s <= cut.value.worst_ceiling_s
    assert cut.certificate["gain_s"] <= 1e-9


def test_a_batch_is_its_games_one_by_one():
    rng = np.random.default_rng(5)
    overlap, omega = rng.uniform(size=(6, 4, 3)), rng.uniform(0, 3, 6)
    curve = affine(rng.uniform(0.5, 2, (6, 3)), 0.0)
    together = routing.nash_range(RoutingGame(curve, overlap, omega))
    for b in range(6):
        alone = routing.nash_range(RoutingGame(curve[b], overlap[b], omega[b]))
        np.testing.assert_array_equal(together.value.worst_s[b], alone.value.worst_s)
        np.testing.assert_array_equal(together.value.best_s[b], alone.value.best_s)


def test_more_requests_than_room_is_an_overload():
    s = routing.nash_range(RoutingGame(LatencyCurve(0.1, 0.0, 1.0, [3.0, 3.0]), np.ones((6, 2)), 1.0))
    assert int(s.flags) & Flag.OVERLOAD and np.isinf(s.value.worst_s)


def test_with_room_no_equilibrium_touches_a_pole():
    s = routing.nash_range(RoutingGame(LatencyCurve(0.1, 0.0, 1.0, [3.0, 4.0]), np.ones((5, 2)), 1.0))
    assert int(s.flags) == 0 and np.isfinite(s.value.worst_s)


def test_two_requests_are_a_bimatrix_game():
    """A stranger's best-response test (nashpy) on all pure profiles of games with two requests."""
    nashpy = pytest.importorskip("nashpy")
    rng = np.random.default_rng(6)
    for _ in range(40):
        m = int(rng.integers(2, 5))
        f, c = rng.integers(0, 9, (m, 2)), rng.integers(0, 7, (2, m))
        j, k = np.indices((m, m))
        same = (j == k).astype(int)
        pay = np.stack([f[j, same] + c[0, j], f[k, same] + c[1, k]], -1)
        bimatrix, unit = nashpy.Game(-pay[..., 0], -pay[..., 1]), np.eye(m)
        pure = [(j, k) for j in range(m) for k in range(m) if all(bimatrix.is_best_response(unit[j], unit[k]))]
        costs = [pay[j, k].sum() for j, k in pure]
        s = routing.nash_range(as_game(f, c))
        np.testing.assert_allclose([s.value.best_s, s.value.worst_s], [min(costs), max(costs)], atol=1e-9)


def every_flow(f, c, counts):
    """(cost, is_nash) of every way to spread groups over three workers, by the definition."""
    splits = [[(a, b, q - a - b) for a in range(q + 1) for b in range(q + 1 - a)] for q in counts]
    x = np.array(list(itertools.product(*splits)))
    loads = x.sum(1)
    at = np.take_along_axis(np.broadcast_to(f, (len(x), *f.shape)), np.maximum(loads, 1)[..., None] - 1, 2)[..., 0]
    newcomer = np.take_along_axis(
        np.broadcast_to(f, (len(x), *f.shape)), np.minimum(loads, f.shape[1] - 1)[..., None], 2
    )[..., 0]
    stay = np.ones(len(x), bool)
    for j, k in itertools.permutations(range(3), 2):
        leaves = (at[:, None, j] + c[:, j] > newcomer[:, None, k] + c[:, k]) & (x[:, :, j] > 0)
        stay &= ~leaves.any(1)
    return (loads * at).sum(1) + (x * c).sum((1, 2)), stay


@pytest.mark.parametrize("steep", [1, 3])
def test_larger_groups_against_all_flows(steep):
    rng = np.random.default_rng(8 + steep)
    for _ in range(12):
        counts = rng.integers(1, 6, 3)
        f = np.cumsum(rng.integers(0, 1 + steep, (3, counts.sum())), axis=1)
        c = rng.integers(0, 9, (3, 3))
        cost, nash = every_flow(f, c, counts)
        s = routing.nash_range(RoutingGame(f.astype(float), 1 - c / 9.0, 9.0, counts))
        assert int(s.flags) == 0
        np.testing.assert_allclose([s.value.best_s, s.value.worst_s], [cost[nash].min(), cost[nash].max()], atol=1e-9)
