"""The augmented Lagrangian and its projected BFGS once more, start by start in NumPy, with slopes by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.design.optimize import _chosen, minimize
from tests.design.test_optimize import hills
from tests.design.test_strangers import quadratic, under


def armijo(f, u, value, slope, step):
    """The largest of 1, 1/2, 1/4, ... by which the value falls by a ten-thousandth of what its slope promises."""
    for halvings in range(31):
        new = np.clip(u + 0.5**halvings * step, 0, 1)
        if halvings == 30 or f(new)[0] <= value + 1e-4 * slope @ (new - u):
            return new


def descend(f, u):
    """f(u) -> (value, slope), over [0, 1]^n: (minimum, steps)."""
    inverse, (value, slope), steps = np.eye(len(u)), f(u), 0
    for _ in range(60):
        free = ~(((u <= 0) & (slope > 0)) | ((u >= 1) & (slope < 0)))
        step = np.zeros(len(u))
        step[free] = -(inverse[np.ix_(free, free)] @ slope[free])
        if not step @ slope < 0:
            step = np.where(free, -slope, 0.0)
        if abs(step).max() > 0.5:
            step *= 0.5 / abs(step).max()
        new = armijo(f, u, value, slope, step)
        new_value, new_slope = f(new)
        if not new_value <= value:
            new, new_value, new_slope = u, value, slope
        s, y = new - u, new_slope - slope
        if s @ y > 1e-14:
            left = np.eye(len(u)) - np.outer(s, y) / (s @ y)
            inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
        else:
            inverse = np.eye(len(u))
        u, value, slope, steps = new, new_value, new_slope, steps + 1
        if abs(s).max() < 1e-13 or abs(u - np.clip(u - slope, 0, 1)).max() < 1e-10:
            break
    return u, steps


def solve(f, g, start, low, high):
    """f(x) -> (value, slope), g(x) -> (values, slopes) or None: what one start comes to."""
    width = high - low
    slope = width * f(low + width * start)[1]
    scale = max(abs(slope).max(), 1e-3 * abs(f(low + width * start)[0]))
    price, penalty, last, steps = 0.0, 10.0, math.inf, 0

    def lagrangian(u):
        (value, slope), (excess, slopes) = f(low + width * u), g(low + width * u)
        over = np.maximum(excess + price / penalty, 0.0)
        value = value / scale + penalty / 2 * (over**2 - (price / penalty) ** 2).sum()
        return value, width * (slope / scale + penalty * over @ slopes)

    u = start
    constrained = len(g(low + width * u)[0]) > 0
    price = np.zeros(len(g(low + width * u)[0]))
    for _ in range(20 if constrained else 1):
        u, used = descend(lagrangian, u)
        excess, steps = g(low + width * u)[0], steps + used
        worst = max([0.0, *excess])
        price = np.maximum(price + penalty * excess, 0.0)
        penalty = min(4 * penalty, 1e8) if worst > 0.25 * last else penalty
        last = worst
    x = low + width * u
    (value, slope), (excess, slopes) = f(x), g(x)
    gradient = width * (slope / scale + price @ slopes)
    return {
        "x": x,
        "objective": value,
        "multipliers": price * scale,
        "stationarity": abs(u - np.clip(u - gradient, 0, 1)).max(),
        "violation": max([0.0, *excess]),
        "complementarity": max([0.0, *abs(price * excess)]),
        "steps": steps,
    }


def check(told, ends):
    np.testing.assert_allclose(told.value["spread"], [end["objective"] for end in ends], rtol=1e-7, atol=1e-9)
    fits = [end for end in ends if end["violation"] <= 1e-4]
    best = min(fits, key=lambda end: end["objective"])
    assert told.value["objective"] == pytest.approx(best["objective"], rel=1e-9)
    np.testing.assert_allclose(told.value["x"], best["x"], atol=1e-6)
    np.testing.assert_allclose(
        told.value["multipliers"], best["multipliers"], atol=1e-3 * (1 + max([0.0, *best["multipliers"]]))
    )
    for name in ("stationarity", "violation", "complementarity"):
        assert told.certificate[name] == pytest.approx(best[name], abs=2e-5)


def with_slopes(matrix, linear, rows, limits):
    f = lambda x: (x @ matrix @ x / 2 + linear @ x, matrix @ x + linear)
    return f, lambda x: (rows @ x - limits, rows)


def test_quadratic_programmes_step_by_step():
    """With rows and bounds that hold the answer; from the middle of the box and from two points drawn from it."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(3, 3))
        asked = {"matrix": root @ root.T + 0.3 * np.eye(3), "linear": 3 * rng.normal(size=3)}
        asked |= {"rows": rng.normal(size=(2, 3)), "limits": rng.uniform(0.1, 1.0, 2)}
        low, high = -rng.uniform(0.2, 2.0, 3), rng.uniform(0.2, 2.0, 3)
        told = minimize(quadratic, low, high, asked, under, starts=3, key=seed)
        starts = np.random.default_rng(seed).random((3, 3))
        starts[0] = 0.5
        check(told, [solve(*with_slopes(**asked), start, low, high) for start in starts])


