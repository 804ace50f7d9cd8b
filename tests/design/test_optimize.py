"""Continuous optima against SciPy and known answers; their derivatives against solving again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.design.optimize import derivative, minimize
from dmodels.models.queueing import erlang_c


def hills(x, p):
    """Rastrigin's function: a hundred local minima, the least at p["at"]."""
    y = x - p["at"]
    return jnp.sum(y**2 - 3.0 * jnp.cos(2 * jnp.pi * y))


def test_many_starts_find_the_lowest_of_many_minima():
    found = minimize(hills, [-3.0, -3.0], [3.0, 4.0], {"at": np.array([0.3, -0.7])}, starts=96)
    np.testing.assert_allclose(found.value["x"], [0.3, -0.7], atol=1e-6)
    assert found.flags == 0 and found.value["objective"] == pytest.approx(-6.0)
    assert np.ptp(found.value["spread"]) > 0.5  # the starts do reach different minima


def sakasegawa(servers, load):
    """Chance of waiting, nearly (Opsearch 17, 1982): exact for one server."""
    return (load / servers) ** (jnp.sqrt(2.0 * (servers + 1.0)) - 1.0)


def cost_by(chance):
    def split_cost(x, p):
        """Mean waits of two pools that share a rate: x = (share to the first, servers of the first)."""
        share, servers = x[0], x[1]
        rates = p["rate_rps"] * jnp.stack([share, 1.0 - share])
        counts = jnp.stack([servers, p["servers_count"] - servers])
        loads = rates / p["served_rps"]
        waits = chance(counts, loads) / jnp.maximum(counts - loads, 1e-3) / p["served_rps"]
        return jnp.sum(rates / p["rate_rps"] * (waits + 1.0 / p["served_rps"])) + p["toll_s"] * share**2

    return split_cost


def roomy(x, p):
    """Both pools at most 90 % loaded, and no more than 60 % to the first."""
    share = x[0]
    rates = p["rate_rps"] * jnp.stack([share, 1.0 - share])
    counts = jnp.stack([x[1], p["servers_count"] - x[1]])
    return jnp.concatenate([rates / p["served_rps"] / counts - 0.9, jnp.stack([share - p["most_frac"]])])


SPLIT = {"rate_rps": 30.0, "servers_count": 20.0, "served_rps": np.array([2.5, 1.5]), "toll_s": 0.02, "most_frac": 0.6}
BOX = ([0.05, 2.0], [0.95, 18.0])


#: Erlang's own formula takes ten times as long to compile.
@pytest.fixture(scope="module", params=[sakasegawa, pytest.param(erlang_c, marks=pytest.mark.slow)])
def solved(request):
    split_cost = cost_by(request.param)
    return split_cost, minimize(split_cost, *BOX, SPLIT, roomy, starts=8)


def test_a_routing_split_agrees_with_scipy(solved):
    split_cost, split = solved
    assert split.flags == 0 and split.certificate["violation"] < 1e-5
    cost = jax.jit(jax.value_and_grad(lambda x: split_cost(x, SPLIT)))
    room, slope = (jax.jit(f) for f in (lambda x: -roomy(x, SPLIT), jax.jacobian(lambda x: -roomy(x, SPLIT))))
    host = lambda f: lambda x: np.asarray(f(x))
    told = [
        scipy_minimize(
            lambda x: [np.asarray(v) for v in cost(x)],
            start,
            jac=True,
            method="SLSQP",
            bounds=list(zip(*BOX, strict=True)),
            constraints={"type": "ineq", "fun": host(room), "jac": host(slope)},
        )
        for start in ([0.5, 9.0], [0.6, 8.0])
    ]
    best = min(told, key=lambda found: found.fun if found.success else np.inf)
    assert split.value["objective"] == pytest.approx(best.fun, rel=1e-4)
    np.testing.assert_allclose(split.value["x"], best.x, rtol=2e-2)


