r"""NK-P2b. Where the faster tier is near saturation, "the right-hand side of (9) becomes negative and no staleness
tolerance exists".

**Verdict: refuted.** A negative right side says that the *other* order is true, and that one has the tolerance
$|R(1-c_i) - (1-c_j)|/(R+1)$ by the same argument (1). R = 4, $c_i$ = .95, $c_j$ = .3: the slower tier is faster now, .7
against .2, and stays so for any error below exactly 1/10 (2). There is none only where the two tie.

**What the authors could answer.** That the tolerance of (9) is one of the order fast before slow, which is false there
and so has none to lose. Proposition 2 is about "the stale ordering preserves the true ordering", and the true order is
then slow before fast, with the mirrored bound (1). Operationally the sentence says that nothing is safe near
saturation, where the slower tier is safe by ten points. The verdict stands.
"""

from fractions import Fraction as F

import pytest
import sympy as sp

from dmodels.models.transfer import tier_staleness_tolerance
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-P2b",
    source=NETKV,
    where="Section V-D, numerical interpretation",
    says="near saturation of the faster tier no staleness tolerance exists",
    verdict=Verdict.REFUTED,
    counterexample="A 4:1 pair of tiers, the fast one 95 % full, the slow one 30 %: the slow tier is the right "
    "choice, and stays so for readings off by up to 10 points.",
    means="A saturated fast tier is no blind spot: the slower one is then the safe choice, with a margin of its own.",
    minimal="no size: one pair of tiers; the printed ratio 4:1",
)


def test_the_other_order_has_the_mirrored_bound():  # 1
    r, u, v, d = sp.symbols("R u v delta", positive=True)
    (root,) = sp.solve(sp.Eq(r * (u + d), v - d), d)
    assert sp.simplify(root + (r * u - v) / (r + 1)) == 0


def test_a_tenth_exactly():  # 2
    u, v = 1 - F(95, 100), 1 - F(3, 10)
    assert (4 * u - v) / 5 == -F(1, 10)
    assert 4 * (u + F(99, 1000)) < v - F(99, 1000) and 4 * (u + F(101, 1000)) > v - F(101, 1000)
    assert float(tier_staleness_tolerance(4.0, 0.95, 0.3)) == pytest.approx(0.1)
