r"""TB-B. A threshold "in 8K-16K delivers >80% of peak savings for both workloads studied" (Sections 2 and 4.6).

**Verdict: proved** as stated, from the paper's own numbers. Azure rises with B from 16.6 % at 8K to "up to 20% at
32K", its largest: whatever was rounded, at least 16.55 of at most 20.5, which is 80.7 % (1). LMSYS "peaks at 38.5% at
8K" with all work below it, and from there savings fall as $B_H - B$ does, so that 16K keeps 48/56 = 85.7 % but for
headroom and whole instances (2). On lengths that were chosen to give the paper's Tables 1 and 2, with its headroom and
whole instances, every threshold from 8K to 16K saves at least 60 of 72 instances on Azure (83.3 %) and 91 of 102 on
LMSYS (89.2 %) (3). Beyond the two workloads, a result of ours: with slots K/B and equal headroom, savings(B) is
$\phi(B)(B_H - B)$ up to a constant, $\phi(B)$ the work of requests up to B (NEW-11); in general doubling pays iff
$\phi(2B)/\phi(B) > (B_H - B)/(B_H - 2B)$ (4), and on a third workload, requests of 20K tokens, any threshold in 8K-16K
saves nothing (5).
"""

from fractions import Fraction as F

import numpy as np
import pytest
import sympy as sp

from dmodels.catalog import totals_cdf
from dmodels.core.lengths import partial_iterations, partial_moments
from dmodels.core.workload import Workload
from dmodels.models.pooling import (
    PAPER_HEADROOM,
    Headroom,
    SlotEngine,
    best_thresholds,
    slots_count,
    split_savings,
    work_savings,
)
from proofs.cases import every
from proofs.claim import TOKEN_BUDGET, Claim, Verdict

CLAIM = Claim(
    id="TB-B",
    source=TOKEN_BUDGET,
    where="Sections 2 and 4.6, Figure 6",
    says="any threshold in 8K-16K delivers more than 80 % of the peak savings on both workloads studied",
    verdict=Verdict.PROVED,
    error="83 % on Azure by its printed numbers, 89.2 % on LMSYS with lengths chosen to give its tables; 85.7 % "
    "wherever requests up to 8K carry all work, 0 in the worst case",
    counterexample="Another workload, every request of 20K tokens: thresholds of 8K and 16K save nothing, 20K would "
    "save 30 % of the instances.",
    means="Compute the threshold from your own lengths: maximise (work below B) x (64K - B).",
)
K = 1024


def saved_instances(name: str, thresholds) -> list[int]:
    """Whole instances that a split saves at 1,000 requests/s, by the paper's sizes, timing and headroom."""
    cdf, engine = totals_cdf(name), SlotEngine()
    *work, mean = partial_iterations(cdf, [*thresholds, 64.0 * K])
    found = split_savings(
        np.asarray(partial_moments(cdf, thresholds)[0]),
        np.array(work) / mean,
        float(mean),
        slots_count(thresholds, engine),
        slots_count(64.0 * K, engine),
        1000.0,
        engine,
        Headroom(**PAPER_HEADROOM),
    )
    return [int(n) for n in np.asarray(found.homo_instances_count - found.dual_instances_count)]


def test_azure_from_its_printed_numbers():  # 1: 16.6 and "up to 20%", rounded as far as they may have been
    least, most = F(1655, 100), F(205, 10)
    assert least / most > F(8, 10)


@pytest.mark.parametrize("name, least, peak", [("azure-paper", 60, 72), ("lmsys-paper", 91, 102)])
def test_both_workloads_studied(name, least, peak):  # 3
    thresholds = K * np.array([1.0, 2, 4, 6, *range(8, 17), 20, 24, 32, 48])
    saved = dict(zip(thresholds, saved_instances(name, thresholds), strict=True))
    assert max(saved.values()) == peak
    between = [saved[b] for b in every(thresholds[(thresholds >= 8 * K) & (thresholds <= 16 * K)], "thresholds")]
    assert min(between) == least and F(least, peak) > F(8, 10)


def test_all_work_below_8k():  # 2: falling in B, so the end of the interval is the worst
    share = lambda b: F(64 * K - b, 64 * K - 8 * K)
    assert share(8 * K) == 1 and share(16 * K) == F(6, 7) > F(857, 1000)


def test_the_doubling_test():  # 4
    one, two, b, top = sp.symbols("phi1 phi2 B H", positive=True)
    gain = two * (top - 2 * b) - one * (top - b)
    assert sp.simplify(gain - one * (top - 2 * b) * (two / one - (top - b) / (top - 2 * b))) == 0


def test_requests_of_20k():  # 5
    engine = SlotEngine()
    slots = lambda b: slots_count(float(b), engine)
    saved = lambda work, b: float(work_savings(work, slots(b), slots(64 * K), engine))
    assert saved(0.0, 8 * K) == 0 == saved(0.0, 16 * K)
    exact = 1 - F(800 + 65 * 51, 100 * 51) / F(800 + 65 * 16, 100 * 16)  # 51 slots of 20K in the blocks of 16 of 64K
    assert 65536 // (20 * K // 16) == 51 and abs(saved(1.0, 20 * K) - float(exact)) < 1e-12
    assert F(29, 100) < exact < F(30, 100)


def test_the_shipped_search_finds_20k():  # 5
    best = best_thresholds(Workload(np.array([20_000.0]), np.array([480.0]), np.array([1.0])), 2, 64.0 * K)
    assert 20 * K <= best.threshold_tokens[0] < 22 * K and best.saved_frac > 0.25
