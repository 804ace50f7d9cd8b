r"""NK-P2. Staleness tolerance of the tier order: Proposition 2, Eq. (9).

With readings within delta, $B_i(1-c_i) > B_j(1-c_j)$ survives iff $\delta < (R(1-c_i) - (1-c_j))/(R+1)$: the worst
reading puts $c_i+\delta$, $c_j-\delta$ and the two sides meet there (1, exact and tight). R = 4, c = 0.3: 0.42 (2).
With transfers in flight R becomes $R(n_j+1)/(n_i+1)$, and the formula on stale readings certifies the order they show
(3).

**Verdict: proved**, and attained.
"""

from fractions import Fraction as F

import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.transfer import tier_staleness_tolerance
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-P2",
    source=NETKV,
    where="Proposition 2, Eq. (9)",
    says="the tier order is preserved for errors below (R(1-c_i) - (1-c_j))/(R+1)",
    verdict=Verdict.PROVED,
    needs=("congestion readings are not clipped (clipping only widens it)",),
    means="The order of two tiers' bandwidths is safe with readings off by tens of points when they differ 4:1.",
)


def test_the_worst_reading_meets_at_the_bound():  # 1
    r, u, v, d = sp.symbols("R u v delta", positive=True)
    (root,) = sp.solve(sp.Eq(r * (u - d), v + d), d)
    assert sp.simplify(root - (r * u - v) / (r + 1)) == 0


def test_forty_two_points():  # 2
    assert (4 * F(7, 10) - F(7, 10)) / 5 == F(42, 100)
    assert float(tier_staleness_tolerance(4.0, 0.3, 0.3)) == pytest.approx(0.42, abs=1e-15)


unit = st.integers(0, 20).map(lambda k: F(k, 20))
few = st.integers(0, 4)


@given(r=st.integers(1, 8), ci=unit, cj=unit, ni=few, nj=few, a=st.integers(-99, 99), b=st.integers(-99, 99))  # 3
def test_no_reading_below_it_inverts_the_order_and_stale_values_certify(r, ci, cj, ni, nj, a, b):
    fast, slow = lambda c: r * (1 - c) / (ni + 1), lambda c: (1 - c) / (nj + 1)
    said = float(tier_staleness_tolerance(float(r), float(ci), float(cj), float(ni), float(nj)))
    tol = F(said).limit_denominator(10**6)
    if tol == 0:
        return
    read_i, read_j = ci + tol * a / 100, cj + tol * b / 100
    assert (fast(read_i) > slow(read_j)) == (fast(ci) > slow(cj))
    shown = F(float(tier_staleness_tolerance(float(r), float(read_i), float(read_j), float(ni), float(nj))))
    if max(abs(read_i - ci), abs(read_j - cj)) < shown * (1 - F(1, 10**6)):
        assert (fast(read_i) > slow(read_j)) == (fast(ci) > slow(cj))
