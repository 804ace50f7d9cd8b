r"""POA-PL. "The planner's +-1 steps are a best response with inertia that converges to the variational equilibrium."

False. Every full split is a generalised equilibrium, so a literal best response never moves (1). Giving the next GPU
to the pool that gains more from it cycles: $V = 1/(n+1)$ for both, G = 3 gives 1, 2, 1, 2, ... (2). Accepting a swap
only if $V_T + V_I$ falls makes that sum a potential: it falls strictly, the splits are finite, so the planner stops at
a split that no swap improves (3).

**Verdict: refuted.**
"""

from fractions import Fraction as F
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dmodels.control.planner import Observation, best_response, planner
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-PL",
    source=PRICE_OF_ANARCHY,
    where="section 4.1, connection to the Planner",
    says="the +-1 planner converges to the variational equilibrium under stationary load",
    verdict=Verdict.REFUTED,
    needs=("a swap is accepted only if the sum of both violation rates falls; then it reaches a local optimum",),
    counterexample="Three GPUs, both rates 1/(n + 1): the next GPU is worth more to the smaller pool, so the split "
    "swings 1, 2, 1, 2.",
    means="Let the planner move a worker only when the total of late requests falls, or it will swing for ever.",
    minimal="least: two GPUs leave one split with a GPU in each pool; three leave two, which is a cycle",
)


def rate(n):
    return F(1, n + 1)


def test_in_a_full_split_nobody_can_move_alone():  # 1
    for n in range(4):
        more_prefill, more_decode = n + 1 + (3 - n) <= 3, n + (3 - n) + 1 <= 3
        assert not more_prefill and not more_decode
        assert n == 0 or rate(n - 1) > rate(n)  # and giving a GPU back only hurts


def test_the_larger_next_gain_cycles():  # 2
    gain = lambda n: rate(n) - rate(n + 1)
    n, seen = 1, []
    for _ in range(6):
        seen.append(n)
        n = n + 1 if gain(n) > gain(3 - n) else n - 1
    assert seen == [1, 2, 1, 2, 1, 2]


@given(p=st.floats(0.1, 4), d=st.floats(0.1, 4), start=st.integers(1, 11))
def test_the_potential_planner_stops(p, d, start):  # 3
    cost = lambda prefill, total, _: 1.0 / (1.0 + p * prefill) + 1.0 / (1.0 + d * (total - prefill))
    walk = planner(best_response(cost), grace=0.0)
    state = walk.init(float(start), 12.0)
    costs = []
    for _ in range(14):
        costs.append(float(cost(state.prefill, 12.0, 0.0)))
        state = walk.update(state, Observation(1.0, 0.0, 0.0))
    assert all(after <= before for before, after in pairwise(costs))
    n = float(state.prefill)
    assert all(costs[-1] <= float(cost(k, 12.0, 0.0)) + 1e-12 for k in (max(n - 1, 1), min(n + 1, 11)))
