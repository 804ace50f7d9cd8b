r"""TB-1. Splitting one pool in two saves $\alpha (1 - 1/\rho)$ of its instances.

**Verdict: conditional.** Without ceilings and with $\mu_l = \mu$ it is an identity (1). With ceilings the error lies
in $(-2/x,\ 1/(x+1)]$, $x = \lambda/\mu$ (2). With $\mu_l < \mu$ it promises too much and Eq. (8) must be used: 71 %
becomes 12 % on the paper's own Azure row (3). It is no upper bound either: where long requests are cheap it promises
too little (4).
"""

import jax
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.pooling import savings
from proofs.claim import TOKEN_BUDGET, Claim, Verdict

CLAIM = Claim(
    id="TB-1",
    source=TOKEN_BUDGET,
    where="Eq. (7)",
    says="savings = alpha (1 - 1/rho)",
    verdict=Verdict.CONDITIONAL,
    needs=("the long pool is as fast on its requests as the single pool was on all", "arrival / mu_single >> 2"),
    error="with ceilings in (-2/x, 1/(x+1)], x = arrival / mu_single",
    counterexample="The paper's Azure row: 71 % by the formula, 12 % with the rates of its own long pool.",
    means="Do not multiply the share of short requests by the speed-up of the short pool; it can promise six times "
    "what a split saves. Use the share of the work.",
)


def test_identity_without_ceilings():  # 1
    a, r, lam, mu = sp.symbols("alpha rho lambda mu", positive=True)
    dual = a * lam / (r * mu) + (1 - a) * lam / mu
    assert sp.simplify(1 - dual / (lam / mu) - a * (1 - 1 / r)) == 0


_SAVINGS = jax.jit(savings)


@given(alpha=st.floats(0, 1), mu=st.floats(0.01, 100), rho=st.floats(1, 64), arrival=st.floats(1, 1e5))  # 2
def test_ceiling_error_is_bounded(alpha, mu, rho, arrival):
    x, s = arrival / mu, _SAVINGS(alpha, mu, rho * mu, mu, arrival)
    error = 1 - float(s.dual_instances_count) / float(s.homo_instances_count) - float(s.ideal_frac)
    assert -2 / x - 1e-9 < error <= 1 / (x + 1) + 1e-9


def test_azure_row_needs_the_routed_rate():  # 3
    s = savings(short_frac=0.917, single_rps=3.0, short_rps=13.5, long_rps=0.37)
    assert s.ideal_frac > 0.71 and 0.10 < s.routed_frac < 0.14


def test_long_by_tokens_can_be_short_by_work():  # 4
    """9,000 tokens in and 10 out are 28 iterations; 10 in and 2,000 out are 2,001. The long pool is the faster one."""
    short, long, t16, t128 = 2001, 28, 16 / 0.0184, 128 / 0.0912
    mixed = (short + long) / 2
    s = savings(0.5, t16 / mixed, t128 / short, t16 / long)
    assert s.ideal_frac < s.routed_frac
