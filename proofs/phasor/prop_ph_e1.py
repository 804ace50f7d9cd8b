r"""PH-E1. Virtual freeness "makes prefill compute saturation and decode effective KV capacity loss directly
comparable": one dimensionless scale, Eqs. (1), (2).

Both are at most 1. But decode's load is blocks *in use*, so $\Phi_S \in [0, 1]$: a full pool reads 0 whether nobody or
a hundred requests wait for memory. Prefill's load is its queue, so $\Phi_T \in (-\infty, 1]$ (1). Where it matters
most the scales part: with decode full and any backlog, prefill 1 % over its budget takes the spare worker (2).
**Verdict: refuted.** With what waits counted as load on both sides the backlog decides (3).

**What the authors could answer.** That comparable means dimensionless and SLO-normalised, not equal in range. The rule
of Algorithm 1 compares the two numbers directly, and a full decode pool cannot fall below 0 however many wait, so
exactly in overload one side stops speaking. That waiting requests are seen in prefill's queue: they have left it, their
prompts are done. The verdict stands; counting what waits repairs it.
"""

from fractions import Fraction as F

from hypothesis import given
from hypothesis import strategies as st

from dmodels.control.phasor import flow
from dmodels.models.freeness import decode_freeness, prefill_freeness
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-E1",
    source=PHASOR,
    where="Eqs. (1), (2); Algorithm 1, lines 12 to 17",
    says="virtual freeness puts prefill and decode on one comparable scale",
    verdict=Verdict.REFUTED,
    needs=("requests that wait for memory are counted in decode's load",),
    error="decode's freeness ends at 0, prefill's has no lower end",
    counterexample="One decode worker, full, with 100 requests waiting for memory; one prefill worker 1 % over its "
    "budget: the spare worker goes to prefill.",
    means="Count what waits for decode memory as load, or the signal goes blind exactly when decode is the bottleneck.",
    minimal="least: one worker in each pool and one spare are the least that the rule can compare",
)
PEAK, SLO = 100.0, 0.4
THETA = F(62, 100)


def to_prefill(phi_p, phi_d) -> bool:
    return phi_p < THETA * phi_d


def test_the_ranges():  # 1
    assert float(prefill_freeness(0.0, PEAK, SLO)) == 1 == float(decode_freeness(0.0, 0.0, 8.0))
    for k in (1, 3, 1000):
        assert abs(float(prefill_freeness(k * PEAK * SLO, PEAK, SLO)) - (1 - k)) < 1e-9
    assert min(float(decode_freeness(float(u), 8.0 - u, 8.0)) for u in range(9)) == 0


def test_the_instance_by_itself():  # 2, 3: one full decode worker of 8 blocks, 100 waiting requests of 2 blocks each
    in_use, with_waiting, prefill = 1 - F(8, 8), 1 - F(8 + 200, 8), 1 - F(101, 100)
    assert prefill < THETA * in_use and not in_use < THETA * prefill  # Algorithm 1: to prefill
    assert with_waiting < THETA * prefill and not prefill < THETA * with_waiting  # counted as load: to decode


def test_prefill_wins_against_any_backlog():  # 2
    assert to_prefill(F(-1, 100), F(0))
    state = flow.init(1.0, 1.0, 1.0)
    _, change = flow.promote(state, -0.01, float(decode_freeness(8.0, 0.0, 8.0)), flow.settings())
    assert int(change) == 1


def test_with_the_backlog_as_load_decode_wins():  # 3: 100 requests of 2 blocks wait for a pool of 8 blocks
    phi_d = 1 - F(8 + 200, 8)
    assert phi_d == -25 and not to_prefill(F(-1, 100), phi_d) and phi_d < THETA * F(-1, 100)
    state = flow.init(1.0, 1.0, 1.0)
    _, change = flow.promote(state, -0.01, float(decode_freeness(208.0, 0.0, 8.0)), flow.settings())
    assert int(change) == -1


@given(queue=st.floats(0, 50), used=st.integers(0, 8))
def test_only_decode_is_bounded_below(queue, used):  # 1
    assert abs(float(prefill_freeness(queue * PEAK * SLO, PEAK, SLO)) - (1 - queue)) < 1e-9
    assert 0 <= float(decode_freeness(float(used), 0.0, 8.0)) <= 1
