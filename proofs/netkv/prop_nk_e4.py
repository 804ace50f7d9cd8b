r"""NK-E4. Eq. (4), $B_{eff} = B(1-c)/(n+1)$, "is exact when the two populations are stationary and uncorrelated".

**Verdict: conditional.** It is exact if external traffic takes a *constant* share that does not give way and the n+1
transfers meet nowhere else (1). Uncorrelated and stationary is not enough: where the share is 1/10 or 7/10 with equal
chances, whatever the scheduler does, a transfer takes 20/9 on average and (4) at the mean share says 5/3; in general
the mean time exceeds the time at the mean by the variance of the share over the cube of what is left, and more (2,
Jensen). External flows that share fairly, and so are correlated with ours, leave more than (4) says: with $n_e$ of them
$B/(n_e+n+1)$, a ratio of $n(n_e+n+1)/((n_e+n)(n+1)) \le 1$ (3). Past the cap of 16 it is optimistic (4).
"""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.transfer import effective_bandwidth_bytes_per_s
from dmodels.sim.network import max_min_rates
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-E4",
    source=NETKV,
    where="Eq. (4), Section III-D",
    says="B(1-c)/(n+1) is exact for stationary, uncorrelated external and own traffic",
    verdict=Verdict.CONDITIONAL,
    needs=("the external share is constant while a transfer lasts and does not give way", "at most 16 in flight"),
    error="mean times too short by at least var(c)/(1 - c)^3 relative to B; against n_e elastic flows rates too low "
    "by n(n_e+n+1)/((n_e+n)(n+1)); too high beyond 16 in flight",
    counterexample="External traffic takes a tenth or seven tenths of a link with equal chances, whatever we send: a "
    "transfer takes 2.22 times its time on an idle link on average, and the estimate at the mean says 1.67.",
    means="Use it to rank tiers. As a prediction it is right only for external traffic that does not give way.",
)


@given(c=st.floats(0, 0.99), n=st.integers(0, 15))  # 1
def test_exact_for_inelastic_background(c, n):
    shares = max_min_rates([1.0 - c], np.zeros((n + 1, 1), int))
    assert float(effective_bandwidth_bytes_per_s(1.0, c, float(n))) == pytest.approx(shares[0], rel=1e-12)


def test_ratio_against_elastic_flows():  # 3
    n, e = sp.symbols("n n_e", positive=True)
    c = e / (e + n)
    assert sp.simplify(((1 - c) / (n + 1)) / (1 / (e + n + 1)) - n * (e + n + 1) / ((e + n) * (n + 1))) == 0
    assert sp.simplify((e + n) * (n + 1) - n * (e + n + 1) - e) == 0  # below 1 by e over the denominator


def test_one_elastic_flow_on_a_full_link_leaves_half_of_it():  # 3, exact
    assert float(effective_bandwidth_bytes_per_s(1.0, 1.0, 0.0)) == 0.0
    assert max_min_rates([1.0], [[0], [0]]).tolist() == [0.5, 0.5]


def test_random_congestion_costs_more_than_its_mean():  # 2
    mean_time = (1 / (1 - Fraction(1, 10)) + 1 / (1 - Fraction(7, 10))) / 2
    assert mean_time == Fraction(20, 9) > 1 / (1 - Fraction(4, 10)) == Fraction(5, 3)
    c, s = sp.symbols("c s", positive=True)  # shares c - s and c + s, equally likely
    excess = (1 / (1 - c + s) + 1 / (1 - c - s)) / 2 - 1 / (1 - c)
    assert sp.simplify(excess - s**2 / ((1 - c) * ((1 - c) ** 2 - s**2))) == 0  # above s^2 / (1 - c)^3


def test_the_cap_is_optimistic_beyond_sixteen():  # 4
    said = float(effective_bandwidth_bytes_per_s(1.0, 0.0, 33.0))
    assert said == pytest.approx(1 / 17) and max_min_rates([1.0], np.zeros((34, 1), int))[0] == pytest.approx(1 / 34)
