r"""POA-CP. The cache paradox: adding cache memory can raise the total cost of selfish caching (after Ma et al.).

**Verdict: proved** by exact instances, and for more than the paper says: not only on directed graphs, and not only
for the worst equilibrium. (1) Three workers in a row, left, middle, right, free local reads, one per hop,
recomputation 3; rates left (0, 4), middle (2, 1), right (4, 1); places 0, 1, 1. Every equilibrium costs 7: right
holds block 1, middle block 2, from which left reads it. One place more at the right: right now holds both, middle no
longer needs its copy of block 2 and takes block 1, and left reads over two hops: every equilibrium costs 9, the
optimum 6. (2) One more cache *node*: rates left (4, 0), middle (1, 1), right (1, 0), one place in the middle only;
giving right its first place raises the best equilibrium from 8 to 9. Likewise with two GPUs on NVLink and one over
InfiniBand, at distances 1 and 2: rates (4, 3) and (4, 0) in the node, (1, 0) far away, recomputation 3, one place at
the first. A first place for the far GPU makes every equilibrium cost 16 instead of 15: it keeps block 1, so the first
GPU turns to block 2, and both in the node read block 1 over InfiniBand. (3) On one switch (all distances equal) the
worst equilibrium can rise, 2 to 3 with three workers and three blocks; two blocks did not suffice there in an
exhaustive search, nor two workers with one tier in the grids of (4). (5) "Bounded": any equilibrium costs at most
what everybody would pay alone, which memory only lowers; so the rise is at most that over the cost before. The search
and `at_risk` of the shipped code find all three.
"""

from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.placement import (
    PlacementGame,
    at_risk,
    complete,
    equilibria,
    isolated_s,
    line,
    more_memory,
    paradox_search,
    rises,
    two_level,
)
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict
from proofs.placement.exact import extremes, switch

CLAIM = Claim(
    id="POA-CP",
    source=PRICE_OF_ANARCHY,
    where="Section 4.2, the cache paradox",
    says="Adding cache memory or a cache node can raise the total access cost under selfish caching",
    verdict=Verdict.PROVED,
    means="Before buying memory for one node of a pool whose caches evict for themselves, ask `at_risk`: the "
    "neighbours "
    "may drop copies on which a third depends. With coordinated placement more memory never hurts.",
)

ROW = [[F(abs(i - j)) for j in range(3)] for i in range(3)]  # left, middle, right
RATES = [[F(0), F(4)], [F(2), F(1)], [F(4), F(1)]]


def as_game(rates, places, distance, gamma):
    return PlacementGame(np.array(rates, float), [0.0], np.array(places, float)[:, None], distance, gamma)


def test_every_equilibrium_rises_from_seven_to_nine():  # 1
    rooms = lambda right: [(0,), (1,), (right,)]
    assert extremes(RATES, [F(0)], rooms(1), ROW, F(3)) == (7, 7, 7)
    assert extremes(RATES, [F(0)], rooms(2), ROW, F(3)) == (9, 9, 6)
    assert extremes(RATES, [F(0)], rooms(1), ROW, F(3), literal=True)[:2] == (7, 7)
    assert extremes(RATES, [F(0)], rooms(2), ROW, F(3), literal=True)[:2] == (9, 9)


def test_a_first_place_for_one_more_node():  # 2
    rates = [[F(4), F(0)], [F(1), F(1)], [F(1), F(0)]]
    assert extremes(rates, [F(0)], [(0,), (1,), (0,)], ROW, F(3))[1] == 8
    assert extremes(rates, [F(0)], [(0,), (1,), (1,)], ROW, F(3))[:2] == (9, 9)


def test_nvlink_and_infiniband():  # 2
    rates = [[F(4), F(3)], [F(4), F(0)], [F(1), F(0)]]
    distance = [[F(int(v)) for v in row] for row in two_level(3, 2, 1.0, 2.0)]
    assert extremes(rates, [F(0)], [(1,), (0,), (0,)], distance, F(3))[:2] == (15, 15)
    assert extremes(rates, [F(0)], [(1,), (0,), (1,)], distance, F(3))[:2] == (16, 16)
    risk = at_risk(as_game(rates, (1, 0, 0), two_level(3, 2, 1.0, 2.0), 3.0))
    assert risk.at_risk and risk.after_s[risk.worker == 2] == 16


def test_on_one_switch_the_worst_equilibrium_rises():  # 3
    rates = [[F(0), F(0), F(1)], [F(0), F(1), F(1)], [F(2), F(1), F(0)]]
    assert extremes(rates, [F(0)], [(1,)] * 3, switch(3, F(1)), F(4)) == (2, 2, 2)
    assert extremes(rates, [F(0)], [(2,), (1,), (1,)], switch(3, F(1)), F(4)) == (3, 2, 2)


def test_the_planners_check_sees_it():
    risk = at_risk(as_game(RATES, (0, 1, 1), line(3, 1.0), 3.0))
    assert risk.exact and risk.at_risk and not risk.safe and risk.before_s == 7
    assert risk.worker[risk.after_s.argmax()] == 2 and risk.after_s.max() == 9
    plays = at_risk(as_game(RATES, (0, 1, 1), line(3, 1.0), 3.0), max_profiles=0)
    assert plays.at_risk and not plays.exact and plays.after_s.max() == 9  # found by playing, too
    assert at_risk(as_game(RATES, (2, 2, 2), line(3, 1.0), 3.0)).safe


def test_no_paradox_for_two_workers_in_these_grids():  # 4
    for gamma in (2.0, 4.0):
        assert not list(paradox_search(2, 2, (0, 1, 2), complete(2, 1.0), (0, 1, 2), recompute_s=gamma))


@pytest.mark.slow
def test_the_search_finds_the_paradoxes_and_none_in_smaller_games():  # 3 and 4
    two = [list(paradox_search(2, 3, (0, 1, 2), complete(2, 1.0), (0, 1, 2), best=best)) for best in (False, True)]
    assert two == [[], []]
    assert not list(paradox_search(3, 2, (0, 1, 2), complete(3, 1.0), (0, 1)))
    assert not list(paradox_search(3, 3, (0, 1), complete(3, 1.0), (0, 1)))
    found = list(paradox_search(3, 3, (0, 1, 2), complete(3, 1.0), (1,)))
    assert max(r.worst_s[1] / r.worst_s[0] for _, r in found) == 1.5
    best = list(paradox_search(3, 2, (0, 1, 4), line(3, 1.0), (0, 1), recompute_s=3.0, best=True))
    assert best and all(r.best_s[1] > r.best_s[0] and r.optimum_s[1] <= r.optimum_s[0] for _, r in best)


@given(seed=st.integers(0, 2**31))
def test_the_rise_is_bounded_by_isolation(seed):  # 5
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    game = as_game(rng.integers(0, 5, (n, m)), rng.integers(0, 3, n), line(n, 1.0), 5.0)
    for rise in rises(game):
        bigger = more_memory(game, rise.worker, rise.tier)
        ceiling = isolated_s(bigger).sum()
        assert ceiling <= isolated_s(game).sum() + 1e-9 and rise.optimum_s[1] <= rise.optimum_s[0] + 1e-9
        assert (equilibria(bigger).value.social_s <= ceiling + 1e-9).all()
