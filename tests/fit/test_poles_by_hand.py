"""The singular curve's fit, its pole's interval and its warnings, beside SciPy's least squares over every pole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dmodels.fit.curves import FAR, CurveFit, compare, curve, fit_closed_loop, fit_linear, fit_singular, pole_interval

LOADS = np.array([1.0, 2, 4, 8, 16, 32, 48, 56])
TRUE = (0.004, 0.1, 2.0, 64.0)


def told(values, x):
    a, b, d, pole = values
    return a * x + b + d / (pole - x)


def drawn(noise, seed, loads=LOADS, values=TRUE):
    return loads, told(values, loads) * np.exp(np.random.default_rng(seed).normal(0, noise, len(loads)))


def squares_at(x, y, rooms):
    """Least sums of squares of log y with the pole held at each distance from the largest load: damped Gauss-Newton in
    the logarithms of a, b and d, all distances and two starts at once."""
    rooms = np.tile(rooms, 2)
    share = np.repeat([0.3, 1e-3], len(rooms) // 2)
    basis = np.stack(np.broadcast_arrays(x, 1.0, 1.0 / (x.max() + rooms[:, None] - x)), -1)  # of a, b and d
    u = np.log(np.stack([share * y[0] / x.max(), (1 - share) * y[0], 0.5 * y[-1] * rooms], 1))
    left = lambda u: np.log(y) - np.log((basis @ np.exp(u)[..., None])[..., 0])
    r, damping = left(u), np.full(len(u), 1e-3)
    for _ in range(80):
        slope = basis * np.exp(u)[:, None]
        slope /= slope.sum(-1, keepdims=True)
        normal = np.einsum("kni,knj->kij", slope, slope) + (damping[:, None, None] + 1e-12) * np.eye(3)
        step = np.linalg.solve(normal, np.einsum("kni,kn->ki", slope, r)[..., None])[..., 0]
        trial = np.clip(u + np.clip(step, -2, 2), -40, 20)
        ahead = left(trial)
        lower = (ahead**2).sum(1) <= (r**2).sum(1)
        u, r = np.where(lower[:, None], trial, u), np.where(lower[:, None], ahead, r)
        damping = np.where(lower, damping / 4, np.maximum(damping, 1e-6) * 6)
    return (r**2).sum(1).reshape(2, -1).min(0)


def least(x, y):
    """Distances of the pole, over a grid and around the best of it, and their least squares."""
    rooms = np.geomspace(1e-3 * x.max(), FAR * x.max(), 60)
    rooms = np.concatenate([rooms, rooms[squares_at(x, y, rooms).argmin()] * np.geomspace(0.75, 1.3, 40)])
    return rooms, squares_at(x, y, rooms)


@pytest.mark.parametrize("noise, seed", [(0.01, 1), (0.15, 6)])
def test_the_pole_and_its_interval_by_every_pole(noise, seed):
    x, y = drawn(noise, seed)
    found, (rooms, squares) = fit_singular(x, y, beta=1.0), least(x, y)
    total = float(found.residuals @ found.residuals)
    assert total == pytest.approx(squares.min(), rel=2e-3)
    values = [found.values[name] for name in ("a_s", "b_s", "d_s", "n_sat")]
    np.testing.assert_allclose(found.residuals, np.log(y) - np.log(told(values, x)), atol=1e-6)
    assert found.values["n_sat"] == pytest.approx(x.max() + rooms[squares.argmin()], rel=0.02)
    limit = squares.min() * (1 + stats.f.ppf(0.95, 1, 4) / 4)  # of 8 points and 4 numbers
    inside = np.sort(rooms[squares <= limit])
    low, high = pole_interval(found, x, y, 1.0)
    step = (FAR / 1e-3) ** (1 / 39)  # of the forty poles looked at
    pole = found.values["n_sat"]
    assert low <= min(x.max() + inside[0] * step * 1.01, pole)
    assert low == pole or low - x.max() >= 0.99 * inside[0]
    if inside[-1] * step >= FAR * x.max():
        assert high == math.inf and any("not identified" in said and f"{low:.4g}" in said for said in found.warnings)
    else:
        assert inside[-1] / step * 0.99 <= high - x.max() <= max(inside[-1] * 1.01, pole - x.max())
    narrow = pole_interval(found, x, y, 1.0, level=0.5)
    assert low <= narrow[0] <= found.values["n_sat"] <= narrow[1] <= high
    rows, without = least(x[:-1], y[:-1])
    moved = (x[-2] + rows[without.argmin()]) / found.values["n_sat"]
    assert any("moves" in said for said in found.warnings) == (not 0.8 < moved < 1.25)
    assert (found.sigma, found.law) == (pytest.approx(math.sqrt(total / 4)), "singular")


def test_the_covariance_is_that_of_the_poles_logarithm():
    """By differences of the curve at what was fitted, in the logarithms of its four numbers."""
    x, y = drawn(0.01, 1)
    found = fit_singular(x, y, beta=1.0)
    names = ("a_s", "b_s", "d_s", "n_sat")
    u = np.log([found.values[name] for name in names])
    at = lambda u: np.log(told(np.exp(u), x))
    slopes = np.stack([(at(u + h) - at(u - h)) / 2e-6 for h in 1e-6 * np.eye(4)], 1)
    covariance = np.linalg.inv(slopes.T @ slopes) * (found.residuals @ found.residuals) / 4
    order = [list(found.values).index(name) for name in names]
    np.testing.assert_allclose(found.log_covariance[np.ix_(order, order)], covariance, rtol=2e-3)
    low, high = found.interval("n_sat")
    half = stats.t.ppf(0.975, 4) * math.sqrt(covariance[3, 3])
    assert (math.log(high / low) / 2, low * high) == (
        pytest.approx(half, rel=2e-3),
        pytest.approx(found.values["n_sat"] ** 2),
    )


def test_a_power_of_ones_own_comes_back_with_its_pole():
    loads = np.array([1.0, 2, 4, 8, 16, 24, 32, 40, 48, 52, 56, 60])
    y = 0.002 * loads + 0.05 + 9.0 / (64.0 - loads) ** 2
    found = fit_singular(loads[::-1], y[::-1])
    wanted = {"a_s": 0.002, "b_s": 0.05, "d_s": 9.0, "n_sat": 64.0, "beta": 2.0}
    assert found.values == pytest.approx(wanted, rel=2e-3) and found.warnings == ()
    record = curve(found)
    assert [float(v) for v in (record.a_s, record.b_s, record.d_s, record.n_sat, record.beta)] == pytest.approx(
        list(wanted.values()), rel=2e-3
    )
    assert float(curve(fit_singular(*drawn(0.0, 0), beta=1.0)).beta) == 1.0
    held = fit_singular(loads, y, beta=2.0)
    assert held.values == pytest.approx({k: v for k, v in wanted.items() if k != "beta"}, rel=2e-3)
    assert float(curve(held, 2.0).beta) == 2.0
    wrong = fit_singular(loads, y, beta=1.0)  # the wrong power is told by what it leaves
    assert compare(wrong, held)[0]["sigma"] == held.sigma < 0.01 * wrong.sigma


def test_laws_of_one_sweep_are_told_apart_by_what_they_leave():
    """A perfect fit is as likely as one of a millionth; what a law leaves and its changes of sign are in its row."""
    exact = CurveFit("exact", {"p": 1.0}, np.eye(1), np.zeros(6))
    assert exact.aicc == pytest.approx(6 * math.log(1e-12) + 4 + 2 * 2 * 3 / 3)
    x = np.array([1.0, 2, 4, 8, 16, 32])
    rates = x / (2.0 + 0.05 * x)
    loop, line = fit_closed_loop(x, rates), fit_linear(x, rates)
    rows = compare(line, loop)
    assert {row["law"]: (row["sigma"], row["runs_p"]) for row in rows} == {
        "linear": (line.sigma, line.runs_p()),
        "closed loop": (loop.sigma, loop.runs_p()),
    }
    assert rows[0]["aicc"] < rows[1]["aicc"] and rows[0]["weight"] + rows[1]["weight"] == pytest.approx(1.0)
    assert line.interval("base_s") == line.interval("base_s", 0.95) and line.law == "linear"
