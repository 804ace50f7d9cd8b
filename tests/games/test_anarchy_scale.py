"""Prices of anarchy in any unit, certified or flagged: every profile in whole numbers of any size, without rounding."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dmodels.games.anarchy import price_of_anarchy
from dmodels.games.routing import RoutingGame


def exact_prices(f, c):
    """(anarchy, stability) of tables of floats (m, n) and (n, m), as they are; None where the optimum is free."""
    scale = max(Fraction(v).denominator for v in (*f[np.isfinite(f)], *c.ravel()))
    whole = lambda table: [[None if np.isinf(v) else int(Fraction(v) * scale) for v in row] for row in table.tolist()]
    latency, private = whole(f), whole(c)
    workers, stable, least = range(len(f)), [], None
    for at in itertools.product(workers, repeat=len(c)):
        load = [at.count(j) for j in workers]
        if any(load[j] and latency[j][load[j] - 1] is None for j in workers):
            continue
        pays = [latency[j][load[j] - 1] + private[i][j] for i, j in enumerate(at)]
        least = sum(pays) if least is None else min(least, sum(pays))
        if all(
            k == j or latency[k][load[k]] is None or pays[i] <= latency[k][load[k]] + private[i][k]
            for i, j in enumerate(at)
            for k in workers
        ):
            stable.append(sum(pays))
    return (Fraction(max(stable), least), Fraction(min(stable), least)) if least else None


def random_latencies(rng, n, m):
    """Whole numbers with ties: rising, of any order, real, or one step as where HBM is full; rarely with a pole."""
    f = rng.integers(0, 9, (m, n)).astype(float)
    kind = rng.integers(4)
    if kind == 1:
        f = np.sort(f + rng.random((m, n)), axis=1)
    elif kind == 2:
        f = np.where(np.arange(n) < rng.integers(1, n + 1, (m, 1)), f[:, :1], f[:, :1] + rng.integers(1, 40, (m, 1)))
    elif kind == 3:
        f = np.sort(f, axis=1)
    if rng.random() < 0.1 and m * (n - 1) >= n:
        f[:, -1] = np.inf
    return f


@pytest.mark.parametrize("count, seed", [(80, 0), pytest.param(100_000, 1, marks=pytest.mark.slow)])
def test_intervals_hold_the_exact_prices_in_any_unit(count, seed):
    """Latencies and misses times 1e-15 to 1e15: together, apart, worker by worker. Rounding of a common unit breaks
    ties, so there the price of the game in whole numbers is as good an answer as that of the rounded one."""
    rng = np.random.default_rng(seed)
    certified, exact = 0, 0
    for _ in range(count):
        n, m = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        plain, omega = random_latencies(rng, n, m), float(rng.integers(0, 8))
        overlap = rng.integers(0, 5, (n, m)) / 4 if rng.random() < 0.5 else rng.random((n, m))
        f_unit, c_unit = 10.0 ** rng.uniform(-15, 15, 2)
        together = rng.random() < 0.5
        if together:
            c_unit = f_unit
        elif rng.random() < 0.5:
            f_unit = 10.0 ** rng.uniform(-15, 15, (m, 1))
        game = RoutingGame(f_unit * plain, overlap, c_unit * omega)
        given = [game.arrays(), *([RoutingGame(plain, overlap, omega).arrays()] if together else [])]
        truths = [exact_prices(a.f[0], a.cost[0]) for a in given]
        found = price_of_anarchy(game)
        if None in truths or found.flags or not found.certified:
            continue
        certified, exact = certified + 1, exact + bool(found.exact)
        ends = [Fraction(float(v)) for v in (*found[:2], found.stability_lower, found.stability_upper)]
        slack = 1 + Fraction(1, 10**9)
        assert any(
            ends[0] <= anarchy * slack
            and anarchy <= ends[1] * slack
            and ends[2] <= stability * slack
            and stability <= ends[3] * slack
            for anarchy, stability in truths
        )
    assert certified > 0.8 * count and exact > 0.99 * certified


@pytest.mark.parametrize("count, seed", [(15, 2), pytest.param(600, 3, marks=pytest.mark.slow)])
def test_where_memory_fills_the_price_is_exact(count, seed):
    """Latency that steps once, where k f(k) is not convex: no bound, but the price of all profiles in whole numbers."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n, m = int(rng.integers(5, 8)), int(rng.integers(2, 4))
        slope, base, wall = rng.integers(0, 4, (m, 1)), rng.integers(0, 9, (m, 1)), rng.integers(1, n, (m, 1))
        load = np.arange(1, n + 1)
        f = (slope * load + base + np.where(load > wall, rng.integers(1, 60, (m, 1)), 0)).astype(float)
        game = RoutingGame(f, rng.integers(0, 5, (n, m)) / 4, 4.0 * float(rng.integers(0, 5)))
        a = game.arrays()
        truth, found = exact_prices(a.f[0], a.cost[0]), price_of_anarchy(game)
        if truth is None:
            continue
        assert found.exact and found.certified and not found.flags
        np.testing.assert_allclose([found.lower, found.stability_lower], [float(t) for t in truth], rtol=1e-12)
