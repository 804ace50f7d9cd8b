r"""POA-2.3. "Under capacity constraints on HBM, the game becomes a capacitated selfish replication game, which admits
polynomial-time Nash equilibrium computation for hierarchical topologies."

**Verdict: conditional** on one limited tier, blocks of one size, and access costs that are the same at all workers.
With two limited tiers there may be nothing to compute (POA-2.1: a complete graph is a hierarchy). Blocks of unequal
size make a single best response a knapsack problem. (1) The algorithm of `placement_hierarchy` (raise the floors,
NEW-24) returns equilibria: checked in integers by the definition. (2) An unlimited tier below the limited one
replaces recomputation by $\gamma' = \min(\gamma, \alpha_2)$. (3) Where it stops: two limited tiers are refused.
"""

import itertools
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.games.placement import PlacementGame, complete, fat_tree, hierarchical_equilibrium, levels
from proofs.cases import every
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict
from proofs.placement.exact import cost, extremes, strategies, switch

CLAIM = Claim(
    id="POA-2.3",
    source=PRICE_OF_ANARCHY,
    where="Proposition 2(3)",
    says="With HBM capacities an equilibrium of KV placement is found in polynomial time on hierarchical networks",
    verdict=Verdict.CONDITIONAL,
    needs=(
        "one capacity-limited tier (the tier below holds everything)",
        "blocks of one size",
        "the same access costs at all workers",
    ),
    error="none under these hypotheses; without them there may be no equilibrium",
    counterexample="Two GPUs on one switch with one HBM and one DRAM place each and three blocks: no equilibrium "
    "exists.",
    means="If DRAM (or SSD) holds everything, a stable placement of HBM over NVLink and InfiniBand can be computed at "
    "once; with two scarce tiers do not wait for one.",
)


def gain(i, tiers, rates, access, rooms, distance, recompute):
    """What worker i could save, by trying everything."""
    now = cost(i, tiers, rates, access, distance, recompute)
    other = lambda row: (*tiers[:i], row, *tiers[i + 1 :])
    tried = strategies(len(rates[0]), rooms[i])
    return now - min(cost(i, other(row), rates, access, distance, recompute) for row in tried)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31))
def test_it_returns_equilibria_in_exact_arithmetic(seed):  # 1 and 2
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    hops = np.sort(rng.integers(0, 7, 3))
    order = rng.permutation(n)
    d = fat_tree(n, (2, 4), tuple(map(float, hops)))[np.ix_(order, order)]
    rates, room, gamma = rng.integers(0, 6, (n, m)), rng.integers(0, 4, n), int(rng.integers(3, 12))
    below = bool(rng.integers(2))
    access = [F(1), F(int(rng.integers(2, 6)))][: 1 + below]
    capacity = np.stack([room, np.full(n, np.inf)], 1)[:, : 1 + below]
    game = PlacementGame(rates, [float(v) for v in access], capacity, d, float(gamma))
    s = hierarchical_equilibrium(game)
    assert s.flags == 0 and s.certificate["gain_s"].max() <= 1e-9
    assert int(s.steps) <= max(1, room.sum()) * n * m * (len(levels(d).hop_s) + 1)  # the bound on moves
    rooms = [(int(k), None)[: 1 + below] for k in room]
    exact = [[F(int(v)) for v in row] for row in rates]
    distance = [[F(int(v)) for v in row] for row in d]
    tiers = tuple(tuple(map(int, row)) for row in s.value.tier)
    assert all(gain(i, tiers, exact, access, rooms, distance, F(gamma)) == 0 for i in range(n))


def test_all_small_games_have_one():  # 1, without the code: two on a switch, and two nodes of one and two
    hops = [switch(2, F(1)), [[F(0), F(1), F(3)], [F(1), F(0), F(3)], [F(3), F(3), F(0)]]]
    for distance in hops:
        n = len(distance)
        games = itertools.product(itertools.product((1, 3), repeat=2 * n), (F(2), F(5)))
        for rates, gamma in every(games, f"games of {n} workers"):
            demand = [[F(v) for v in rates[2 * i : 2 * i + 2]] for i in range(n)]
            assert extremes(demand, [F(0)], [(1,)] * n, distance, gamma)[0] is not None


def test_two_limited_tiers_are_refused():  # 3
    game = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)
    with pytest.raises(InputError, match="2 limited tiers"):
        hierarchical_equilibrium(game)
