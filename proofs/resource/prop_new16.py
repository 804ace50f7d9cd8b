r"""NEW-16. The split of two exponential violation rates, in closed form.

$V_T = e^{-a G_P}$, $V_I = e^{-b G_D}$: $G_P^* = \mathrm{clip}\left(\frac{bG + \ln(a/b)}{a+b}, 0, G\right)$. With
weights $w_P, w_D$ the logarithm becomes $\ln(w_P a/(w_D b))$.

Proof: (5) reads $a e^{-ax} = b e^{-b(G-x)}$; take logarithms (1). g is increasing, so the clip picks the corner (2).

**Verdict: proved.**
"""

import numpy as np
import sympy as sp
from hypothesis import example, given
from hypothesis import strategies as st

from dmodels.games.resource import Alone, Exponential, Game, equilibrium
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-16",
    source=DMODELS,
    where="games/resource.equilibrium",
    says="two exponential violation rates split the budget at clip((bG + ln(a/b))/(a + b), 0, G)",
    verdict=Verdict.PROVED,
    means="With many GPUs, the pool whose violations fall more slowly gets more, in the ratio of the two rates.",
)


def test_the_logarithm_of_equation_5():  # 1
    a, b, budget, x = sp.symbols("a b G x", positive=True)
    solved = (b * budget + sp.log(a / b)) / (a + b)
    equation = sp.log(a) - a * x - (sp.log(b) - b * (budget - x))
    assert sp.simplify(sp.expand_log(equation.subs(x, solved), force=True)) == 0
    g = -a * sp.exp(-a * x) + b * sp.exp(-b * (budget - x))
    assert sp.diff(g, x).subs({a: 2, b: 3, budget: 5, x: 1}) > 0
    assert sp.simplify(sp.diff(g, x) - (a**2 * sp.exp(-a * x) + b**2 * sp.exp(-b * (budget - x)))) == 0  # increasing


@example(a=5.0, b=5.0, total=143.0, weight=1.0)  # savings of 1e-155, whose squares are nothing
@given(a=st.floats(0.01, 5), b=st.floats(0.01, 5), total=st.floats(2, 200), weight=st.floats(0.05, 20))
def test_the_code_agrees(a, b, total, weight):  # 2
    found = equilibrium(Game(Exponential(a), Alone(Exponential(b)), total, prefill_weight=weight))
    exact = np.clip((b * total + np.log(weight * a / b)) / (a + b), 0, total)
    assert abs(float(found.value.prefill_gpus) - exact) <= 1e-10 * total
