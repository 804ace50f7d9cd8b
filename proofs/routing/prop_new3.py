r"""NEW-3. Without cache terms: $PoA \le 1/(1 - \beta)$, $\beta = \max_{j,\,o<n} \frac{o (f_j(n) - f_j(o))}{n f_j(n)}$.

**Verdict: proved** for any nondecreasing latencies; attained; 4/3 for affine ones, *atomically*, where the paper
quotes 5/2. *Proof.* Match each surplus request ($n_j > o_j$) to a free place of the optimum ($n_k < o_k$): in an
equilibrium $f_j(n_j) \le f_k(n_k + 1) \le f_k(o_k)$. So
$C(NE) \le \sum_{over} o_j f_j(n_j) + \sum_{under} o_k f_k(o_k) \le OPT + \sum_{over} o_j (f_j(n_j) - f_j(o_j))
\le OPT + \beta C(NE)$.
"""

import itertools
from fractions import Fraction

import numpy as np
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.games.anarchy import price_of_anarchy, singleton_price
from dmodels.games.routing import RoutingGame
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-3",
    source=DMODELS,
    where="games.anarchy_bounds.singleton_price",
    says="Without cache terms the price of anarchy is at most 1/(1 - beta), beta = max o (f(n) - f(o)) / (n f(n)) over "
    "o < n and workers; 4/3 if affine",
    verdict=Verdict.PROVED,
    needs=("nondecreasing latencies", "every request may use every worker"),
    means="Greedy load balancing over workers with linear slowdown is never more than a third above the optimum.",
)


def test_affine_beta_is_a_quarter():  # o (n - o) / n^2 <= 1/4
    o, n = sp.symbols("o n", positive=True)
    share = o * (n - o) / n**2  # a (n - o) over a n + b is largest at b = 0
    assert sp.solve(sp.diff(share, o), o) == [n / 2] and share.subs(o, n / 2) == sp.Rational(1, 4)


def test_all_small_games_in_rationals():  # three requests, two workers, every pair of nondecreasing tables
    tables = list(itertools.combinations_with_replacement([Fraction(x) for x in (1, 2, 3, 7)], 3))
    for f in itertools.product(tables, repeat=2):
        beta = max(o * (t[n - 1] - t[o - 1]) / (n * t[n - 1]) for t in f for n in range(1, 4) for o in range(1, n))
        totals = [[Fraction(0), *(n * t[n - 1] for n in range(1, 4))] for t in f]
        cost = [totals[0][n] + totals[1][3 - n] for n in range(4)]  # n requests on worker 0
        stable = [n for n in range(4) if (n == 0 or f[0][n - 1] <= f[1][3 - n]) and (n == 3 or f[1][2 - n] <= f[0][n])]
        assert stable and max(cost[n] for n in stable) * (1 - beta) <= min(cost)
        assert abs(float(singleton_price(np.array(f, float))) - float(1 / (1 - beta))) < 1e-12


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31))
def test_no_equilibrium_exceeds_the_bound(seed):
    rng = np.random.default_rng(seed)
    f = np.sort(rng.integers(0, 30, (6, 3, 7)), axis=-1) + 1.0
    p = price_of_anarchy(RoutingGame(f, np.zeros((7, 3))))
    assert (p.lower <= singleton_price(f) * (1 + 1e-12)).all()


def test_two_requests_attain_four_thirds():
    f = np.array([[1.0, 2.0], [2.0, 2.0]])
    p = price_of_anarchy(RoutingGame(f, np.zeros((2, 2))))
    assert abs(float(p.lower) - 4 / 3) < 1e-12 and abs(float(singleton_price(f)) - 4 / 3) < 1e-12
