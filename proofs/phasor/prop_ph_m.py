r"""PH-M. De-fragmentation triggers when $\Phi_S = 1 - (N_{used} + H_{frag})/M_{total} < \theta_{frag} = 0.168$, with
$M_{total}$ = 32 GB per decode worker (Eq. (2), Table 4).

**Verdict: refuted** as configured: with 15.2 GB of FP16 weights at most 16.8 GB are KV, so Phi_S >= 0.475 and the
trigger never fires (1). In blocks of the KV pool Phi_S spans [0, 1] and it can (2). H_frag is a function of the request
too (3).

**What the authors could answer.** That M_total is the KV budget in blocks and 32 GB a slip of Table 4. Then the trigger
can fire, and (2) shows the range; but the table defines it as "Physical memory limit per decode worker", and 0.168 is
said to be chosen on it. That weights are counted as used: N_used is "the count of physically allocated KV blocks". The
verdict stands for the printed configuration.
"""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.freeness import decode_freeness, stranded_blocks
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-M",
    source=PHASOR,
    where="Eq. (2), Table 4",
    says="de-fragmentation starts when space freeness over 32 GB falls below 0.168",
    verdict=Verdict.REFUTED,
    error="freeness stays above 0.475; the threshold needs 26.6 GB of KV on a 32 GB GPU",
    counterexample="A 32 GB GPU with 15.2 GB of weights, its KV memory full to the last byte: freeness still reads "
    "0.475, above the trigger at 0.168.",
    means="Measure decode freeness in blocks of the KV pool, not in gigabytes of the GPU.",
    minimal="no size: one GPU, the paper's own",
)


def test_the_trigger_is_out_of_reach():  # 1
    total, weights, theta = Fraction(32), Fraction(1524, 100), Fraction(168, 1000)
    assert 1 - (total - weights) / total > theta and total * (1 - theta) > total - weights


@given(pool=st.integers(1, 10_000), data=st.data())
def test_in_one_unit_freeness_spans_zero_to_one(pool, data):  # 2
    used = data.draw(st.integers(0, pool))
    k = data.draw(st.integers(1, pool))
    stranded = (pool - used) % k
    assert float(stranded_blocks(float(pool - used), float(k))) == stranded
    assert 0 <= float(decode_freeness(float(used), float(stranded), float(pool))) <= 1


def test_stranded_depends_on_the_request():  # 3
    assert [float(stranded_blocks(10.0, k)) for k in (3.0, 5.0, 11.0)] == [1.0, 0.0, 10.0]
