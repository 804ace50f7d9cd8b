"""Variational equilibria: published games, strangers' answers, derivatives, and games without an answer."""

from __future__ import annotations

import sys
from pathlib import Path

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, linprog

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.solvers import variational_equilibria, variational_equilibrium
from dmodels.solvers.variational import explain
from dmodels.solvers.variational.certificate import least_eigenvalues

sys.path.insert(0, str(Path(__file__).parent))
import known_gnep as known

INF = np.inf


def test_harker():
    found = variational_equilibrium(known.HARKER, ([[1, 1]], [15]), (0, 10))
    np.testing.assert_allclose(found.value.x, [5, 9], atol=1e-10)
    assert found.certificate.kkt_residual < 1e-10 and found.flags == 0
    assert found.certificate["profitable_deviation"] == 0


def test_river_basin_and_rosens_weights():
    # Krawczyk and Uryasev, Environmental Modeling and Assessment 5 (2000); FK A.13
    found = variational_equilibrium(known.RIVER, known.RIVER_LIMITS, (0, INF), weights=[1, 1, 1])
    np.testing.assert_allclose(found.value.x, [21.145, 16.028, 2.726], atol=5e-4)
    assert found.value.multipliers[0] == pytest.approx(0.574, abs=1e-3) and found.value.multipliers[1] == 0
    assert found.certificate.kkt_residual < 1e-10 and found.flags == 0
    moved = variational_equilibrium(known.RIVER, known.RIVER_LIMITS, (0, INF), weights=[2, 1, 1])
    assert moved.value.x[0] > found.value.x[0] + 0.1  # a heavier cost pulls the selection its way
    np.testing.assert_allclose(np.array(known.RIVER_LIMITS[0][0]) @ moved.value.x, 100, atol=1e-9)


def test_oligopoly_with_a_common_limit():
    costs = [known.oligopoly(i) for i in range(5)]
    limit = lambda x, p: jnp.sum(x) - p["total"]
    for total, printed in known.OLIGOPOLY_PRINTED.items():  # new numbers, same functions: compiled once
        p = {"total": float(total)}
        found = variational_equilibrium(costs, limit, (0, INF), np.full(5, 10.0), params=p, samples=2)
        np.testing.assert_allclose(found.value.x, printed, atol=2e-4)
        assert found.certificate["kkt_residual"] < 1e-8 and found.flags == Flag.FIRST_ORDER_ONLY  # not quadratic


@pytest.mark.slow
def test_electricity_market_of_three_players_with_six_generators():
    costs = [known.electricity(i) for i in range(3)]
    found = variational_equilibrium(costs, None, (0, known.GENERATORS_UPPER), blocks=[1, 2, 3])
    np.testing.assert_allclose(found.value.x, known.GENERATORS_PRINTED, atol=3e-3)  # printed by a slow method
    owner = np.array([0, 1, 1, 2, 2, 2])  # inside the bounds: M x = 378.4 - d, own sales counted twice
    matrix = 2.0 + 2.0 * (owner[:, None] == owner) + np.diag([c for c, _ in known.GENERATORS])
    exact = np.linalg.solve(matrix, 378.4 - np.array([d for _, d in known.GENERATORS]))
    np.testing.assert_allclose(found.value.x, exact, atol=1e-8)
    assert found.flags == 0


AFFINE = {  # name: (M, q, A, b, lower, upper, equilibrium); two variables and one constraint, compiled once
    "FK A.11 (Facchinei et al. 2007)": ([[2, 0], [0, 2]], [-2, -1], [[1, 1]], [1], -INF, INF, [0.75, 0.25]),
    "FK A.12 duopoly": ([[2, 1], [1, 2]], [-16, -16], [[1, 1]], [100], -10, 10, [16 / 3, 16 / 3]),
    "Rosen 1965, degenerate multiplier": ([[1, -1], [1, 2]], [0, 0], [[-1, -1]], [-1], 0, INF, [1, 0]),
    "Cournot, slack capacity": ([[2, 1], [1, 2]], [-9, -9], [[1, 1]], [7], 0, INF, [3, 3]),
    "Cournot, shared capacity": ([[2, 1], [1, 2]], [-9, -12], [[1, 1]], [5], 0, INF, [1, 4]),
    "Cournot, one firm out": ([[2, 1], [1, 2]], [-3, -12], [[1, 1]], [9], 0, INF, [0, 6]),
    "Matching pennies on a square": ([[0, 1], [-1, 0]], [0, 0], [[1, 1]], [9], -1, 1, [0, 0]),
}


