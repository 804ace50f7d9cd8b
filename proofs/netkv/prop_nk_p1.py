r"""NK-P1. When a network-oblivious choice loses: Proposition 1, Eq. (8), and its example.

Instance i (near, hit $h_i$) beats j (far, $h_j$) iff $(1-h_i)/R' < (1-h_j) + (B_j/s)[(q_j+d_j) - (q_i+d_i)]$,
$R' = B_i/B_j$ of effective bandwidths (1). The example's "doubles the transfer time" at R = 4 says
$(1-h_j)/(1-h_i) = 1/2$ (2); the shipped function decides the same way everywhere (3).

**Verdict: proved.**
"""

from fractions import Fraction

import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.transfer import oblivious_loss
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-P1",
    source=NETKV,
    where="Proposition 1, Eq. (8)",
    says="the near instance wins iff (1-h_i)/R < (1-h_j) plus the scaled difference of queue and decode times",
    verdict=Verdict.PROVED,
    means="A prefix hit is worth a slower tier only if it leaves less than 1/R of the bytes.",
)


def test_equation_8_is_the_difference_of_latencies():  # 1
    s, bi, bj, hi, hj, fi, fj = sp.symbols("s B_i B_j h_i h_j f_i f_j", positive=True)
    near, far = s * (1 - hi) / bi + fi, s * (1 - hj) / bj + fj
    lhs, rhs = (1 - hi) / (bi / bj), (1 - hj) + bj / s * (fj - fi)
    assert sp.simplify((far - near) * bj / s - (rhs - lhs)) == 0  # a positive factor: the same sign


def test_the_example():  # 2
    for near_left in (Fraction(1), Fraction(6, 10), Fraction(2, 10)):
        assert 4 * (near_left / 2) / near_left == 2  # R (1-h_j)/(1-h_i)
    loss = oblivious_loss(1e9, 0.4, 0.7, 4.0, 1.0)
    assert bool(loss.loses) and round(float(loss.ratio), 12) == 2.0


grid = st.integers(0, 15).map(lambda k: k / 16)


@given(hi=grid, hj=grid, bi=st.integers(1, 9), bj=st.integers(1, 9), fi=st.integers(0, 9), fj=st.integers(0, 9))  # 3
def test_the_code_decides_by_equation_8(hi, hj, bi, bj, fi, fj):
    lhs = (1 - Fraction(hi)) * bj / bi
    rhs = (1 - Fraction(hj)) + Fraction(bj, 64) * (fj - fi)
    loss = oblivious_loss(64.0, hi, hj, float(bi), float(bj), float(fi), float(fj))
    if lhs != rhs:
        assert bool(loss.loses) == (lhs < rhs)
