"""Certified bounds on equilibria that are not enumerated: smoothness and the linear programme, against all profiles."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import linprog

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.games import routing
from dmodels.games.anarchy import bounds, coarse_ceiling_s, price_of_anarchy, smoothness
from dmodels.games.anarchy import price as module
from dmodels.games.anarchy.program import dual_bound, equilibrium_program, programme, solve_program, unknowns_count
from dmodels.games.routing import RoutingGame, least_potential_flow
from dmodels.models.latency import LatencyCurve, affine

from .test_anarchy import check_intervals
from .test_routing_nash import as_game, every_profile, random_game

KINDS = ("nondecreasing", "arbitrary", "ties")


def coarse_range(f, c):
    """Least and greatest cost of all coarse correlated equilibria: a linear programme over all m^n profiles."""
    profiles, cost, _ = every_profile(f, c)
    n, m = c.shape
    loads = (profiles[:, :, None] == np.arange(m)).sum(1)
    here = f[profiles, np.take_along_axis(loads, profiles, 1) - 1] + c[np.arange(n), profiles]
    regret = [
        here[:, i] - np.where(profiles[:, i] == k, here[:, i], f[k, np.minimum(loads[:, k], n - 1)] + c[i, k])
        for i in range(n)
        for k in range(m)
    ]
    one = np.ones((1, len(cost)))
    return [sign * linprog(sign * cost, regret, np.zeros(n * m), one, [1.0]).fun for sign in (1.0, -1.0)]


def check(rng, kind, count, most_requests):
    """Every bound holds the truth, and no bound is implied by the price that brute force finds."""
    for _ in range(count):
        f, c = random_game(rng, kind, most_requests)
        game = as_game(f, c)
        _, cost, nash = every_profile(f, c)
        low, high = coarse_range(f, c)
        tol = 1e-7 * (1 + high)
        pure, coarse = equilibrium_program(game).value, equilibrium_program(game, coarse=True).value
        assert pure["floor_s"] <= cost[nash].min() + tol and cost[nash].max() <= pure["ceiling_s"] + tol
        assert coarse["floor_s"] <= low + tol and high <= coarse["ceiling_s"] + tol
        assert pure["floor_s"] >= coarse["floor_s"] - tol and pure["ceiling_s"] <= coarse["ceiling_s"] + tol
        assert high <= coarse_ceiling_s(game) + tol
        price = smoothness(game).price
        assert np.isinf(price) or high <= price * cost.min() + tol


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_all_pure_and_all_coarse_correlated_equilibria(kind):
    check(np.random.default_rng(0), kind, 10, 5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_all_equilibria_in_thousands_of_games(kind):
    check(np.random.default_rng(1), kind, 1000, 5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_boxes", [1, 2, 5])
def test_cut_intervals_hold_the_price_in_thousands_of_games(kind, max_boxes):
    check_intervals(np.random.default_rng(2), kind, max_boxes, 500)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_powers_of_the_load_have_the_exact_prices_of_aland_and_others(degree):
    found = smoothness(RoutingGame([np.arange(1.0, 11.0) ** degree], np.zeros((10, 1))))
    assert float(found.price) == pytest.approx(bounds.polynomial_atomic(degree), rel=1e-12)
    assert float(found.price) == pytest.approx(float(found.lam / (1 - found.mu)))


def test_affine_curves_are_five_halves_smooth_at_most():
    rng = np.random.default_rng(3)
    game = RoutingGame(affine(rng.uniform(0, 3, (40, 3)), rng.uniform(0, 3, (40, 3))), np.zeros((9, 3)))
    price = smoothness(game).price
    assert (price <= 2.5 + 1e-12).all() and (price >= 1.0).all() and price.min() < 2.2 < price.max()


def test_smoothness_is_the_linear_programme_over_lambda_and_mu():
    """min L over s >= 1, L >= s, L o f(o) >= s o f(n + 1) - (s - 1) n f(n): a stranger's optimum, flat starts too."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        f = np.sort(rng.integers(0, 12, (2, 6)), axis=1).astype(float)
        n, o = np.meshgrid(np.arange(6), np.arange(1, 7), indexing="ij")
        rows = []
        for row in f:
            paid, own = np.where(n > 0, n * row[np.maximum(n, 1) - 1], 0.0), o * row[o - 1]
            rows.append(np.stack([o * row[n] - paid, -own, -paid], -1).reshape(-1, 3))
        rows = np.concatenate(rows)
        found = linprog(
            [0, 1], np.vstack([rows[:, :2], [[1, -1]]]), np.append(rows[:, 2], 0.0), bounds=[(1, None), (None, None)]
        )
        price = float(smoothness(RoutingGame(f, np.zeros((6, 2)))).price)
        assert (found.status == 0) == np.isfinite(price)
        assert np.isinf(price) or price == pytest.approx(found.fun, rel=1e-9)


