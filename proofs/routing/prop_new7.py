r"""POA-3.3. Each value of (omega, tau) "induces a different equilibrium, tracing a curve on the Pareto frontier" (with
NEW-7, the Gibbs law).

**Verdict: refuted.** Re-routing single requests by a softmax of their own costs is reversible with respect to
$e^{-\Phi/\tau}$, because $\Phi$ is an exact potential (1). So tau smears one landscape; $E[\Phi] \le \Phi_{min} + \tau
N \ln m$ (2). The set of pure equilibria is piecewise constant in omega (3), and an equilibrium can be strictly worse
for everybody than another one (4): equilibria trace no Pareto frontier.

**What the authors could answer.** That each setting means the one outcome that the router reaches, not the set of
equilibria. There are finitely many placements and uncountably many omega, so at tau = 0 most settings share an outcome
whatever picks it. For tau > 0 the random outcomes do differ in law, by (1); they trace no Pareto frontier, because a
warmer router only mixes worse placements in (2), and (4) is dominated in every coordinate. The paper's own Table 6(a)
is flat. The verdict stands.
"""

import itertools
from fractions import Fraction

import numpy as np
import sympy as sp

from dmodels.games import routing
from dmodels.games.routing import RoutingGame, gibbs_loads, gibbs_profiles
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-3.3",
    source=PRICE_OF_ANARCHY,
    where="Proposition 3(3)",
    says="Each (omega, tau) induces a different equilibrium on the Pareto frontier",
    verdict=Verdict.REFUTED,
    counterexample="Two requests, each cached on its own worker: the same two equilibria for omega = 0.1, 0.5 and "
    "0.9, and at 0.5 one of them costs each request 3/2 instead of 1.",
    means="Most settings of omega and tau change nothing; a few change much. Sweep the thresholds, not a grid.",
    minimal="searched: one request on two workers has no worse equilibrium",
)


def test_detailed_balance():  # 1: for a move of cost c to c' with Phi' - Phi = c' - c and the others' draw unchanged
    phi, here, there, tau, z = sp.symbols("phi here there tau z", positive=True)
    forward = sp.exp(-phi / tau) * sp.exp(-there / tau) / z
    back = sp.exp(-(phi + there - here) / tau) * sp.exp(-here / tau) / z
    assert sp.simplify(forward - back) == 0


def test_the_mean_potential_is_near_the_least():  # 2
    rng = np.random.default_rng(0)
    for tau in (0.1, 1.0, 10.0):
        game = RoutingGame(rng.integers(0, 9, (3, 5)).astype(float), rng.uniform(size=(5, 3)), 2.0)
        profiles, law = gibbs_profiles(game, tau)
        phi = routing.potential(game, profiles)
        assert phi.min() <= law @ phi <= phi.min() + tau * 5 * np.log(3)


def test_many_requests_in_product_form():
    s = gibbs_loads(RoutingGame(np.arange(1.0, 101) * np.ones((4, 1)), np.zeros((1, 4)), 0.0, [100.0]), 0.01)
    assert s.load_probability[0, 25] > 0.999  # cold: balanced


def test_two_requests_at_home_or_swapped_in_rationals():  # 3 and 4: f = (1, 2), each request cached on its own worker
    f = [Fraction(1), Fraction(2)]
    cost = lambda omega, at, i: f[at.count(at[i]) - 1] + omega * (at[i] != i)
    moved = lambda at, i: tuple(1 - k if j == i else k for j, k in enumerate(at))
    stays = lambda omega, at, i: cost(omega, at, i) <= cost(omega, moved(at, i), i)
    for w in (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)):
        stable = [at for at in itertools.product(range(2), repeat=2) if stays(w, at, 0) and stays(w, at, 1)]
        assert stable == [(0, 1), (1, 0)]  # the same two for every omega
        assert [cost(w, (1, 0), i) - cost(w, (0, 1), i) for i in range(2)] == [w, w]  # swapped: worse for both


def test_the_equilibria_do_not_change_with_omega():  # 3
    ranges = [routing.nash_range(RoutingGame(np.array([[1.0, 2.0]] * 2), np.eye(2), w)).value for w in (0.1, 0.5, 0.9)]
    for r in ranges:  # at home and swapped, for every omega up to f(2) - f(1)
        assert r.best_flow.tolist() == [[1, 0], [0, 1]] and r.worst_flow.tolist() == [[0, 1], [1, 0]]


def test_an_equilibrium_may_be_worse_for_everybody():  # 4: swapped homes, (3/2, 3/2) against (1, 1)
    r = routing.nash_range(RoutingGame(np.array([[1.0, 2.0]] * 2), np.eye(2), 0.5)).value
    assert (float(r.worst_s), float(r.best_s)) == (3.0, 2.0)


def test_nothing_smaller():
    """One request: whatever latencies, overlaps and omega, its equilibria all cost the same."""
    values = [Fraction(0), Fraction(1, 2), Fraction(1)]
    for f, o in itertools.product(itertools.product(values, repeat=2), repeat=2):
        for omega in values:
            cost = [f[j] + omega * (1 - o[j]) for j in range(2)]
            assert len({cost[j] for j in range(2) if cost[j] <= cost[1 - j]}) == 1
