r"""POA-5.3. "The transition at the first eviction ... is sharp: the PoA jumps from 1 to a value determined by the
eviction policy and network topology."

**Verdict: refuted.** (1) Uniform demand on one switch: price 1 for any number of blocks, below, at and above
capacity. (2) Two workers, popularity (1, e), one place each: the second block is evicted at rho = 1 for all e, and
the price is exactly 1 until e exceeds $d/(2(\gamma - \alpha) - d)$; a cold block's eviction costs nothing extra,
because the optimum evicts it too. The price is not even monotone: above $d/(\gamma - \alpha)$ it is 1 again. (3) At
rho = 1 with a fit on each worker the price is 1: the boundary rho >= 1 is off by one.

**What the authors could answer.** That with many blocks some warm one is evicted first, so that a jump is what one
sees. At rho = 1 exactly nothing is evicted (3); just above it the optimum evicts the same coldest block as everybody,
and the price moves only once copies of warm blocks displace each other. With uniform demand it never does (1). The
verdict stands; sharp it can be, a jump at the first eviction it is not.
"""

from fractions import Fraction as F

import numpy as np

from dmodels.games.placement import PlacementGame, complete, price_of_anarchy
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict
from proofs.placement.exact import extremes, switch

CLAIM = Claim(
    id="POA-5.3",
    source=PRICE_OF_ANARCHY,
    where="Proposition 5(3)",
    says="The price of anarchy of KV placement jumps as the first block is evicted",
    verdict=Verdict.REFUTED,
    minimal="least: an eviction needs two blocks and a game two workers",
    counterexample="Two GPUs with one place each, two blocks, prefill eight times a transfer: with the second "
    "block below "
    "a fifteenth of the first one's rate, selfish and optimal placement are the same.",
    means="The first evictions are of cold blocks, and harmless. The loss begins where a block that a second copy "
    "of a "
    "hot one displaces is warm.",
)


def test_uniform_demand_has_price_one_at_every_load():  # 1: rho from 1/2 to 2
    for blocks in (1, 2, 3, 4):
        rates = [[F(1)] * blocks] * 2
        worst, _, least = extremes(rates, [F(1)], [(1,)] * 2, switch(2, F(1)), F(5))
        assert worst == least
        p = price_of_anarchy(PlacementGame(np.ones((2, blocks)), [1.0], [1.0], complete(2, 1.0), 5.0))
        assert p.exact and abs(p.upper - 1) < 1e-12


def test_no_jump_for_a_cold_block():  # 2
    alpha, d, gamma = F(0), F(1), F(8)
    low, high = d / (2 * (gamma - alpha) - d), d / (gamma - alpha)
    assert (low, high) == (F(1, 15), F(1, 8))
    prices = []
    for e in (F(1, 100), low, F(1, 12), high, F(1, 7), F(1)):
        worst, _, least = extremes([[F(1), e]] * 2, [alpha], [(1,)] * 2, switch(2, d), gamma)
        prices.append(worst / least)
    assert prices[:2] == [1, 1] and prices[2] > 1 and prices[3] > prices[2] and prices[4:] == [1, 1]


def test_exactly_full_is_still_one():  # 3
    rates = [[F(3), F(1), F(0), F(0)], [F(0), F(0), F(2), F(5)]]
    worst, _, least = extremes(rates, [F(1)], [(2,)] * 2, switch(2, F(1)), F(9))
    assert worst == least == 11