def test_where_no_share_of_the_worse_is_needed_none_is_taken():
    """f = 1, 1, 2: a third request pays at most twice what one pays alone, whatever two of them pay: 2 = lambda."""
    found = smoothness(RoutingGame([[1.0, 1.0, 2.0]], np.zeros((3, 1))))
    assert [float(value) for value in found] == [2.0, 0.0, 2.0]


def test_a_programme_of_one_worker_has_nothing_to_find():
    """Both loads are known, and so is what they cost; of two workers that one request may take each has two loads."""
    alone = RoutingGame([[1.0, 2.0, 4.0]], np.zeros((3, 1)))
    s, a = equilibrium_program(alone), alone.arrays()
    assert s.value == {"ceiling_s": 12.0, "floor_s": 12.0} and s.steps == s.flags == 0
    assert s.certificate["gap_s"].tolist() == [0.0, 0.0]
    assert unknowns_count(a.f[0], a.cost[0], a.counts[0]) == 2  # the load, and who it is of
    either = RoutingGame([[1.0], [1.0]], np.zeros((1, 2))).arrays()
    assert unknowns_count(either.f[0], either.cost[0], either.counts[0]) == 2 * 2 + 2 * 2


@pytest.mark.parametrize(("miss", "more"), [(0.1, 0.0), (0.3, 0.0), (1e-9, 2.0**-51)])
def test_ties_that_rounding_tells_apart_are_left_in_a_programme(miss, more):
    """A pays 3 and a little more on the first worker, of which a miss is some, or 3 beside B on the second; which is
    3 + 1 with B, or 3 + 3."""
    f, c = np.array([[3.0 - miss + more, 50.0], [1.0, 3.0]]), np.array([[miss, 0.0], [9 * miss, 0.0]])
    told = solve_program(programme(f, c, np.array([1, 1]))).value
    assert [told["floor_s"], told["ceiling_s"]] == pytest.approx([4.0, 6.0])


@pytest.mark.parametrize("failed", [(True, False), (False, True), (True, True)])
def test_what_a_solver_does_not_find_is_not_bounded(failed, monkeypatch):
    """The ceiling, the floor, or both."""
    game, answers = RoutingGame(affine([1.0, 1.0], 0.0), np.eye(2), 0.75), iter(failed)
    solve = lambda *asked, **more: SimpleNamespace(status=4) if next(answers) else linprog(*asked, **more)
    monkeypatch.setattr("scipy.optimize.linprog", solve)
    s = equilibrium_program(game)
    ceiling, floor = np.inf if failed[0] else 3.5, -np.inf if failed[1] else 2.0
    assert s.value == {"ceiling_s": pytest.approx(ceiling), "floor_s": pytest.approx(floor)}
    assert s.certificate["gap_s"] == pytest.approx([np.inf if no else 0.0 for no in failed], abs=1e-9)
    found = [name for name, no in zip(("ceiling", "floor"), failed, strict=True) if not no]
    duals = {f"{name}_{kind}_duals" for name in found for kind in ("above", "equal")}
    assert set(s.certificate) == {"gap_s"} | duals and int(s.flags) == Flag.NOT_CONVERGED


