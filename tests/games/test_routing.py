"""The routing game: the potential is exact, dynamics stop at equilibria, the optimum is optimal."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.games import routing
from dmodels.games.routing import RoutingGame, hull, marginal_cost_game, marginals
from dmodels.models.latency import LatencyCurve, StepLaw, TableCurve, affine, iteration_time, latency_table

from .test_routing_nash import as_game, every_profile, random_game

seeds = st.integers(0, 2**31)


@given(seed=seeds, kind=st.sampled_from(["nondecreasing", "arbitrary", "ties"]))
def test_the_potential_is_exact_for_every_move(seed, kind):
    """dPhi = dC_i for every single move, with any latencies and any overlaps: the paper says there is no potential."""
    rng = np.random.default_rng(seed)
    f, c = random_game(rng, kind)
    n, m = c.shape
    game, at = as_game(f, c), rng.integers(0, m, n)
    moves = np.array([np.where(np.arange(n) == i, k, at) for i in range(n) for k in range(m)])
    loads = (moves[:, :, None] == np.arange(m)).sum(1)
    rows = np.arange(len(moves))
    player = np.repeat(np.arange(n), m)
    own = f[moves[rows, player], loads[rows, moves[rows, player]] - 1] + c[player, moves[rows, player]]
    before = f[at[player], (at[:, None] == at).sum(1)[player] - 1] + c[player, at[player]]
    change = routing.potential(game, moves) - routing.potential(game, at)
    np.testing.assert_allclose(change, own - before, atol=1e-9)


def test_costs_are_the_definition():
    rng = np.random.default_rng(0)
    for _ in range(50):
        f, c = random_game(rng, "arbitrary", 5)
        profiles, cost, nash = every_profile(f, c)
        game = as_game(f, c)
        np.testing.assert_allclose(routing.social_cost_s(game, profiles), cost, atol=1e-9)
        np.testing.assert_array_equal(routing.gain_s(game, profiles) <= 1e-9, nash)


def test_paper_form_is_omega_less_per_request_and_may_vanish():
    """f = n, each at home, omega = 1: the paper's social cost is 0, and negative beyond."""
    at = [0, 1]
    for omega in (0.5, 1.0, 2.0):
        game = RoutingGame(affine([1.0, 1.0], 0.0), np.eye(2), omega)
        assert routing.paper_cost_s(game, at) == pytest.approx(2 - 2 * omega)
        assert routing.social_cost_s(game, at) == pytest.approx(2.0)


@settings(max_examples=25)
@given(seed=seeds)
def test_best_response_ends_at_an_equilibrium_and_lowers_the_potential(seed):
    rng = np.random.default_rng(seed)
    f, c = random_game(rng, "arbitrary")
    game, start = as_game(f, c), rng.integers(0, c.shape[1], len(c))
    s = routing.best_response(game, start)
    assert int(s.flags) == 0 and s.certificate["gain_s"] <= 1e-9
    assert s.value.potential_s <= routing.potential(game, start) + 1e-9
    assert (s.steps == 0) == (routing.gain_s(game, start) <= 1e-9)


def test_more_than_n_best_responses_may_be_needed():
    """The paper quotes "at most n iterations"; with cache terms two requests may need three."""
    f, o = np.array([[0.0, 6], [2, 6], [2, 4]]), np.array([[0.0, 4, 5], [6, 3, 2]])
    game = RoutingGame(f, o / 6.0, 6.0)
    assert max(int(routing.best_response(game, s).steps) for s in itertools.product(range(3), repeat=2)) >= 3


def test_greedy_arrival_need_not_be_an_equilibrium():
    """m = 2, N = 2, f = n, omega = 2: greedy puts both on worker 0, where request 0 pays 3/2 and would pay 1 on 1.

    (In the miss form both are omega more.) The paper says that sequential greedy assignment is a Nash equilibrium.
    """
    game = RoutingGame(affine([1.0, 1.0], 0.0), [[0.25, 0.0], [1.0, 0.0]], 2.0)
    greedy = routing.greedy_arrival(game)
    assert greedy.assignment.tolist() == [0, 0]
    assert float(routing.gain_s(game, greedy.assignment)) == pytest.approx(0.5)
    for most, gain, flag in ((0, 0.5, Flag.NOT_CONVERGED), (1, 0.0, 0)):  # which one move takes
        cut = routing.best_response(game, greedy.assignment, max_steps=most)
        assert (int(cut.steps), int(cut.flags)) == (most, flag)
        assert max(float(cut.certificate["gain_s"]), 0.0) == pytest.approx(gain)
        assert cut.value.assignment.tolist() == [[0, 0], [1, 0]][most]


