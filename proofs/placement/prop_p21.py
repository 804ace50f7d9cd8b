r"""POA-2.1. "Pure Nash equilibria exist" in the KV placement game (Definition 2), by the theorem of Chun et al.

**Verdict: refuted** for the game as defined, with tiers and capacities. (1) Two workers, three blocks, one place in
G1 and one in G2 each, access (1, 2), distance 2, recomputation 5, rates (2, 3, 4) for both: in every one of the 169
profiles some worker gains at least 1 by moving, so there is no equilibrium, for any costs within 1/2 of these either.
The same if Eq. (6) is read as a list of cases, if an unlimited third tier is added, and (with rates (1, 3, 5)) if
remote HBM is as near as local DRAM. (2) Selfish play runs in a circle, which the shipped dynamics find and show. (3)
Chun's theorem is about another game: it charges for copies and has no capacities. (4) Two blocks never suffice in the
grids searched, nor does one limited tier on a hierarchical network (POA-2.3). (5) Adding the DRAM place is what takes
the equilibria away.

**What the authors could answer.** That item 1 is about the game before capacities, since item 3 begins "Under capacity
constraints on HBM". But Definition 2 has capacities and no cost of a copy: without them everybody keeps everything in
HBM, an equilibrium that needs no theorem. Or that real rates are generic: the cycle survives every change of costs
below 1/2. The verdict stands for the game as defined.
"""

import itertools
from fractions import Fraction as F

import numpy as np

from dmodels.core.flags import Flag
from dmodels.games.placement import PlacementGame, best_response_dynamics, complete, equilibria, gains_s, placement
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict
from proofs.placement.exact import profiles, switch

CLAIM = Claim(
    id="POA-2.1",
    source=PRICE_OF_ANARCHY,
    where="Proposition 2(1)",
    says="The KV placement game has a pure Nash equilibrium",
    verdict=Verdict.REFUTED,
    minimal="searched: one worker has a best response that stays one; two workers with two blocks, or with one limited "
    "tier, always have an equilibrium on the grid of the test",
    counterexample="Two workers that read the same three blocks at rates 2, 3 and 4, with room for one block in "
    "HBM and "
    "one in DRAM: whatever they keep, one of them gains by rearranging, and selfish play never stops.",
    means="Caches that evict for themselves over two tiers can churn for ever on constant traffic. Let moves pass "
    "only "
    "if they lower the total cost; then they end.",
)

RATES = [[F(2), F(3), F(4)]] * 2
GAME = PlacementGame(np.array(RATES, float), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)


def test_every_profile_has_a_worker_who_gains_at_least_one():  # 1
    every = list(profiles(RATES, [F(1), F(2)], [(1, 1)] * 2, switch(2, F(2)), F(5)))
    assert len(every) == 169 and min(p.gain for p in every) == 1


def test_the_same_with_eq_6_as_a_list_of_cases():  # 1
    every = list(profiles(RATES, [F(1), F(2)], [(1, 1)] * 2, switch(2, F(2)), F(5), literal=True))
    assert len(every) == 169 and min(p.gain for p in every) == 1


def test_the_same_with_an_unlimited_third_tier():  # 1: SSD as dear as recomputation
    every = list(profiles(RATES, [F(1), F(2), F(5)], [(1, 1, None)] * 2, switch(2, F(2)), F(5), literal=True))
    assert len(every) == 1936 and min(p.gain for p in every) > 0


def test_the_same_where_remote_hbm_is_no_slower_than_local_dram():  # 1: other rates
    rates = [[F(1), F(3), F(5)]] * 2
    every = list(profiles(rates, [F(1), F(2)], [(1, 1)] * 2, switch(2, F(1)), F(5)))
    assert len(every) == 169 and min(p.gain for p in every) == 1
    game = PlacementGame(np.array(rates, float), [1.0, 2.0], [1.0, 1.0], complete(2, 1.0), 5.0)
    assert len(equilibria(game).value.tiers) == 0


def test_the_code_finds_none_and_the_best_approximation():  # 1
    s = equilibria(GAME)
    assert int(s.steps) == 169 and len(s.value.tiers) == 0 and s.flags == int(Flag.INFEASIBLE)
    assert s.value.nearest_gain_s == 1.0 == gains_s(GAME, s.value.nearest).max()


def test_selfish_play_runs_in_a_circle():  # 2
    s = best_response_dynamics(GAME)
    circle = s.certificate["cycle"]
    assert s.flags == int(Flag.NOT_CONVERGED) and len(circle) >= 2
    for before, after in zip(np.roll(circle, 1, axis=0), circle, strict=True):  # the last leads to the first
        mover = np.flatnonzero((before != after).any(1))
        assert len(mover) == 1
        i = mover[0]
        assert placement(GAME, after).cost_s[i] < placement(GAME, before).cost_s[i]
    assert not best_response_dynamics(GAME, coordinated=True).flags  # coordinated play ends


def test_nothing_smaller():  # 4: two blocks, or one tier
    for rates in itertools.product((1, 2, 4), repeat=4):
        for hop, gamma in ((F(1), F(4)), (F(2), F(5))):
            rows = [[F(r) for r in rates[:2]], [F(r) for r in rates[2:]]]
            assert any(p.gain == 0 for p in profiles(rows, [F(1), F(2)], [(1, 1)] * 2, switch(2, hop), gamma))
    for rates in itertools.combinations_with_replacement((1, 2, 3, 4, 5), 3):
        for hop, gamma in ((F(1), F(5)), (F(2), F(5)), (F(3), F(13))):
            rows = [[F(r) for r in rates]] * 2
            assert any(p.gain == 0 for p in profiles(rows, [F(1)], [(1,)] * 2, switch(2, hop), gamma))


def test_the_code_finds_one_in_all_games_of_two_blocks_on_a_grid():  # 4
    for rates in itertools.product((1.0, 2.0, 3.0), repeat=4):
        for distance, gamma in ((1.0, 4.0), (2.0, 5.0), (3.0, 9.0)):
            game = PlacementGame(np.reshape(rates, (2, 2)), [1.0, 2.0], [1.0, 1.0], complete(2, distance), gamma)
            assert len(equilibria(game).value.tiers)


def test_without_the_dram_place_there_are_equilibria():  # 5
    none = GAME.replace(capacity_bytes=np.array([1.0, 0.0]))
    one = GAME.replace(capacity_bytes=np.array([[1.0, 1.0], [1.0, 0.0]]))
    assert len(equilibria(none).value.tiers) and len(equilibria(one).value.tiers)
