r"""NEW-1. Identical workers with caches: $PoA \le 1 + \omega / f(N/m)$.

**Verdict: proved** in the miss form, k f(k) convex, m | N, any overlaps in [0, 1]; tight for $\omega \le f(n+1) -
f(n)$. *Proof.* In an equilibrium $C_i \le f(n_k + 1) + \omega$ for every $k \ne \sigma_i$. If some $n_k \le N/m - 1$,
all $C_i \le f(N/m) + \omega$; otherwise all loads are N/m and $C_i \le f(N/m) + \omega$ again. The optimum is at least
the balanced cost $N f(N/m)$ by convexity. Hence the ratio. It *falls* to 1 as latency grows: the opposite of
Proposition 4(2). With the paper's constants and two workers: at most 1.083 at C = 64, so 7.5 or 18.7 are no prices of
anarchy.
"""

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.games.anarchy import identical_workers_price, price_of_anarchy
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import LatencyCurve, latency_table
from proofs.cases import every
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-1",
    source=DMODELS,
    where="games.anarchy_bounds.identical_workers_price",
    says="With identical workers the price of anarchy is at most 1 + omega / f(N/m)",
    verdict=Verdict.PROVED,
    needs=("k f(k) convex", "m divides N", "overlaps in [0, 1]"),
    means="With equal workers bad routing costs at most one cache miss per request; the busier the system, the less "
    "routing matters.",
)


multisets = itertools.combinations_with_replacement


def test_all_small_games_in_rationals():  # two workers, two or four requests, overlaps of 0, 1/2 and 1
    shares = list(itertools.product([Fraction(0), Fraction(1, 2), Fraction(1)], repeat=2))
    curves = ([1, 1, 1, 1], [1, 2, 3, 4], [1, 2, 4, 8])
    homes = [o for size, some in ((2, shares), (4, shares[2:7:2])) for o in multisets(some, size)]  # (0, 1), ... (1, 0)
    for f, omega, o in every(itertools.product(curves, (Fraction(1, 2), Fraction(3)), homes), "games"):
        size, worst, best = len(o), Fraction(0), None
        for at in itertools.product(range(2), repeat=size):
            n = [at.count(0), at.count(1)]
            cost = [f[n[k] - 1] + omega * (1 - o[i][k]) for i, k in enumerate(at)]
            total = sum(cost)
            best = total if best is None else min(best, total)
            if all(c <= f[n[1 - at[i]]] + omega * (1 - o[i][1 - at[i]]) for i, c in enumerate(cost)):
                worst = max(worst, total)
        assert 0 < worst <= (1 + omega / f[size // 2 - 1]) * best


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), each=st.integers(1, 4), m=st.integers(2, 4))
def test_no_equilibrium_exceeds_the_bound(seed, each, m):
    rng = np.random.default_rng(seed)
    ones = np.ones(m)
    curve = LatencyCurve(
        rng.uniform(0, 1) * ones,
        rng.uniform(0.01, 1) * ones,
        rng.uniform(0, 1) * ones,
        (each + rng.uniform(0.1, 4)) * ones,
        2.0 * ones,
    )
    omega = 10.0 ** rng.uniform(-2, 1)
    p = price_of_anarchy(RoutingGame(curve, rng.uniform(size=(each * m, m)), omega))
    bound = identical_workers_price(latency_table(curve, each)[0, -1], omega)
    assert p.certified and float(p.upper) <= bound * (1 + 1e-12)


def test_shifted_homes_attain_it():  # f(n) = n, omega = 1 = f(2) - f(1): all away from home is an equilibrium
    for m in (2, 3, 5):
        p = price_of_anarchy(RoutingGame(np.arange(1.0, m + 1) * np.ones((m, 1)), np.eye(m), 1.0))
        assert p.exact and abs(float(p.lower) - 2.0) < 1e-12


def test_frozen_swaps_attain_it_for_every_omega_at_full_load():  # no free slot: nobody can move, whatever a miss costs
    curve = LatencyCurve(np.zeros(2), np.ones(2), np.zeros(2), np.full(2, 1.5), np.ones(2))
    for omega in (0.5, 5.0, 500.0):
        p = price_of_anarchy(RoutingGame(curve, np.eye(2), omega))
        assert abs(float(p.lower) - (1 + omega)) < 1e-9
