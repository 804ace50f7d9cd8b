r"""NEW-14. Charging marginal cost makes the optimum an equilibrium (with NEW-15: affine latencies and caches, 5/2).

**Verdict: proved.** The game with latencies $g_j(k) - g_j(k-1)$, $g = k f$, has the social cost as its exact potential
(1), so every optimum is an equilibrium (2); without cache terms every equilibrium is then optimal (3),
with them swaps may remain. NEW-15: in the miss form a cache miss is a private resource of constant latency, so affine
games are affine congestion games for every omega, and 5/2 holds (4).
"""

import itertools

import numpy as np
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.games import routing
from dmodels.games.anarchy import price_of_anarchy
from dmodels.games.routing import RoutingGame, marginal_cost_game
from dmodels.models.latency import affine
from proofs.cases import every
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-14",
    source=DMODELS,
    where="games.routing_optimum.marginal_cost_game",
    says="Under marginal-cost routing the social optimum is an equilibrium; without caches every equilibrium is "
    "optimal",
    verdict=Verdict.PROVED,
    needs=("k f(k) convex, for the second part",),
    means="Route by what a request costs all others too (latency plus load times slope) instead of by its own latency.",
)


def test_the_social_cost_is_the_potential():  # 1: a move from j to k, at any loads, with any cache terms
    g, h = sp.Function("g_j"), sp.Function("g_k")
    n, m, here, there = sp.symbols("n_j n_k miss_j miss_k")
    before = g(n) + h(m) + here
    after = g(n - 1) + h(m + 1) + there
    own = (h(m + 1) - h(m) + there) - (g(n) - g(n - 1) + here)  # what the mover pays there less what it paid here
    assert sp.expand(after - before - own) == 0


def test_without_caches_every_equilibrium_is_optimal_exactly():  # 3: all pairs of convex tables of three requests
    tables = [
        (a, a + b, a + b + c) for a, b, c in itertools.product(range(4), repeat=3)
    ]  # f rises, but k f(k) need not be convex
    totals = [(0, *(k * f for k, f in enumerate(table, 1))) for table in tables]
    convex = [g for g in totals if g[1] <= g[2] - g[1] <= g[3] - g[2]]
    for g, h in every(itertools.product(convex, repeat=2), "games of three requests"):
        cost = [g[n] + h[3 - n] for n in range(4)]
        stays = lambda n, g=g, h=h: (
            (n == 0 or g[n] - g[n - 1] <= h[4 - n] - h[3 - n]) and (n == 3 or h[3 - n] - h[2 - n] <= g[n + 1] - g[n])
        )
        assert all(cost[n] == min(cost) for n in range(4) if stays(n))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31))
def test_optima_are_equilibria_of_the_tolled_game(seed):  # 2
    rng = np.random.default_rng(seed)
    game = RoutingGame(np.sort(rng.integers(0, 9, (3, 5)), axis=1).astype(float), rng.uniform(size=(5, 3)), 3.0)
    profiles = np.array(list(itertools.product(range(3), repeat=5)))
    best = profiles[int(routing.social_cost_s(game, profiles).argmin())]
    assert float(routing.gain_s(marginal_cost_game(game), best)) <= 1e-9


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31))
def test_without_caches_every_tolled_equilibrium_is_optimal(seed):  # 3
    rng = np.random.default_rng(seed)
    game = RoutingGame(affine(rng.uniform(0, 2, 3), rng.uniform(0, 5, 3)), np.zeros((7, 3)))
    end = routing.best_response(marginal_cost_game(game), rng.integers(0, 3, 7)).value.assignment
    least = float(routing.optimum(game).value.cost_s)
    assert float(routing.social_cost_s(game, end)) <= least * (1 + 1e-9)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31))
def test_affine_games_with_caches_stay_below_five_halves(seed):  # 4
    rng = np.random.default_rng(seed)
    curve = affine(rng.uniform(0, 2, (6, 3)), rng.uniform(0, 1, (6, 3)))
    p = price_of_anarchy(RoutingGame(curve, rng.uniform(size=(6, 6, 3)), rng.uniform(0, 20, 6)))
    assert p.certified.all() and (p.upper <= 2.5 + 1e-9).all()
