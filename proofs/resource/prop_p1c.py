r"""POA-1c. Eq. (5): "the marginal SLO improvement from adding one GPU to either pool is equal at equilibrium".

False in a corner. $V_T = (2-x)^2/4$, $V_I = (2-D)^2/16$, G = 1: $g = (5x-7)/8 < 0$ on [0, 1], so prefill takes all and
(5) has no solution (1); the shipped solver returns the corner with a zero residual (2). It holds iff g(0) < 0 < g(G).

**Verdict: refuted.**

**What the authors could answer.** That an interior split is meant, because a pool without GPUs violates every SLO. Such
a rate still has a finite slope: rates are at most 1, and a pool that loses less by its last GPU than the other gains is
emptied. Definition 1 allows 0 and G, and the proposition states (5) without a condition. The verdict stands; g(0) < 0 <
g(G) is the condition.
"""

import sympy as sp

from dmodels.games.resource import Game, equilibrium
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-1c",
    source=PRICE_OF_ANARCHY,
    where="Eq. (5)",
    says="at the equilibrium both marginal violation rates are equal",
    verdict=Verdict.REFUTED,
    needs=("g(0) < 0 < g(G)",),
    counterexample="Violation rates (2 - x)^2/4 and (2 - y)^2/16, one GPU to share: prefill gains more from every "
    "part of it and takes it all.",
    means="When one pool gains more from every GPU, it gets all; no split with equal marginals exists.",
    minimal="no size: one budget shared by two pools",
)


def test_no_split_has_equal_marginals():  # 1
    x, d = sp.symbols("x d")
    g = sp.diff((2 - x) ** 2 / 4, x) - sp.diff((2 - d) ** 2 / 16, d).subs(d, 1 - x)
    assert sp.expand(g - (5 * x - 7) / 8) == 0 and g.subs(x, 0) < 0 and g.subs(x, 1) < 0


def test_the_solver_returns_the_corner():  # 2
    game = Game(
        lambda x: (2 - x) ** 2 / 4, lambda d, p: (2 - d) ** 2 / 16, 1.0, prefill_worker_gpus=0.1, decode_worker_gpus=0.1
    )
    found = equilibrium(game)
    assert found.value.prefill_gpus == 1.0 and found.certificate["kkt_residual"] == 0.0
    assert found.certificate["marginal_prefill"] > found.certificate["marginal_decode"]
