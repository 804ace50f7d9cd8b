"""The price of anarchy: intervals hold the truth, theorems hold in the shipped code, closed forms have known values."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.core.flags import Flag
from dmodels.games import routing
from dmodels.games.anarchy import (
    PAPER_FORM,
    bounds,
    pole_limit,
    pole_price,
    polynomial_weighted,
    price_of_anarchy,
    singleton_price,
)
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import LatencyCurve, affine, latency_table

from .test_routing_nash import as_game, every_profile, random_game

seeds = st.integers(0, 2**31)


def check_intervals(rng, kind, max_boxes, count):
    """Certified intervals hold the prices of anarchy and stability that brute force finds."""
    for _ in range(count):
        f, c = random_game(rng, kind, 6)
        _, cost, nash = every_profile(f, c)
        if cost.min() == 0:
            continue
        anarchy, stability = cost[nash].max() / cost.min(), cost[nash].min() / cost.min()
        p = price_of_anarchy(as_game(f, c), max_boxes)
        assert p.certified
        assert p.lower <= anarchy + 1e-9 and anarchy <= p.upper + 1e-9
        assert p.stability_lower <= stability + 1e-9 and stability <= p.stability_upper + 1e-9
        if p.exact:
            np.testing.assert_allclose(p.lower, anarchy, rtol=1e-8)
        if max_boxes > 10 and kind == "nondecreasing" and (np.diff(np.arange(1, f.shape[1] + 1) * f, n=2) >= 0).all():
            assert p.exact or f[:, 0].max() * 2 > f[:, min(1, f.shape[1] - 1)].max()  # g(0) = 0 is part of convexity


@pytest.mark.parametrize("max_boxes", [1, 200_000])
@pytest.mark.parametrize("kind", ["nondecreasing", "arbitrary", "ties"])
def test_the_interval_holds_the_price_of_brute_force(kind, max_boxes):
    check_intervals(np.random.default_rng(7), kind, max_boxes, 60)


def test_pigou_pair():
    p = price_of_anarchy(RoutingGame(affine([1.0, 0.0], [0.0, 2.0]), np.zeros((2, 2))))
    assert p.exact and float(p.lower) == pytest.approx(4 / 3) and float(p.stability_lower) == pytest.approx(1.0)


@settings(max_examples=settings.default.max_examples // 12)
@given(seed=seeds)
def test_affine_latencies_never_exceed_five_halves(seed):
    """For every omega and all overlaps in the miss form (a miss is a private resource)."""
    rng = np.random.default_rng(seed)
    batch, n, m = 8, 5, 3
    game = RoutingGame(
        affine(rng.integers(0, 9, (batch, m)) / 4, rng.integers(0, 9, (batch, m)) / 4),
        rng.integers(0, 5, (batch, n, m)) / 4,
        rng.integers(0, 40, batch) / 4,
    )
    assert (price_of_anarchy(game).upper <= 2.5 + 1e-9).all()


@pytest.mark.parametrize("unit", [1.0, 3e5, 1e-9])
@pytest.mark.parametrize(
    "second, third, levels, least",
    [
        pytest.param(2.0, 16.0, 2, 4.0, id="a kink"),
        pytest.param(100.0, 199.0, 3, 2.9, id="below zero at none"),
    ],
)
def test_only_lines_from_zero_up_are_held_to_what_lines_cost(second, third, levels, least, unit):
    """A tree of workers that answer one request in 1, two in `second`; each request has cached at a parent and at one
    of its children. With all at the parents nobody gains by moving, and all at the children would wait far less."""
    workers = 2 ** (levels + 1) - 1
    child = np.arange(1, workers)
    parent = (child - 1) // 2
    depth = np.floor(np.log2(np.arange(1, workers + 1)))
    scale = (second / third) ** np.minimum(depth, levels - 1) * np.where(depth < levels, 1.0, second)
    overlap = np.zeros((workers - 1, workers))
    overlap[child - 1, parent] = overlap[child - 1, child] = 1.0
    alone = np.append(1.0, second + (third - second) * np.arange(workers - 2))
    game = RoutingGame(unit * scale[:, None] * alone, overlap, 1e4 * unit)
    assert routing.gain_s(game, parent) <= 1e-12 * unit
    price = routing.social_cost_s(game, parent) / routing.social_cost_s(game, child)
    assert price > least - 1e-9 and price_of_anarchy(game, max_boxes=1).upper >= price - 1e-9


@settings(max_examples=settings.default.max_examples // 6)
@given(seed=seeds)
def test_without_cache_terms_the_singleton_bound_holds(seed):
    rng = np.random.default_rng(seed)
    f = np.sort(rng.integers(1, 20, (8, 3, 6)), axis=-1).astype(float)
    p = price_of_anarchy(RoutingGame(f, np.zeros((6, 3))))
    assert (p.lower <= bounds.singleton_price(f) * (1 + 1e-9)).all()


def test_affine_singletons_reach_four_thirds_and_no_more():
    assert bounds.singleton_price(np.array([[1.0, 2.0], [2.0, 2.0]])) == pytest.approx(4 / 3)
    rng = np.random.default_rng(0)
    f = rng.uniform(0, 5, (50, 3, 1)) * np.arange(1.0, 8.0) + rng.uniform(0, 5, (50, 3, 1))
    assert (bounds.singleton_price(f) <= 4 / 3 + 1e-12).all()


@settings(max_examples=20)
@given(seed=seeds, each=st.integers(1, 3), m=st.integers(2, 3), load_slope=st.integers(1, 8))
def test_identical_workers_with_caches(seed, each, m, load_slope):
    """PoA <= 1 + omega / f(N/m) where m divides N (NEW-1), for any overlaps and any omega."""
    rng = np.random.default_rng(seed)
    omega = float(rng.integers(0, 20))
    f = affine(np.full(m, float(load_slope)), 1.0)
    p = price_of_anarchy(RoutingGame(f, rng.integers(0, 5, (each * m, m)) / 4, omega))
    assert p.upper <= bounds.identical_workers_price(load_slope * each + 1.0, omega) + 1e-9


@pytest.mark.parametrize("m", [2, 3, 4])
def test_identical_workers_bound_is_attained_by_shifted_homes(m):
    """Each request at home costs f, at its neighbour's home f + omega, and nobody moves for omega <= f(n+1) - f(n)."""
    p = price_of_anarchy(RoutingGame(affine(np.ones(m), 2.0), np.eye(m), 1.0))
    assert p.exact and float(p.lower) == pytest.approx(1 + 1.0 / 3.0)


