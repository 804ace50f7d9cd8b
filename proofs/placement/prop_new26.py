r"""NEW-26. Selfish caching on a line: price of order sqrt(n) with equal links, of order n if links may differ.

**Verdict: proved.** Links of length 1, unit demand, copies at alpha. An equilibrium costs at most n alpha. r copies
split the line into parts of $n_k$ nodes, each with reads of at least $(n_k^2 - 1)/4$, so by convexity $OPT \ge
\min_r\, r\alpha + (n^2/r - r)/4 \ge n\sqrt{\alpha - 1/4}$ (1). Hence at most $\alpha/\sqrt{\alpha - 1/4} \le
n/\sqrt{n - 1/4}$ for $1 \le \alpha \le n$; below 1 everybody holds a copy, and from n - 1 on an equilibrium costs at
most $\alpha + n(n-1)/2$, so that the ratio falls again. Reached up to a factor: at $\alpha = n - 1$ one copy at the
end is an equilibrium that costs $(n-1)(n+2)/2$, while copies every sqrt(n) nodes cost about $n^{3/2}$ (2). Exact
values by dynamic programming agree with enumeration (3); the largest price at n = 100, 400, 1600 is 0.50, 0.47, 0.50
times sqrt(n). Unequal links: POA-C.
"""

import numpy as np
import pytest
import sympy as sp

from dmodels.games.placement import line
from proofs.claim import DMODELS, Claim, Verdict
from proofs.placement.caching import CachingGame, caching_range, line_price_bound, line_range

CLAIM = Claim(
    id="NEW-26",
    source=DMODELS,
    where="proofs.placement.caching.line_range",
    says="Selfish caching on a line of equal links has a price of anarchy of order sqrt(n), at most "
    "alpha/sqrt(alpha - 1/4)",
    verdict=Verdict.PROVED,
    needs=("no capacities", "equal demand", "gamma infinite"),
    means="The O(n) that is quoted for lines needs links of very different length; a row of equal hops loses far less.",
)


def price(n, alpha):
    r = line_range(n, alpha)
    return r.worst_s / r.optimum_s


def test_the_bound_on_the_optimum():  # 1: least over real r, and a part of n_k nodes costs floor(n_k^2 / 4) at best
    r, n, a = sp.symbols("r n alpha", positive=True)
    at = n / (2 * sp.sqrt(a - sp.Rational(1, 4)))
    cost = r * a + (n**2 / r - r) / 4
    assert sp.simplify(sp.diff(cost, r).subs(r, at)) == 0
    assert sp.simplify(cost.subs(r, at) - n * sp.sqrt(a - sp.Rational(1, 4))) == 0
    for nodes in range(1, 30):
        reads = min(sum(abs(i - c) for i in range(nodes)) for c in range(nodes))
        assert reads == nodes**2 // 4 and 4 * reads >= nodes**2 - 1


def test_one_copy_at_the_end_is_an_equilibrium():  # 2
    for n in (3, 8, 20):
        assert line_range(n, n - 1.0).worst_s >= (n - 1) * (n + 2) / 2
        assert price(n * n, n * n - 1.0) >= 0.3 * n


def test_dynamic_programming_equals_enumeration():  # 3
    for n in (1, 2, 3, 5, 8, 11):
        for alpha in (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0):
            r, e = line_range(n, alpha), caching_range(CachingGame(line(n, 1.0), alpha)).value
            assert (r.best_s, r.worst_s, r.optimum_s) == (e.best_s, e.worst_s, e.optimum_s)


@pytest.mark.parametrize("n", [10, 50, 200])
def test_no_line_exceeds_the_bound_and_the_order_is_sqrt(n):
    prices = [(price(n, a), line_price_bound(n, a)) for a in np.unique(np.geomspace(0.5, 4 * n, 25))]
    assert all(1 - 1e-12 <= found <= bound + 1e-12 for found, bound in prices)
    assert 0.4 * n**0.5 < max(found for found, _ in prices) < n**0.5 + 1
