r"""POA-R2. Remark 2, a conjecture: "the PoA scales sublinearly with worker count", and in "the homogeneous-request
regime (common model prefixes), we expect the PoA to approach 1".

**Verdict: refuted** in both parts where the price is the worst case over latencies, the second also at fixed ones
(three GPUs at d = gamma/3: 9/5): equal demand on one switch (the simplest hierarchy) has price $n\gamma/(\gamma +
(n-1)d)$ (POA-2.2), which is above $n/2$ at $d = \gamma/n$ and tends to n. What is true: (1) For *fixed* latencies every
read costs between $\alpha_{G1}$ and $\gamma$, so the price is at most $\gamma/\alpha_{G1}$ however many workers there
are, and sublinear for that trivial reason. (2) What drives the family is $\gamma/d$: its price is at most that, and at
most n. (3) On two levels, with equal demand inside each node and none across, the same family in every node gives the
same price: hierarchy does not help. (4) Equal demand, one switch, one place each: at most n (NEW-25).

**What the authors could answer.** That a conjecture with "a tight bound for this setting is not established" claims
little, and that latencies are fixed by hardware. At fixed latencies the first half is true and empty (1). The second
half fails at fixed latencies too: equal demand, three GPUs, price 9/5. A conjecture may be refuted as well as a
theorem; the verdict stands, with the worst case written into the statement.
"""

from fractions import Fraction as F

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.placement import PlacementGame, complete, gains_s, placement, price_of_anarchy, two_level
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict
from proofs.placement.exact import extremes, switch

CLAIM = Claim(
    id="POA-R2",
    source=PRICE_OF_ANARCHY,
    where="Remark 2",
    says="On hierarchical networks the price of anarchy, as a worst case over latencies, grows sublinearly with the "
    "workers; for equal demand it nears 1",
    verdict=Verdict.REFUTED,
    minimal="no size: a statement on growth; the family has a member for every number of workers",
    counterexample="n GPUs on one switch, one place each, n blocks, equal demand with one popular block, "
    "recomputation "
    "n times as dear as a transfer: all keep the popular block, and pay n/(2 - 1/n) times the optimum.",
    means="Not the number of workers but recomputation over transfer cost bounds the loss. Over NVLink that ratio "
    "is in "
    "the hundreds: this is where coordinated placement pays.",
)


def test_the_price_at_a_transfer_of_one_nth():
    n, gamma = sp.symbols("n gamma", positive=True)
    price = n * gamma / (gamma + (n - 1) * gamma / n)
    assert sp.simplify(price - n / (2 - 1 / n)) == 0 and sp.limit(price / n, n, sp.oo) == sp.Rational(1, 2)
    d = sp.symbols("d", positive=True)
    general = n * gamma / (gamma + (n - 1) * d)
    assert sp.simplify(gamma / d - general - gamma * (gamma - d) / (d * (gamma + (n - 1) * d))) == 0  # <= gamma / d


def test_exact_instances():
    for n in (2, 3):
        d, gamma = F(1), F(n)
        rates = [[gamma / d, *([F(1)] * (n - 1))]] * n
        worst, _, least = extremes(rates, [F(0)], [(1,)] * n, switch(n, d), gamma)
        assert worst / least == n / (2 - F(1, n))


@given(seed=st.integers(0, 2**31))
def test_gamma_over_alpha_bounds_every_game(seed):  # 1
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    access = np.sort(rng.uniform(0.5, 3, 2))
    game = PlacementGame(
        rng.integers(0, 5, (n, m)),
        access[:1],
        rng.integers(0, 3, (n, 1)),
        complete(n, rng.uniform(0.1, 3)),
        rng.uniform(access[1], 9),
    )
    p = price_of_anarchy(game)
    assert p.optimum_s == 0 or not p.exists == 1 or p.upper <= game.recompute_s / access[0] * (1 + 1e-12)


def test_two_levels_do_not_help():  # 3: nodes of eight with blocks of their own
    nodes, size, d, gamma = 4, 8, 1.0, 100.0
    n = nodes * size
    rates = np.kron(np.eye(nodes), np.tile([gamma / d] + [1.0] * (size - 1), (size, 1)))
    game = PlacementGame(rates, [0.0], [1.0], two_level(n, size, d, 50.0), gamma)
    same, spread = np.full((n, n), -1), np.full((n, n), -1)
    same[np.arange(n), np.arange(n) // size * size] = 0
    np.fill_diagonal(spread, 0)
    assert gains_s(game, same).max() <= 0
    ratio = placement(game, same).social_s / placement(game, spread).social_s
    assert abs(ratio - size * gamma / (gamma + (size - 1) * d)) < 1e-9