def test_poles_and_falling_latencies_are_not_smooth():
    assert np.isinf(smoothness(RoutingGame([[1.0, 1.0, np.inf]], np.zeros((3, 1)))).price)
    assert np.isinf(smoothness(RoutingGame([[2.0, 1.0, 1.0]], np.zeros((3, 1)))).price)
    for paid in (1e-9, 0.5, 1.0, 9.0):  # free alone, not in company: the optimum costs nothing, other plays do
        assert np.isinf(smoothness(RoutingGame([[0.0, paid, paid]], np.zeros((3, 1)))).price)


def large_game(seed, m=6, n=40):
    """So many different requests that no enumeration ends within a few boxes."""
    rng = np.random.default_rng(seed)
    return RoutingGame(affine(rng.uniform(0.5, 2, m), rng.uniform(0, 4, m)), rng.uniform(size=(n, m)), 12.0)


def test_duals_prove_the_bounds_without_the_solver():
    """Any duals bound the programme; those returned give the bounds, and worse ones give worse bounds."""
    game = large_game(5, 5, 25)
    a = game.arrays()
    p, s = programme(a.f[0], a.cost[0], a.counts[0]), equilibrium_program(game)
    for sense, name in ((1.0, "floor"), (-1.0, "ceiling")):
        above, equal = s.certificate[f"{name}_above_duals"], s.certificate[f"{name}_equal_duals"]
        assert sense * dual_bound(p, sense, above, equal) == s.value[f"{name}_s"]
        assert dual_bound(p, sense, 0.9 * above, 1.1 * equal) <= dual_bound(p, sense, above, equal) + 1e-9
    assert (s.certificate["gap_s"] <= 1e-6 * s.value["ceiling_s"]).all() and int(s.flags) == 0


def test_no_equilibrium_that_best_responses_find_is_outside():
    game = large_game(6, 4, 16)
    s, coarse, ceiling = equilibrium_program(game).value, equilibrium_program(game, True).value, coarse_ceiling_s(game)
    for seed in range(30):
        start = np.random.default_rng(seed).integers(0, 4, 16)
        cost = float(routing.best_response(game, start).value.cost_s)
        assert s["floor_s"] <= cost <= s["ceiling_s"] <= coarse["ceiling_s"] <= ceiling + 1e-9
    assert s["ceiling_s"] < 1.15 * s["floor_s"]


def test_a_cut_search_is_bounded_by_the_programme_and_never_worse_for_it():
    game = large_game(7, 5, 25)
    p, quick = price_of_anarchy(game, max_boxes=12), price_of_anarchy(game, max_boxes=1)
    s, a = equilibrium_program(game).value, routing.optimum(game)
    assert int(p.flags) & Flag.NOT_CONVERGED and p.certified
    assert p.upper <= s["ceiling_s"] / a.certificate["bound_s"] + 1e-9
    assert p.stability_lower >= s["floor_s"] / a.value.cost_s - 1e-9
    assert quick.lower <= p.upper <= quick.upper and p.upper < 1.1
    assert quick.boxes == 1 and p.boxes >= 12


def test_least_potential_is_an_equilibrium_of_brute_force():
    """Its potential is the least of all m^n profiles, nobody gains, and it is never dearer than what cuts report."""
    rng = np.random.default_rng(9)
    for _ in range(40):
        f, c = random_game(rng, "nondecreasing", 6)
        game = as_game(f, c)
        profiles, cost, nash = every_profile(f, c)
        flow = least_potential_flow(f.astype(float), c.astype(float), np.ones(len(c), np.int64))
        at = routing.worker_of_each(flow)
        assert routing.potential(game, at) <= routing.potential(game, profiles).min() + 1e-9
        assert routing.gain_s(game, at) <= 1e-9 and (profiles[nash] == at).all(1).any()
        cut = price_of_anarchy(game, max_boxes=2)
        assert cut.best_s <= cost[nash].max() + 1e-9 and (cost.min() == 0 or cut.stability_lower >= 1)
    falling = np.array([[2.0, 1.0], [2.0, 1.0]])
    assert least_potential_flow(falling, np.zeros((2, 2)), np.ones(2, np.int64)) is None


