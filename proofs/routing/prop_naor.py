r"""POA-N. "the price of anarchy in the Markovian single-server queue diverges" as rho -> 1 (quoted as [16]).

Naor's model: service rate 1, a served customer gains R and pays 1 per unit of time in the system; whoever sees fewer
than $m = \lfloor R \rfloor$ joins, while the least loss to all is at a lower limit n. With $w_k = \rho^k$ the welfare
at limit n is $S(n) = \sum_{k=1}^n (R - k) w_k / \sum_{k=0}^n w_k$.

**Verdict: refuted** for a stable queue: for every R and every rho <= 1 selfish customers get more than half of the best
welfare, $S(n) < 2 S(m)$. *Proof*, for any $w_0 \ge w_1 \ge \dots$ Let A be the sum of $w_0..w_n$ and B that of
$w_{n+1}..w_m$, a and b the same sums of $(R - k) w_k$ (k from 1); to show is $a(B - A) < 2bA$, which is clear if B <=
A. Else, R - k falls as w does, so $b/B \ge R - (n+m+1)/2$ (Chebyshev), $a/A < R - 1$, and $A/B \ge (n+1)/(m-n)$, so it
is enough that $(2R - n - m - 1)(m - n) > (R - 1)(m - 2n - 1)$; the difference rises in R and is $n^2 + m - n - 1 > 0$
at R = m (1). The same inequality counted out in rationals (2). Only above rho = 1, where the selfish queue is always
full, no bound exists (3). One server with no way to balk, which is the paper's router, has price 1 at every load (4).

**What the authors could answer.** That the limit is taken with overload in mind, as [16] has it for rho > 1; the
sentence says rho -> 1 and uses it for load that approaches capacity from below. That the reward may grow as rho -> 1:
the bound 2 holds for every reward at once (1). The verdict stands, and with it that the citation cannot support a
divergence at the pole.
"""

import itertools
from fractions import Fraction as F

import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.anarchy import mm1_price
from proofs.cases import every
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-N",
    source=PRICE_OF_ANARCHY,
    where="section 5.1, after Proposition 4, citing [16]",
    says="the price of anarchy of the single-server Markovian queue diverges as rho -> 1",
    verdict=Verdict.REFUTED,
    needs=("rho > 1: more arrivals than can be served, and customers that may leave",),
    error="below 2 for every rho up to 1 and every reward",
    counterexample="A queue with as many arrivals as it can serve: whatever a served request is worth, requests that "
    "decide for themselves get more than half of what is possible.",
    means="Admission by self-interest costs at most half of the value until the server is overloaded; then limit the "
    "queue.",
    minimal="no size: one server is the least; rho = 1 is the limit that the claim is about",
)


def welfare(n: int, rho: F, reward: F) -> F:
    """S(n) of an M/M/1/n queue with service rate 1."""
    weight = [rho**k for k in range(n + 1)]
    return sum((reward - k) * weight[k] for k in range(1, n + 1)) / sum(weight)


def price(rho: F, reward: F) -> F:
    selfish = int(reward)
    return max(welfare(n, rho, reward) for n in range(1, selfish + 1)) / welfare(selfish, rho, reward)


def test_the_last_step_of_the_proof():  # 1: in symbols, for all R >= m >= 2n + 2 (B > A needs m - n > n + 1)
    r, n, more = sp.symbols("R n h", positive=True)
    m = 2 * n + 2 + more
    gap = (2 * r - n - m - 1) * (m - n) - (r - 1) * (m - 2 * n - 1)
    assert sp.expand(sp.diff(gap, r) - (m + 1)) == 0  # rises in R
    assert sp.expand(gap.subs(r, m) - (n**2 + m - n - 1)) == 0
    assert sp.expand(n**2 + m - n - 1).is_positive
    a, b, low, high = sp.symbols("a b A B", positive=True)  # the claim S(n) < 2 S(m), cleared of denominators
    assert sp.expand((2 * (a + b) * low - a * (low + high)) - (2 * b * low - a * (high - low))) == 0


def test_the_form_of_the_welfare():  # Naor's: lambda R (1 - p_n) - L_n
    rho, reward = sp.symbols("rho R", positive=True)
    for n in range(1, 5):
        total = sum(rho**k for k in range(n + 1))
        naor = rho * reward * (1 - rho**n / total) - sum(k * rho**k for k in range(n + 1)) / total
        assert sp.simplify(naor - sum((reward - k) * rho**k for k in range(1, n + 1)) / total) == 0


def test_at_and_below_saturation_the_price_is_below_two():  # 2
    rhos, rewards = (F(1, 2), F(9, 10), F(99, 100), F(1)), [F(k, 2) for k in range(3, 25)]
    for rho, reward in every(itertools.product(rhos, rewards), "queues"):
        assert price(rho, reward) < 2


def test_above_saturation_no_bound_holds():  # 3
    values = [price(F(3, 2), F(r)) for r in (5, 10, 20)]
    assert values[0] < values[1] < values[2] and values[2] > 7


@given(mu=st.floats(0.1, 100), load=st.floats(0.01, 0.999))
def test_one_shipped_queue_has_price_one(mu, load):  # 4
    assert abs(float(mm1_price([mu], load * mu)) - 1) < 1e-9
