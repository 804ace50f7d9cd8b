r"""POA-1d. "We adopt the variational equilibrium [29], the standard selection for shared-constraint GNEPs [11]": what
the selection decides.

A generalised equilibrium asks only that no pool gains alone, inside what the other leaves. With both rates falling
every split that uses the whole budget is one: more is blocked by the budget, less only hurts (1). Their price is
unbounded: $V = (1 - x)^K$ for both on a budget of 1 costs $2 \cdot 2^{-K}$ in the middle and 1 at the end, a ratio of
$2^{K-1}$ (2). The variational equilibrium is singled out by a common price of a GPU for both pools, and moves if the
pools weigh a late request differently (3): it is a choice of the planner, not a consequence of selfish play.

**Verdict: conditional.** The paper says that it selects, and that such games have a continuum of equilibria; it leaves
out what the selection assumes, one price of a GPU for both pools, and that without it no price of anarchy bounds the
game.
"""

from fractions import Fraction as F

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.resource import Alone, Exponential, Game, equilibrium, social_optimum
from proofs.cases import every
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-1d",
    source=PRICE_OF_ANARCHY,
    where="Proposition 1, Definition 1",
    says="the variational equilibrium stands for the outcome of the prefill/decode game",
    verdict=Verdict.CONDITIONAL,
    needs=("a GPU has the same price for both pools",),
    error="over all generalised equilibria the price of anarchy has no bound: 524,288 at K = 20",
    counterexample="Two GPUs, both rates 1/(n + 1): 0/2, 1/1 and 2/0 are all equilibria, though 1/1 has 1 late request "
    "in place of 4/3.",
    means="Two pools that defend their GPUs stay at any split, however bad: somebody has to price a GPU for both.",
    minimal="searched: one GPU has only corners, alike by symmetry; with two, every split is listed",
)


def stable(split: int, total: int, rate) -> bool:
    """No pool gains by taking any number that the other leaves free, or by giving some back."""
    here = (split, total - split)
    return all(rate(n) <= rate(k) for n, other in (here, here[::-1]) for k in range(total - other + 1))


def test_every_full_split_is_an_equilibrium():  # 1
    rate = lambda n: F(1, n + 1)
    assert [stable(n, 2, rate) for n in range(3)] == [True] * 3
    assert [rate(n) + rate(2 - n) for n in range(3)] == [F(4, 3), 1, F(4, 3)]
    splits = [(n, total) for total in range(1, 13) for n in range(total + 1)]
    assert all(stable(n, total, rate) for n, total in every(splits, "splits"))


def test_the_price_over_all_equilibria_has_no_bound():  # 2
    k = sp.symbols("K", positive=True)
    assert sp.simplify(sp.Integer(1) / (2 * sp.Rational(1, 2) ** k) - 2 ** (k - 1)) == 0
    for k in (1, 2, 20):
        rate = lambda x, k=k: (1 - x) ** k
        worst, best = rate(F(0)) + rate(F(1)), 2 * rate(F(1, 2))
        assert worst / best == 2 ** (k - 1)
        assert all(rate(F(i, 8)) + rate(1 - F(i, 8)) >= best for i in range(9))


def test_nothing_smaller():
    """One GPU for two pools with one rate: both splits cost the same, so no equilibrium is worse than another."""
    for rate in (lambda n: F(1, n + 1), lambda n: F(1, 2**n), lambda n: F(3 - n, 4)):
        assert len({rate(n) + rate(1 - n) for n in range(2)}) == 1


@given(rate=st.floats(0.2, 3), total=st.floats(2, 40))
def test_the_corner_against_the_shipped_optimum(rate, total):  # 2: exponential rates reach cosh(a G/2)
    game = Game(Exponential(rate), Alone(Exponential(rate)), total)
    best = social_optimum(game).value.cost
    np.testing.assert_allclose((1 + np.exp(-rate * total)) / float(best), np.cosh(rate * total / 2), rtol=1e-6)


@given(weight=st.floats(1.5, 4))
def test_the_variational_one_moves_with_the_weight(weight):  # 3: by ln(w)/2 with both rates 1
    game = lambda w: Game(Exponential(1.0), Alone(Exponential(1.0)), 12.0, prefill_weight=w)
    at = lambda w: float(equilibrium(game(w)).value.prefill_gpus)
    assert abs(at(1.0) - 6) < 1e-9 and abs(at(weight) - 6 - np.log(weight) / 2) < 1e-8
