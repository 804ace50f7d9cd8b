r"""POA-1b. The game "has a unique variational equilibrium" (Proposition 1).

$g' = V_T'' + V_{DD} - V_{DP}$. The paper's proof drops the cross term $V_{DP} = \partial^2 V_I/\partial G_D \partial
G_P$, which nothing in its assumptions controls.

Counterexample, exact, with G = 1 and every assumption of Proposition 1: $\kappa(t) = 4 + 2(1-2t) +
4(t-\frac14)(t-\frac12)(t-\frac34)$, $V_T(x) = [(1-x)^2 + 5(1-x)]/64$, $V_I(D, P) = [(1-D)^2 + (1-D) +
(1-D)\kappa(P)]/64$ give $g = \frac1{16}(x-\frac14)(x-\frac12)(x-\frac34)$: three equilibria (1), which the shipped
solver finds and proves to be all (2). Repair: unique if $V_T'' + V_{DD} - V_{DP} > 0$ along the budget, for which
$V_{DP} \le 0$ suffices (3).

**Verdict: refuted.**

**What the authors could answer.** That more prefill always helps decode at the margin too (V_DP <= 0), so that the
dropped term has the right sign. Then the condition belongs into the proposition, whose assumptions are convexity and
monotony alone and hold here; and "each marginal is strictly monotone" is what fails, since decode's marginal moves with
both arguments. Or that three equilibria are rare: rarity is no uniqueness. The verdict stands; the repaired statement
is one line longer.
"""

import numpy as np
import sympy as sp

from dmodels.core.flags import Flag
from dmodels.games.resource import Game, equilibrium
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-1b",
    source=PRICE_OF_ANARCHY,
    where="Proposition 1",
    says="strictly convex decreasing violation rates make the variational equilibrium unique",
    verdict=Verdict.REFUTED,
    needs=("V_T'' + V_DD - V_DP > 0 along the budget",),
    counterexample="Eight GPUs, where prefill can make a decode GPU less useful: the splits 2/6, 4/4 and 6/2 are "
    "all stable.",
    means="Ask whether prefill makes a decode GPU more or less useful: if less, several splits can be stable at once.",
    minimal="no size: the game is continuous; an eighth of the budget is the coarsest grid that holds all three splits",
)

X, D, P = sp.symbols("x D P")
KAPPA = 4 + 2 * (1 - 2 * P) + 4 * (P - sp.Rational(1, 4)) * (P - sp.Rational(1, 2)) * (P - sp.Rational(3, 4))
V_T = ((1 - X) ** 2 + 5 * (1 - X)) / 64
V_I = ((1 - D) ** 2 + (1 - D) + (1 - D) * KAPPA) / 64


def test_three_exact_equilibria_inside_the_assumptions():  # 1
    g = sp.diff(V_T, X) - sp.diff(V_I, D).subs({D: 1 - X, P: X})
    assert sp.expand(g - (X - sp.Rational(1, 4)) * (X - sp.Rational(1, 2)) * (X - sp.Rational(3, 4)) / 16) == 0
    assert sp.diff(V_T, X, 2) > 0 and sp.diff(V_I, D, 2) > 0  # strictly convex
    unit = sp.Interval(0, 1)
    assert sp.maximum(sp.diff(V_T, X), X, unit) < 0  # strictly decreasing
    slope = sp.expand(64 * sp.diff(V_I, D))  # -2 (1 - D) - 1 - kappa(P): negative as kappa >= 0
    assert sp.simplify(slope + 2 * (1 - D) + 1 + KAPPA) == 0 and sp.minimum(KAPPA, P, unit) > 0
    assert sp.maximum(V_T, X, unit) <= 1 and V_I.subs({D: 0, P: 0}) <= 1


def test_the_solver_finds_them_and_proves_them_all():  # 2
    game = Game(
        lambda x: ((1 - x) ** 2 + 5 * (1 - x)) / 64,
        lambda d, p: ((1 - d) ** 2 + (1 - d) * (5 + 2 * (1 - 2 * p) + 4 * (p - 0.25) * (p - 0.5) * (p - 0.75))) / 64,
        1.0,
        prefill_worker_gpus=0.125,
        decode_worker_gpus=0.125,
    )
    found = equilibrium(game)
    np.testing.assert_allclose(found.certificate["equilibria_gpus"][:3], [0.25, 0.5, 0.75], atol=1e-12)
    assert found.flags == Flag.NOT_UNIQUE and found.certificate["proved"] == 1


def test_the_repaired_condition():  # 3
    x, total = sp.symbols("x G")
    prefill, decode = sp.Function("V_T"), sp.Function("V_I")
    d, p = sp.symbols("d p")
    g = sp.diff(prefill(x), x) - sp.diff(decode(d, p), d).subs({d: total - x, p: x})
    claimed = (
        sp.diff(prefill(x), x, 2)
        + sp.diff(decode(d, p), d, 2).subs({d: total - x, p: x})
        - sp.diff(decode(d, p), d, p).subs({d: total - x, p: x})
    )
    for concrete in (d**3 * p**2 + p, sp.exp(-d) * sp.exp(-2 * p)):  # the chain rule, on functions of both
        gap = (sp.diff(g, x) - claimed).replace(decode, sp.Lambda((d, p), concrete))
        assert sp.simplify(gap.replace(prefill, sp.Lambda(x, x**4)).doit()) == 0
