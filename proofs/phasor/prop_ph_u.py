r"""PH-U. alpha = 4.25e-5 and beta = 6.80e-3 with P_peak = 121 TFLOPS calibrate prefill cost (Appendix B, Table 4).

**Verdict: refuted.** No unit makes them fit the paper's other numbers: in TFLOP a prompt of 1,024 tokens takes 0.426 s
where Section 2.1 measures 0.116, and one average request on an idle worker has negative freeness (1); the linear term
would be faster than the peak (2); in FLOP freeness never leaves 1 (3).

**What the authors could answer.** That alpha and beta are per layer, per head or in some other unit: no unit is
printed, and none makes the shares fit, because the two terms stand in the wrong ratio to each other as well (2). That
only relative order matters for routing: for equal prompts any constants do, but the threshold at 0, and so overload,
depends on the unit. The verdict stands for the printed numbers.
"""

from fractions import Fraction as F

import numpy as np

from dmodels.models.freeness import PrefillCost, prefill_cost_flop, prefill_freeness
from dmodels.models.freeness_fit import check_units
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-U",
    source=PHASOR,
    where="Table 4, Eq. (2)",
    says="the printed alpha and beta give the prefill cost in FLOP-equivalents",
    verdict=Verdict.REFUTED,
    error="a factor 3.7 at 1,024 tokens in TFLOP; 12 orders of magnitude in FLOP",
    counterexample="One prompt of 1,024 tokens on an idle worker: 426 ms by the formula in TFLOP, 116 ms as "
    "measured, and over the SLO of 400 ms.",
    means="Calibrate alpha and beta on your own stack, and check the fit against a latency in seconds.",
    minimal="least: one prompt on an idle worker",
)
TFLOP, PEAK = PrefillCost(4.25e-5 * 1e12, 6.8e-3 * 1e12), 121e12


def test_in_tflop_an_idle_worker_misses_its_slo():  # 1
    cost = float(prefill_cost_flop(1024.0, TFLOP))
    assert abs(cost / PEAK - 0.4258) < 1e-4 and cost / PEAK / 0.116 > 3.6
    assert float(prefill_freeness(cost, PEAK, 0.4)) < 0


def test_no_unit_fits_both_the_latency_and_the_budget():  # 1 and 3, exact: cost in units x, over a peak of 121 x 10^12
    cost = F("4.25e-5") * 1024**2 + F("6.8e-3") * 1024
    tflop_s, flop_s = cost * 10**12 / (121 * 10**12), cost / (121 * 10**12)
    assert tflop_s > F("0.4") > F("0.116")  # over the SLO on an idle worker, where 0.116 s is measured
    assert flop_s < F("0.116") / 10**10  # and ten orders of magnitude too little in FLOP
    assert 121 * F("0.116") / cost < F("0.28")  # what would fit is a unit of 0.27 TFLOP, which nothing names


def test_in_tflop_the_linear_term_beats_the_peak():  # 2
    units = check_units(TFLOP, PEAK, 7.62e9, np.array([1024.0]), None, 28, 28, 128)
    assert units.linear_over_dense < 0.45 and units.quadratic_over_attention > 200


def test_in_flop_nothing_ever_fills():  # 3: a thousand prompts of 8K
    cost = 1000 * float(prefill_cost_flop(8192.0, PrefillCost(4.25e-5, 6.8e-3)))
    assert 1 - float(prefill_freeness(cost, PEAK, 0.4)) < 1e-7
