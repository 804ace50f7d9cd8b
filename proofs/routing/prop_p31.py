r"""POA-3.1. Without cache terms "classical bounds apply": 5/2 for affine latencies (atomic), "tightening to" 4/3 "in
the nonatomic limit".

**Verdict: proved.** For whole numbers $3y(x+1) \le 5y^2 + x^2$ (1), so an equilibrium with loads x and any profile with
loads y satisfy $C(x) \le \frac53 C(y) + \frac13 C(x)$, hence 5/2 (2; terms $b_j$ only help). Nonatomic: $xy \le y^2 +
x^2/4$, hence 4/3 (3). The bound is loose here: every request may use every worker, so 4/3 holds for whole requests too
(NEW-3). Where requests are tied to some workers 4/3 is wrong: three requests already reach 5/3 (4).
"""

import itertools
from fractions import Fraction

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.anarchy import AFFINE_ATOMIC, AFFINE_NONATOMIC, price_of_anarchy
from dmodels.games.routing import RoutingGame
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-3.1",
    source=PRICE_OF_ANARCHY,
    where="Proposition 3(1)",
    says="without cache terms the price of anarchy is at most 5/2 for affine latencies (atomic), 4/3 nonatomic",
    verdict=Verdict.PROVED,
    error="loose: where every request may use every worker 4/3 holds for whole requests too",
    means="Plan with 4/3 if any worker can serve any request; with up to 5/2 if adapters or regions tie requests down.",
)


def test_the_inequality_of_whole_numbers():  # 1: a square plus a rest that is not negative from y = 2 on
    x, y = sp.symbols("x y", integer=True, nonnegative=True)
    rest = 5 * y**2 + x**2 - 3 * y * (x + 1)
    assert sp.expand(rest - (x - sp.Rational(3, 2) * y) ** 2 - y * (sp.Rational(11, 4) * y - 3)) == 0
    assert sp.Rational(11, 4) * 2 - 3 > 0
    assert sp.expand(rest.subs(y, 1) - (x - 1) * (x - 2)) == 0 and rest.subs(y, 0) == x**2  # y = 1, y = 0


def test_from_the_inequality_to_the_bounds():  # 2, 3
    for lam, mu, shipped in (((5, 3), (1, 3), AFFINE_ATOMIC), ((1, 1), (1, 4), AFFINE_NONATOMIC)):
        assert float(Fraction(*lam) / (1 - Fraction(*mu))) == shipped
    x, y = sp.symbols("x y", nonnegative=True)
    assert sp.expand(y**2 + x**2 / 4 - x * y - (y - x / 2) ** 2) == 0


def test_three_tied_requests_reach_five_thirds():  # 4: f(n) = n, two requests on {A, B}, one on {B, C}
    access, found = [(0, 1), (0, 1), (1, 2)], {}
    for at in itertools.product(*access):
        n = [at.count(j) for j in range(3)]
        stable = all(n[k] <= n[j] + 1 for i, k in enumerate(at) for j in access[i] if j != k)
        found[at] = (sum(k * k for k in n), stable)
    worst = max(cost for cost, stable in found.values() if stable)
    assert Fraction(worst, min(cost for cost, _ in found.values())) == Fraction(5, 3) > Fraction(4, 3)
    tied = np.array([[float(j in a) for j in range(3)] for a in access])
    price = price_of_anarchy(RoutingGame(np.arange(1.0, 4.0) * np.ones((3, 1)), tied, 100.0))
    assert price.exact and abs(float(price.lower) - 5 / 3) < 1e-12


@given(a=st.lists(st.integers(1, 9), min_size=3, max_size=3), seed=st.integers(0, 2**31))
def test_tied_requests_stay_below_five_halves(a, seed):
    tied = np.random.default_rng(seed).integers(0, 2, (5, 3)).astype(float)
    tied[np.arange(5), np.arange(5) % 3] = 1.0  # everybody has a worker
    price = price_of_anarchy(RoutingGame(np.outer(a, np.arange(1.0, 6.0)), tied, 1000.0))
    assert float(price.upper) <= 2.5 + 1e-9
