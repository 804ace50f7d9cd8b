r"""POA-N. "The price of anarchy of the single-server Markovian queue diverges as rho -> 1" (quoted as [16]).

Naor's model: service rate 1, a served customer gains R and pays 1 per unit of time in the system; whoever sees fewer
than $\lfloor R \rfloor$ joins, while the least loss to all is at a lower limit n. The welfare at limit n is $S(n) =
\lambda R(1 - p_n) - L_n$. At rho = 1, $p_n = 1/(n+1)$, $L_n = n/2$, so $S(n) \le (\sqrt R - \sqrt{1/2})^2$ and the
ratio is below 2 for every R (1). Below rho = 1 it is smaller still: no R up to 40 exceeds 1.9 at 0.5, 0.9, 0.99 (2, in
rationals). **Verdict: refuted** for a stable queue. Only above rho = 1, where the selfish queue is always full, no
bound exists (3). One server with no way to balk, which is the paper's router, has price 1 at every load (4).
"""

from fractions import Fraction as F

import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.anarchy import mm1_price
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-N",
    source=PRICE_OF_ANARCHY,
    where="section 5.1, after Proposition 4, citing [16]",
    says="the price of anarchy of the single-server Markovian queue diverges as rho -> 1",
    verdict=Verdict.REFUTED,
    needs=("rho > 1: more arrivals than can be served, and customers that may leave",),
    error="below 2 at rho = 1, below that for less load",
    counterexample="A queue with as many arrivals as it can serve: whatever a served request is worth, requests that "
    "decide for themselves get more than half of what is possible.",
    means="Admission by self-interest costs at most half of the value until the server is overloaded; then limit the "
    "queue.",
    minimal="no size: one server is the least; rho = 1 is the limit that the claim is about",
)


def welfare(n: int, rho: F, reward: F) -> F:
    """S(n) of an M/M/1/n queue with service rate 1."""
    weight = [rho**k for k in range(n + 1)]
    total = sum(weight)
    return rho * reward * (1 - weight[n] / total) - sum(k * w for k, w in enumerate(weight)) / total


def price(rho: F, reward: F) -> F:
    selfish = int(reward)
    return max(welfare(n, rho, reward) for n in range(1, selfish + 1)) / welfare(selfish, rho, reward)


def test_at_saturation_the_price_is_below_two():  # 1
    r, n, m = sp.symbols("R n m", positive=True)
    at_one = r * n / (n + 1) - n / 2
    best = (sp.sqrt(r) - sp.sqrt(sp.Rational(1, 2))) ** 2
    gap = (sp.sqrt(r / (n + 1)) - sp.sqrt((n + 1) / 2)) ** 2
    assert sp.simplify(sp.expand(best - at_one) - sp.expand(gap)) == 0  # a square: never negative
    # R in [m, m + 1): 2 S(m) - best rises in R, and at R = m it is sqrt(2m) - 1/2 - 2m/(m + 1)
    spare = 2 * (r * m / (m + 1) - m / 2) - sp.expand(best)
    assert sp.simplify(spare.subs(r, m) - (sp.sqrt(2 * m) - sp.Rational(1, 2) - 2 * m / (m + 1))) == 0
    assert sp.sqrt(2 * 4) - sp.Rational(1, 2) - 2 > 0  # so positive from m = 4 on
    assert sp.simplify(sp.diff(spare, r) - ((m - 1) / (m + 1) + 1 / sp.sqrt(2 * r))) == 0
    for reward in (F(2), F(5, 2), F(3), F(7, 2), F(399, 100)):  # m = 2, 3 directly; m = 1 has a single limit
        assert welfare(int(reward), F(1), reward) == reward * int(reward) / (int(reward) + 1) - F(int(reward), 2)
        assert price(F(1), reward) < 2


def test_below_saturation():  # 2: the worst reward is a whole number, where the last customer gains nothing
    for rho in (F(1, 2), F(9, 10), F(99, 100)):
        assert all(price(rho, F(r)) < F(19, 10) for r in (2, 3, 4, 6, 9, 13, 20, 40))


def test_above_saturation_no_bound_holds():  # 3
    values = [price(F(3, 2), F(r)) for r in (5, 10, 20)]
    assert values[0] < values[1] < values[2] and values[2] > 7


@given(mu=st.floats(0.1, 100), load=st.floats(0.01, 0.999))
def test_one_shipped_queue_has_price_one(mu, load):  # 4
    assert abs(float(mm1_price([mu], load * mu)) - 1) < 1e-9