@pytest.mark.parametrize("name", AFFINE)
def test_two_player_games_in_closed_form(name):
    m, q, a, b, lower, upper, answer = AFFINE[name]
    found = variational_equilibrium((m, q), (a, b), (lower, upper), [0.3, 0.4])
    np.testing.assert_allclose(found.value.x, answer, atol=1e-8)
    assert found.certificate.kkt_residual < 1e-8
    assert bool(found.flags & Flag.NOT_UNIQUE) == (name.startswith("Matching"))


@pytest.mark.slow
def test_internet_switching():
    # FK A.14: ten players; x_i = (N - 1)/N^2 each
    costs = [lambda x, i=i: -x[i] / jnp.sum(x) * (1.0 - jnp.sum(x)) for i in range(10)]
    found = variational_equilibrium(costs, lambda x: jnp.sum(x) - 1.0, (0.01, INF), np.full(10, 0.03), samples=2)
    np.testing.assert_allclose(found.value.x, 0.09, atol=1e-10)


def test_two_variables_against_one():
    # FK A.17 (Nabetani, Tseng, Fukushima 2011): VE (0, 11, 8) with multipliers (3, 1); degenerate: x_0 = 0 unforced
    costs = [
        lambda x: x[0] ** 2 + x[0] * x[1] + x[1] ** 2 + (x[0] + x[1]) * x[2] - 25 * x[0] - 38 * x[1],
        lambda x: x[2] ** 2 + (x[0] + x[1]) * x[2] - 25 * x[2],
    ]
    found = variational_equilibrium(costs, ([[1, 2, -1], [3, 2, 1]], [14, 30]), (0, INF), blocks=[2, 1])
    np.testing.assert_allclose(found.value.x, [0, 11, 8], atol=1e-8)
    np.testing.assert_allclose(found.value.multipliers, [3, 1], atol=1e-8)


def test_private_constraints_that_involve_rivals():
    # FK A.3: a quasi-variational inequality; printed to four digits
    found = variational_equilibrium(known.a3_map(), None, (-10, 10), blocks=[3, 2, 2], private=known.A3_PRIVATE)
    np.testing.assert_allclose(found.value.x, known.A3_PRINTED, atol=1e-4)
    assert found.certificate.kkt_residual < 1e-8 and found.flags & Flag.NOT_UNIQUE


def test_two_generators_on_three_markets_against_cvxpy():
    # FK A.18 without the arbitrageur; the map is symmetric, so the equilibrium minimises a quadratic
    matrix, right, (a, b) = known.a18()
    found = variational_equilibrium((matrix, right), (a, b), (0, INF), blocks=[6, 6])
    y = cp.Variable(12)
    potential = 0.5 * cp.quad_form(y, cp.psd_wrap(matrix)) + right @ y
    cp.Problem(cp.Minimize(potential), [y >= 0, a @ y <= b]).solve(solver=cp.CLARABEL)
    sales = lambda x: np.asarray(x).reshape(2, 2, 3).sum(axis=1)
    np.testing.assert_allclose(sales(found.value.x), sales(y.value), atol=1e-5)
    assert found.certificate.kkt_residual < 1e-8


def random_games(count, n=6, m=3, seed=0):
    """Strongly monotone affine games, not symmetric, on a bounded polyhedron that holds 0."""
    rng = np.random.default_rng(seed)
    root, skew = rng.normal(size=(2, count, n, n))
    matrix = root @ root.transpose(0, 2, 1) / n + 0.1 * np.eye(n) + (skew - skew.transpose(0, 2, 1))
    return matrix, 2 * rng.normal(size=(count, n)), rng.normal(size=(count, m, n)), rng.uniform(0.1, 1, (count, m))


