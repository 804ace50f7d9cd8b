r"""POA-R1. The social optimum differs from the equilibrium by "allocating more GPUs to prefill by an amount
proportional to" $|\partial V_I/\partial G_P|$.

$S'(x) = g(x) + \partial V_I/\partial G_P (G-x, x)$ (1). Below the smallest equilibrium g < 0, and the second term is
not positive, so S falls: every optimum has at least as many prefill GPUs as the *smallest* equilibrium (2).
**Verdict: conditional** on one equilibrium only and on prefill that helps decode; "proportional" is a first order. With
$V_T = (1-x)^2/2$, $V_I = (1-D)^2/2 + \lambda(1-P)^3/3$, G = 1, the equilibrium is 1/2 and the optimum $((1+\lambda) -
\sqrt{1+\lambda})/\lambda$: for lambda = 5/4, 3, 8 a gap of 8/25, 2/9, 1/8 of the marginal effect (3).
"""

import equinox as eqx
import numpy as np
import sympy as sp

from dmodels.games.resource import Game, equilibrium, social_optimum
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-R1",
    source=PRICE_OF_ANARCHY,
    where="Remark 1",
    says="the social optimum gives prefill more than the equilibrium, in proportion to its marginal effect on decode",
    verdict=Verdict.CONDITIONAL,
    needs=("the variational equilibrium is unique", "more prefill never hurts decode"),
    error="proportional to first order only: the gap per unit of effect falls from 1/2 to 1/8 as the effect grows to 2",
    counterexample="One game with an effect of prefill on decode of 5/16, 3/4 and 2 at the equilibrium: the optimum is "
    "1/10, 1/6 and 1/4 of the budget away, not in the ratio 5 : 12 : 32.",
    means="Shift GPUs from decode to prefill when the cache matters, but find how many by the optimum, not by a rule "
    "of three.",
)


class Decode(eqx.Module):
    """V_I of the page; a leaf for lambda makes many games one batch."""

    effect: np.ndarray

    def __call__(self, d, p):
        return (1 - d) ** 2 / 2 + self.effect * (1 - p) ** 3 / 3


def _prefill_gpus(effect) -> tuple[np.ndarray, np.ndarray]:
    """Prefill GPUs at the equilibrium and at the optimum by the shipped solvers."""
    effect = np.asarray(effect, float)
    small = {"prefill_worker_gpus": 0.05, "decode_worker_gpus": 0.05}
    game = Game(lambda x: (1 - x) ** 2 / 2, Decode(effect), np.ones(len(effect)), **small)
    return equilibrium(game).value.prefill_gpus, social_optimum(game).value.prefill_gpus


def test_the_slope_of_the_social_cost():  # 1
    x, total, d, p = sp.symbols("x G d p")
    for prefill, decode in ((x**4, d**3 * p**2), (sp.exp(-x), sp.exp(-d - 2 * p) + p * d)):
        at = {d: total - x, p: x}
        slope = sp.diff(prefill + decode.subs(at, simultaneous=True), x)
        g = sp.diff(prefill, x) - sp.diff(decode, d).subs(at, simultaneous=True)
        assert sp.simplify(slope - g - sp.diff(decode, p).subs(at, simultaneous=True)) == 0


def test_the_optimum_is_never_below_the_equilibrium():  # 2, and 3 for the shipped solvers
    effect = np.array([1e-3, 0.1, 1.25, 3.0, 8.0, 20.0])
    selfish, best = _prefill_gpus(effect)
    np.testing.assert_allclose(selfish, 0.5, atol=1e-9)
    assert (best >= selfish).all()
    np.testing.assert_allclose(best, (1 + effect - np.sqrt(1 + effect)) / effect, atol=1e-8)


def test_the_gap_is_not_proportional():  # 3
    x, lam = sp.symbols("x lambda", positive=True)
    optimum = ((1 + lam) - sp.sqrt(1 + lam)) / lam
    assert sp.simplify((2 * x - 1 - lam * (1 - x) ** 2).subs(x, optimum)) == 0
    effect = lam / 4  # |dV_I/dG_P| at x = 1/2
    share = (optimum - sp.Rational(1, 2)) / effect
    assert [share.subs(lam, v) for v in (sp.Rational(5, 4), 3, 8)] == [
        sp.Rational(8, 25),
        sp.Rational(2, 9),
        sp.Rational(1, 8),
    ]
    assert sp.limit(share, lam, 0) == sp.Rational(1, 2)
