r"""TB-ALG. Algorithm 1: a hard constraint, a threshold and a spill-over, in O(1).

With B at most the short pool's context C the "hard constraint" of line 7 decides nothing beyond line 10 (1). What
it was for is decided by line 16, if the "alternate pool can serve" the request: spill-over to the short pool moves
requests of totals between B and C, and is safe only if that test uses the same conservative total (2); with a total
from the plain ratio it admits what does not fit (3). **Verdict: conditional.** The shipped dispatch uses one total in
both directions, and does as many operations whatever the request and the queues, in proportion to the pools (4).
"""

import itertools
import math
from fractions import Fraction as F

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmodels.control import token_budget as tb
from proofs.cases import every
from proofs.claim import TOKEN_BUDGET, Claim, Verdict

CLAIM = Claim(
    id="TB-ALG",
    source=TOKEN_BUDGET,
    where="Algorithm 1",
    says="the dispatch is O(1), and its hard constraint keeps from the short pool what does not fit",
    verdict=Verdict.CONDITIONAL,
    needs=('"can serve" in line 16 compares the same conservative total with the pool\'s context',),
    error="none with that test; without it every spilled request between the two totals overflows",
    counterexample="A prompt of 30,000 bytes, 3 to 4 bytes a token, an overloaded long pool: 7,500 tokens by the plain "
    "ratio fit 8,192, 10,000 by the conservative one do not.",
    means="Check that your gateway re-checks a request against the pool that it spills to, with the padded estimate.",
    minimal="least: one request and two pools are the least",
)
B, C, LONG = 6000, 8192, 65536


def home(total, hard: bool):
    if hard and total > C:
        return "long"
    return "short" if total <= B else "long"


def test_the_hard_constraint_decides_nothing():  # 1: B <= C
    assert all(home(F(total), True) == home(F(total), False) for total in every(range(20_000), "totals"))


def test_which_total_line_16_needs():  # 2, 3
    size, plain, padded = F(30_000), 4, 3
    assert home(size / padded, True) == "long" and size / plain <= C < size / padded


def test_the_shipped_dispatch_spills_by_the_padded_total():  # 3
    where = tb.pools([B, LONG], [C, LONG], [5, 5])
    overloaded = np.array([0.0, 9.0])
    assert int(tb.dispatch(10_000.0, overloaded, where).pool) == 1  # does not fit the short pool: it waits
    assert int(tb.dispatch(7_500.0, overloaded, where).pool) == 0  # between B and C: it may spill


@given(total=st.floats(1, 65_536), queues=st.tuples(st.integers(0, 10), st.integers(0, 10)))
def test_no_dispatch_sends_what_does_not_fit(total, queues):  # 2
    where = tb.pools([B, LONG], [C, LONG], [5, 5])
    chosen = tb.dispatch(total, np.array(queues, float), where)
    assert bool(chosen.fits) and total <= float(where.contexts_tokens[int(chosen.pool)])


def operations(pools: int) -> int:
    """Numbers that one dispatch computes, by the program that is compiled: it has no loop over anything."""
    where = tb.pools(np.arange(1.0, pools + 1), np.arange(1.0, pools + 1), np.full(pools, 5.0))
    program = jax.make_jaxpr(lambda total, queued: tb.dispatch(total, queued, where))(1.0, np.zeros(pools))
    names = {step.primitive.name for step in program.eqns}
    assert not names & {"while", "scan", "sort"}
    return sum(math.prod(out.aval.shape) for step in program.eqns for out in step.outvars)


def test_as_many_operations_for_every_request():  # 4: a straight-line program, linear in the pools
    counts = [operations(k) for k in every((2, 3, 4, 5), "numbers of pools")]
    assert len({b - a for a, b in itertools.pairwise(counts)}) == 1


def test_every_case_of_two_pools():  # both directions, at the edges, against Algorithm 1 written out
    where = tb.pools([B, LONG], [C, LONG], [5, 5])
    for total, short, long in itertools.product((1, B, B + 1, C, C + 1, LONG), (5, 6), (5, 6)):
        full, at = {"short": short > 5, "long": long > 5}, home(total, True)
        other = "long" if at == "short" else "short"
        wanted = other if full[at] and not full[other] and total <= {"short": C, "long": LONG}[other] else at
        got = int(tb.dispatch(float(total), np.array([short, long], float), where).pool)
        assert ("short", "long")[got] == wanted, (total, short, long)
