r"""NK-E6. "A request waits one iteration per blocked predecessor" in continuous batching.

**Verdict: refuted** as a model of the wait. A slot frees when one of the beta running requests ends, every
$L_{out}/\beta$ iterations on average, so k predecessors cost about $(k+1) L_{out}/\beta$ iterations (1), exact for
memoryless outputs (2). 64 slots, 256 tokens, nine ahead: 40 iterations, where Eq. (6) says 9 (3). It still ranks
instances by queue length, which is all that the algorithm asks of it, unless a queue is weighed against a transfer.
"""

import numpy as np
import sympy as sp

from dmodels.models.latency import NETKV_CURVE, BatchingCurve
from dmodels.models.transfer import queue_delay_s, slot_wait_s
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-E6",
    source=NETKV,
    where="Eq. (6)",
    says="the queueing delay is one iteration per blocked predecessor",
    verdict=Verdict.REFUTED,
    error="short by L_out/beta: a factor of 4 at 64 slots and 256 tokens, 16 at 1,024 tokens",
    counterexample="Nine requests ahead of you at 64 full slots and 256 output tokens: 40 iterations, not 9.",
    means="Weighing a queue against a transfer needs the turnover of slots: multiply by output tokens over slots.",
    minimal="least: the gap is there with nobody ahead, 4 iterations where Eq. (6) says 0",
)


def test_mean_wait_for_the_kth_slot():  # 1, 2: each iteration frees Binomial(beta, 1/L) slots, so beta/L on average
    beta, mean, k = sp.symbols("beta L k", positive=True)
    rate = beta / mean
    assert sp.simplify((k + 1) / rate - (k + 1) * mean / beta) == 0


def test_a_full_batch_of_memoryless_requests():  # 2
    rng, slots, mean, ahead = np.random.default_rng(7), 64, 256.0, 9
    runs, freed = np.zeros(4000), np.zeros(4000)
    while (waiting := freed <= ahead).any():
        runs[waiting] += 1
        freed[waiting] += rng.binomial(slots, 1 / mean, waiting.sum())
    law = float(slot_wait_s(float(ahead), float(slots), mean, BatchingCurve(1.0, 0.0, float(slots))))
    assert abs(runs.mean() - law) < 1 + 4 * runs.std() / np.sqrt(4000)  # several in one iteration round it up, by < 1


def test_equation_6_is_short_by_the_turnover():  # 3
    step = float(NETKV_CURVE.iteration_s(64.0))
    assert round(float(slot_wait_s(9.0, 64.0, 256.0)) / step, 9) == 40.0
    assert round(float(queue_delay_s(9.0, 64.0)) / step, 9) == 9.0


def test_nobody_ahead():
    """The least case: a full batch and no queue. The next slot frees after L/beta iterations, not at once."""
    assert sp.Rational(256, 64) == 4
    step = float(NETKV_CURVE.iteration_s(64.0))
    assert round(float(slot_wait_s(0.0, 64.0, 256.0)) / step, 9) == 4.0 and float(queue_delay_s(0.0, 64.0)) == 0.0
