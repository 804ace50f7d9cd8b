r"""PH-H. "Elastic flow control" of Algorithm 1: promotions out of the mixed pool.

Lines 14 to 17 promote a worker from the mixed pool; no line brings one back. So in its whole life it changes at most
$|M_0|$ times, whatever the load does afterwards (1). **Verdict: refuted** as elasticity: of one mixed worker, a burst
of prefill takes it, and a later burst of decode finds none (2). The shipped rule recalls a worker whose pool can spare
it, and never undoes a promotion at the same loads (3).
"""

from fractions import Fraction as F

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmodels.control.phasor import flow
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-H",
    source=PHASOR,
    where="Algorithm 1, lines 12 to 18",
    says="the loop keeps prefill and decode capacity elastic under drifting load",
    verdict=Verdict.REFUTED,
    error="at most as many changes as the mixed pool had workers at the start",
    counterexample="One mixed worker: the first burst of prefill takes it, and a burst of decode an hour later gets "
    "nothing.",
    means="A rebalancer needs a way back: recall workers from a pool that can spare them.",
    minimal="least: without a mixed worker the algorithm never acts; one is the least",
)
THETA = F(62, 100)


def algorithm_1(mixed: int, means):
    """Its changes over a sequence of mean freeness: +1 to prefill, -1 to decode, 0; in rationals."""
    done = []
    for p, d in means:
        step = 1 if p < THETA * d and mixed else -1 if d < THETA * p and mixed else 0
        mixed -= abs(step)
        done.append(step)
    return done


PREFILL_BURST, DECODE_BURST = (F(1, 10), F(8, 10)), (F(8, 10), F(1, 10))


def test_it_acts_as_often_as_it_has_mixed_workers():  # 1, 2
    day = [PREFILL_BURST, DECODE_BURST] * 10
    for mixed in range(4):
        assert sum(map(abs, algorithm_1(mixed, day))) == mixed
    assert algorithm_1(1, day[:2]) == [1, 0] and algorithm_1(0, day) == [0] * 20


def test_the_shipped_rule_recalls():  # 3
    params = flow.settings(cool_steps=0)
    state, changes = flow.init(4.0, 4.0, 1.0), []
    for p, d in [PREFILL_BURST, (F(9, 10), F(3, 10)), DECODE_BURST, DECODE_BURST]:
        state, change = flow.promote(state, float(p), float(d), params)
        changes.append(int(change))
    assert changes[0] == 1 and 2 in changes and -1 in changes  # taken, recalled, and given to decode
    assert float(state.prefill + state.decode + state.mixed) == 9


@given(p=st.floats(0.2, 3.9), d=st.floats(0.2, 3.9))
def test_constant_loads_settle(p, d):  # 3
    state, params, changes = flow.init(4.0, 4.0, 2.0), flow.settings(cool_steps=0), []
    for _ in range(12):
        state, change = flow.promote(state, 1 - p / float(state.prefill), 1 - d / float(state.decode), params)
        changes.append(int(change))
    assert changes[-1] == 0 and np.count_nonzero(changes) <= 8
