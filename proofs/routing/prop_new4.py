r"""NEW-4. The price of anarchy of workers with poles: its limit at saturation, and $m^\beta$ at every load.

For $f_j = a_jx + b_j + d_j/(c_j-x)^\beta$ and free capacity s to 0 the price tends to $\frac{(\sum c_j)(\sum
d_j^{1/\beta})^\beta}{(\sum (c_jd_j)^{1/(\beta+1)})^{\beta+1}}$ (the slacks: POA-4.2). At least 1 by Hoelder, 1 iff $c_j
\propto d_j^{1/\beta}$: for two workers and beta = 1 it exceeds 1 by a square (1). Equal d, a = b = 0: at most $m^\beta$
at every load. *Proof.* At an equilibrium used workers have one slack sigma, unused ones have $c_j \le \sigma$, so all
free capacity is at most $m\sigma$. So no slack of any split exceeds that, and every split costs at least $r
d/(m\sigma)^\beta$; the equilibrium costs $r d/\sigma^\beta$ (2). Approached: one large worker and many small ones (3).
Over d it is unbounded already for two workers (4).

**Verdict: proved.**
"""

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games.anarchy import mm1_price, pole_limit, pole_price
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-4",
    source=DMODELS,
    where="games.anarchy_bounds.pole_limit and pole_price",
    says="at saturation the price of anarchy of workers with poles has a finite limit in closed form; with equal d it "
    "is at most m^beta at every load",
    verdict=Verdict.PROVED,
    needs=("nonatomic load", "for m^beta: equal d and a = b = 0"),
    means="A mixed fleet near saturation loses a fixed factor, known from its slot counts; equal workers lose none.",
)


def test_the_limit_from_the_slacks():  # 1: cost near the pole is sum c_j d_j / slack_j^beta, to leading order in s
    s, beta = sp.symbols("s beta", positive=True)
    for m in (2, 3):
        c, d = sp.symbols(f"c1:{m + 1}", positive=True), sp.symbols(f"d1:{m + 1}", positive=True)
        level, best = (
            sum(x ** (1 / beta) for x in d),
            sum((x * y) ** (1 / (beta + 1)) for x, y in zip(c, d, strict=True)),
        )
        selfish = sum(x * y / (s * y ** (1 / beta) / level) ** beta for x, y in zip(c, d, strict=True))
        least = sum(x * y / (s * (x * y) ** (1 / (beta + 1)) / best) ** beta for x, y in zip(c, d, strict=True))
        claimed = sum(c) * level**beta / best ** (beta + 1)
        assert sp.simplify(sp.powsimp(sp.expand_power_base(selfish * s**beta, force=True), force=True)) == sp.simplify(
            sum(c) * level**beta
        )
        rest = sp.powsimp(sp.expand_power_base(sp.expand(least * s**beta / best**beta), force=True), force=True)
        assert sp.simplify(sp.powsimp(sp.powdenest(rest - best, force=True), force=True)) == 0
        assert sp.simplify(claimed - sum(c) * level**beta / (best**beta * best)) == 0


def test_the_excess_over_one_is_a_square():  # 1
    c, e, d, f = sp.symbols("c1 c2 d1 d2", positive=True)
    gap = (c + e) * (d + f) - (sp.sqrt(c * d) + sp.sqrt(e * f)) ** 2
    assert sp.simplify(gap - (sp.sqrt(c * f) - sp.sqrt(e * d)) ** 2) == 0


def test_the_two_costs_of_the_all_load_bound():  # 2
    r, d, sigma, m, beta = sp.symbols("r d sigma m beta", positive=True)
    ratio = (r * d / sigma**beta) / (r * d / (m * sigma) ** beta)
    assert sp.simplify(sp.expand_power_base(ratio, force=True) - m**beta) == 0


@given(c=st.lists(st.floats(0.01, 100), min_size=3, max_size=3), load=st.floats(0.001, 0.9999))
def test_every_load_stays_below_m(c, load):  # 2: M/M/1 is beta = 1 with d = 1
    assert float(mm1_price(c, load * np.sum(c))) <= pole_price(3, 1) * (1 + 1e-9)


def test_it_is_approached_and_over_d_unbounded():  # 3, 4
    for m in (2, 3, 5):
        assert m - 0.1 < float(pole_limit(np.array([1e6] + [1e-6] * (m - 1)), np.ones(m), 1.0)) < m
    eps = sp.symbols("epsilon", positive=True)
    assert sp.limit((1 + eps) ** 2 / (2 * sp.sqrt(eps)) ** 2, eps, 0, "+") == sp.oo  # c = (1, e), d = (e, 1)
    assert float(pole_limit(np.array([1.0, 1e-6]), np.array([1e-6, 1.0]), 1.0)) > 2e5
