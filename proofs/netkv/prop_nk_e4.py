r"""NK-E4. "$B_{eff} = B(1-c)/(n+1)$ is exact when the two populations are stationary and uncorrelated."

**Verdict: refuted.** It is exact if external traffic is *inelastic* and the n+1 transfers meet nowhere else (1). With
$n_e$ elastic external flows that fill the rest of the link (c = 1 for one that takes all), max-min gives
$B/(n_e+n+1)$ while (4) says $B(1-c)/(n+1)$ with $c = n_e/(n_e+n)$: the ratio is $n(n_e+n+1)/((n_e+n)(n+1)) \le 1$,
and 0 for n = 0, $n_e$ = 1, where the truth is B/2 (2). Stationary random congestion also breaks it: the mean time is
at least the time at the mean (Jensen), 2.22 against 1.67 for c in {.1, .7} (3). Past the cap of 16 it is optimistic
(4)."""

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
    verdict=Verdict.REFUTED,
    error="too low by n(n_e+n+1)/((n_e+n)(n+1)) against n_e elastic flows; too high beyond 16 in flight",
    counterexample="One elastic flow fills a link: the estimate leaves a new transfer nothing, fair sharing leaves "
    "it half.",
    means="Use it to rank tiers. As a prediction it is right only for external traffic that does not give way.",
    minimal="least: one external flow and one new transfer",
)


@given(c=st.floats(0, 0.99), n=st.integers(0, 15))  # 1
def test_exact_for_inelastic_background(c, n):
    shares = max_min_rates([1.0 - c], np.zeros((n + 1, 1), int))
    assert float(effective_bandwidth_bytes_per_s(1.0, c, float(n))) == pytest.approx(shares[0], rel=1e-12)


def test_ratio_against_elastic_flows():  # 2
    n, e = sp.symbols("n n_e", positive=True)
    c = e / (e + n)
    assert sp.simplify(((1 - c) / (n + 1)) / (1 / (e + n + 1)) - n * (e + n + 1) / ((e + n) * (n + 1))) == 0
    assert sp.simplify((e + n) * (n + 1) - n * (e + n + 1) - e) == 0  # below 1 by e over the denominator


def test_one_elastic_flow_on_a_full_link_leaves_half_of_it():  # 2, exact
    assert float(effective_bandwidth_bytes_per_s(1.0, 1.0, 0.0)) == 0.0
    assert max_min_rates([1.0], [[0], [0]]).tolist() == [0.5, 0.5]


def test_random_congestion_costs_more_than_its_mean():  # 3
    mean_time = (1 / (1 - Fraction(1, 10)) + 1 / (1 - Fraction(7, 10))) / 2
    assert mean_time == Fraction(20, 9) > 1 / (1 - Fraction(4, 10)) == Fraction(5, 3)


def test_the_cap_is_optimistic_beyond_sixteen():  # 4
    said = float(effective_bandwidth_bytes_per_s(1.0, 0.0, 33.0))
    assert said == pytest.approx(1 / 17) and max_min_rates([1.0], np.zeros((34, 1), int))[0] == pytest.approx(1 / 34)
