r"""NEW-13. A flap-free split of n workers: floor or ceiling of $n L_P/(L_P + L_D)$, and when a move is never undone.

The larger utilisation $\max(L_P/n_P, L_D/(n - n_P))$ falls in $n_P$ where prefill is the larger and rises where decode
is, and both are equal at $n L_P/(L_P + L_D)$: the best whole split is a neighbour of it (1, 2). A rule that moves only
if the larger utilisation falls by a share m cannot return at constant loads, nor while loads drift by less than
$m/(2 - m)$ (PH-B5). The trigger's dead zone $\theta \le \Phi_P/\Phi_D \le 1/\theta$ exists only while means are
positive (3).

**Verdict: proved.**
"""

from fractions import Fraction as F
from math import ceil, floor

import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.control.phasor import flow
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-13",
    source=DMODELS,
    where="control.phasor_flow.balanced_prefill and descend",
    says="the split with the least larger utilisation is a whole neighbour of n L_P/(L_P + L_D), and moves that lower "
    "that utilisation by a margin cannot cycle",
    verdict=Verdict.PROVED,
    needs=("at least two workers and positive loads",),
    means="Compute the target split from the loads and go there; no threshold on freeness is needed.",
)


def worst(n, total, p, d):
    return max(p / n, d / (total - n))


def test_equal_utilisation_is_the_minimum():  # 1
    n, p, d = sp.symbols("n P D", positive=True)
    at = n * p / (p + d)
    assert sp.simplify(p / at - d / (n - at)) == 0
    x = sp.symbols("x", positive=True)
    assert sp.diff(p / x, x).is_negative and sp.simplify(sp.diff(d / (n - x), x) - d / (n - x) ** 2) == 0


def test_the_best_whole_split_is_a_neighbour():  # 2: all loads 1..9 on 2..9 workers
    for total in range(2, 10):
        for p in range(1, 10):
            for d in range(1, 10):
                target = F(total * p, p + d)
                near = {min(max(k, 1), total - 1) for k in (floor(target), ceil(target))}
                least = min(worst(k, total, F(p), F(d)) for k in range(1, total))
                assert least == min(worst(k, total, F(p), F(d)) for k in near)
                assert abs(float(flow.balanced_prefill(float(total), float(p), float(d))) - float(target)) < 1e-12


def test_both_triggers_fire_below_zero():  # 3
    theta, phi = F(62, 100), F(-1, 10)
    assert phi < theta * phi


@given(p=st.floats(0.2, 6), d=st.floats(0.2, 6), start=st.integers(1, 7))
def test_descent_ends_near_the_target(p, d, start):  # 2: at most one utilisation margin above the best whole split
    params = flow.settings(margin=0.05, cool_steps=0)
    state = flow.init(float(start), float(8 - start))
    seen = []
    for _ in range(10):
        seen.append(float(state.prefill))
        state, _ = flow.descend(state, 1 - p / state.prefill, 1 - d / state.decode, params)
    values = [worst(n, 8.0, p, d) for n in dict.fromkeys(seen)]
    assert values == sorted(values, reverse=True) and len(set(seen)) == len(values)
    n = seen[-1]
    beside = [worst(k, 8.0, p, d) for k in (n - 1, n + 1) if 1 <= k <= 7]
    assert all(worst(n, 8.0, p, d) * 0.95 <= value + 1e-12 for value in beside)
