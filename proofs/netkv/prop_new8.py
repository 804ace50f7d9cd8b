r"""NEW-8. The staleness tolerance of the composite cost, in closed form, and the regret beyond it.

Cost of candidate k: $A_k/(1-c_k) + D_k$. With $u = 1-c_i$, $v = 1-c_j$, $D = D_j-D_i$ and i truly cheaper
($N = A_j u - A_i v + D u v > 0$), readings within delta keep the order iff delta is below

$\delta^* = 2N / (A_i + A_j - D(u-v) + \sqrt{(D(u+v) + A_j - A_i)^2 + 4 A_i A_j})$.

Proof: the cost gap read is decreasing in i's and increasing in j's error, so the worst reading is $(u-\delta,
v+\delta)$; there the costs meet where $D\delta^2 + b\delta - N = 0$ (1), whose first positive root this is (2), and
which reduces to Proposition 2 (3). Choosing by readings within delta costs at most $\delta[A_k/(v(v+\delta)) +
A_b/(u(u-\delta))]$ more than the best (4). A multiplicative error of rho leaves the choice within $\rho^2$ of the
best transfer plus delay (5).

**Verdict: proved.**
"""

from fractions import Fraction as F

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.transfer import cost_staleness_tolerance, stale_regret_bound_s, tier_staleness_tolerance
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-8",
    source=DMODELS,
    where="models/staleness.cost_staleness_tolerance",
    says="closed-form tolerance of the order of two composite costs under stale congestion, tight, with a regret bound",
    verdict=Verdict.PROVED,
    needs=("candidates on different tiers", "errors bounded by delta on each, below 1 - c of the better one"),
    means="Refresh telemetry so often that its drift stays below this number for the two best candidates.",
)

A, B, u, v, d = sp.symbols("A_i A_j u v delta", positive=True)
D = sp.symbols("D", real=True)
N, LINEAR = B * u - A * v + D * u * v, A + B - D * (u - v)
DISCRIMINANT = (D * (u + v) + B - A) ** 2 + 4 * A * B


def test_where_the_worst_reading_meets():  # 1
    gap = B / (v + d) + D - A / (u - d)
    assert sp.simplify(gap * (v + d) * (u - d) + (D * d**2 + LINEAR * d - N)) == 0
    assert sp.simplify(sp.diff(A / (u - d), d) - A / (u - d) ** 2) == 0  # i reads dearer, j cheaper: monotone


def test_its_first_positive_root():  # 2
    assert sp.expand(DISCRIMINANT - (LINEAR**2 + 4 * D * N)) == 0
    root = 2 * N / (LINEAR + sp.sqrt(DISCRIMINANT))
    assert sp.simplify(sp.expand((D * root**2 + LINEAR * root - N).subs({A: 2, B: 3, u: sp.Rational(1, 2), v: 1}))) == 0
    other = 2 * N / (LINEAR - sp.sqrt(DISCRIMINANT))
    # for D > 0 the other root is negative (product of roots -N/D); for D < 0 both are positive and it is larger
    assert sp.simplify(root * other + N / D) == 0


@given(a=st.integers(1, 20), b=st.integers(1, 20), i=st.integers(1, 20), j=st.integers(1, 20), k=st.integers(-40, 40))
def test_root_in_exact_arithmetic(a, b, i, j, k):  # 2
    """Signs of the cost gap in rationals on both sides of the shipped tolerance."""
    a, b, x, y, delay = F(a, 4), F(b, 4), F(i, 20), F(j, 20), F(k, 8)
    true = b / y + delay - a / x
    tol = float(cost_staleness_tolerance(float(a), float(b), 1 - i / 20, 1 - j / 20, 0.0, float(delay)))
    if true == 0 or not np.isfinite(tol) or tol < 1e-9:
        return
    for factor, same in ((F(999, 1000), True), (F(1001, 1000), False)):
        shift = F(tol) * factor * (1 if true > 0 else -1)
        if x - shift > 0 and y + shift > 0:
            read = b / (y + shift) + delay - a / (x - shift)
            assert (read * true > 0) == same


def test_equal_payloads_and_no_delay_are_proposition_2():  # 3
    r = sp.symbols("R", positive=True)
    at = {A: 1 / r, B: 1, D: 0}
    assert sp.simplify(DISCRIMINANT.subs(at) - (1 + 1 / r) ** 2) == 0  # a square: its root is 1 + 1/R
    special = (2 * N / (LINEAR + (1 + 1 / r))).subs(at)
    assert sp.simplify(special - (r * u - v) / (r + 1)) == 0
    assert float(cost_staleness_tolerance(0.25, 1.0, 0.3, 0.3)) == pytest.approx(
        float(tier_staleness_tolerance(4.0, 0.3, 0.3))
    )


def test_regret_is_flattery_plus_slander():  # 4
    flattery = sp.simplify(A / v - A / (v + d) - d * A / (v * (v + d)))
    slander = sp.simplify(B / (u - d) - B / u - d * B / (u * (u - d)))
    assert flattery == 0 and slander == 0
    assert float(stale_regret_bound_s(1.0, 1.0, 0.5, 0.5, 0.1)) == pytest.approx(0.1 * (1 / 0.3 + 1 / 0.2))


@given(cost=st.lists(st.floats(0.01, 10), min_size=2, max_size=6), rho=st.floats(1, 3), seed=st.integers(0, 999))  # 5
def test_multiplicative_error_costs_its_square(cost, rho, seed):
    cost = np.array(cost)
    read = cost * rho ** np.random.default_rng(seed).uniform(-1, 1, len(cost))
    assert cost[read.argmin()] <= rho**2 * cost.min() * (1 + 1e-12)