def test_hills_start_by_start():
    """A hundred local minima: every start ends where it ends by hand."""
    at = np.array([0.3, -0.7])
    low, high = np.array([-3.0, -3.0]), np.array([3.0, 4.0])
    told = minimize(hills, low, high, {"at": at}, starts=96)
    f = lambda x: (
        ((x - at) ** 2 - 3 * np.cos(2 * np.pi * (x - at))).sum(),
        2 * (x - at) + 6 * np.pi * np.sin(2 * np.pi * (x - at)),
    )
    starts = np.random.default_rng(0).random((96, 2))
    starts[0] = 0.5
    ends = [solve(f, lambda x: (np.zeros(0), np.zeros((0, 2))), start, low, high) for start in starts]
    check(told, ends)
    assert told.steps in {end["steps"] for end in ends if end["objective"] < -6 + 1e-9}


def test_of_what_the_starts_come_to_the_least_that_keeps_the_constraints_is_told():
    """A constraint may be missed by 1000 tolerances, and no number of the certificate be above 100 of their roots."""

    def told(**ends):
        known = {"unit": np.array([[0.25], [0.5], [0.75]]), "multipliers": np.array([[1.0], [2.0], [3.0]])}
        known |= {"objective": np.array([1.0, 2.0, 3.0]), "steps": np.array([4, 5, 6])}
        known |= {name: np.zeros(3) for name in ("stationarity", "violation", "complementarity")}
        found = _chosen(known | {name: np.array(ends[name]) for name in ends}, np.array([10.0]), np.array([20.0]), 1e-6)
        assert found.value["multipliers"].tolist() == [found.steps - 3.0] and len(found.value["spread"]) == 3
        return float(found.value["x"][0]), float(found.value["objective"]), int(found.flags)

    assert told() == (12.5, 1.0, 0) == told(objective=[1.0, 1.0, 3.0])
    assert told(violation=[1.001e-3, 1e-3, 0.0]) == (15.0, 2.0, 0)
    assert told(objective=[np.nan, 2.0, 1.5], violation=[0.0, 0.0, 1e-3]) == (17.5, 1.5, 0)
    for name in ("stationarity", "complementarity"):
        assert told(**{name: [0.1, 0.0, 0.0]}) == (12.5, 1.0, 0)
        assert told(**{name: [0.1001, 0.0, 0.0]}) == (12.5, 1.0, Flag.NOT_CONVERGED)
        assert told(**{name: [9.0] * 3, "violation": [3e-3, 2e-3, np.nan]}) == (15.0, 2.0, Flag.INFEASIBLE)
    x, objective, flags = told(objective=[np.nan] * 3, violation=[3e-3, 2e-3, 2.5e-3])
    assert x == 15.0 and np.isnan(objective) and flags == Flag.INFEASIBLE | Flag.NONFINITE
