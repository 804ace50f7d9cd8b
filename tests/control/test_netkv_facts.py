"""What the selection says about inputs made by hand: which fault, which flag, which intent."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.control.netkv import Oracle, Policy, Pool, choose, dispatch, oracle_problems
from dmodels.core.flags import Flag

pytestmark = pytest.mark.usefixtures("op_by_op")

NO_FIT, DEAD, WRONG = (int(f) for f in (Flag.NO_FIT | Flag.INFEASIBLE, Flag.INFEASIBLE, Flag.OUT_OF_DOMAIN))


def oracle(*tiers, rate=1.0, congestion=0.0):
    """One prefill instance, a decode instance on each of `tiers`, of two."""
    return Oracle(np.array([tiers]), np.array([rate, rate]), np.zeros(2), np.array([congestion, congestion]))


def pool(*free_bytes):
    free = np.array(free_bytes, float)
    return Pool(free, np.zeros(free.shape), np.zeros(free.shape))


def test_a_sound_oracle_has_no_problem_and_an_unknown_tier_is_named():
    assert oracle_problems(oracle(0, 1)) == [] == oracle_problems(oracle(0, 1, rate=0.5, congestion=0.99))
    (above,), (below,) = oracle_problems(oracle(0, 2)), oracle_problems(oracle(-1, 1))
    assert "tier 2" in above and "tier -1" in below
    assert len(oracle_problems(oracle(0, rate=0.0))) == 1 == len(oracle_problems(oracle(1, congestion=1.0)))


def flags(kv_bytes, hits, free, **asked):
    return choose(Policy.NETKV_FULL, oracle(0, 1, **asked), 0, kv_bytes, hits, pool(*free)).flags.tolist()


def test_what_a_rejection_says():
    """Dead links reject everybody; no room is named where what must move fits no instance."""
    dead = {"rate": 0.0}
    assert flags([10.0], [0.0, 0.5], (4.0, 5.0), **dead) == [DEAD]  # 5 bytes fit 5
    assert flags([10.1], [0.0, 0.5], (4.0, 5.0), **dead) == [NO_FIT] == flags([10.0], [0.0, 0.5], (5.0, 4.0), **dead)
    assert flags([10.0, 20.0], [0.0, 0.5], (4.0, 5.0)) == [0, NO_FIT]


def test_each_of_many_pools_answers_for_itself():
    both = Pool(*(np.array(x) for x in ([[5.0, 1.0], [1.0, 20.0]], np.zeros((2, 2)), np.zeros((2, 2)))))
    many = choose(Policy.NETKV_FULL, oracle(0, 1, rate=0.0), 0, [10.0, 10.0], [0.0, 0.0], both)
    assert many.flags.tolist() == [NO_FIT, DEAD]


@pytest.mark.parametrize(
    "kv_bytes, hits, congestion",
    [(np.inf, 0.0, 0.0), (-1.0, 0.0, 0.0), (1.0, -0.1, 0.0), (1.0, 1.1, 0.0), (1.0, 0.0, 1.0)],
)
def test_inputs_outside_the_domain_are_flagged(kv_bytes, hits, congestion):
    found = choose(Policy.NETKV_FULL, oracle(0, 1, congestion=congestion), 0, [kv_bytes], [0.5, hits], pool(9.0, 9.0))
    assert int(found.flags[0]) & WRONG


def test_the_first_instance_gets_its_intent_too():
    choice, after, _ = dispatch(Policy.NETKV_FULL, oracle(0, 1), 0, [10.0, 99.0], [0.4, 0.0], pool(50.0, 0.0))
    (intent,) = choice.intents  # the second request fits nowhere
    assert (intent.source, intent.destination, intent.payload_bytes) == (0, 0, pytest.approx(6.0))
    assert choice.index.tolist() == [0, -1] and after.free_bytes.tolist() == [44.0, 0.0]
