r"""NK-P1b. "ignoring the network term renders cache-aware-only scheduling arbitrarily suboptimal as context length
grows" (abstract, Section I).

**Verdict: conditional** on counting seconds, which the text leaves open and its proof ("The gap widens with context
length") does: the gap is linear in the KV size s and grows without bound (3). As a ratio it is bounded: far/near is a
Moebius function of s, hence monotone, from $f_j/f_i$ at s = 0 to $R'(1-h_j)/(1-h_i)$ (1). A cache-aware choice has $h_j
\ge h_i$, so the limit is at most R', tight for equal hits (2): on a 4:1 fabric the choice costs at most a factor of 4
however long the context.
"""

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.transfer import oblivious_loss
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-P1b",
    source=NETKV,
    where="abstract; Section IV after Proposition 1",
    says="ignoring the network term is arbitrarily suboptimal as context length grows",
    verdict=Verdict.CONDITIONAL,
    needs=("suboptimal means seconds lost, not a ratio",),
    error="the ratio never exceeds the ratio of effective bandwidths (with no more delay at the far instance)",
    counterexample="On a 4:1 fabric with equal hits, a wrong choice costs a factor of at most 4, at 1,000 or at "
    "1,000,000 tokens.",
    means="The most that network-aware choice can save is the bandwidth ratio of the tiers: 2 or 4, not without bound.",
)


def test_the_ratio_is_moebius_and_its_limit():  # 1
    s, bi, bj, hi, hj, fi, fj = sp.symbols("s B_i B_j h_i h_j f_i f_j", positive=True)
    near, far = s * (1 - hi) / bi + fi, s * (1 - hj) / bj + fj
    slope = sp.factor(sp.diff(far / near, s))
    assert s not in sp.numer(sp.together(slope)).free_symbols  # one sign for all s
    gap = sp.diff(far - near, s)  # seconds lost per byte: constant, and positive where the choice is wrong at length
    assert sp.simplify(gap - ((1 - hj) / bj - (1 - hi) / bi)) == 0
    assert sp.simplify(sp.limit(far / near, s, sp.oo) - (bi / bj) * (1 - hj) / (1 - hi)) == 0


@given(hi=st.floats(0, 0.9), extra=st.floats(0, 0.09), ratio=st.floats(1, 16), fixed=st.floats(0, 5))  # 2
def test_no_context_costs_more_than_the_bandwidth_ratio(hi, extra, ratio, fixed):
    loss = oblivious_loss(np.geomspace(1e-6, 1e12, 64), hi, hi + extra, ratio, 1.0, fixed, fixed)
    assert np.asarray(loss.ratio).max() <= ratio * (1 + 1e-9)


def test_the_bound_is_tight_and_the_gap_has_none():  # 2, 3
    loss = oblivious_loss(np.array([1e3, 1e6, 1e9]), 0.5, 0.5, 4.0, 1.0, 0.1, 0.1)
    ratio, gap = np.asarray(loss.ratio), np.asarray(loss.gap_s)
    assert 3.99 < ratio[-1] < 4.0 and (np.diff(ratio) > 0).all()
    np.testing.assert_allclose(gap[1:] / gap[:-1], 1e3)