def test_derivatives_of_the_answer_are_those_of_solving_again(solved):
    split_cost, split = solved
    dx, dv = derivative(split_cost, split, *BOX, SPLIT, roomy)
    for name, step in (("rate_rps", 0.02), ("toll_s", 1e-3), ("most_frac", 1e-3)):
        up, down = (
            minimize(split_cost, *BOX, SPLIT | {name: SPLIT[name] + sign * step}, roomy, starts=8) for sign in (1, -1)
        )
        slope = (up.value["objective"] - down.value["objective"]) / (2 * step)
        assert float(dv[name]) == pytest.approx(slope, rel=1e-3, abs=1e-4)
        np.testing.assert_allclose(dx[name], (up.value["x"] - down.value["x"]) / (2 * step), rtol=2e-2, atol=1e-2)


def test_the_shadow_price_of_a_linear_programme_is_its_dual():
    """min -3x - 5y, x <= 4, 2y <= 12, 3x + 2y <= 18: x = 2, y = 6, duals 0, 3/2, 1 (a textbook's example)."""
    objective = lambda x, p: -3.0 * x[0] - 5.0 * x[1]
    limits = lambda x, p: jnp.stack([x[0] - 4.0, 2.0 * x[1] - 12.0, 3.0 * x[0] + 2.0 * x[1] - 18.0])
    found = minimize(objective, [0.0, 0.0], [10.0, 10.0], constraints=limits, starts=4)
    np.testing.assert_allclose(found.value["x"], [2.0, 6.0], atol=1e-4)
    np.testing.assert_allclose(found.value["multipliers"], [0.0, 1.5, 1.0], atol=1e-3)


def test_a_bound_may_hold_the_answer_and_no_answer_is_said():
    bowl = lambda x, p: (x[0] - p) ** 2
    for middle in (-2.0, 0.4, 4.6, 7.0):  # the first step goes to a bound, from which the next comes back
        found, nearest = minimize(bowl, [0.0], [5.0], middle, starts=2), np.clip(middle, 0.0, 5.0)
        assert found.flags == 0 and found.value["x"][0] == pytest.approx(nearest, abs=1e-9)
        np.testing.assert_allclose(found.value["spread"], (nearest - middle) ** 2, atol=1e-9)  # from every start
    none = minimize(lambda x, p: x[0], [0.0], [1.0], constraints=lambda x, p: jnp.stack([2.0 - x[0]]), starts=2)
    assert none.flags & Flag.INFEASIBLE
    for low, high, says in (
        ([1.0], [1.0], r"^low \[1\.\] and high \[1\.\]: accepted are bounds with low < high$"),
        ([2.0], [1.0], r"^low \[2\.\] and high \[1\.\]: accepted are bounds with low < high$"),
        ([2.0], [np.inf], r"^low \[2\.\] and high \[inf\]: accepted are finite bounds of one shape \(n,\)$"),
        ([2.0], [3.0, 4.0], r"^low \[2\.\] and high \[3\. 4\.\]: accepted are finite bounds of one shape \(n,\)$"),
    ):
        with pytest.raises(InputError, match=says):
            minimize(hills, low, high)


def test_at_a_bound_the_best_stays_and_its_value_moves():
    """The least of (x - p)^2 up to 1 for p = 2 or -2 is at an end: dx/dp = 0, and dv/dp = 2 (p - x)."""
    square = lambda x, p: jnp.sum((x - p) ** 2)
    for p, end in ((2.0, 1.0), (-2.0, -1.0)):
        found = minimize(square, [-1.0], [1.0], p)
        dx, dv = derivative(square, found, [-1.0], [1.0], p)
        assert float(found.value["x"][0]) == pytest.approx(end) and len(found.value["spread"]) == 16  # starts
        assert float(np.squeeze(dx)) == 0.0 and float(dv) == pytest.approx(2 * (p - end))


@pytest.mark.parametrize("unit", [1e-10, 1e10])
def test_a_best_point_moves_alike_in_whatever_unit_it_is(unit):
    bowl = lambda x, p: (x[0] / unit - p) ** 2
    found = minimize(bowl, [0.0], [2.0 * unit], 0.5, starts=2)
    dx, dv = derivative(bowl, found, [0.0], [2.0 * unit], 0.5)
    assert float(np.squeeze(dx)) == pytest.approx(unit, rel=1e-6) and float(dv) == pytest.approx(0.0, abs=1e-6)