def test_random_monotone_games_solve_the_linear_programme_of_their_own_map():
    # x solves the variational inequality iff x minimises F(x)'y over the feasible y: HiGHS is the stranger
    for mi, qi, ai, bi in zip(*random_games(60), strict=True):
        found = variational_equilibrium((mi, qi), (ai, bi), (-1, 2))
        assert found.flags == 0 and found.certificate.kkt_residual < 1e-9
        x = found.value.x
        f = mi @ x + qi
        best = linprog(f, A_ub=ai, b_ub=bi, bounds=(-1, 2))
        assert f @ x <= best.fun + 1e-8 * (1 + abs(best.fun))


@pytest.mark.slow  # the batch is written out, which takes long to compile
def test_a_curved_constraint_and_a_batch():
    # x^2 + y^2 <= p (Dreves et al. 2011 use p = 1): stationarity checked by hand
    costs = [
        lambda x, p: x[0] ** 2 - x[0] * x[1] - p["c"] * x[0],
        lambda x, p: x[1] ** 2 - 0.5 * x[0] * x[1] - 2 * x[1] + 0 * p["c"],
    ]
    c = np.linspace(0.5, 2, 37)
    found = variational_equilibria(
        costs, lambda x, p: x @ x - 1.0, (0, INF), [0.5, 0.5], params={"c": c}, samples=4, batch_size=16
    )
    x, lam = found.value.x, found.value.multipliers[:, 0]
    np.testing.assert_allclose(2 * x[:, 0] - x[:, 1] - c + 2 * lam * x[:, 0], 0, atol=1e-9)
    np.testing.assert_allclose(2 * x[:, 1] - 0.5 * x[:, 0] - 2 + 2 * lam * x[:, 1], 0, atol=1e-9)
    np.testing.assert_allclose((x**2).sum(axis=1), 1, atol=1e-10)
    assert isinstance(x, np.ndarray) and x.shape == (37, 2) and not found.flags.any()


def test_derivatives_in_costs_constraints_and_bounds():
    def solution(v):
        costs = [lambda x: (x[0] - v[0]) ** 2 + v[1] * x[0] * x[1], lambda x: (x[1] - 0.5) ** 2 * v[2]]
        found = variational_equilibrium(costs, ([[1.0, 1.0]], v[3:4]), (-5, 5), equalities=None, samples=0)
        return jnp.concatenate([found.value.x, found.value.multipliers])

    at = jnp.array([1.0, 0.2, 1.5, 1.0])
    tangents = jnp.eye(4)

    @jax.jit
    def both(v, direction):
        value, push = jax.linearize(solution, v)  # once for both directions
        return value, push(direction), jax.linear_transpose(push, v)(jnp.ones(3))[0]

    rows = [both(at, t) for t in tangents]
    central = [(both(at + e, tangents[0])[0] - both(at - e, tangents[0])[0]) / 2e-5 for e in 1e-5 * tangents]
    np.testing.assert_allclose([row[1] for row in rows], central, atol=2e-9)
    np.testing.assert_allclose(rows[0][2], np.sum([row[1] for row in rows], axis=1), atol=1e-11)


def test_equalities_and_fixed_variables():
    found = variational_equilibrium(([[2, 0, 0], [0, 2, 0], [0, 0, 2]], [-2, -1, -9]), None,
                                    ([-INF, -INF, 1.0], [INF, INF, 1.0]), equalities=([[1, 1, 0]], [1]))  # fmt: skip
    np.testing.assert_allclose(found.value.x, [0.75, 0.25, 1.0], atol=1e-9)
    np.testing.assert_allclose(found.value.equality_multipliers, [0.5], atol=1e-8)


def test_an_empty_feasible_set_is_flagged_and_said():
    found = variational_equilibrium(([[2, 0], [0, 2]], [-2, -1]), ([[1, 1], [-1, -1]], [1, -2]))
    assert found.flags & Flag.INFEASIBLE
    assert found.certificate["least_violation"] == pytest.approx(np.sqrt(0.5), abs=1e-3)  # midway
    assert "cannot be met" in explain(found)[0]


