r"""POA-3.2. For omega > 0 the routing game "is not a potential game in general", and "a formal proof of existence under
general prefix-group structures remains open".

**Verdict: refuted.** For every latency (monotone or not), every overlap and every omega,
$\Phi(\sigma) = \sum_j \sum_{k \le n_j} f_j(k) - \omega\sum_i o_{i\sigma_i}$ is an *exact* potential (1), so pure
equilibria exist always, and best responses end (2). The paper's own reference (Milchtaich 1996) already has existence
for any player-specific nondecreasing latencies on single resources.

**What the authors could answer.** That overlaps change as requests move, so that the constant o_ij is a simplification.
Definition 3 makes it a constant, and where co-located requests make the overlaps themselves there is an exact potential
as well (NEW-2). Or that [23] shows player-specific payoffs to have none in general: in general, yes, but an additive
constant per request and worker is the special case that keeps it. The verdict stands.
"""

import itertools

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games import routing
from dmodels.games.routing import RoutingGame
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-3.2",
    source=PRICE_OF_ANARCHY,
    where="Proposition 3(2)",
    says="With heterogeneous overlaps the routing game has no potential in general; existence of equilibria is open",
    verdict=Verdict.REFUTED,
    counterexample="Three requests on three workers with any latencies and overlaps: each of the 162 possible moves "
    "changes the mover's cost and the potential by the same amount.",
    means="Cache-aware greedy re-routing cannot cycle; an equilibrium always exists and one is found by one "
    "assignment.",
    minimal="no size: the potential is exact for every size; three on three contain every kind of move",
)


def test_the_potential_is_exact_symbolically():  # 1: all 162 single deviations of 3 requests on 3 workers
    f = [[sp.Symbol(f"f{j}{k}") for k in range(1, 4)] for j in range(3)]
    o = [[sp.Symbol(f"o{i}{j}") for j in range(3)] for i in range(3)]
    omega, checked = sp.Symbol("omega"), 0

    def phi(at):
        loads = [at.count(j) for j in range(3)]
        return sum(sum(f[j][: loads[j]]) for j in range(3)) - omega * sum(o[i][at[i]] for i in range(3))

    def cost(at, i):
        return f[at[i]][at.count(at[i]) - 1] - omega * o[i][at[i]]

    for at in itertools.product(range(3), repeat=3):
        for i, k in itertools.product(range(3), range(3)):
            to = (*at[:i], k, *at[i + 1 :])
            if to != at:
                assert sp.expand(phi(to) - phi(at) - (cost(to, i) - cost(at, i))) == 0
                checked += 1
    assert checked == 162


@given(seed=st.integers(0, 2**31))  # 2: the shipped dynamics end at an equilibrium, whatever the latencies
def test_best_responses_end(seed):
    rng = np.random.default_rng(seed)
    game = RoutingGame(rng.integers(0, 9, (3, 6)).astype(float), rng.integers(0, 5, (6, 3)) / 4, float(rng.integers(9)))
    s = routing.best_response(game, rng.integers(0, 3, 6))
    assert int(s.flags) == 0 and s.certificate["gain_s"] <= 1e-12
