"""Right or flagged, whatever the units: costs, variables and constraints from 1e-15 to 1e15, against closed forms,
enumeration of active sets, and a root of SciPy."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import root

from dmodels.core.flags import Flag, usable
from dmodels.solvers import affine_equilibria, variational_equilibria, variational_equilibrium
from dmodels.solvers.blocks import in_blocks

INF = np.inf
RUNS = [pytest.param(300, 0), pytest.param(10_000, 1, marks=pytest.mark.slow)]


def decades(rng, *shape):
    return 10.0 ** rng.uniform(-15, 15, shape)


def right_or_flagged(found, exact, unit):
    """Every answer without a flag lies within 1e-7 of the exact one and within its own bound; how many are flagged."""
    error = np.abs(found.value.x / unit - exact)
    bad = (error > 1e-7 * (1e-3 + np.abs(exact).max(axis=-1, keepdims=True))).any(axis=-1)
    outside = (error > found.certificate["distance_bound"] / unit + 1e-13).any(axis=-1)
    ok = usable(found.flags) & ((found.flags & int(Flag.NOT_UNIQUE)) == 0)
    assert not (bad & ok).any() and not (outside & ok).any()
    return np.mean(~ok)


EXPONENTIAL = [lambda x, p: p["c"] * jnp.exp(-p["a"] * x[0]), lambda x, p: 3 * p["c"] * jnp.exp(-p["b"] * x[1])]
BUDGET = lambda x, p: p["row"] * (x[0] + x[1] - p["total"])


# of the few every game is answered at once: a second attempt takes thousands of steps
@pytest.mark.parametrize("count, seed", [(300, 5), pytest.param(300, 0, marks=pytest.mark.slow), RUNS[1]])
def test_exponential_games_have_their_closed_form(count, seed):
    """exp(-a x) and 3 exp(-b y) with x + y <= 16: x = (16 b + log(a / 3b)) / (a + b), where costs fall to 1e-28."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(rng.uniform(np.log(0.05), np.log(8), (2, count)))
    c, unit, row = decades(rng, 3, count)
    unit[: count // 2] = c[: count // 2] = row[: count // 2] = 1.0
    params = {"a": a / unit, "b": b / unit, "c": c, "total": 16 * unit, "row": row}
    found = variational_equilibria(EXPONENTIAL, BUDGET, (0, INF), [1.0, 1.0], params=params, samples=2)
    x = np.clip((16 * b + np.log(a / (3 * b))) / (a + b), 0, 16)
    assert right_or_flagged(found, np.stack([x, 16 - x], axis=-1), unit[:, None]) < 0.01


def enumerated(m, q, a, b):
    """Equilibria of M x + q, x >= 0, a'x <= b by trying every active set: (k, n)."""
    count, n = q.shape
    best, out = np.full(count, INF), np.zeros((count, n))
    for free in itertools.product([False, True], repeat=n + 1):
        inside, tight = np.array(free[:n]), free[n]
        big, right = np.zeros((count, n + 1, n + 1)), np.zeros((count, n + 1))
        big[:, :n, :n], big[:, :n, n], right[:, :n] = m, a, -q
        big[:, :n][:, ~inside], right[:, :n][:, ~inside] = np.eye(n + 1)[:n][~inside], 0.0
        big[:, n, :n], big[:, n, n], right[:, n] = (a, 0.0, b) if tight else (0.0, 1.0, 0.0)
        ok = np.abs(np.linalg.det(big)) > 1e-12
        z = np.linalg.solve(np.where(ok[:, None, None], big, np.eye(n + 1)), right[..., None])[..., 0]
        x, lam = z[:, :n], z[:, n]
        r = np.einsum("kij,kj->ki", m, x) + q + a * lam[:, None]
        wrong = np.abs(np.minimum(x, r)).max(1) + np.abs(np.minimum(lam, b - (a * x).sum(1)))
        better = ok & (wrong < best)
        best[better], out[better] = wrong[better], x[better]
    assert best.max() < 1e-9
    return out


def linear_quadratic(rng, count, n):
    square, skew = rng.normal(size=(2, count, n, n))
    m = square @ square.transpose(0, 2, 1) / n + 0.1 * np.eye(n) + 0.5 * (skew - skew.transpose(0, 2, 1))
    return m, 3 * rng.normal(size=(count, n)), rng.uniform(0, 1, (count, n)), rng.uniform(0.5, 2, count)


@jax.jit
def general(games):
    solve = lambda g: variational_equilibrium((g[0], g[1]), (g[2][None], g[3][None]), (0, INF), samples=0)
    return in_blocks(solve, games, 256)


def each_general(m, q, a, b):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, general(tuple(map(jnp.asarray, (m, q, a, b)))))