@pytest.mark.parametrize("kind", ["nondecreasing", "arbitrary", "ties"])
def test_optimum_is_the_cheapest_profile(kind):
    rng = np.random.default_rng(1)
    for _ in range(60):
        f, c = random_game(rng, kind, 5)
        cost = every_profile(f, c)[1]
        s = routing.optimum(as_game(f, c))
        assert s.certificate["bound_s"] <= cost.min() + 1e-9 <= s.value.cost_s + 2e-9
        if int(s.flags) == 0:
            np.testing.assert_allclose(s.value.cost_s, cost.min(), atol=1e-9)
        if kind == "nondecreasing" and (np.diff(marginals(f.astype(float))) >= 0).all():
            assert int(s.flags) == 0  # convex: always exact


def test_optimum_agrees_with_a_mixed_integer_programme():
    """The singular curve of the paper with 40 requests in 4 groups, against HiGHS."""
    from scipy.optimize import LinearConstraint, milp

    rng = np.random.default_rng(2)
    curve = LatencyCurve(0.005, 0.02, 0.01, [14.0, 16.0, 20.0], 2.0)
    counts, o, omega = np.array([13, 9, 11, 7]), rng.uniform(size=(4, 3)), 0.05
    s = routing.optimum(RoutingGame(curve, o, omega, counts))
    f = latency_table(curve, 40)
    cost, low = [], []
    for g, j in itertools.product(range(4), range(3)):  # flows x[g, j], then slots y[j, k] with marginal costs
        cost.append(omega * (1 - o[g, j]))
    slots = [(j, k) for j in range(3) for k in range(40) if np.isfinite(f[j, k])]
    step = marginals(f)
    cost += [step[j, k] for j, k in slots]
    rows = []
    for g in range(4):
        rows.append([1.0 if i // 3 == g else 0.0 for i in range(12)] + [0.0] * len(slots))
        low.append(counts[g])
    for j in range(3):
        rows.append([1.0 if i % 3 == j else 0.0 for i in range(12)] + [-1.0 if s_[0] == j else 0.0 for s_ in slots])
        low.append(0)
    upper = np.array([40.0] * 12 + [1.0] * len(slots))
    lp = milp(cost, constraints=LinearConstraint(rows, low, low), bounds=(0, upper), integrality=np.ones(len(cost)))
    assert int(s.flags) == 0
    np.testing.assert_allclose(s.value.cost_s, lp.fun, rtol=1e-9)
    np.testing.assert_allclose(s.certificate["gap_s"], 0.0, atol=1e-9)


@settings(max_examples=30)
@given(seed=seeds)
def test_marginal_cost_routing_has_the_social_cost_as_potential(seed):
    rng = np.random.default_rng(seed)
    m, n = 3, 5
    f, c = np.sort(rng.integers(0, 9, (m, n)), axis=1), rng.integers(0, 7, (n, m))
    game = as_game(f, c)
    tolled = marginal_cost_game(game)
    profiles = every_profile(f, c)[0]
    cost = routing.social_cost_s(game, profiles)
    np.testing.assert_allclose(routing.potential(tolled, profiles), cost, atol=1e-9)
    assert routing.gain_s(tolled, profiles[cost.argmin()]) <= 1e-9  # so an optimum is an equilibrium


def test_hull_of_a_step_is_its_average():
    assert hull(np.array([0.0, 0.0, 6.0, 6.0, 9.0, np.inf])).tolist() == [0.0, 0.0, 3.0, 6.0, 9.0, np.inf]
    assert hull(np.array([0.0, 1e14, 9e14, 0.01])).tolist()[-1] == 0.01


def test_curves_know_their_pole():
    """At 70 requests the bare formula gives 0.37 s on a 64-slot worker; the pole is infinite."""
    f = latency_table(LatencyCurve(0.005, 0.02, 0.01, 64.0, 2.0), 70)
    assert np.isinf(f[63:]).all() and np.isfinite(f[:63]).all()
    assert f[62] == pytest.approx(0.005 * 63 + 0.02 + 0.01)
    assert np.isinf(latency_table(TableCurve([[1.0, 2.0]]), 3)[0, 2])
    assert latency_table(iteration_time(StepLaw(8e-3, 0.65e-3), 100.0), 16)[15] == pytest.approx(1.84)


@pytest.mark.parametrize("wrong", [-1.0, np.nan])
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_one_wrong_latency_among_right_ones_is_refused(place, wrong):
    table = np.array([[1.0, 2.0], [1.0, np.inf]])
    game = lambda: RoutingGame(table, np.zeros((2, 2)), 0.0)
    assert routing.social_cost_s(game(), np.array([0, 1])) == 2.0
    table[place] = wrong
    with pytest.raises(InputError):
        game().arrays()


@pytest.mark.parametrize("place", range(2))
def test_nobody_is_served_beyond_a_pole(place):
    """What is infinite with two requests is so with three, on each worker."""
    table = np.array([[1.0, np.inf, np.inf], [1.0, 2.0, np.inf]])
    assert routing.social_cost_s(RoutingGame(table, np.zeros((3, 2)), 0.0), np.array([0, 1, 1])) == 5.0
    table[place, 2], table[place, 1] = 9.0, np.inf
    with pytest.raises(InputError, match="curve gives a finite latency after an infinite one; accepted is inf from a"):
        RoutingGame(table, np.zeros((3, 2)), 0.0).arrays()


def test_a_worker_that_takes_nobody_costs_nothing_until_it_is_asked():
    """Two requests with the one beside it: 1 + 2 one after the other, 2 each in the end."""
    game = RoutingGame([[1.0, 2.0], [np.inf, np.inf]], np.zeros((2, 2)), 0.0)
    spared, asked = np.array([0, 0]), np.array([0, 1])
    assert routing.social_cost_s(game, spared) == 4.0 and routing.potential(game, spared) == 3.0
    assert routing.social_cost_s(game, asked) == routing.potential(game, asked) == np.inf


def test_requests_beyond_the_room_are_flagged():
    game = RoutingGame(LatencyCurve(0.0, 1.0, 1.0, [3.0, 2.0]), np.ones((4, 2)), 0.0)
    s = routing.optimum(game)
    assert int(s.flags) & Flag.OVERLOAD and np.isinf(s.value.cost_s)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RoutingGame(affine([1.0], 0.0), np.ones((2, 2, 1)) * np.nan), "overlap"),
        (lambda: RoutingGame(affine([1.0], 0.0), np.ones((2, 1)), -1.0), "omega"),
        (lambda: RoutingGame(affine([1.0], 0.0), np.ones((2, 1)), 1.0, [1.5, 1]), "counts"),
        (lambda: RoutingGame(affine([1.0], 0.0), np.ones((2, 1)), 1.0, [1, 1, 1]), "counts"),
        (lambda: RoutingGame(affine([1.0, 1, 1], 0.0), np.ones((2, 2))).arrays(), "curve"),
        (lambda: RoutingGame(affine([-5.0, 1], 0.0), np.ones((2, 2))).arrays(), "curve"),
        (lambda: routing.potential(RoutingGame(affine([1.0, 1], 0.0), np.ones((2, 2))), [0, 2]), "assignment"),
        (lambda: routing.potential(RoutingGame(affine([1.0, 1], 0.0), np.ones((2, 2))), [0]), "assignment"),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_flows_are_read_as_flows_or_refused():
    """Three requests on two workers; two on two, where one matrix is a flow and two profiles."""
    curves = [[1.0, 2.0, 3.0], [1.5, 2.0, 2.5]]
    three = RoutingGame(curves, np.zeros((3, 2)))
    worst = routing.nash_range(three).value.worst_flow
    assert float(routing.gain_s(three, worst)) == float(routing.gain_s(three, routing.worker_of_each(worst))) <= 0
    two = RoutingGame(curves, np.zeros((2, 2)))
    with pytest.raises(InputError, match="worker_of_each"):
        routing.gain_s(two, [[1, 0], [0, 1]])
    assert routing.gain_s(two, [[0, 0], [0, 1]]).shape == (2,)
    sized = RoutingGame(curves, np.zeros((2, 2)), 0.0, [1, 2])  # one request alone on the first, two on the second
    assert (
        float(routing.social_cost_s(sized, [[1, 0], [0, 2]])) == 5.0 == float(routing.social_cost_s(sized, [0, 1, 1]))
    )
    both = RoutingGame(curves, np.zeros((2, 2, 2)))  # two games: a profile of each
    np.testing.assert_allclose(routing.social_cost_s(both, [[1, 0], [0, 1]]), 2.5)
