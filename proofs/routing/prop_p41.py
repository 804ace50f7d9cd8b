r"""POA-4.1. "The key property is that the PoA is stable below saturation; it does not grow with load" (section 5.1; of
the measured index, Proposition 4(1): "the empirical PoA is stable: it does not grow with load").

**Verdict: conditional** on identical workers. For them the price is 1 at every load: with k f(k) convex the balanced
split is optimal, and it is the only equilibrium (1; POA-4.2 for whole requests). For workers that differ, which
Definition 3 and Eq. (8) allow, it moves both ways far from any pole: Pigou's pair, latencies x and 1, has no saturation
at all (capacity 1 and unbounded), and its price is 1 up to r = 1/2, $r^2/(r - 1/4)$ up to r = 1, where it is 4/3, and
$r/(r - 1/4)$ after that, falling to 1 (2). The same holds with the paper's curve: two workers of which one has a fixed
cost, half way to their poles (3). What is stable is the bound: 4/3 for affine curves at every load (POA-3.1). The
empirical sentence is about Table 4's index, whose rows are judged with the tables; the index is no price of anarchy
(POA-E12).
"""

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp

from dmodels.solvers.wardrop import marginal, wardrop
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-4.1",
    source=PRICE_OF_ANARCHY,
    where="section 5.1; Proposition 4(1) says it of the empirical index",
    says="below saturation the price of anarchy is stable: it does not grow with load",
    verdict=Verdict.CONDITIONAL,
    needs=("identical workers",),
    error="between 1 and the class bound, 4/3 for affine curves, in either direction",
    counterexample="Two workers, one with latency x and one with a constant 1: from load 1/2 to 1 the price of anarchy "
    "rises from 1 to 4/3, and beyond it falls.",
    means="A worker with a fixed overhead beside a lean one misroutes most where the lean one just gets as slow: look "
    "there, not at saturation.",
)


@jax.jit
def price(b, a, d, r):
    """Nonatomic price of anarchy of workers a x + b + d/(64 - x)^2 at total load r."""
    f = lambda x: a * x + b + d / jnp.where(x < 64.0, 64.0 - x, jnp.nan) ** 2
    total = lambda s: jnp.sum(s.value["loads"] * f(s.value["loads"]))
    room = jnp.full(2, 64.0)
    return total(wardrop(f, r, room)) / total(wardrop(marginal(f), r, room))


def test_identical_workers_have_price_one():  # 1: two of m workers, x + h and x - h instead of x each, on Eq. (9)
    x, h, a, b, d, room = sp.symbols("x h a b d r", positive=True)  # room = n_sat - x, beta = 1
    cost = lambda load, free: load * (a * load + b + d / free)
    uneven = cost(x + h, room - h) + cost(x - h, room + h)
    gap = sp.factor(sp.together(uneven - 2 * cost(x, room)))
    # h^2 times a sum of positive terms over (r - h)(r + h) r, positive while both stay below the pole
    assert sp.simplify(gap - 2 * h**2 * (a + d * (x + room) / (room * (room - h) * (room + h)))) == 0


def test_pigous_pair_at_every_load():  # 2: the flow on x is min(r, 1) selfishly and min(r, 1/2) at best
    r = sp.symbols("r", positive=True)
    cost = lambda x: x * x + (r - x)
    x = sp.symbols("x")
    assert sp.solve(sp.diff(cost(x), x), x) == [sp.Rational(1, 2)]
    best = cost(sp.Rational(1, 2))
    assert sp.expand(best - (r - sp.Rational(1, 4))) == 0
    rising, falling = r**2 / best, cost(1) / best
    assert sp.factor(sp.diff(rising, r) * best**2) == r * (2 * r - 1) / 2  # positive from 1/2 on
    assert sp.simplify(sp.diff(falling, r) * best**2) == sp.Rational(-1, 4)
    values = [rising.subs(r, sp.Rational(1, 2)), rising.subs(r, 1), falling.subs(r, 1), sp.limit(falling, r, sp.oo)]
    assert values == [1, sp.Rational(4, 3), sp.Rational(4, 3), 1]


def test_the_solver_agrees():  # 2
    loads = np.array([0.25, 0.5, 0.75, 1.0, 2.0, 8.0])
    got = [float(price(jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0]), 0.0, r)) for r in loads]
    want = [1.0, 1.0, *(np.array([0.75**2, 1.0, 2.0, 8.0]) / (loads[2:] - 0.25))]
    np.testing.assert_allclose(got, want, rtol=1e-7)


def test_the_papers_curve_far_from_its_pole():  # 3: a = 5 ms, d = 10 ms, pole at 64; one worker has 0.15 s of overhead
    at = [float(price(jnp.array([0.0, 0.15]), jnp.full(2, 0.005), 0.01, r)) for r in (10.0, 30.0, 60.0)]
    assert at[0] < 1 + 1e-9 < 1.1 < at[1] and at[2] < at[1]