def test_identical_singular_workers_have_price_one_at_every_load():
    """Proposition 4(ii) says that the price grows at saturation; without cache terms it is 1 up to the last slot."""
    curve = LatencyCurve(*(np.full(2, v) for v in (0.005, 0.02, 0.01, 21.0, 2.0)))
    for n in range(1, 41):
        p = price_of_anarchy(RoutingGame(curve, np.zeros((1, 2)), 0.0, [float(n)]))
        assert p.exact and float(p.lower) == pytest.approx(1.0, abs=1e-12)


def test_latency_steps_break_it():
    """f = 0 for two requests, then 1 (an "HBM wall"), six requests on two identical workers: 3/2."""
    p = price_of_anarchy(RoutingGame(np.array([[0.0, 0, 1, 1, 1, 1]] * 2), np.zeros((6, 2))))
    assert p.exact and float(p.lower) == pytest.approx(1.5)


def exact_price(f, overlap, omega):
    """Worst equilibrium over optimum of all m^n profiles, in rationals of the very floats."""
    f = [[Fraction(v) for v in row] for row in f]
    c = [[Fraction(omega) * (1 - Fraction(v)) for v in row] for row in overlap]
    n, m, costs, nash = len(c), len(f), [], []
    for at in itertools.product(range(m), repeat=n):
        loads = [at.count(j) for j in range(m)]
        here = [f[j][loads[j] - 1] + c[i][j] for i, j in enumerate(at)]
        costs.append(sum(here))
        if all(here[i] <= f[k][loads[k]] + c[i][k] for i in range(n) for k in range(m) if k != at[i]):
            nash.append(costs[-1])
    return max(nash) / min(costs)


