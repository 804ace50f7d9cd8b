r"""TB-4. Llama-3-70B on an A100-80GB holds about 16 sequences of 64K and 128 of 8K (Section 1.1, from Eq. (2)).

**Verdict: refuted** by Eq. (2) itself. In BF16 at utilisation 0.9 the weights do not fit on one GPU; on the paper's two
there is room for 0 and 1 sequences, on four for 6 and 54, on eight for 20 and 162 (1). Sixteen sequences of 64K are
65,536 blocks, 343.6 GB of KV: seven A100s without any weights. The code says
the same (2). The concurrency is eight times as high only where both numbers are large and below the cap (3).

**What the authors could answer.** That weights were quantised, or that max_num_seqs was meant. Section 4.1 says BF16
and TP = 2; with 4-bit weights (35 GB) the same two GPUs hold 5 sequences of 64K, with FP8 KV as well 10, so neither
gives 16. As a setting of the scheduler 16 and 128 are inputs, which is how the timing model uses them and why the
fleets of Table 2 follow; they are not what Eq. (2) yields. The verdict stands for the derivation.
"""

from fractions import Fraction

import pytest

from dmodels import Model
from dmodels.models.memory import kv_bytes, sequences_that_fit
from dmodels.models.pooling import SlotEngine, slots_count
from proofs.claim import TOKEN_BUDGET, Claim, Verdict

CLAIM = Claim(
    id="TB-4",
    source=TOKEN_BUDGET,
    where="Section 1.1, Eqs. (1), (2)",
    says="an A100-80GB serving Llama-3-70B holds 16 sequences of 64K or 128 of 8K",
    verdict=Verdict.REFUTED,
    counterexample="Two A100-80GB with Llama-3-70B in BF16: no sequence of 64K fits, and one of 8K.",
    means="The paper's fleets are sized for instances that two A100s cannot hold; size from the memory, not its table.",
    minimal="no size: the paper's own configuration",
)


def _exact(tp: int, context: int) -> int:
    free = Fraction(80 * 10**9) * Fraction(9, 10) - Fraction(141 * 10**9, tp)
    return max(free, 0) // Fraction(2 * 80 * 8 * 128 * 2 * context, tp)


def test_equation_2_gives_other_numbers():  # 1
    found = {tp: (_exact(tp, 65536), _exact(tp, 8192)) for tp in (1, 2, 4, 8)}
    assert found == {1: (0, 0), 2: (0, 1), 4: (6, 54), 8: (20, 162)}
    assert 16 * 2 * 80 * 8 * 128 * 2 * 65536 == 343_597_383_680 > 6 * 0.9 * 80e9 - 141e9


@pytest.mark.parametrize("tp", [1, 2, 4, 8])  # 2
def test_the_code_says_the_same(tp):
    for context in (65536, 8192):
        kv = kv_bytes(Model(80, 8, 128), float(context), tp)
        assert float(sequences_that_fit(80e9 * 0.9 - 141e9 / tp, kv)) == _exact(tp, context)


def test_the_eightfold_gain_is_the_block_budget_and_stops_at_the_cap():  # 3
    n = [float(slots_count(float(b), SlotEngine())) for b in (65536, 8192, 4096, 1024)]
    assert n == [16, 128, 128, 128]
