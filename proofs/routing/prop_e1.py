r"""POA-E1. The signs of omega in Eq. (1) and Eq. (7) "are mathematically equivalent for the arg min worker selection".

$\omega (B - \text{cached}) + a_j = \omega B(1 - o_j) + a_j$ for a request of B blocks. **Verdict: conditional.** The
two differ by a number that is the same at every worker iff Eq. (7) uses $\omega B$ (1, 2). With one omega for requests
of different lengths they choose differently (3). A ratio of costs is not kept in any case: the forms differ by omega B
a request, so a price of anarchy means something in one form only.
"""

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.router import block_costs, paper_omega_s
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-E1",
    source=PRICE_OF_ANARCHY,
    where="Eq. (1), (7)",
    says="the router's cost of Eq. (1) and the game's cost of Eq. (7) choose the same worker",
    verdict=Verdict.CONDITIONAL,
    needs=("omega of Eq. (7) is omega of Eq. (1) times the blocks of the request",),
    error="costs differ by omega per block of the request, so ratios of costs differ too",
    counterexample="A busy worker with 20 active blocks has a request's whole prefix, an idle one nothing: Eq. (1) "
    "sends 8 blocks to the idle one and 64 to the cache; Eq. (7) sends both the same way.",
    means="When you model Dynamo's router, let the weight of a cache hit grow with the prompt.",
)


def test_the_forms_differ_by_a_constant():  # 1
    omega, blocks, o, load = sp.symbols("omega B o a", positive=True)
    router = omega * blocks * (1 - o) + load
    game = load - (omega * blocks) * o
    assert sp.diff(router - game, o) == 0 and sp.expand(router - game - omega * blocks) == 0
    other = load - omega * o  # one omega for all lengths
    assert sp.solve(sp.diff(router - other, o), blocks) == [1]


@given(
    cached=st.lists(st.integers(0, 64), min_size=3, max_size=3),
    active=st.lists(st.integers(0, 99), min_size=3, max_size=3),
    omega=st.integers(1, 5),
)
def test_the_shipped_weights_choose_alike(cached, active, omega):  # 2
    cached, active = np.array(cached, float), np.array(active, float)
    router = block_costs(64.0 - cached, active, float(omega))
    game = 0.5 * active - paper_omega_s(float(omega), 64.0, 0.5) * cached / 64.0  # half a second a block
    np.testing.assert_allclose(0.5 * router - game, 0.5 * omega * 64.0, rtol=1e-12)


def test_two_lengths_need_two_weights():  # 3, whole numbers: omega = 1
    sent = {b: min((block_costs(0, 20), "cache"), (block_costs(b, 0), "idle"))[1] for b in (8, 64)}
    assert sent == {8: "idle", 64: "cache"}
    for w in (0, 19, 20, 21, 1000):  # Eq. (7): 20 - w against 0, whatever the length, so one answer for both
        both = min((20 - w, "cache"), (0, "idle"))[1]
        assert {8: both, 64: both} != sent
