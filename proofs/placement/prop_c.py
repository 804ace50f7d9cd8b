r"""POA-C. Of selfish caching: "Pure Nash equilibria always exist", "PoA = 1 on complete graphs (selfish caching is
optimal) but PoA = O(n) on line topologies" (after Chun et al.).

**Verdict: conditional.** Chun's game has a cost alpha per copy and no capacities. (1) Existence: yes on undirected
networks where somebody must hold the block (gamma infinite); Chun's greedy finds one. On directed networks there may
be none: three nodes in a one-way ring, alpha between one and two hops. (2) At most n: at an equilibrium nobody pays
more than alpha, and the optimum pays for a copy. (3) Complete graphs: 1 for equal demand; for demand that differs up
to 2 (two nodes, 202/102...); with finite gamma nobody may want to pay for the only copy, and the price reaches n. (4)
Lines: $\Theta(\sqrt n)$ with equal links (NEW-26), $\Theta(n)$ only if links differ. (5) None of it holds with
capacities (POA-2.1, POA-2.2), which the paper applies it to.
"""

import itertools
from fractions import Fraction as F

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.flags import Flag
from dmodels.games.placement import complete, line, ring, shortest_paths
from proofs.cases import every
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict
from proofs.placement.caching import CachingGame, caching_equilibrium, caching_range

CLAIM = Claim(
    id="POA-C",
    source=PRICE_OF_ANARCHY,
    where="Section 3.4, after Chun et al. [6]",
    says="In selfish caching pure equilibria always exist, and the price of anarchy is 1 on complete graphs, O(n) "
    "on lines",
    verdict=Verdict.CONDITIONAL,
    needs=(
        "no capacities, a cost per copy",
        "undirected distances",
        "a block that somebody must hold (gamma infinite)",
        "equal demand, for the complete graph",
    ),
    error="O(n) on a line is Theta(sqrt n) if its links are equal",
    counterexample="Three nodes on a one-way ring, a copy costs one and a half hops: whoever holds one, somebody "
    "moves.",
    means="The bounds are about caches that pay rent for copies, not about HBM of fixed size: do not use them for it.",
)


def cost(distance, alpha, rates, kept, i):
    read = min([distance[i][j] for j in range(len(kept)) if kept[j]], default=None)
    return alpha if kept[i] else (rates[i] * read if read is not None else None)


def prices(distance, alpha, rates):
    """(costs of equilibria, optimum) in exact arithmetic, gamma infinite."""
    n = len(rates)
    totals, stable = [], []
    for kept in itertools.product((0, 1), repeat=n):
        if not any(kept):
            continue
        pays = [cost(distance, alpha, rates, kept, i) for i in range(n)]
        totals.append(sum(pays))
        other = lambda i, kept=kept: tuple(1 - k if j == i else k for j, k in enumerate(kept))
        after = [cost(distance, alpha, rates, other(i), i) for i in range(n)]
        if all(a is None or a >= p for a, p in zip(after, pays, strict=True)):
            stable.append(totals[-1])
    return stable, min(totals)


def test_no_equilibrium_on_a_one_way_ring():  # 1
    one_way = [[F((i - j) % 3) for j in range(3)] for i in range(3)]
    assert prices(one_way, F(3, 2), [F(1)] * 3)[0] == []


def test_the_shipped_range_finds_none_on_it():  # 1
    s = caching_range(CachingGame(ring(3, 1.0, directed=True), 1.5))
    assert s.flags == int(Flag.INFEASIBLE) and s.certificate["equilibria_count"] == 0


@given(seed=st.integers(0, 2**31))
def test_greedy_finds_one_and_n_bounds_all(seed):  # 1 and 2
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    links = np.triu(rng.integers(0, 6, (n, n)), 1).astype(float)
    game = CachingGame(shortest_paths(links + links.T), float(rng.integers(1, 8)), rng.integers(0, 4, n))
    assert (caching_equilibrium(game).certificate["gain_s"] <= 0).all()
    s = caching_range(game)
    assert s.certificate["equilibria_count"] >= 1 and s.certificate["price_of_anarchy"] <= n + 1e-9


def test_complete_graphs_exactly():  # 3
    for n, alpha in every(itertools.product((2, 3, 4), (F(1, 2), F(1), F(3, 2), F(5))), "games on complete graphs"):
        distance = [[F(int(i != j)) for j in range(n)] for i in range(n)]
        stable, least = prices(distance, alpha, [F(1)] * n)
        assert set(stable) == {least}
    distance = [[F(0), F(1)], [F(1), F(0)]]  # a busy and an idle node: the idle one holds the copy, the busy one reads
    stable, least = prices(distance, F(100), [F(100), F(2)])
    assert F(max(stable), least) == F(200, 102)


def test_the_shipped_range_of_a_busy_and_an_idle_node():  # 3
    s = caching_range(CachingGame(complete(2, 1.0), 100.0, [100.0, 2.0]))
    assert abs(s.certificate["price_of_anarchy"] - 200 / 102) < 1e-12


def test_finite_recomputation_leaves_the_block_unheld():  # 3: n = 5, alpha = 25, gamma = 25, d = 1/4
    s = caching_range(CachingGame(complete(5, 0.25), 25.0, 1.0, 25.0))
    assert abs(s.certificate["price_of_anarchy"] - 125 / 26) < 1e-12


def test_unequal_links_reach_order_n():  # 4: two crowds at a distance of alpha
    for n in (4, 8, 16):
        links = np.zeros(n - 1)
        links[n // 2 - 1] = 10.0
        s = caching_range(CachingGame(line(n, links), 10.0))
        assert abs(s.certificate["price_of_anarchy"] - (1 + n / 2) / 2) < 1e-12