def test_wide_boxes_are_bounded_by_smoothness():
    """Without it the ceiling of the uncut box was 1.25 and more of the optimum."""
    rng = np.random.default_rng(8)
    game = RoutingGame(affine(rng.uniform(0.5, 2, 5), rng.uniform(0, 3, 5)), rng.uniform(size=(5, 5)), 8.0, [13.0] * 5)
    p = price_of_anarchy(game, max_boxes=1)
    assert p.lower <= price_of_anarchy(game).lower <= p.upper < 1.12


def test_poles_within_reach_leave_no_bound_on_coarse_equilibria():
    game = RoutingGame(LatencyCurve([0.1, 0.1], 0.0, 1.0, [3.0, 4.0]), np.ones((5, 2)), 1.0)
    assert np.isinf(coarse_ceiling_s(game))
    coarse = equilibrium_program(game, coarse=True)
    assert coarse.value == {"ceiling_s": np.inf, "floor_s": -np.inf} and int(coarse.flags) == Flag.NOT_CONVERGED
    assert coarse.certificate["gap_s"].tolist() == [np.inf, np.inf] and coarse.steps == 0
    pure = equilibrium_program(game)
    assert int(pure.flags) == 0 and float(routing.nash_range(game).value.worst_s) <= pure.value["ceiling_s"] + 1e-9


def test_one_game_at_a_time():
    with pytest.raises(InputError, match="accepted is one game"):
        equilibrium_program(RoutingGame([[1.0, 2.0]], np.zeros((3, 2, 1))))


def test_where_the_optimum_is_free_only_a_free_equilibrium_has_a_price():
    """Nothing costs anything: 1. Each at the other's home pays a miss and would pay more beside it: no ratio."""
    free = price_of_anarchy(RoutingGame(np.zeros((2, 2)), np.eye(2)))
    assert [float(v) for v in free[:2]] == [1.0, 1.0] and free.certified and free.exact and not free.flags
    assert [float(v) for v in (free.stability_lower, free.stability_upper)] == [1.0, 1.0]
    swapped = price_of_anarchy(RoutingGame([[0.0, 10.0], [0.0, 10.0]], np.eye(2), 1.0))
    assert float(swapped.worst_s) == 2.0 and float(swapped.optimum_s) == 0.0
    assert np.isnan(swapped.lower) and np.isnan(swapped.upper) and not (swapped.certified or swapped.exact)


@pytest.mark.parametrize("shares, flagged", [((0.0, 1.0), False), ((0.0, 1.25), True), ((-0.25, 1.0), True)])
def test_shares_beyond_a_whole_prefix_are_flagged(shares, flagged):
    p = price_of_anarchy(RoutingGame(affine([1.0, 1.0], 2.0), [shares, shares], 0.5))
    assert (int(p.flags) == Flag.OUT_OF_DOMAIN) == flagged == bool(p.flags)
    assert p.exact  # by enumeration all the same
    least = price_of_anarchy(RoutingGame(affine([1.0, 1.0], 2.0), [shares] * 9, 0.5), max_boxes=1)
    assert least.upper >= least.lower >= 1.0


def test_the_quickest_search_solves_no_programme_and_others_no_large_one(monkeypatch):
    solved, smoothed = [], []
    solve, smooth = module.solve_program, module.smooth_prices
    monkeypatch.setattr(module, "solve_program", lambda p: (solved.append(p), solve(p))[1])
    monkeypatch.setattr(module, "smooth_prices", lambda a: (smoothed.append(a), smooth(a))[1])
    game = large_game(7, 4, 12)
    a = game.arrays()
    count = module.unknowns_count(a.f[0], a.cost[0], a.counts[0])
    seen = []
    for max_boxes, most in ((1, count), (2, count - 1), (2, count)):
        monkeypatch.setattr(module, "UNKNOWNS", most)
        p = price_of_anarchy(game, max_boxes)
        assert int(p.flags) & Flag.NOT_CONVERGED
        seen.append((len(solved), len(smoothed), float(p.upper)))
    assert [of[:2] for of in seen] == [(0, 0), (0, 1), (1, 2)] and seen[0][2] >= seen[1][2] > seen[2][2]
    assert solved[0].pay.size <= count < 2 * solved[0].pay.size  # places that nobody takes at some loads count, too
