r"""NK-CPLX. Selection costs O(|D|), and one counter per source and tier tracks self-contention, capped at 16.

**Verdict: conditional.** One decision looks at each decode instance once, seven readings for each, and at nothing else
that grows with |D|; sending the request touches two more numbers, whatever |D| is (1, counted on the shipped loop). The
counter n in
$B(1-c)/(n+1)$ is what Eq. (4) needs only up to its cap: with $n > 16$ transfers in flight the rate is read too high by
$(n+1)/17$ (2), and it does not see transfers of *other* sources that meet at the destination (3), which the shipped
formula takes as a second bound.
"""

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.control.netkv import DecodePool, Scoring, kernels
from dmodels.core.routing import RoutingPolicy
from dmodels.models.transfer import effective_bandwidth_bytes_per_s
from proofs.cases import every
from proofs.claim import NETKV, Claim, Verdict

CLAIM = Claim(
    id="NK-CPLX",
    source=NETKV,
    where="Sections V-B, V-C",
    says="one selection costs O(|D|), and a counter capped at 16 per source and tier tracks self-contention",
    verdict=Verdict.CONDITIONAL,
    needs=("at most 16 transfers of one source on one tier", "no transfers of other sources to the same instance"),
    error="beyond the cap the rate is read too high by (n + 1)/17",
    counterexample="17 transfers in flight from one instance: the eighteenth is promised 1/17 of the link and gets "
    "1/18; two sources that send to one instance each read a free link.",
    means="Raise the cap above the largest burst of one prefill instance, and bound the rate by the destination's link "
    "as well.",
    minimal="least: 16 in flight is still exact: 17 is the first that the cap hides",
)


def fair(n):
    """Share of the link that one more transfer beside n gets, with link and free share 1."""
    return sp.Integer(1) / (n + 1)


def capped(n):
    """What the counter promises it."""
    return sp.Integer(1) / (sp.Min(n, 16) + 1)


def test_exact_up_to_the_cap_and_not_beyond():  # 2
    assert all(fair(n) == capped(n) for n in range(17)) and capped(17) / fair(17) == sp.Rational(18, 17)
    beyond = sp.Symbol("m", nonnegative=True) + 17  # every n above the cap
    assert sp.simplify(capped(beyond) / fair(beyond) - (beyond + 1) / 17) == 0


def test_two_sources_that_meet():  # 3: each counts its own transfers, n = 0, and is promised a whole link
    promised, got = 2 * fair(0), 2 * fair(1)
    assert (promised, got) == (2, 1)


def test_the_shipped_counter():  # 2
    for n in (0, 1, 15, 16, 17, 40):
        assert abs(float(effective_bandwidth_bytes_per_s(1.0, 0.0, float(n))) - float(capped(n))) < 1e-15


@given(n=st.integers(17, 200), c=st.floats(0, 0.95))
def test_how_much_too_high(n, c):  # 2
    capped = float(effective_bandwidth_bytes_per_s(10.0, c, float(n)))
    exact = float(effective_bandwidth_bytes_per_s(10.0, c, float(n), max_in_flight=np.inf))
    np.testing.assert_allclose(capped / exact, (n + 1) / 17, rtol=1e-12)


def test_the_destination_is_not_seen():  # 3: two sources, one receiver of the same link rate
    alone = float(effective_bandwidth_bytes_per_s(1.0, 0.0, 0.0))
    shared = float(effective_bandwidth_bytes_per_s(1.0, destination_bytes_per_s=1.0, destination_in_flight=1.0))
    assert (alone, shared) == (1.0, 0.5)


class Counting:
    """An array that counts how often an element is read or written."""

    def __init__(self, values):
        self.values, self.touched, self.shape = np.array(values, float), 0, (len(values),)

    def __getitem__(self, j):
        self.touched += 1
        return self.values[j]

    def __setitem__(self, j, value):
        self.touched += 1
        self.values[j] = value


def looks(instances: int) -> tuple[int, int]:
    """Elements that choosing among so many instances reads, and that sending to the chosen one touches."""
    free, queued, batch, inbound, hits = (Counting(np.full(instances, v)) for v in (9.0, 1.0, 64.0, 0.0, 0.5))
    tier = np.zeros(instances, int)
    pool = DecodePool(free, queued, batch, inbound)
    scoring = Scoring(RoutingPolicy.NETKV_FULL.number)
    j, _ = kernels.choose_one.py_func(scoring, 1.0, hits, pool, tier, np.ones(4), np.zeros(4), 0)
    chosen = sum(array.touched for array in (*pool, hits))
    kernels.join.py_func(pool, j, scoring.curve)
    return chosen, sum(array.touched for array in (*pool, hits)) - chosen


def test_one_look_at_each_candidate():  # 1
    for instances in every((1, 2, 12, 100, 1000), "sizes of the pool"):
        assert looks(instances) == (8 * instances, 3)