@pytest.mark.parametrize("count, seed", RUNS)
@pytest.mark.parametrize("own_units", [False, True])
def test_linear_quadratic_games_in_any_unit(count, seed, own_units):
    """With x = D y the equilibrium solves D M D y + D q: costs, variables (each its own unit) and rows are rescaled."""
    rng = np.random.default_rng(seed)
    m, q, a, b = linear_quadratic(rng, count, 3)
    exact = enumerated(m, q, a, b)
    unit = decades(rng, count, 3) if own_units else np.repeat(decades(rng, count, 1), 3, axis=1)
    cost, row = decades(rng, count), decades(rng, count)
    m2, q2 = cost[:, None, None] * m / unit[:, :, None] / unit[:, None], cost[:, None] * q / unit
    a2, b2 = row[:, None] * a / unit, row * b
    assert right_or_flagged(affine_equilibria(m2, q2, (a2[:, None], b2[:, None]), (0, INF)), exact, unit) < 0.01
    assert right_or_flagged(each_general(m2, q2, a2, b2), exact, unit) < 0.01


CURVED = [
    lambda x, p, i=i: (
        p["c"]
        * (
            p["s"][i] / (1 + x[i] / p["unit"])
            + 0.1 * x[i] * x[(i + 1) % 3] / p["unit"] ** 2
            + 0.3 * (x[i] / p["unit"]) ** 2
        )
    )
    for i in range(3)
]
SUM_BELOW = lambda x, p: p["row"] * (jnp.sum(x) / p["unit"] - p["total"])


@pytest.mark.parametrize("count, seed", RUNS)
def test_curved_games_against_a_root_of_scipy(count, seed):
    """Costs s_i / (1 + x_i) + x_i x_next / 10 + 0.3 x_i^2 and a common limit; at the answer, its multiplier explains
    all marginals: a residual computed here, and strong monotonicity turns it into a distance."""
    rng = np.random.default_rng(seed)
    s, total = rng.uniform(2, 10, (count, 3)), rng.uniform(0.5, 6, count)
    c, unit, row = decades(rng, 3, count)
    params = {"s": s, "c": c, "unit": unit, "row": row, "total": total}
    found = variational_equilibria(CURVED, SUM_BELOW, (0, INF), params=params, samples=0)
    ok = found.flags == Flag.FIRST_ORDER_ONLY
    assert np.mean(ok) > 0.99
    x = (found.value.x / unit[:, None])[ok]
    force = -s[ok] / (1 + x) ** 2 + 0.1 * np.roll(x, -1, axis=1) + 0.6 * x
    lam = np.where(x.sum(1) > total[ok] - 1e-9, np.maximum(-force.min(axis=1), 0.0), 0.0)[:, None]
    assert np.abs(np.minimum(x, force + lam)).max() < 1e-7 and (x.sum(1) <= total[ok] + 1e-9).all()
    for k in np.flatnonzero((x > 1e-2).all(axis=1) & (lam[:, 0] > 1e-2))[:20]:  # inside: smooth equations, by SciPy

        def system(z, s=s[ok][k], total=total[ok][k]):
            return [*(0.1 * np.roll(z[:3], -1) + 0.6 * z[:3] - s / (1 + z[:3]) ** 2 + z[3]), z[:3].sum() - total]

        other = root(system, [*np.full(3, total[ok][k] / 3), 1.0], tol=1e-13)
        np.testing.assert_allclose(x[k], other.x[:3], atol=1e-8)


