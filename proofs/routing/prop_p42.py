r"""POA-4.2. "When a worker's load approaches its pole, the price of anarchy grows without bound (omega = 0)."

**Verdict: refuted.** (1) Identical workers: every equilibrium is optimal at every load, up to the last slot. (2)
Workers that differ: with slack s -> 0 the Wardrop slacks are $s d_j^{1/\beta}/D$ and the optimal ones $s (c_j
d_j)^{1/(\beta+1)}/E$, so $$PoA \to \frac{(\sum c_j)(\sum d_j^{1/\beta})^\beta}{(\sum (c_j
d_j)^{1/(\beta+1)})^{\beta+1}},$$ finite, at least 1 by Hoelder; equal d: below $m^\beta$ at every load. (3) The peak
lies where the *fast* worker fills, not at saturation of the system: 50 at r = 1, 1.9 at r = 1.99. (4) What diverges is
latency. (5) With cache terms and identical workers the price falls to 1 (NEW-1). The sketch's error: demand is fixed,
so no allocation can "leave headroom".
"""

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.games.anarchy import pole_limit, pole_price, price_of_anarchy
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import LatencyCurve
from dmodels.solvers.wardrop import marginal, wardrop
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-4.2",
    source=PRICE_OF_ANARCHY,
    where="Proposition 4(2)",
    says="The price of anarchy of routing exceeds every bound as load approaches the pole",
    verdict=Verdict.REFUTED,
    counterexample="Three identical workers of 63 usable slots: from one request to all 189 slots full every "
    "equilibrium is optimal.",
    means="A latency explosion at saturation is no sign of bad routing: with equal workers no router can do better. "
    "Add capacity or shed load; re-tuning the router cannot help.",
    minimal="no size: it holds for any number of identical workers; the test fills three of them slot by slot",
)


@jax.jit
def price(n_sat, d, b, r):
    """Nonatomic price of anarchy of workers d/(c - x) + b at total load r."""
    f = lambda x: b + d / jnp.where(x < n_sat, n_sat - x, jnp.nan)
    total = lambda s: jnp.sum(s.value["loads"] * f(s.value["loads"]))
    return total(wardrop(f, r, n_sat)) / total(wardrop(marginal(f), r, n_sat))


def test_identical_workers_have_price_one_at_every_load():  # 1, with the paper's constants
    curve = LatencyCurve(*(np.full(3, v) for v in (0.005, 0.02, 0.01, 64.0, 2.0)))
    for n in (1, 50, 100, 150, 180, 186, 187, 188, 189):  # 189 = 3 x 63 fills every slot
        p = price_of_anarchy(RoutingGame(curve, np.zeros((1, 3)), 0.0, [float(n)]))
        assert p.exact and abs(float(p.upper) - 1.0) < 1e-12


def test_the_slacks_solve_the_first_order_conditions():  # 2: leading order in the slack
    s, beta = sp.symbols("s beta", positive=True)
    d, c = sp.symbols("d1:3", positive=True), sp.symbols("c1:3", positive=True)
    shared = sum(v ** (1 / beta) for v in d)
    level = [sp.simplify(v / (s * v ** (1 / beta) / shared) ** beta) for v in d]
    assert sp.simplify(level[0] - level[1]) == 0  # equal latencies
    best = sum((u * v) ** (1 / (beta + 1)) for u, v in zip(c, d, strict=True))
    # marginal cost near the pole: c d beta / slack^(beta + 1)
    toll = [u * v * beta / (s * (u * v) ** (1 / (beta + 1)) / best) ** (beta + 1) for u, v in zip(c, d, strict=True)]
    assert sp.simplify(sp.powsimp(sp.expand_power_base(toll[0] - toll[1], force=True), force=True)) == 0


def test_the_solver_approaches_the_limit():  # 2
    n_sat, d = jnp.array([1.0, 4.0, 2.0]), jnp.array([0.3, 0.1, 0.7])
    near = float(price(n_sat, d, jnp.zeros(3), 7.0 * (1 - 1e-6)))
    assert abs(near - float(pole_limit(n_sat, d, 1.0))) < 1e-4


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31))
def test_equal_scales_stay_below_m_to_the_beta(seed):  # 2
    rng = np.random.default_rng(seed)
    n_sat = rng.uniform(0.1, 4, 3)
    at = float(price(jnp.array(n_sat), jnp.ones(3), jnp.zeros(3), rng.uniform(0.01, 0.999) * n_sat.sum()))
    assert 1 - 1e-9 <= at <= pole_price(3, 1)


def test_the_peak_is_where_the_fast_worker_fills():  # 3
    at = [float(price(jnp.ones(2), jnp.full(2, 1e-4), jnp.array([0.0, 1.0]), r)) for r in (1.0, 1.99, 1.9999)]
    assert at[0] > 45 and 1.8 < at[1] < 2.1 and at[2] < 1.1


def test_identical_workers_limit_is_one():  # 1, in the limit formula
    assert (
        float(pole_limit(jnp.full(5, 3.0), jnp.full(5, 0.2), 2.0)) == 1.0
        or abs(float(pole_limit(jnp.full(5, 3.0), jnp.full(5, 0.2), 2.0)) - 1) < 1e-12
    )
