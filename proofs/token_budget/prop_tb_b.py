r"""TB-B. "Any threshold in 8K-16K delivers more than 80 % of the peak savings."

With slots K/B and equal headroom, savings(B) is $\phi(B)(B_H - B)$ up to a constant, $\phi(B)$ the work of requests up
to B (NEW-11); below 8K the cap of 128 slots makes a shorter threshold worth no more per slot. **Verdict:
conditional.** If all work lies below 8K the share of the peak at B in 8K-16K is $(B_H - B)/(B_H - 8K) \ge 48/56 =
85.7\,\%$ (1). In general only $\phi(B)$ decides: doubling pays iff $\phi(2B)/\phi(B) > (B_H - B)/(B_H - 2B)$ (2), and
requests of 20K tokens make any threshold in 8K-16K save nothing (3).
"""

from fractions import Fraction as F

import numpy as np
import sympy as sp

from dmodels.core.workload import Workload
from dmodels.models.pooling import SlotEngine, best_thresholds, slots_count, work_savings
from proofs.claim import TOKEN_BUDGET, Claim, Verdict

CLAIM = Claim(
    id="TB-B",
    source=TOKEN_BUDGET,
    where="Sections 2 and 4.6, Figure 6",
    says="any threshold in 8K-16K delivers more than 80 % of the peak savings",
    verdict=Verdict.CONDITIONAL,
    needs=("requests up to 8K carry nearly all of the work",),
    error="at least 85.7 % of the peak if they carry all of it; 0 in the worst case",
    counterexample="Every request has 20K tokens: thresholds of 8K and 16K save nothing, 20K would save "
    "30 % of the instances.",
    means="Compute the threshold from your own lengths: maximise (work below B) x (64K - B).",
    minimal="least: one length of request is the least that a workload has",
)
K = 1024


def test_all_work_below_8k():  # 1: falling in B, so the end of the interval is the worst
    share = lambda b: F(64 * K - b, 64 * K - 8 * K)
    assert share(8 * K) == 1 and share(16 * K) == F(6, 7) > F(857, 1000)


def test_the_doubling_test():  # 2
    one, two, b, top = sp.symbols("phi1 phi2 B H", positive=True)
    gain = two * (top - 2 * b) - one * (top - b)
    assert sp.simplify(gain - one * (top - 2 * b) * (two / one - (top - b) / (top - 2 * b))) == 0


def test_requests_of_20k():  # 3
    engine = SlotEngine()
    slots = lambda b: slots_count(float(b), engine)
    saved = lambda work, b: float(work_savings(work, slots(b), slots(64 * K), engine))
    assert saved(0.0, 8 * K) == 0 == saved(0.0, 16 * K)
    exact = 1 - F(800 + 65 * 51, 100 * 51) / F(800 + 65 * 16, 100 * 16)  # 51 slots of 20K in the blocks of 16 of 64K
    assert 65536 // (20 * K // 16) == 51 and abs(saved(1.0, 20 * K) - float(exact)) < 1e-12
    assert F(29, 100) < exact < F(30, 100)


def test_the_shipped_search_finds_20k():  # 3
    best = best_thresholds(Workload(np.array([20_000.0]), np.array([480.0]), np.array([1.0])), 2, 64.0 * K)
    assert 20 * K <= best.threshold_tokens[0] < 22 * K and best.saved_frac > 0.25
