r"""POA-1a. The variational equilibrium of the prefill/decode game spends the whole budget and equalises marginals.

With $V_T$ strictly decreasing in $G_P$ and $V_I$ in $G_D$, x = G_P is a variational equilibrium iff $G_P + G_D = G$
and $g(x) = V_T'(x) - \partial V_I/\partial G_D(G-x, x)$ is 0, or x = 0 and g(0) >= 0, or x = G and g(G) <= 0. One
always exists.

Proof: the variational inequality at (x, y) asks that F = (V_T', V_{I,D}) be minimised over the triangle
{G_P, G_D >= 0, G_P + G_D <= G} at (x, y) itself. A linear function is minimal at vertices (0, 0), (G, 0), (0, G); both
components are negative, so (0, 0) loses to both others, and any convex combination of these two is a minimiser iff
their values agree (1). Existence: g is continuous on [0, G] (intermediate value) (2).

**Verdict: proved.**
"""

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.resource import Alone, Exponential, Game, equilibrium
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-1a",
    source=PRICE_OF_ANARCHY,
    where="Proposition 1",
    says="the variational equilibrium uses the whole budget, with equal marginals or in a corner; one exists",
    verdict=Verdict.PROVED,
    means="At the selfish split one more GPU is worth the same to prefill and to decode, unless one of them gets all.",
)


def test_the_linear_programme_over_the_triangle():  # 1
    a, b, budget, t = sp.symbols("a b G t", positive=True)  # F = (-a, -b)
    value = lambda x, y: -a * x - b * y
    at_p, at_d = value(budget, 0), value(0, budget)
    assert at_p.is_negative and at_d.is_negative  # both better than the origin
    edge = value(t * budget, (1 - t) * budget)
    assert sp.simplify(edge - (t * at_p + (1 - t) * at_d)) == 0  # on the edge: between the two vertices
    assert sp.simplify((at_p - at_d) / budget) == b - a  # equal iff V_T' = V_{I,D}


@given(a=st.floats(0.02, 3), b=st.floats(0.02, 3), total=st.floats(2, 60), weight=st.floats(0.1, 10))
def test_the_code_satisfies_the_variational_inequality(a, b, total, weight):  # 2
    found = equilibrium(Game(Exponential(a), Alone(Exponential(b)), total, prefill_weight=weight))
    x, y = float(found.value.prefill_gpus), float(found.value.decode_gpus)
    field = np.array([-weight * a * np.exp(-a * x), -b * np.exp(-b * y)])
    assert abs(x + y - total) < 1e-9
    vertices = np.array([[0, 0], [total, 0], [0, total]])
    assert field @ [x, y] <= (vertices @ field).min() + 1e-9 * total * np.abs(field).max()
