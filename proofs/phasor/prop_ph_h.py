r"""PH-H. "Elastic Flow Control" of Algorithm 1: promotions out of the mixed pool.

Two readings of the paper meet here. Lines 14 to 17 promote a worker from the mixed pool and no line brings one back;
Appendix B.5 locks a promoted worker "for a minimum duration ... before it can be recalled". This page and PH-B5 take
the second: workers are recalled to the mixed pool and promoted again.

**Verdict: conditional** on that recall, for which the algorithm gives no rule. As printed it changes at most $|M_0|$
times in its whole life, whatever the load does afterwards (1): of one mixed worker, a burst of prefill takes it, and a
later burst of decode finds none (2). With a recall of a worker whose pool can spare it, every burst is answered (3);
the shipped rule does that and never undoes a promotion at the same loads (4).
"""

import itertools
from fractions import Fraction as F

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmodels.control.phasor import flow
from proofs.cases import every
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-H",
    source=PHASOR,
    where="Algorithm 1, lines 12 to 18",
    says="the loop keeps prefill and decode capacity elastic under drifting load",
    verdict=Verdict.CONDITIONAL,
    needs=("promoted workers are recalled (Appendix B.5 says so, Algorithm 1 has no line for it)",),
    error="as printed at most as many changes as the mixed pool had workers at the start",
    counterexample="One mixed worker: the first burst of prefill takes it, and a burst of decode an hour later gets "
    "nothing.",
    means="A rebalancer needs a way back: recall workers from a pool that can spare them.",
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


def with_recall(mixed: int, means):
    """Algorithm 1 when a worker is recalled first from the pool that can spare it: workers in (mixed, P, D) gained."""
    taken, done = {1: 0, -1: 0}, []
    for p, d in means:
        step = 1 if p < THETA * d else -1 if d < THETA * p else 0
        if step and not mixed and taken[-step]:
            taken[-step] -= 1
            mixed += 1
        if step and mixed:
            mixed, taken[step] = mixed - 1, taken[step] + 1
            done.append(step)
        else:
            done.append(0)
    return done


def test_a_recall_answers_every_burst():  # 3: all days of four bursts, from one worker
    for day in every(itertools.product((1, -1), repeat=4), "days of four bursts"):
        means = [PREFILL_BURST if step == 1 else DECODE_BURST for step in day]
        now, expected = 0, []
        for step in day:  # the one worker moves whenever the other pool calls
            expected.append(step if now != step else 0)
            now = step
        assert with_recall(1, means) == expected


def test_the_shipped_rule_recalls():  # 4
    params = flow.settings(cool_steps=0)
    state, changes = flow.init(4.0, 4.0, 1.0), []
    for p, d in [PREFILL_BURST, (F(9, 10), F(3, 10)), DECODE_BURST, DECODE_BURST]:
        state, change = flow.promote(state, float(p), float(d), params)
        changes.append(int(change))
    assert changes[0] == 1 and 2 in changes and -1 in changes  # taken, recalled, and given to decode
    assert float(state.prefill + state.decode + state.mixed) == 9


@given(p=st.floats(0.2, 3.9), d=st.floats(0.2, 3.9))
def test_constant_loads_settle(p, d):  # 4
    state, params, changes = flow.init(4.0, 4.0, 2.0), flow.settings(cool_steps=0), []
    for _ in range(12):
        state, change = flow.promote(state, 1 - p / float(state.prefill), 1 - d / float(state.decode), params)
        changes.append(int(change))
    assert changes[-1] == 0 and np.count_nonzero(changes) <= 8
