r"""NEW-28. Requests of unequal size, the singular curve and caches: an equilibrium need not exist.

Equal sizes: yes, for any curve (POA-3.2). Unequal sizes: yes for affine curves (NEW-18), for three requests
(Mavronicolas, Milchtaich, Monien and Tiemann 2007), and for four on at most three workers (NEW-27). Four on four
workers: no. One worker follows Eq. (9), $f_A(L) = 73000/(16 - L)^4$ for a total size L on it; the others are affine,
$f_B = 0$, $f_C = 15 L$ and $f_D = 6 L$. Every request has its prefix on one worker, part of it on a second, and
misses it elsewhere at a cost of 1000:

| size | all of its prefix on | part of it on |
| --- | --- | --- |
| 1 | C | A, miss 44 |
| 2 | C | D, miss 31 |
| 4 | C | B, miss 76 |
| 8 | D | A, miss 30 |

Suppose 2 is on C. Then 4 is better off on B (76 against 90 or more on C), so 1 on C (45 against 45.4 or more on A),
so 8 on A (47.8 against 48 on D); but then 2 pays 45 on C and would pay 43 on D. Suppose 2 is on D. Then 4 is better
off on C (at most 75 against 76), so 1 on A (at most 74.4 against 75), so 8 on D (60 against 60.4); but then 2 pays 91
on D and would pay 90 on C. The same by listing all 256 placements in exact numbers (1). So re-routing, one request
after another to where it is served soonest, never ends (2). Nothing smaller does this (3).

**Verdict: proved.** A result of our own: the paper asks for existence under prefix groups (Proposition 3(2); NEW-2
answers that) and compares with bounds for weighted requests (Remark 3), but never claims existence for unequal sizes.
"""

import itertools
from fractions import Fraction as F

import numpy as np
import pytest

from dmodels.models.latency import LatencyCurve, latency_table
from proofs.cases import every
from proofs.claim import DMODELS, Claim, Verdict
from proofs.routing.prop_new27 import a_game_without, latencies

CLAIM = Claim(
    id="NEW-28",
    source=DMODELS,
    where="routing of four requests of unequal size on four workers, one with the curve of Eq. (9)",
    says="requests of 1, 2, 4 and 8 blocks on four workers, one of which saturates at 16 blocks, need not have a pure "
    "equilibrium: in every placement one of them is served sooner elsewhere",
    verdict=Verdict.PROVED,
    means="Prompts of unequal length that are re-routed to where they are served sooner may never settle: cap moves.",
    minimal="searched: three requests on up to four workers, four on two, and (NEW-27) four on three, over every curve",
)
SIZES = (1, 2, 4, 8)
MISS = ((44, 1000, 0, 1000), (1000, 1000, 0, 31), (1000, 76, 0, 1000), (30, 1000, 1000, 0))  # request by worker
LATENCY = (
    lambda load: F(73_000, (16 - load) ** 4),
    lambda load: F(0),
    lambda load: F(15 * load),
    lambda load: F(6 * load),
)


def gains(at):
    """Request -> (worker where it pays least, what it saves there), of those that gain by moving alone."""
    load = [sum(size for size, worker in zip(SIZES, at, strict=True) if worker == j) for j in range(4)]
    found = {}
    for i, (size, worker) in enumerate(zip(SIZES, at, strict=True)):
        pay = [LATENCY[j](load[j] + (0 if j == worker else size)) + MISS[i][j] for j in range(4)]
        best = min(range(4), key=pay.__getitem__)
        if pay[best] < pay[worker]:
            found[i] = best, pay[worker] - pay[best]
    return found


def test_the_argument():  # request 2 on C, then on D: what the others prefer in turn, and 2 in the end
    a, b, c, d = range(4)
    on = lambda load, worker, miss: LATENCY[worker](load) + miss
    assert on(4, b, 76) < on(6, c, 0) and on(1, c, 0) + 30 < on(1, a, 44) and on(8, a, 30) < on(8, d, 0)
    assert on(3, c, 0) > on(2, d, 31)
    assert on(5, c, 0) < on(4, b, 76) and on(9, a, 44) < on(5, c, 0) and on(10, d, 0) < on(9, a, 30)
    assert on(10, d, 31) > on(6, c, 0)


def test_no_placement_is_an_equilibrium():  # 1
    least = min(
        max(saved for _, saved in gains(at).values())
        for at in every(itertools.product(range(4), repeat=4), "placements")
    )
    assert least > F(1, 10)  # the best move of any placement saves that much: no tie, no matter of rounding


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_rerouting_never_ends(order):  # 2: whoever moves first of those that gain, a placement comes back
    at, seen = (0, 0, 0, 0), []
    while at not in seen:
        seen.append(at)
        open_to = gains(at)
        i = next(i for i in order if i in open_to)
        at = (*at[:i], open_to[i][0], *at[i + 1 :])
    assert len(seen) - seen.index(at) >= 4


def test_the_shipped_curve_has_none_either():  # 1, in floating point, by the curve of Eq. (9)
    zero = np.zeros(4)
    curve = LatencyCurve(np.array([0.0, 0.0, 15.0, 6.0]), zero, np.array([73_000.0, 0.0, 0.0, 0.0]), zero + 16.0, 4.0)
    f = np.asarray(latency_table(curve, 15))
    assert np.allclose(f, [[float(law(load)) for load in range(1, 16)] for law in LATENCY], rtol=1e-12)
    sits, pay = latencies(f, SIZES, MISS, 4)
    assert ((pay * sits).sum(2) > pay.min(2) + 1e-6).any(1).all()


def test_nothing_smaller():  # 3: whatever curves that grow with load, whatever costs of misses; F for exactness
    assert not any(a_game_without(sizes, workers) for sizes in ((1, 2, 4), (2, 3, 4)) for workers in (2, 3, 4))
    assert not a_game_without(SIZES, 2)