def test_a_map_that_is_not_monotone_is_flagged_and_said():
    costs = [lambda x: -((x[0] - 0.2) ** 2), lambda x: (x[1] - 0.5) ** 2]
    found = variational_equilibrium(costs, None, (0, 1), [0.25, 0.9])
    assert found.certificate.least_eigenvalue == -2 and found.flags & Flag.NOT_UNIQUE
    said = " ".join(explain(found))
    assert "not monotone" in said
    if found.flags & Flag.OUT_OF_DOMAIN:  # it stopped at the wrong corner, and knows that a player would move
        assert found.certificate["profitable_deviation"] > 0.1 and "gains" in said


def test_a_needle_is_not_certified():
    # beside its own valley at 0.3 the first cost has a dip of width 1e-4 at 0.8128, where player 0 gains 0.7
    needle = lambda x: (x[0] - 0.3) ** 2 + 0.1 * x[0] * x[1] - jnp.exp(-(((x[0] - 0.8128) / 1e-4) ** 2))
    found = variational_equilibrium([needle, lambda x: (x[1] - 0.5) ** 2], None, (0, 1), [0.4, 0.4])
    assert found.certificate.kkt_residual < 1e-9 and not found.certificate.convex
    assert found.flags & (Flag.FIRST_ORDER_ONLY | Flag.OUT_OF_DOMAIN)
    assert any("First-order only" in said or "gains" in said for said in explain(found))


@pytest.mark.parametrize(
    "slope",
    [
        lambda x: jnp.where(x < 0.5, 3.0 * x, x + 1.0),  # each slope is constant, and the cost is not convex
        lambda x: 3.0 * x - 2.0 * jnp.maximum(x - 0.5, 0.0),
        lambda x: 2.0 * x - jnp.abs(x - 0.5),
    ],
)
def test_a_cost_with_a_kink_is_not_called_convex(slope):
    found = variational_equilibrium([lambda x: slope(x[0]) - 2.0 * x[0], lambda x: x[1] ** 2], None, (0, 1), [0.4, 0.4])
    assert not found.certificate.convex and found.flags


def test_functions_that_are_affine_are_solved_as_their_matrices():
    """Whatever way costs and constraints are written: the same answer, multipliers, gains and bound on the distance."""
    rng = np.random.default_rng(7)
    spread, skew, q = rng.normal(size=(4, 4)), rng.normal(size=(4, 4)), rng.normal(size=4)
    m, a = spread @ spread.T + np.eye(4) + skew - skew.T, rng.uniform(size=(2, 4))
    limits, bounds = np.array([0.3, 0.2]), (np.zeros(4), np.full(4, np.inf))
    mine = lambda i: lambda x: x[i] * (jnp.asarray(m[i]) @ x + q[i] - 0.5 * m[i, i] * x[i])
    map_of = lambda x: jnp.stack([jnp.sum(jnp.asarray(row) * x) for row in m]) + q
    row = lambda j: lambda x: jnp.dot(x.reshape(2, 2).ravel(), jnp.asarray(a[j])) - limits[j]
    plain = variational_equilibrium((m, q), (a, limits), bounds)
    assert not plain.flags and plain.value.multipliers.max() > 0
    for costs, rows in (([mine(i) for i in range(4)], (a, limits)), (map_of, [row(0), row(1)])):
        found = variational_equilibrium(costs, rows, bounds)
        assert not found.flags and found.certificate.convex
        np.testing.assert_allclose(found.value.x, plain.value.x, atol=1e-12)
        np.testing.assert_allclose(found.value.multipliers, plain.value.multipliers, atol=1e-10)
        assert (np.abs(found.value.x - plain.value.x) <= found.certificate.distance_bound + 1e-15).all()
        assert found.certificate.profitable_deviation <= 1e-9


