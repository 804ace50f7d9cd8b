r"""POA-PL. The Planner's +-1 adjustment "is a best-response dynamic with inertia that converges to the variational
equilibrium under stationary load".

Every full split is a generalised equilibrium, so a literal best response never moves (1). Read as giving the next GPU
to the pool that gains more from it, the rule is a sign of g. With falling convex rates and decode's rate independent of
prefill, x* the variational equilibrium: at n >= x* + 1 prefill's next gain is below $|V_T'(n)| \le |V_T'(x^*)|$ and
decode's is at least $|V_I'(G - (n - 1))| \ge |V_I'(G - x^*)|$, the same number (or less, in a corner), so the rule
steps down; at n <= x* - 1 it steps up in the same way. So from any split it comes within one worker of x* and stays
there (2). It does not settle: $V = 1/(n+1)$ for both, G = 3 gives 1, 2, 1, 2, ... for ever (3). Accepting a swap only
if $V_T + V_I$ falls makes that sum a potential: the planner stops at a split that no swap improves (4).

**Verdict: conditional**: to within one worker, and where the equilibrium is unique (POA-1b).
"""

from fractions import Fraction as F
from functools import partial
from itertools import pairwise

import jax
import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.control.planner import Observation, best_response, planner
from dmodels.core.records import float64
from proofs.cases import every
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-PL",
    source=PRICE_OF_ANARCHY,
    where="section 4.1, connection to the Planner",
    says="the +-1 planner converges to the variational equilibrium under stationary load",
    verdict=Verdict.CONDITIONAL,
    needs=(
        "the next GPU goes to the pool that gains more from it",
        "decode's rate does not depend on prefill (else several equilibria: POA-1b)",
    ),
    error="within one worker, swinging for ever; it stops if a swap must lower the sum of both violation rates",
    counterexample="Three GPUs, both rates 1/(n + 1): the next GPU is worth more to the smaller pool, so the split "
    "swings 1, 2, 1, 2.",
    means="Let the planner move a worker only when the total of late requests falls, or it will swing for ever.",
)


def rate(n):
    return F(1, n + 1)


def test_in_a_full_split_nobody_can_move_alone():  # 1
    for n in range(4):
        more_prefill, more_decode = n + 1 + (3 - n) <= 3, n + (3 - n) + 1 <= 3
        assert not more_prefill and not more_decode
        assert n == 0 or rate(n - 1) > rate(n)  # and giving a GPU back only hurts


def next_gain_steps_towards(prefill, decode, total: int, optimum: F) -> int:
    """Splits at which the rule must move towards `optimum`, all of which do."""
    checked = 0
    for n in range(1, total):
        up = prefill(n) - prefill(n + 1) > decode(total - n) - decode(total - n + 1)
        if abs(n - optimum) >= 1:
            assert up == (n < optimum)
            checked += 1
    return checked


def test_it_comes_within_one_worker():  # 2: V_T = 1/(a + x), V_I = 1/(b + y) balance where a + x = b + y
    games = [(a, b, total) for a in range(1, 6) for b in range(1, 6) for total in range(2, 13)]
    for a, b, total in every(games, "games of two pools"):
        optimum = min(max(F(total + b - a, 2), F(0)), F(total))
        next_gain_steps_towards(lambda n, a=a: F(1, a + n), lambda n, b=b: F(1, b + n), total, optimum)
    x, k, v = sp.symbols("x k v", positive=True)  # convex and falling: the chord lies between the slopes at its ends
    slope = sp.diff(1 / (v + x), x)
    chord = 1 / (v + x + k) - 1 / (v + x)
    assert sp.factor(chord - k * slope).is_positive and sp.factor(k * slope.subs(x, x + k) - chord).is_positive


def test_the_larger_next_gain_cycles():  # 3
    gain = lambda n: rate(n) - rate(n + 1)
    n, seen = 1, []
    for _ in range(6):
        seen.append(n)
        n = n + 1 if gain(n) > gain(3 - n) else n - 1
    assert seen == [1, 2, 1, 2, 1, 2]


@float64
@jax.jit
def _walked(p, d, start):
    """Costs at the workers of each of 14 rounds, and the last of these."""
    walk = planner(best_response(partial(_cost, p, d)), grace=0.0)

    def turn(state, _):
        return walk.update(state, Observation(1.0, 0.0, 0.0)), _cost(p, d, state.prefill, 12.0, 0.0)

    state, costs = jax.lax.scan(turn, walk.init(start, 12.0), length=14)
    return state.prefill, costs


def _cost(p, d, prefill, total, _):
    return 1.0 / (1.0 + p * prefill) + 1.0 / (1.0 + d * (total - prefill))


@given(p=st.floats(0.1, 4), d=st.floats(0.1, 4), start=st.integers(1, 11))
def test_the_potential_planner_stops(p, d, start):  # 4
    n, costs = (np.asarray(found).tolist() for found in _walked(p, d, float(start)))
    assert all(after <= before for before, after in pairwise(costs))
    assert all(costs[-1] <= _cost(p, d, k, 12.0, 0.0) + 1e-12 for k in (max(n - 1, 1), min(n + 1, 11)))
