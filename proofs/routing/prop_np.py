r"""POA-NP. "Finding social optima is NP-hard, though 2-approximations exist [10]."

**Verdict: conditional** on latencies that step, which Definition 3 allows and section 5.1 expects where HBM fills: free
slots up to K and then M encode set cover (1). For the curve of Eq. (9) it is false: where $k f_j(k)$ is convex, the
optimum is a convex min-cost flow (3), and that curve is convex for all a, b, d >= 0 and beta > 0 (2). The cited theorem
is about players who help each other; the overlap in Eq. (7) is a constant.
"""

import itertools

import numpy as np
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.games import routing
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import LatencyCurve
from proofs.cases import every
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-NP",
    source=PRICE_OF_ANARCHY,
    where="section 4.3",
    says="Finding the social optimum of the routing game is NP-hard",
    verdict=Verdict.CONDITIONAL,
    needs=("latencies that step, so that k f(k) is not convex",),
    error="none on the curve of Eq. (9): there one minimum-cost flow is the optimum",
    counterexample="Any number of requests on workers with the paper's own curve: cost is convex in load, so one "
    "minimum-cost flow is the optimum.",
    means="The best assignment of 512 requests to 8 workers is exact and certified in a tenth of a millisecond.",
)


def test_the_singular_curve_has_convex_cost():  # 2
    n, c, a, b, d, beta = sp.symbols("n c a b d beta", positive=True)
    second = sp.diff(n * (a * n + b + d / (c - n) ** beta), n, 2)
    claimed = 2 * a + beta * d * (c - n) ** (-beta - 2) * (2 * (c - n) + (beta + 1) * n)
    assert sp.simplify(second - claimed) == 0  # every term is positive on 0 <= n < c


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31))  # 3
def test_the_shipped_optimum_is_the_least_of_all_profiles(seed):
    rng = np.random.default_rng(seed)
    curve = LatencyCurve(rng.uniform(0, 1, 3), rng.uniform(0, 1, 3), rng.uniform(0, 1, 3), rng.uniform(3, 8, 3), 1.5)
    game = RoutingGame(curve, rng.uniform(size=(5, 3)), rng.uniform(0, 2))
    s = routing.optimum(game)
    least = routing.social_cost_s(game, np.array(list(itertools.product(range(3), repeat=5)))).min()
    assert int(s.flags) == 0 and abs(s.value.cost_s - least) <= 1e-12 * least


def step_optimum(sets, elements: int, dear: int) -> int:
    """Least cost of a request per element, which only workers that cover it serve, and one that only worker j serves.

    A worker is free for one request; from the second on each of its requests pays `dear`. Whole numbers.
    """
    choices = [[j for j, s in enumerate(sets) if e in s] for e in range(elements)]
    total = lambda at: sum(dear * (at.count(j) + 1) for j in set(at))  # an opened worker's own request pays as well
    return min(map(total, itertools.product(*choices)))


def test_steps_encode_set_cover():  # 1: all families of three sets over three elements; cost counts the sets opened
    subsets = [s for k in (1, 2, 3) for s in itertools.combinations(range(3), k)]
    families = [f for f in itertools.combinations(subsets, 3) if set().union(*f) == {0, 1, 2}]
    for family in every(families, "families of three sets"):
        cover = min(k for k in (1, 2, 3) for c in itertools.combinations(family, k) if set().union(*c) == {0, 1, 2})
        assert step_optimum(family, 3, 7) == 7 * (3 + cover)


def test_the_shipped_costs_are_those_of_the_reduction():  # 1
    sets, elements, dear = [(0, 1), (1, 2), (2, 3), (0, 3)], 4, 100.0
    step = np.zeros((len(sets), elements + 4))
    step[:, 1:] = dear  # free for one request, then everybody there pays
    overlap = np.array([[1.0 if e in s else 0.0 for s in sets] for e in range(elements)] + list(np.eye(4)))
    game = RoutingGame(step, overlap, 1e4)  # nobody leaves its sets
    profiles = [(*p, 0, 1, 2, 3) for p in itertools.product(range(4), repeat=4)]
    assert routing.social_cost_s(game, np.array(profiles)).min() == step_optimum(sets, elements, 100) == 600