MIXED = [
    lambda x, p, i=i: (
        p["c"]
        * (
            p["a"][0, i] * jnp.exp(-p["k"][i] * x[i] / p["unit"][i])
            - p["a"][1, i] * jnp.log(p["s"][i] + x[i] / p["unit"][i])
            + p["a"][2, i] * (1 + x[i] / p["unit"][i] / p["s"][i]) ** -p["order"][i]
        )
    )
    for i in range(3)
]
ROOM = lambda x, p: p["row"] * (jnp.sum(x / p["unit"]) - p["total"])


@pytest.mark.slow
@pytest.mark.parametrize("own_units", [False, True])
def test_exponentials_logarithms_and_powers_against_water_filling(own_units):
    """All fall in their owner's variable alone, so what one more unit saves is the same wherever something is: both the
    level and the variables are bisected here, in the problem's own units."""
    rng, count = np.random.default_rng(2), 10_000
    a = rng.uniform(0.2, 3, (count, 3, 3)) * (rng.random((count, 3, 3)) < 0.7)
    a[:, 0] = np.where(a.sum(1) == 0, 1.0, a[:, 0])
    k, s = (np.exp(rng.uniform(np.log(0.1), np.log(top), (count, 3))) for top in (4, 10))
    order, total = rng.uniform(0.3, 4, (count, 3)), rng.uniform(0.5, 16, count)
    c, row = decades(rng, 2, count)
    unit = decades(rng, count, 3) if own_units else np.repeat(decades(rng, count, 1), 3, axis=1)
    params = {"a": a, "k": k, "s": s, "order": order, "total": total, "c": c, "row": row, "unit": unit}
    found = variational_equilibria(MIXED, ROOM, (0, INF), params=params, samples=0)

    def at_level(log):
        low, high = np.zeros((count, 3)), np.repeat(total[:, None], 3, axis=1)
        for _ in range(60):
            x = 0.5 * (low + high)
            saved = a[:, 0] * k * np.exp(-k * x) + a[:, 1] / (s + x) + a[:, 2] * order / s * (1 + x / s) ** (-order - 1)
            low, high = np.where(saved > np.exp(log), x, low), np.where(saved > np.exp(log), high, x)
        return low

    low, high = np.full((count, 1), -120.0), np.full((count, 1), 10.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        full = at_level(middle).sum(1, keepdims=True) > total[:, None]
        low, high = np.where(full, middle, low), np.where(full, high, middle)
    assert right_or_flagged(found, at_level(middle), unit) < 0.01


def test_a_flat_cost_is_solved():
    for size in (1e-30, 1e-11, 1e11):
        found = variational_equilibrium([lambda x, size=size: size * (x[0] - 0.3) ** 2], None, (0, 1))
        assert found.flags == 0 and found.value.x[0] == pytest.approx(0.3, abs=1e-12)
        assert found.certificate["distance_bound"] <= 1e-12


@pytest.mark.parametrize("samples", [0, 8])
def test_a_cost_that_is_not_finite_is_never_certified(samples):
    added = [lambda x, p: (x[0] - 0.3) ** 2 + p]
    few = {"samples": samples, "max_steps": 30}  # they would never end
    found = variational_equilibria(added, None, (0, 1), params=np.array([INF, np.nan]), **few)
    nowhere = variational_equilibrium([lambda x: jnp.log(-1 - x[0] ** 2)], None, (0, 1), **few)
    assert (np.append(found.flags, nowhere.flags) & int(Flag.NONFINITE)).all()


@pytest.mark.parametrize("n", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_multipliers_of_bounds_complete_the_identity(n):
    """F + A' lam - z_low + z_high = 0 with z >= 0, and z > 0 on bounds only."""
    rng = np.random.default_rng(n)
    m, q, a, b = linear_quadratic(rng, 300, n)  # as many as above: the same program
    for found in (each_general(m, q, a, b), affine_equilibria(m, q, (a[:, None], b[:, None]), (0, INF))):
        v = found.value
        rest = np.einsum("kij,kj->ki", m, v.x) + q + a * v.multipliers - v.lower_multipliers + v.upper_multipliers
        assert np.abs(rest).max() < 1e-9 and v.lower_multipliers.min() >= 0 and not v.upper_multipliers.any()
        assert (v.lower_multipliers * v.x == 0).all() and not found.flags.any()
        assert (v.lower_multipliers > 1e-3).any()
