r"""NEW-7. Re-routing by softmax of one's own costs settles into the Gibbs law $e^{-\Phi(\sigma)/\tau}/Z$.

At each step a request drawn at random is routed anew by Eq. (2). Because $\Phi$ is an exact potential the chain is
reversible with that law (1: the whole chain of two requests on two workers, in the symbol $q = e^{-1/\tau}$). Without
prefixes the law of the loads is a product form, $\frac{N!}{\prod n_j!}\prod_j e^{-\sum_{k \le n_j} f_j(k)/\tau}$, a
convolution in $O(m N^2)$ (2). As tau falls only profiles of least potential remain: bad equilibria disappear (3).

**Verdict: proved.**
"""

import itertools

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.games import routing
from dmodels.games.routing import RoutingGame, gibbs_loads, gibbs_profiles
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-7",
    source=DMODELS,
    where="games.routing_stochastic.gibbs_loads and gibbs_profiles",
    says="softmax re-routing settles into exp(-potential/tau)/Z; without prefixes the loads have product form",
    verdict=Verdict.PROVED,
    means="A warm router forgets its start and mixes over near-best placements; a cold one keeps the placement of "
    "least potential, not an arbitrary equilibrium.",
)


def test_the_chain_of_two_requests_in_symbols():  # 1: f = (1, 3) and (2, 4), request 1 has nothing cached on worker 1
    q = sp.symbols("q", positive=True)
    f, miss = ((1, 3), (2, 4)), ((0, 0), (0, 5))
    profiles = list(itertools.product(range(2), repeat=2))
    pay = lambda at, i: f[at[i]][at.count(at[i]) - 1] + miss[i][at[i]]
    phi = lambda at: sum(sum(f[j][: at.count(j)]) for j in range(2)) + sum(miss[i][j] for i, j in enumerate(at))
    law = {at: q ** phi(at) for at in profiles}
    after = dict.fromkeys(profiles, sp.Integer(0))
    for at, i in itertools.product(profiles, range(2)):
        options = [(*at[:i], j, *at[i + 1 :]) for j in range(2)]
        weights = [q ** pay(to, i) for to in options]
        for to, weight in zip(options, weights, strict=True):
            after[to] += law[at] * weight / sum(weights) / 2
    assert all(sp.simplify(after[at] - law[at]) == 0 for at in profiles)


@given(seed=st.integers(0, 2**31), tau=st.floats(0.05, 20))
def test_the_product_form_is_the_law_of_all_profiles(seed, tau):  # 2
    rng = np.random.default_rng(seed)
    game = RoutingGame(rng.uniform(0, 5, (3, 5)), np.zeros((5, 3)), 0.0)
    profiles, law = gibbs_profiles(game, tau)
    found = gibbs_loads(game, tau)
    counts = (profiles[..., None] == np.arange(3)).sum(1)
    wanted = np.array([[law[counts[:, j] == k].sum() for k in range(6)] for j in range(3)])
    np.testing.assert_allclose(found.load_probability, wanted, rtol=1e-9, atol=1e-300)
    phi, paid = routing.potential(game, profiles), routing.social_cost_s(game, profiles)
    np.testing.assert_allclose([found.mean_potential_s, found.mean_cost_s], [law @ phi, law @ paid], rtol=1e-9)
    np.testing.assert_allclose(found.log_partition, np.log(np.exp(-phi / tau).sum()), rtol=1e-9, atol=1e-9)


def test_cold_routers_leave_bad_equilibria():  # 3: swapped homes are an equilibrium, and lose all their weight
    game = RoutingGame([[1.0, 2.0]] * 2, np.eye(2), 0.9)
    assert float(routing.gain_s(game, [1, 0])) <= 0
    profiles, law = gibbs_profiles(game, 0.05)
    weight = dict(zip(map(tuple, profiles.tolist()), law, strict=True))
    assert weight[0, 1] > 0.999 and weight[1, 0] < 1e-15
