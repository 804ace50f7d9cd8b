r"""POA-3.2o. Do pure equilibria exist for requests of unequal size under the singular curve, with caches?

Equal sizes: yes, for any curve (POA-3.2). Unequal sizes: yes for affine curves (NEW-18). In between, with the curve of
Eq. (9) of the total size on a worker and costs of misses, nothing is known from four requests on. The search below
draws games of four requests of sizes 1 to 4 on three workers and lists all 81 profiles of each; none was found without
an equilibrium. It would see one: latencies that fall with load give games without (checked).

**Verdict: open.**
"""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.curves import LatencyCurve, latency_table
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-3.2o",
    source=PRICE_OF_ANARCHY,
    where="Proposition 3(2), section 9",
    says="pure equilibria exist for requests of unequal size, with caches and the singular curve",
    verdict=Verdict.OPEN,
    error="no game without one among those searched; `make proofs-thorough` prints how many",
    means="Re-routing of unequal requests has ended in every case tried, but nothing guarantees it: cap the moves.",
)
PROFILES = np.array(list(itertools.product(range(3), repeat=4)))


def without_equilibrium(f, sizes, miss) -> bool:
    """f (3, total size), sizes (4,), miss (4, 3): True if every profile has a request that gains by moving."""
    sits = PROFILES[:, :, None] == np.arange(3)
    load = (sits * sizes[:, None]).sum(1)  # (81, 3)
    after = load[:, None, :] + np.where(sits, 0, sizes[:, None])  # where each request would find itself
    pay = f[np.arange(3), after - 1] + miss
    now = np.take_along_axis(pay, PROFILES[..., None], 2)[..., 0]
    return bool(((now > pay.min(2)).any(1)).all())


@given(seed=st.integers(0, 2**31))
def test_search(seed):  # 50 games a draw
    rng = np.random.default_rng(seed)
    for _ in range(50):
        sizes = rng.integers(1, 5, 4)
        top = int(sizes.sum())
        scale = lambda rng=rng: rng.choice([0.0, 0.1, 1.0, 5.0], 3) * rng.uniform(size=3)
        curve = LatencyCurve(scale(), scale(), scale(), np.full(3, top + rng.choice([0.1, 1.0, 9.0])), 2.0)
        miss = rng.uniform(0, rng.choice([0.1, 1.0, 9.0]), (4, 3))
        assert not without_equilibrium(latency_table(curve, top), sizes, miss)


def test_the_search_can_see_a_game_without_one():
    """Sizes 1 and 2 on two workers of latency 9 alone for size 1, 0 for size 2, 5 together: one seeks company, the
    other flees it. The two other requests sit on the third worker."""
    f = np.zeros((3, 5))
    f[:2] = [9.0, 0.0, 5.0, 5.0, 5.0]
    apart = np.array([[0, 0, 99.0]] * 2 + [[99.0, 99.0, 0]] * 2)
    assert without_equilibrium(f, np.array([1, 2, 1, 1]), apart)
    assert not without_equilibrium(np.sort(f, 1), np.array([1, 2, 1, 1]), apart)