@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_steps_of_any_height_are_exact(count):
    """HBM walls: each worker's latency jumps at a load of its own."""
    rng = np.random.default_rng(11)
    for _ in range(count):
        m, n = rng.integers(2, 4), rng.integers(3, 7)
        before, after = rng.integers(1, 4, (m, 1)), rng.integers(5, 12, (m, 1))
        f = np.where(np.arange(1, n + 1) <= rng.integers(1, n, (m, 1)), before, after).astype(float)
        overlap, omega = rng.integers(0, 3, (n, m)) / 2, float(rng.integers(0, 4))
        p = price_of_anarchy(RoutingGame(f, overlap, omega))
        assert p.exact and float(p.lower) == pytest.approx(float(exact_price(f, overlap, omega)), rel=1e-12)


@pytest.mark.parametrize("count", [60, pytest.param(20_000, marks=pytest.mark.slow)])
def test_curves_far_below_the_misses_are_right_or_not_certified(count):
    """Latencies of 1e-6 to 1e-16 s beside an omega of 1 s, in exact rationals."""
    rng = np.random.default_rng(12)
    refused = 0
    for _ in range(count):
        m, n, size = rng.integers(2, 4), rng.integers(2, 5), 10.0 ** -rng.integers(6, 17)
        f, overlap = np.sort(rng.integers(1, 20, (m, n)), axis=1) * size, rng.integers(0, 3, (n, m)) / 2
        p = price_of_anarchy(RoutingGame(f, overlap, 1.0))
        exact = float(exact_price(f, overlap, 1.0))
        if p.certified:
            assert p.lower <= exact * (1 + 1e-9) and exact <= p.upper * (1 + 1e-9)
        else:
            refused += size > 1e-14
            assert int(p.flags) & Flag.OUT_OF_DOMAIN
    assert refused == 0


def test_steps_with_many_requests_match_dynamic_programming():
    """Without cache terms the optimum is a knapsack over loads; 200 requests on 6 workers with two steps each."""
    rng = np.random.default_rng(13)
    for _ in range(5):
        n, m = 200, 6
        walls = np.sort(rng.integers(5, 90, (m, 2)), axis=1)
        load = np.arange(1, n + 1)
        f = 0.02 * load + rng.uniform(1, 2, (m, 1)) + (load > walls[:, :1]) * rng.uniform(1, 4, (m, 1))
        f = f + (load > walls[:, 1:]) * rng.uniform(1, 4, (m, 1))
        best = np.where(np.arange(n + 1) == 0, 0.0, np.inf)
        for row in f:
            g = np.concatenate([[0.0], load * row])
            best = np.array([min(best[: k + 1] + g[k::-1]) for k in range(n + 1)])
        found = routing.optimum(RoutingGame(f, np.zeros((1, m)), 0.0, [float(n)]))
        assert found.flags == 0 and found.value.cost_s == pytest.approx(best[n], rel=1e-12)
        assert found.certificate["bound_s"] == pytest.approx(best[n], rel=1e-9)


def test_the_price_falls_as_latency_grows():
    """With the paper's constants and m = 2: 1.083 at C = 64 and about 1.043 at C = 126, nothing like 7.5 or 18.7."""
    f = latency_table(LatencyCurve(0.005, 0.02, 0.01, 64.0, 2.0), 63)
    assert bounds.identical_workers_price(f[31], 0.015) == pytest.approx(1.083, abs=5e-4)
    assert bounds.identical_workers_price(f[62], 0.015) == pytest.approx(1.043, abs=5e-4)


def test_paper_form_is_flagged_and_diverges():
    """Two requests, home overlaps, f = n: 1/(1 - omega), which goes to infinity at omega = 1 and is negative beyond."""
    for omega in (0.5, 0.75):
        p = price_of_anarchy(RoutingGame(affine([1.0, 1.0], 0.0), np.eye(2), omega), paper_form=True)
        assert float(p.lower) == pytest.approx(1 / (1 - omega)) and int(p.flags) & Flag.OUT_OF_DOMAIN
    p = price_of_anarchy(RoutingGame(affine([1.0, 1.0], 0.0), np.eye(2), 2.0), paper_form=True)
    assert np.isnan(p.lower) and not p.certified and "negative" in PAPER_FORM