def test_a_best_point_among_equals_has_no_derivative_though_its_value_has():
    """A straight valley, all along which x + y = p."""
    valley = lambda x, p: (x[0] + x[1] - p["sum"]) ** 2 + p["height"]
    bounds, given = ([0.0, 0.0], [1.0, 1.0]), {"sum": 1.0, "height": np.array(3.0)}
    dx, dv = derivative(valley, minimize(valley, *bounds, given, starts=2), *bounds, given)
    assert all(dx[name].shape == (2,) and np.isnan(dx[name]).all() for name in given)
    assert float(dv["sum"]) == pytest.approx(0.0, abs=1e-6) and float(dv["height"]) == 1.0


def test_a_constraint_is_kept_or_the_answer_says_so_and_every_round_counts():
    """Above 1.01 in a box up to 1: missed by a hundredth, which is not kept; with room, by 20 rounds of multipliers.

    Kept is what is missed by no more than a thousand tolerances, of 1e-7 unless told otherwise.
    """
    height, above = lambda x, p: x[0], lambda x, p: jnp.stack([p - x[0]])
    least = lambda p, **asked: minimize(height, [0.0], [1.0], p, above, starts=2, **asked)
    missed = least(1.01)
    assert missed.flags & Flag.INFEASIBLE and missed.certificate["violation"] == pytest.approx(0.01)
    for by, asked in ((1e-4, {}), (2e-3, {"tolerance": 2e-6})):
        for share, flag in ((0.9995, 0), (1.0005, Flag.INFEASIBLE)):
            assert least(1.0 + share * by, **asked).flags & Flag.INFEASIBLE == flag
    kept = least(0.4)
    assert kept.flags == 0 and float(kept.value["x"][0]) == pytest.approx(0.4, abs=1e-5) and int(kept.steps) >= 20


def test_a_start_where_there_is_nothing_to_gain_still_comes_to_keep_the_constraint():
    """The one start, the middle, is the least of (x - 1/2)^2, where it is 0 and flat; x is to be 3/4 at least."""
    bowl, least = lambda x, p: (x[0] - 0.5) ** 2, lambda x, p: jnp.stack([0.75 - x[0]])
    found = minimize(bowl, [0.0], [1.0], constraints=least, starts=1)
    assert found.flags == 0 and float(found.value["x"][0]) == pytest.approx(0.75)
    assert float(found.value["multipliers"][0]) == pytest.approx(0.5, rel=1e-4)  # the slope there


def test_where_the_objective_is_no_number_another_start_is_the_answer_and_with_none_that_is_said():
    """(x - 0.8)^2 where x is at least p, and no number below."""
    bowl = lambda x, p: (x[0] - 0.8) ** 2 + 0.0 * jnp.sqrt(x[0] - p)
    found = minimize(bowl, [0.0], [1.0], 0.6, starts=8)
    spread = found.value["spread"]
    assert found.flags == 0 and float(found.value["x"][0]) == pytest.approx(0.8)
    assert np.isnan(spread).any() and np.nanmax(spread) < 1e-9
    never = minimize(bowl, [0.0], [1.0], 2.0, starts=8)
    assert never.flags & Flag.NONFINITE and np.isnan(never.value["objective"])


def test_a_limit_holds_the_best_point_whatever_the_unit_of_the_objective():
    """The least of (x - 1)^2 up to a limit of 1/2 is at the limit, and goes where it goes."""
    bowl = lambda x, p: p["unit"] * (x[0] - 1.0) ** 2
    limit = lambda x, p: jnp.stack([x[0] - p["limit"]])
    for unit in (1.0, 1e-11):
        given = {"unit": unit, "limit": 0.5}
        found = minimize(bowl, [0.0], [2.0], given, limit, starts=2)
        dx, dv = derivative(bowl, found, [0.0], [2.0], given, limit)
        assert float(np.squeeze(dx["limit"])) == pytest.approx(1.0)
        assert float(dv["limit"]) == pytest.approx(-unit, rel=1e-4)
        assert float(np.squeeze(dx["unit"])) == pytest.approx(0.0, abs=1e-3)
        assert float(dv["unit"]) == pytest.approx(0.25, rel=1e-4)
