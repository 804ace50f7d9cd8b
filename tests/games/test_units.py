"""Answers of games have no unit: where every cost is 2^60 times less, and blocks are counted in 2^30 times as many
bytes, they are the same."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.games import placement as p
from dmodels.games import routing as r
from dmodels.games.anarchy import coarse_ceiling_s, price_of_anarchy, smoothness
from tests.games.placement_brute import draw

#: Powers of two, so that nothing is rounded.
CHEAP, BYTES = 2.0**-60, 2.0**30


def check_scaled(before, after):
    """Every number is the same, or a cost, or a cost of a byte."""
    old, new = (jax.tree.leaves(tree) for tree in (before, after))
    assert len(old) == len(new)
    for a, b in zip(old, new, strict=True):
        a, b = np.asarray(a, float), np.asarray(b, float)
        close = lambda x, b=b: np.isclose(b, x, rtol=1e-9, atol=0.0, equal_nan=True).all()
        assert close(a) or close(a * CHEAP) or close(a * CHEAP / BYTES)


PLACED = {
    "alone": p.isolated_s,
    "play": p.best_response_dynamics,
    "together": lambda game: p.best_response_dynamics(game, coordinated=True),
    "at rest": p.pure_equilibrium,
    "greedy": p.greedy_optimum,
    "least": lambda game: p.social_optimum(game).value,
    "price": lambda game: p.price_of_anarchy(game, max_profiles=0, starts=1)[:-1],
    "bound": lambda game: p.best_bound(game, iterations=12),
    "pooled": lambda game: p.value_of_sharing(game, iterations=2),
    "rises": p.rises,
}


@pytest.mark.parametrize("ask", PLACED.values(), ids=PLACED)
def test_placements_of_cheap_reads_are_those_of_dear_ones(ask):
    """Rates so low, and blocks of so many bytes, that nothing costs a unit."""
    rng = np.random.default_rng(1)
    for sizes in (False, True):
        for _ in range(3):
            demand, access, capacity, *rest, size = draw(rng, 3, 3 if ask is p.rises else 6, sizes=sizes)
            games = (
                p.PlacementGame(demand, access, capacity, *rest, size),
                p.PlacementGame(CHEAP * demand, access, BYTES * capacity, *rest, BYTES * size),
            )
            check_scaled(*map(ask, games))


ROUTED = {
    "prices": lambda game: price_of_anarchy(game)[:-1],
    "prices of a search cut short": lambda game: price_of_anarchy(game, max_boxes=3)[:-1],
    "smooth": smoothness,
    "coarse": coarse_ceiling_s,
    "equilibria": r.nash_range,
    "play": r.best_response,
    "arrival": r.greedy_arrival,
    "least": r.optimum,
}


@pytest.mark.parametrize("ask", ROUTED.values(), ids=ROUTED)
@pytest.mark.parametrize("rising", [True, False])
def test_routes_of_fast_requests_are_those_of_slow_ones(rising, ask):
    rng = np.random.default_rng(2)
    for _ in range(4):
        f = rng.integers(1, 12, (3, 6)).astype(float)
        f = np.sort(f, axis=1) if rising else f
        overlap, omega = rng.integers(0, 3, (3, 3)) / 2, float(rng.integers(0, 9))
        counts = [1.0, 2.0, 3.0]
        check_scaled(*(ask(r.RoutingGame(u * f, overlap, u * omega, counts)) for u in (1.0, CHEAP)))
