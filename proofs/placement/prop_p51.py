r"""POA-5.1. Below capacity, where rho, the "ratio of total active KV blocks to total HBM capacity across all workers",
is less than 1, the price of anarchy is 1.

**Verdict: refuted.** rho adds up workers; capacity does not move between them. (1) Worker 1 reads three blocks and
has one place in HBM and two in DRAM, worker 2 reads nothing and has three places in HBM: rho = 3/4. Access (1, 5),
distance 1: worker 1 alone pays 11, with two blocks in its neighbour's HBM 5: price 11/5. Without DRAM the price is
$(1 + 2\gamma)/5$, without bound. (2) If the neighbour has a little demand for blocks of its own that fill its HBM,
every equilibrium is that bad, not only the worst. (3) What is true: if each worker's own blocks fit its own HBM,
keeping them is a dominant strategy and the price is 1.

**What the authors could answer.** That below capacity means that each worker's blocks fit its own HBM. Then the price
is 1 (3), and one should say so: rho is defined as a sum over workers, and an idle neighbour is what it hides. Or that a
router would spread the load: that is another game than the one of Definition 2, whose rates are given. The verdict
stands for the stated rho.
"""

from fractions import Fraction as F

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.placement import PlacementGame, complete, price_of_anarchy
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict
from proofs.placement.exact import extremes, switch

CLAIM = Claim(
    id="POA-5.1",
    source=PRICE_OF_ANARCHY,
    where="Proposition 5(1)",
    says="If all active blocks together need less than all HBM, the price of anarchy of KV placement is 1",
    verdict=Verdict.REFUTED,
    minimal="least: one worker's own best is the optimum, so two workers; one block is enough if its reader "
    "has no room",
    counterexample="One GPU with three hot blocks and room for one, beside an idle GPU with room for three: the "
    "fleet is "
    "at 75 % and the busy GPU pays 11 where 5 would do.",
    means="Average HBM occupancy says nothing. Look at each GPU's own working set: selfish caching is harmless only "
    "where every one of them fits.",
)


def test_eleven_fifths_at_three_quarters_of_capacity():  # 1
    rates = [[F(1)] * 3, [F(0)] * 3]
    rooms = [(1, 2), (3, 0)]
    assert F(3, 1 + 3) < 1
    worst, _, least = extremes(rates, [F(1), F(5)], rooms, switch(2, F(1)), F(9))
    assert (worst, least) == (11, 5)
    game = PlacementGame(np.array(rates, float), [1.0, 5.0], np.array(rooms, float), complete(2, 1.0), 9.0)
    p = price_of_anarchy(game)
    assert p.exact and abs(p.lower - 11 / 5) < 1e-15
    for gamma in (F(20), F(2000)):  # without DRAM
        worst, _, least = extremes(rates, [F(1)], [(1,), (3,)], switch(2, F(1)), gamma)
        assert worst / least == (1 + 2 * gamma) / 5


def test_two_workers_and_one_block_are_enough():  # the least: the reader has no room, its idle neighbour has
    worst, _, least = extremes([[F(1)], [F(0)]], [F(1)], [(0,), (2,)], switch(2, F(1)), F(9))
    assert (worst, least) == (9, 2)  # gamma / (alpha + d) at rho = 1/2


def test_every_equilibrium_is_that_bad():  # 2: rho = 4/5 < 1
    few = F(1, 1000)
    rates = [[F(1)] * 2 + [F(0)] * 2, [F(0)] * 2 + [few] * 2]
    worst, best, least = extremes(rates, [F(1)], [(1,), (2,)], switch(2, F(1)), F(100))
    assert worst == best == 101 + 2 * few and least <= 3 + few + 100 * few


@given(seed=st.integers(0, 2**31))
def test_one_where_each_fits(seed):  # 3
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    rates = rng.integers(0, 4, (n, m))
    capacity = np.stack([np.maximum((rates > 0).sum(1), 0), rng.integers(0, 2, n)], 1)
    game = PlacementGame(rates, [1.0, 2.0], capacity, complete(n, float(rng.uniform(0.1, 3))), 5.0)
    p = price_of_anarchy(game, max_profiles=2e4)
    assert abs(p.upper - 1) < 1e-9 or p.optimum_s == 0
