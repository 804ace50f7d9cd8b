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
The inequalities, in symbols and on whole grids. (2) All small games by enumeration. (3) Tight in the limit: POA-2.2's
family. For more places per worker no counterexample is known (4: a search), and the proof leaves one case open:
blocks that the optimum keeps on every worker.
"""

import itertools
from fractions import Fraction as F

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.placement import PlacementGame
from dmodels.games.placement_anarchy import price_of_anarchy
from dmodels.games.placement_networks import complete
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
    "that.",
)


def test_the_inequalities_of_the_proof():  # 1: r d = 1, so v <= 1 where k >= 2; gamma >= d
    for n in range(2, 9):
        for k, after in itertools.product(range(1, n + 1), range(1, n)):
            surplus = F((n - 1) * (n - k) + n * (k - after))
            assert surplus >= (n * (k - after) if k >= 2 and after <= k else 0)
        for k, gamma in itertools.product(range(1, n + 1), (F(1), F(3, 2), F(10))):
            value = gamma if k == 1 else F(1)  # dropped altogether: from (n - k) d to n gamma
            assert n * n * gamma - (n - k) >= n * k * value


def test_all_small_games_exactly():  # 2
    for n, m in ((2, 2), (2, 3), (3, 2)):
        for rates in itertools.combinations_with_replacement((1, 2, 4, 7), m):
            for gamma in (F(1), F(2), F(5), F(30)):
                game = ([[F(r) for r in rates]] * n, [F(0)], [(1,)] * n, switch(n, F(1)), gamma)
                worst, _, least = extremes(*game)
                assert worst is not None and worst <= n * least


@given(seed=st.integers(0, 2**31))
def test_more_places_stay_below_n_as_well(seed):  # 4: a search
    rng = np.random.default_rng(seed)
    n, m, places = int(rng.integers(2, 4)), int(rng.integers(2, 5)), int(rng.integers(1, 3))
    rates = np.tile(rng.choice([1.0, 2.0, 5.0, 20.0, 80.0], m), (n, 1))
    p = price_of_anarchy(PlacementGame(rates, [0.0], [float(places)], complete(n, 1.0), rng.uniform(1, 60)), 2e4)
    assert not p.exact or p.optimum_s == 0 or p.upper <= n * (1 + 1e-12)
