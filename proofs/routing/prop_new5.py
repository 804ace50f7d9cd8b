r"""NEW-5. The optimum of the routing game by one assignment: slot k of worker j costs $g_j(k) - g_j(k-1)$, $g = kf$.

With g convex the slots of a worker get dearer, so the cheapest n of them cost g(n) (telescoping, 1), and an assignment
of requests to slots, each with its own cache term, is as cheap as the best profile: every profile is an assignment to
first slots, and no assignment is cheaper than the profile that it stands for (2). The index of the paper uses
$f_j(n_j)$ of the observed loads instead and can lie on either side (POA-E12). `poa_index(load_aware=True)` is this one
(3).

**Verdict: proved.**
"""

import itertools
from fractions import Fraction

import numpy as np
import sympy as sp

from dmodels.games.anarchy import IndexCost, poa_index
from proofs.cases import every
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-5",
    source=DMODELS,
    where="games.anarchy_index.poa_index(load_aware=True)",
    says="an assignment to slots with the cost g(k) - g(k-1) gives the least total cost of the routing game exactly",
    verdict=Verdict.PROVED,
    needs=("g(k) = k f(k) convex",),
    means="An efficiency ratio from a log needs what a request costs the others: price slots by marginal cost.",
)


def test_slots_add_up_to_the_cost_of_a_load():  # 1: by induction over the load n, for every g with g(0) = 0
    g, n = sp.Function("g"), sp.symbols("n", positive=True, integer=True)
    claimed = lambda load: g(load) - g(0)
    assert sp.expand(claimed(n) + (g(n + 1) - g(n)) - claimed(n + 1)) == 0 and claimed(sp.Integer(0)) == 0


def test_all_small_assignments_in_rationals():  # 2: three requests, two workers with three slots each
    shares = list(itertools.product([Fraction(0), Fraction(1, 2), Fraction(1)], repeat=2))
    slots = list(itertools.product(range(2), range(3)))
    curves = [((1, 2, 3), (2, 2, 2)), ((1, 1, 4), (1, 2, 5))]
    games = itertools.product(curves, itertools.combinations_with_replacement(shares[1::2], 3))
    for f, o in every(games, "games against all their profiles and all their assignments"):
        g = [[0, *(Fraction((k + 1) * v) for k, v in enumerate(row))] for row in f]
        step = {(j, k): g[j][k + 1] - g[j][k] for j, k in slots}
        miss = lambda i, j, o=o: Fraction(3, 2) * (1 - o[i][j])
        profiles = min(
            sum(g[j][at.count(j)] for j in range(2)) + sum(miss(i, j) for i, j in enumerate(at))
            for at in itertools.product(range(2), repeat=3)
        )
        chosen = min(
            sum(step[s] + miss(i, s[0]) for i, s in enumerate(pick)) for pick in itertools.permutations(slots, 3)
        )
        assert chosen == profiles


def test_the_shipped_index_uses_it():  # 3: f(n) = n and f = 2, against all profiles
    rng = np.random.default_rng(3)
    cost = IndexCost([1.0, 0.0], [0.0, 2.0], 0.0, 2.0, 64.0, 0.5)
    overlap = rng.uniform(size=(4, 2))
    profiles = np.array(list(itertools.product(range(2), repeat=4)))
    first = (profiles == 0).sum(1)
    total = first**2 + 2 * (4 - first) - 0.5 * np.take_along_axis(overlap[None], profiles[..., None], 2).sum((1, 2))
    found = poa_index(np.ones(4), [0, 0, 1, 1], overlap, cost, load_aware=True)
    assert abs(float(found.optimum_s) - total.min()) < 1e-12
