r"""NEW-19. With cache terms the price of anarchy is at most $\max_j f_j(N)/f_j(1)$, for every omega and all overlaps.

The paper leaves open whether a bound exists for omega > 0. In the miss form, with nondecreasing latencies and $o_j$
requests on worker j in the optimum, no request gains by going to its place there:
$SC \le \sum_j o_j f_j(n_j + 1) + \text{misses of the optimum} \le \max_j \frac{f_j(N)}{f_j(1)} \cdot OPT$ (1). It is
tight: two requests at each other's homes with omega = f(2) - f(1) (2). And it must grow so: if an idle worker costs
nothing, f(1) = 0, the same two requests have an infinite price (3). So the bound is finite exactly if serving a request
alone takes time, which it does.

**Verdict: proved.**
"""

import itertools
from fractions import Fraction as F

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games import routing
from dmodels.games.routing import RoutingGame
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-19",
    source=DMODELS,
    where="games.routing, omega > 0 (left open after Proposition 3)",
    says="with cache terms the price of anarchy is at most the largest f_j(N)/f_j(1), for every omega and overlap",
    verdict=Verdict.PROVED,
    needs=("nondecreasing latencies, positive for a request alone", "costs counted by misses (POA-4.2w)"),
    means="However caches are weighed, selfish routing costs at most the ratio of a full worker's latency to an idle "
    "one's.",
)


def test_term_by_term():  # 1: o f(n + 1) <= rho o f(o) for f(1) <= f(o), f(n + 1) <= f(N), rho = f(N)/f(1)
    first, more, extra, o = sp.symbols("first more extra o", nonnegative=True)
    alone = first + 1  # any positive f(1)
    at_o = alone + more  # f(o) >= f(1)
    top = at_o + extra  # f(N) >= f(o), and f(n + 1) is at most f(N)
    slack = sp.expand((top / alone) * o * at_o * alone - o * top * alone)
    assert sp.factor(slack) == sp.factor(o * top * more)  # never negative


def worst_and_best(f, omega):
    """Two requests at home on one of two workers each, f = (f(1), f(2)): four profiles in rationals."""
    pay = lambda at, i: f[at.count(at[i]) - 1] + omega * (at[i] != i)
    away = lambda at, i: tuple(1 - j if k == i else j for k, j in enumerate(at))
    profiles = list(itertools.product(range(2), repeat=2))
    total = lambda at: pay(at, 0) + pay(at, 1)
    stable = [at for at in profiles if all(pay(at, i) <= pay(away(at, i), i) for i in range(2))]
    return max(map(total, stable)), min(map(total, profiles))


def test_swapped_homes_attain_it():  # 2
    for f in ((F(1), F(2)), (F(1, 100), F(3)), (F(2), F(7))):
        worst, best = worst_and_best(f, f[1] - f[0])
        assert worst / best == f[1] / f[0]
    game = RoutingGame([[0.01, 3.0]] * 2, np.eye(2), 2.99)
    found = routing.nash_range(game).value
    np.testing.assert_allclose(found.worst_s / routing.optimum(game).value.cost_s, 300.0, rtol=1e-9)


def test_idle_workers_that_cost_nothing():  # 3
    assert worst_and_best((F(0), F(1)), F(1)) == (2, 0)


@given(seed=st.integers(0, 2**31), omega=st.floats(0, 20))
def test_no_shipped_game_exceeds_it(seed, omega):  # 1
    rng = np.random.default_rng(seed)
    f = np.cumsum(rng.uniform(0.05, 1, (3, 5)) * rng.choice([0.1, 1.0, 10.0], (3, 5)), 1)
    game = RoutingGame(f, rng.uniform(size=(5, 3)), omega)
    best = float(routing.optimum(game).value.cost_s)
    assert float(routing.nash_range(game).value.worst_s) <= float((f[:, -1] / f[:, 0]).max()) * best * (1 + 1e-9)
