r"""POA-CB. For polynomial latencies "PoA converges to 1 in both light and heavy traffic" (quoted as [7]).

Two parallel workers are settled in general: as the load r falls, all of it sits where the constant term is least, in
equilibrium and optimum alike, unless the constants tie, and then the next terms decide; as r grows only the leading
terms $a_j x^{p}$ of the greatest degree matter, for which both splits are the same up to a factor of marginal cost (1:
for one common degree p the equilibrium *is* the optimum). **Verdict: supported** here for sums of powers up to degree
3 on three workers (2); the theorem itself is the cited one. It says nothing about a pole: there the limit is NEW-4's.
"""

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.anarchy import polynomial_nonatomic
from dmodels.solvers.wardrop import marginal, wardrop
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-CB",
    source=PRICE_OF_ANARCHY,
    where="section 5.1, Remark on [7]",
    says="for polynomial latencies the nonatomic price of anarchy tends to 1 in light and in heavy traffic",
    verdict=Verdict.SUPPORTED,
    error="below 1.01 at 1/1000 and at 1000 times the loads at which the terms balance, in every case drawn",
    means="Where latency has no pole, selfish routing hurts at middling load only.",
)
_TOP = 1e6


@jax.jit
def price(c, r):
    """Price of three workers with latencies c0 + c1 x + c2 x^2 + c3 x^3 at load r."""
    f = lambda x: c[:, 0] + x * (c[:, 1] + x * (c[:, 2] + x * c[:, 3]))
    total = lambda s: jnp.sum(s.value["loads"] * f(s.value["loads"]))
    room = jnp.full(3, _TOP)
    return total(wardrop(f, r, room)) / total(wardrop(marginal(f), r, room))


def test_one_common_degree_has_price_one():  # 1: a x^p and its marginal (p + 1) a x^p have the same level sets
    a, x, p = sp.symbols("a x p", positive=True)
    assert sp.simplify(sp.diff(x * a * x**p, x) / (a * x**p)) == p + 1


@given(seed=st.integers(0, 2**31))
def test_three_workers(seed):  # 2
    rng = np.random.default_rng(seed)
    c = jnp.array(rng.uniform(0.5, 1.5, (3, 4)))
    light, heavy = float(price(c, 1e-3)), float(price(c, 1e3))
    middle = float(price(c, 1.0))
    assert 1 - 1e-6 <= light < 1.01 and 1 - 1e-6 <= heavy < 1.01
    assert middle <= float(polynomial_nonatomic(3.0)) + 1e-6
