r"""POA-4.2c. "For polynomial latency functions of degree d, a separate bound" $\Theta(d^d)$ "holds"; for multi-server
stations the bound m holds "below capacity with unbounded growth at the pole".

**Verdict: refuted.** With $\Phi^{d+1} = (\Phi+1)^d$ the price of weighted requests is $\Phi^{d+1}$, and of equal ones
less. $\ln\Phi = d\ln(1 + 1/\Phi) \le d/\Phi$, so $\Phi \le d/\ln\Phi$ and the price is at most $\Phi\,(1/\ln\Phi)^d\,
d^d$: a share of $d^d$ that falls to 0 faster than any power (1, 2). For parallel M/M/1 stations the price is at most
their number at *every* load, the pole included (3): that is the theorem of the cited paper, and no growth (NEW-4).

**What the authors could answer.** That $\Theta(d^d)$ is shorthand for what is usually written $\Theta(d/\ln d)^{d+1}$:
that is a different function, smaller by more than any power (1). That [19] has unbounded growth because m is unbounded:
in m, not "at the pole". Neither changes what the paper builds on it, a divergence as load nears capacity. The verdict
stands.
"""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.anarchy import mm1_price, polynomial_atomic, polynomial_weighted
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-4.2c",
    source=PRICE_OF_ANARCHY,
    where="section 5.1, after Proposition 4",
    says="polynomial latencies of degree d have a bound Theta(d^d), and multi-server stations grow without bound at "
    "the pole",
    verdict=Verdict.REFUTED,
    error="degree 16: below d^d by more than ten thousand; degree 128: by more than 10^69",
    counterexample="Two M/M/1 workers, one of them four times as fast, on the brink of saturation: selfish routing "
    "costs 10/9 of the optimum.",
    means="Steep latencies do not excuse a factor of ten: for m parallel servers selfish routing costs at most m.",
    minimal="least: one worker has price 1 at every load (POA-N), so two are needed",
)


def _above_phi(d: int) -> int:
    """The least whole number that is at least Phi."""
    k = 1
    while k ** (d + 1) < (k + 1) ** d:
        k += 1
    return k


def test_the_logarithm_is_below_its_argument():  # 1
    x = sp.symbols("x", positive=True)
    gap = x - sp.log(1 + x)
    assert sp.simplify(sp.diff(gap, x) - x / (1 + x)) == 0 and gap.subs(x, 0) == 0  # increasing from 0


def test_the_share_of_d_to_the_d_vanishes():  # 1, 2: whole numbers above Phi give upper bounds in rationals
    shares = [Fraction(_above_phi(d) ** (d + 1), d**d) for d in (16, 32, 64, 128)]
    assert all(after < before**2 for before, after in pairwise(shares[1:]))
    assert shares[0] < Fraction(1, 10**3) and shares[-1] < Fraction(1, 10**60)
    assert polynomial_atomic(16) < 16**16 / 1e4 and polynomial_atomic(128) < 128.0**128 / 1e69
    for d in (16, 32, 64, 128):
        assert polynomial_atomic(d) <= polynomial_weighted(d) * (1 + 1e-9) <= _above_phi(d) ** (d + 1) * (1 + 1e-8)


def test_small_degrees_exactly():  # 2
    assert [polynomial_atomic(d) for d in (1, 2)] == [2.5, float(Fraction(115, 12))]


def test_two_queues_in_rationals():  # 3: mu = (4, 1), free capacity s: equilibrium (s/2, s/2), optimum (2s/3, s/3)
    for s in (Fraction(1, 10), Fraction(1, 10**6)):
        waiting = lambda free: sum(mu / f - 1 for mu, f in zip((4, 1), free, strict=True))
        price = waiting((s / 2, s / 2)) / waiting((2 * s / 3, s / 3))
        assert 1 < price < Fraction(10, 9) + s and abs(float(mm1_price([4.0, 1.0], 5.0 - float(s))) - price) < 1e-6


@given(mu=st.lists(st.floats(0.01, 100), min_size=4, max_size=4), load=st.floats(0.001, 0.9999))
def test_the_price_never_exceeds_the_number_of_servers(mu, load):  # 3
    assert 1 - 1e-9 <= float(mm1_price(mu, load * np.sum(mu))) <= 4