QUADRATIC = ([[2, 0], [0, 2]], [0, 1])
MISTAKES = {  # argument that the message begins with: what is wrong
    "costs[1]": lambda: variational_equilibrium([lambda x: x[0] ** 2, lambda x: x**2], None, (0, 1)),
    "costs[0]: it asks for the value": lambda: variational_equilibrium([lambda x: np.sin(np.asarray(x)).sum()]),
    "costs[0]: accepted is a function": lambda: variational_equilibrium([lambda x: None], None, (0, 1)),
    "costs: it returns 1 numbers": lambda: variational_equilibrium(lambda x: x[:1], None, (0, [1, 1])),
    "costs: M": lambda: variational_equilibrium(([[1, 2], [3, 4]], [1])),
    "constraints: it asks": lambda: variational_equilibrium(QUADRATIC, lambda x: x[0] if x[0] > 0 else x[1]),
    "bounds: a bound is NaN": lambda: variational_equilibrium(QUADRATIC, None, (np.nan, 1)),
    "bounds: 3": lambda: variational_equilibrium(QUADRATIC, None, 3),
    "weights": lambda: variational_equilibrium(QUADRATIC, None, (0, 1), weights=[1, -1]),
    "x0": lambda: variational_equilibrium(QUADRATIC, None, (0, 1), [1, 2, 3]),
    "tolerance": lambda: variational_equilibrium(QUADRATIC, tolerance=0),
    "samples": lambda: variational_equilibrium(QUADRATIC, samples=-1),
    "params": lambda: variational_equilibria([lambda x, p: (x[0] - p) ** 2], None, (0, 1), params=1.0),
    "batch_size": lambda: variational_equilibria([lambda x, p: x[0]], params=np.zeros(2), batch_size=0),
}


@pytest.mark.parametrize("start", MISTAKES)
def test_mistakes_begin_with_their_argument(start):
    with pytest.raises(InputError) as error:
        MISTAKES[start]()
    assert str(error.value).startswith(start) and "\n" not in str(error.value)


def test_convexity_is_told_in_any_unit():
    """A player with two variables: curvatures 1e10 and -1 are no convex cost, 1e10 and 1e-8 are one."""
    bend = lambda k: variational_equilibrium(([[1e10, 0], [0, k]], [0, 0.1 * k]), None, (-1, 1), blocks=[2])
    assert bend(1e-8).certificate.convex and bend(1e-8).flags == 0
    assert not bend(-1.0).certificate.convex


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: variational_equilibrium([]),
        lambda: variational_equilibrium(known.HARKER, ([[1, 1, 1]], [15]), (0, 10)),
        lambda: variational_equilibrium(known.HARKER, None, (0, [1, 2, 3])),
        lambda: variational_equilibrium(known.HARKER, blocks=[1, 2], x0=[0, 0]),
        lambda: variational_equilibrium(known.HARKER, {"type": "ineq"}),
        lambda: variational_equilibrium(known.HARKER, weights=[1.0]),
        lambda: variational_equilibrium(lambda x: x),
    ],
)
def test_mistakes_are_one_line(wrong):
    with pytest.raises(InputError) as error:
        wrong()
    assert "\n" not in str(error.value)


def test_bounds_in_every_form():
    game = ([[2, 0], [0, 2]], [-30, -30])
    forms = [(0, 10), (0, [10, 10]), ([0, 0], [10, 10]), [(0, 10), (0, 10)], [(None, 10), (0, 10)], ((0, 10), (0, 10))]
    for bounds in forms:
        np.testing.assert_allclose(variational_equilibrium(game, None, bounds).value.x, [10, 10], err_msg=str(bounds))