def test_polynomial_prices():
    """Aland et al. 2006: 5/2 and 9.583, 41.54, 267.6; weighted (3 + sqrt 5)/2; nonatomic 4/3, 1.626, 1.896."""
    assert bounds.polynomial_atomic(1) == 2.5
    assert bounds.polynomial_atomic(2) == pytest.approx(float(Fraction(115, 12)))
    assert [round(bounds.polynomial_atomic(d), 1) for d in (3, 4)] == [41.5, 267.6]
    assert bounds.polynomial_weighted(1) == pytest.approx(bounds.AFFINE_WEIGHTED)
    assert [round(bounds.polynomial_nonatomic(d), 3) for d in (1, 2, 3)] == [1.333, 1.626, 1.896]
    for d, log_ratio in ((16, -10.6), (32, -28.6), (64, -70), (128, -162)):  # far below the d^d that is quoted
        assert np.log(bounds.polynomial_atomic(d)) - d * np.log(d) == pytest.approx(log_ratio, abs=0.5)


def test_softmax_regret_is_the_worst_case():
    """max over costs of sum p c - min c, by search: equal dear alternatives are worst."""
    for m, known in ((2, 0.279), (3, 0.463), (5, 0.718)):
        worst = 0.0
        for u in np.linspace(0.5, 3.0, 4001):
            c = np.array([0.0] + [u] * (m - 1))
            p = np.exp(-c)
            worst = max(worst, float(c @ p / p.sum()))
        assert float(bounds.softmax_regret(1.0, m)) == pytest.approx(worst, abs=1e-6)
        assert worst == pytest.approx(known, abs=1e-3)
    rng = np.random.default_rng(0)
    c = rng.exponential(2.0, (20_000, 5))
    p = np.exp(-c / 0.7)
    regret = (c * p).sum(1) / p.sum(1) - c.min(1)
    assert regret.max() <= float(bounds.softmax_regret(0.7, 5))


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_the_weighted_price_solves_its_equation(degree):
    """Phi^(d+1) = (Phi + 1)^d."""
    price = polynomial_weighted(degree)
    assert (price ** (1 / (degree + 1)) + 1) ** degree == pytest.approx(price, rel=1e-9)


def test_three_poles_of_order_two():
    assert pole_price(3.0, 2.0) == 9.0


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_poles_in_proportion_cost_no_anarchy(beta):
    """c proportional to d^(1/beta), whatever the constants."""
    d = np.array([1.0, 4.0, 9.0])
    assert float(pole_limit(5.0 * d ** (1 / beta), d, beta)) == pytest.approx(1.0)
    assert float(pole_limit(5.0, np.ones(3), beta)) == pytest.approx(1.0)  # one capacity for all


def test_a_worker_without_a_pole_fills_first():
    """Near capacity 1 + 4 every request of an equilibrium waits as long as at the pole, d/(c - x) of the first worker;
    the optimum makes only the first worker's own wait: five times less. The limit of ever smaller d."""
    c = np.array([1.0, 4.0])
    assert float(pole_limit(c, np.array([1.0, 0.0]), 1.0)) == pytest.approx(5.0)
    assert float(pole_limit(c, np.array([1.0, 1e-16]), 1.0)) == pytest.approx(5.0, rel=1e-7)


def test_one_table_that_falls_once_is_enough_for_no_bound():
    rising = [1.0, 2.0, 3.0]
    for falling in ([1.0, 3.0, 2.0], [3.0, 2.0, 2.0]):
        assert np.isinf(singleton_price([rising, falling])) and np.isinf(singleton_price([falling, rising]))
    assert singleton_price([[rising, rising], [rising, falling]]).tolist() == [pytest.approx(4 / 3), np.inf]


def test_the_singleton_price_has_no_unit_and_no_pole():
    table = np.array([[1.0, 2.0, 3.0, 4.0]])
    assert [float(singleton_price(scale * table)) for scale in (1.0, 1e-3, 1e3)] == pytest.approx([4 / 3] * 3)
    assert np.isinf(singleton_price([[1.0, 2.0, np.inf]])) and np.isinf(singleton_price([[2.0, 1.0]]))
    assert np.isinf(singleton_price([[np.inf, 1.0]]))
    assert float(singleton_price([[0.0, 0.0, 0.0]])) == 1.0
