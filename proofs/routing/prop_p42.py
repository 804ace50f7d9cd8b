r"""POA-4.2. "for any finite PoA bound B, there exists a load level close enough to saturation where the actual PoA
exceeds B" (omega = 0, proof sketch of Proposition 4(2)).

**Verdict: refuted** for the curve of Eq. (9), for which the proposition is stated. Hypothesis of all that follows: k
f(k) is convex, which Eq. (9) implies (POA-NP). (1) Identical workers: every equilibrium is optimal at every load, up to
the last slot; three workers with the paper's constants, in rationals: f rises with every request, so in an equilibrium
no two loads differ by more than one, and the steps of k f(k) rise, so balanced loads are the optimum. (2) Workers that
differ: with slack s -> 0 the Wardrop slacks are $s d_j^{1/\beta}/D$ and the optimal ones $s (c_j d_j)^{1/(\beta+1)}/E$,
so

$$PoA \to \frac{(\sum c_j)(\sum d_j^{1/\beta})^\beta}{(\sum (c_j d_j)^{1/(\beta+1)})^{\beta+1}},$$

finite, at least 1 by Hoelder; equal d: below $m^\beta$ at every load. (3) The peak lies where the *fast* worker fills,
not at saturation of the system: 50 at r = 1, 1.9 at r = 1.99. (4) What diverges is latency. (5) With cache terms and
identical workers the price falls to 1 (NEW-1). (6) Without convexity identical workers do lose, at "HBM capacity
walls": f = 0 up to K requests and 1 from there on, m workers and m(K + 1) requests. All loads K + 1 is an equilibrium
of cost m(K + 1); one worker that takes all the rest leaves K + m: 3/2 for two workers and K = 2, also where f is made
to rise strictly, and (m + 1)/2 for K = m. So it is the wall, not the pole, that makes routing matter, and its price is
a number that the height of the wall does not change. The sketch's error: demand is fixed, so no "social optimum that
leaves headroom" exists.

**What the authors could answer.** That (b) of the proposition, the lack of capacity, is what grows: "no per-request
routing decision can compensate for insufficient capacity". We agree, and it says that the growing quantity is no price
of anarchy, whose denominator has the same capacity. That HBM walls make routing matter: yes, (6), by a number that load
does not raise without bound. That the bound B is meant over instances: with two workers of suitable scales it is
unbounded (NEW-4), but at their own fixed limit each, not by approaching saturation. The verdict stands.
"""

import itertools
from fractions import Fraction as F

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
from proofs.cases import every
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-4.2",
    source=PRICE_OF_ANARCHY,
    where="Proposition 4(2)",
    says="The price of anarchy of routing exceeds every bound as load approaches the pole",
    verdict=Verdict.REFUTED,
    needs=("k f(k) convex, as Eq. (9) is",),
    counterexample="Three identical workers of 63 usable slots: from one request to all 189 slots full every "
    "equilibrium is optimal.",
    means="A latency explosion at saturation is no sign of bad routing: with equal workers no router can do better. "
    "Add capacity or shed load. Where latency jumps as HBM fills, keep workers below the jump: there routing matters.",
    minimal="no size: it holds for any number of identical workers; the test covers all their loads up to 63",
)


@jax.jit
def price(n_sat, d, b, r):
    """Nonatomic price of anarchy of workers d/(c - x) + b at total load r."""
    f = lambda x: b + d / jnp.where(x < n_sat, n_sat - x, jnp.nan)
    total = lambda s: jnp.sum(s.value["loads"] * f(s.value["loads"]))
    return total(wardrop(f, r, n_sat)) / total(wardrop(marginal(f), r, n_sat))


def paper_latency(n: int) -> F:
    """f(n) with the paper's constants: a = 5 ms, b = 20 ms, d = 10 ms, 64 slots, beta = 2."""
    return F(5, 1000) * n + F(20, 1000) + F(10, 1000) / (64 - n) ** 2


def test_the_named_instance_exactly():  # 1: 63 usable slots on each of any number of identical workers
    f = [paper_latency(n) for n in range(64)]  # f[n] is what each of n requests pays
    # a request on a worker with a requests gains by moving to one with b <= a - 2: loads of an equilibrium are balanced
    assert all(
        f[a] > f[b + 1] for a, b in every(itertools.combinations(range(63, -1, -1), 2), "pairs of loads") if a > b + 1
    )
    step = [n * f[n] - (n - 1) * f[n - 1] for n in range(1, 64)]
    assert all(low < high for low, high in itertools.pairwise(step))  # so the balanced loads are the cheapest


def test_the_shipped_price_is_one_at_every_load():  # 1
    curve = LatencyCurve(*(np.full(3, v) for v in (0.005, 0.02, 0.01, 5.0, 2.0)))
    for n in (1, 7, 12):  # 12 = 3 x 4 fills every slot
        p = price_of_anarchy(RoutingGame(curve, np.zeros((1, 3)), 0.0, [float(n)]))
        assert p.exact and abs(float(p.upper) - 1.0) < 1e-12


def wall_price(f, workers: int, requests: int) -> tuple[F, F]:
    """(worst equilibrium, best equilibrium) over the optimum, identical workers, by all lists of loads."""
    loads = [c for c in itertools.product(range(requests + 1), repeat=workers) if sum(c) == requests]
    cost = lambda c: sum((n * f(n) for n in c if n), F(0))
    pairs = list(itertools.permutations(range(workers), 2))
    stable = [c for c in loads if all(not c[i] or f(c[i]) <= f(c[j] + 1) for i, j in pairs)]
    costs, least = [cost(c) for c in stable], min(map(cost, loads))
    return max(costs) / least, min(costs) / least


def test_a_wall_costs_identical_workers_half_again():  # 6
    wall = lambda n: F(int(n > 2))
    assert wall_price(wall, 2, 6)[0] == F(3, 2)
    rising = lambda n: wall(n) + F(n, 1000)  # strictly rising: one equilibrium, so the price is that of stability too
    worst, best = wall_price(rising, 2, 6)
    assert worst == best > F(149, 100)
    m, k = sp.symbols("m K", positive=True)
    price = m * (k + 1) / (k + m)
    assert price.subs({m: 2, k: 2}) == sp.Rational(3, 2) and sp.simplify(price.subs(k, m) - (m + 1) / 2) == 0
    assert wall_price(lambda n: F(int(n > 3)), 3, 12)[0] == 2  # K = m = 3


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
    assert abs(float(pole_limit(jnp.full(5, 3.0), jnp.full(5, 0.2), 2.0)) - 1) < 1e-12
