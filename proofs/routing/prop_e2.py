r"""POA-E2. Softmax routing, Eq. (2): "Deterministic, greedy selection" in the limit of tau to 0, "Uniform random
selection" in that of tau to infinity.

$P_j = 1/\sum_k e^{-(c_k - c_j)/\tau}$. **Verdict: conditional.** tau to infinity: uniform, always (1). tau to 0: all
on the cheapest worker only if it is the only cheapest; k equal ones share (1). With a gap to the second of g, another
worker is drawn with probability at most $(m-1)e^{-g/\tau}$ (2). The shipped router takes the first of equals at 0 (3).
"""

import jax
import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.router import choice_probabilities
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-E2",
    source=PRICE_OF_ANARCHY,
    where="Eq. (2)",
    says="softmax routing is greedy for tau to 0 and uniform for tau to infinity",
    verdict=Verdict.CONDITIONAL,
    needs=("for tau to 0: one worker alone is the cheapest",),
    error="another worker than the cheapest with probability at most (m - 1) exp(-gap/tau)",
    counterexample="Two idle workers of equal cost: half each at every tau, never all on one.",
    means="Compare tau with the gaps between workers' costs: far below them it is greedy, far above them a coin toss.",
)
_P = jax.jit(choice_probabilities)


def test_both_limits():  # 1
    tau, g = sp.symbols("tau g", positive=True)
    cheapest = lambda *gaps: 1 / (1 + sum(sp.exp(-gap / tau) for gap in gaps))
    one = cheapest(g, 2 * g)
    assert sp.limit(one, tau, 0, "+") == 1 and sp.limit(one, tau, sp.oo) == sp.Rational(1, 3)
    assert sp.limit(cheapest(0, g), tau, 0, "+") == sp.Rational(1, 2)  # two cheapest


@given(gaps=st.lists(st.floats(0, 20), min_size=3, max_size=3), tau=st.floats(0.01, 1e3))
def test_the_bound_on_leaving_the_cheapest(gaps, tau):  # 2
    p = np.asarray(_P(np.array([0.0, *gaps]), np.array(tau)))
    assert 1 - p[0] <= 3 * np.exp(-min(gaps) / tau) + 1e-15 and abs(p.sum() - 1) < 1e-12  # 1 - p rounds to 1e-16


def test_the_shipped_router_at_the_ends():  # 3
    assert np.asarray(_P(np.array([1.0, 1.0, 3.0, 4.0]), np.array(0.0))).tolist() == [1.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(_P(np.array([0.0, 1.0, 3.0, 4.0]), np.array(1e9)), 0.25, rtol=1e-8)