def test_affine_games_in_a_batch_are_those_one_by_one():
    """Pivoted where that shows a unique equilibrium; games without one, or with several, are answered as before."""
    rng = np.random.default_rng(5)
    square, skew = rng.normal(size=(2, 6, 3, 3))
    m = square @ square.transpose(0, 2, 1) + 0.1 * np.eye(3) + skew - skew.transpose(0, 2, 1)
    m[3] -= 4.0 * np.eye(3)  # not monotone
    m[4] = 0.0  # every point of a face
    games = {
        "m": m,
        "q": 2.0 * rng.normal(size=(6, 3)),
        "b": np.array([1.0, 1.0, 1.0, 1.0, 1.0, -1.0]),
    }  # the last: empty
    pseudogradient, limit = lambda x, p: p["m"] @ x + p["q"], lambda x, p: jnp.sum(x) - p["b"]
    found = variational_equilibria(pseudogradient, limit, (0, 2), np.ones(3), params=games, samples=0)
    for k in range(6):
        game = (m[k], games["q"][k]), ([[1.0, 1.0, 1.0]], [games["b"][k]])
        alone = variational_equilibrium(*game, (0, 2), np.ones(3), samples=0)
        assert int(found.flags[k]) == int(alone.flags)
        np.testing.assert_allclose(found.certificate["least_eigenvalue"][k], alone.certificate["least_eigenvalue"])
        if not alone.flags:
            np.testing.assert_allclose(found.value.x[k], alone.value.x, atol=1e-9)
            np.testing.assert_allclose(found.value.multipliers[k], alone.value.multipliers, atol=1e-9)
    assert not found.flags[:3].any() and found.flags[5] & Flag.INFEASIBLE


def test_least_eigenvalues_of_batches_are_lapacks():
    """Simple and repeated ones, of either sign and zero, in units from 1e-150 to 1e150; NaN stays NaN."""
    rng = np.random.default_rng(6)
    loose = rng.normal(size=(20, 7, 7))
    known = [np.eye(7), np.zeros((7, 7)), np.ones((7, 7)), -np.ones((7, 7)), np.diag(np.arange(-3.0, 4.0))]
    stack = np.concatenate(
        [0.5 * (loose + loose.transpose(0, 2, 1)) * 10.0 ** np.arange(-150, 150, 15)[:, None, None], known]
    )
    with jax.enable_x64(True):
        least = np.asarray(jax.jit(lambda a: least_eigenvalues(list(a), True))(stack))
        broken = jax.jit(lambda a: least_eigenvalues([a], True))(np.full((3, 3), np.nan))
    error = np.abs(least - np.linalg.eigvalsh(stack)[:, 0])
    assert (error <= 1e-14 * np.abs(stack).max((1, 2))).all() and np.isnan(np.asarray(broken)).all()


def test_a_steep_game_is_solved_however_far_its_limits_are():
    """F_i = sinh(2 x_i) + x_i - q_i under a limit that is not reached: each variable is a root of its own."""
    q = np.array([1.0, 3.0, 8.0])
    found = variational_equilibrium(
        lambda x: jnp.sinh(2.0 * x) + x - q, ([[1.0, 1.0, 1.0]], [3e4]), (0, INF), samples=0
    )
    roots = [brentq(lambda x, c=c: np.sinh(2.0 * x) + x - c, 0.0, 3.0) for c in q]
    np.testing.assert_allclose(found.value.x, roots, atol=1e-9)
    assert int(found.flags) == int(Flag.FIRST_ORDER_ONLY) and int(found.steps) < 40


def test_a_steep_game_starts_where_its_forces_are_finite():
    """sinh(k_i x_i) + M x - q, k up to 8 and M strongly monotone: one solution, here by its residual. A tenth of the
    room that the limit leaves, where the interior point once began, is infinitely dear."""
    rng = np.random.default_rng(0)
    square, skew = (draw[159] for draw in rng.normal(size=(2, 512, 10, 10)))
    m = square @ square.T / 10 + 0.1 * np.eye(10) + 0.3 * (skew - skew.T)
    q = 3.0 * rng.normal(size=(512, 10))[159]
    k = np.exp(rng.uniform(np.log(0.5), np.log(8.0), (512, 10))[159])
    limit = rng.uniform(0, 1, (512, 2, 10))[159], [3e4, 3e4]
    found = variational_equilibrium(
        lambda x: jnp.sinh(k * x) + m @ x + q, limit, (np.zeros(10), np.full(10, INF)), samples=0
    )
    x = np.asarray(found.value.x)
    np.testing.assert_allclose(np.minimum(x, np.sinh(k * x) + m @ x + q), 0.0, atol=1e-8)
    assert int(found.flags) == int(Flag.FIRST_ORDER_ONLY)
