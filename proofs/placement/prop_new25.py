r"""NEW-25. Equal demand on one switch, one tier, one place each: the price of anarchy is at most n, and that is
tight.

**Verdict: proved.** Distance d <= gamma, free local reads (an access cost adds the same to both sides), rates $r_b$ >
0, an equilibrium with $k_b$ copies of block b, any placement with $k'_b$. Let v be the least value $r_c d$ ($k_c \ge
2$) or $r_c\gamma$ ($k_c = 1$) that a worker's block has to it. A block b that nobody holds has $r_b\gamma \le v$. *If
$k'_b = n$ for some b*, the placement holds only b; each of the others of the equilibrium has $r_c\gamma \ge r_b d$ by
not changing to b, so the equilibrium costs no more than the placement. *Otherwise* n times the placement's cost less
the equilibrium's is, block by block: held with $1 \le k' \le n-1$: $[(n-1)(n-k) + n(k-k')]\, r d \ge n(k-k')v$ where
$k' \le k$, $k \ge 2$, and $\ge 0$ else; dropped: at least $n k v$; not held before but now: at least $-n r_b\gamma
\ge -nv$; neither: positive. New blocks number at most $\sum (k - k')$ over those held. The sum is not negative. (1)
The inequalities, in symbols. (2) All small games by enumeration. (3) Tight in the limit: POA-2.2's
family. (4) Here it ends: with two places per worker no bound in n exists. Three workers, three blocks of rate 1 and one
of rate $\gamma$: a worker that holds the only copies of two of the small ones does not give one up for the hot block,
which it would save $\gamma$ by, because it would recompute the small one at $\gamma$. Cost $\gamma + 5$, against 6
where all hold the hot block and one small one each.
"""

import itertools
from fractions import Fraction as F

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.placement import PlacementGame, complete, price_of_anarchy
from proofs.cases import every
from proofs.claim import DMODELS, Claim, Verdict
from proofs.placement.exact import extremes, switch

CLAIM = Claim(
    id="NEW-25",
    source=DMODELS,
    where="games.placement_anarchy.price_of_anarchy",
    says="With equal demand, one switch, one tier and one place per worker the price of anarchy is at most n",
    verdict=Verdict.PROVED,
    needs=("positive rates", "blocks of one size"),
    means="On one NVLink switch selfish caching loses at most a factor of the number of GPUs, and can lose nearly "
    "that. With two cached blocks per GPU there is no such bound: GPUs that hold the only copies of cold blocks "
    "read hot ones from afar.",
)


def test_the_inequalities_of_the_proof():  # 1: r d = 1, so v <= 1 where k >= 2; gamma = 1 + g >= d; all in symbols
    n, k, after, v, g = sp.symbols("n k k' v g")
    surplus = (n - 1) * (n - k) + n * (k - after)
    # held, k' <= k, k >= 2: above n (k - k') v by two products of factors that are not negative
    assert sp.expand(surplus - n * (k - after) * v - ((n - 1) * (n - k) + n * (k - after) * (1 - v))) == 0
    assert sp.expand(surplus.subs({k: 1, after: 1}) - (n - 1) ** 2) == 0  # held, k = k' = 1
    # held, k' > k: it falls in k', and at the most, n - 1, is k
    assert sp.diff(surplus, after) == -n and sp.expand(surplus.subs(after, n - 1)) == k
    # dropped altogether: from (n - k) d to n gamma, n times over; v <= 1 for k >= 2, and v = gamma for k = 1
    dropped = n * n * (1 + g) - (n - k)
    assert sp.expand(dropped - n * k - ((n - 1) * (n - k) + n * n * g)) == 0
    assert sp.expand((dropped - n * (1 + g)).subs(k, 1) - (n - 1) * (n - 1 + n * g)) == 0


def test_all_small_games_exactly():  # 2
    games = (
        (n, rates, gamma)
        for n, m in ((2, 2), (2, 3), (3, 2))
        for rates in itertools.combinations_with_replacement((1, 2, 4, 7), m)
        for gamma in (F(1), F(2), F(5), F(30))
    )
    for n, rates, gamma in every(games, "games of one place each"):
        worst, _, least = extremes([[F(r) for r in rates]] * n, [F(0)], [(1,)] * n, switch(n, F(1)), gamma)
        assert worst is not None and worst <= n * least


@pytest.mark.parametrize("gamma", [1, 16, 64, 256])
def test_two_places_have_no_bound(gamma):  # 4
    game = ([[F(1)] * 3 + [F(gamma)]] * 3, [F(0)], [(2,)] * 3, switch(3, F(1)), F(gamma))
    assert extremes(*game) == (gamma + 5, 6, 6)


@given(seed=st.integers(0, 2**31))
def test_one_place_each_stays_below_n(seed):  # by the shipped code
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    rates = np.tile(rng.choice([1.0, 2.0, 5.0, 20.0, 80.0], m), (n, 1))
    p = price_of_anarchy(PlacementGame(rates, [0.0], [1.0], complete(n, 1.0), rng.uniform(1, 60)), 2e4)
    assert not p.exact or p.optimum_s == 0 or p.upper <= n * (1 + 1e-12)


def test_the_shipped_code_has_no_bound_either():  # 4
    p = price_of_anarchy(PlacementGame(np.tile([1.0, 1.0, 1.0, 256.0], (3, 1)), [0.0], [2.0], complete(3, 1.0), 256.0))
    assert p.exact and p.lower == 261 / 6
