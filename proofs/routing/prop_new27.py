r"""NEW-27. Four requests of any sizes on three workers: a pure equilibrium exists, whatever the curves and the caches.

Request i of size $w_i$ pays $f_j(L_j) + c_{ij}$ on worker j, $f_j$ any curve that never falls with the total size
$L_j$ there, $c_{ij}$ any cost of misses. A game without equilibrium is a choice of all $f_j$ and $c_{ij}$ such that
in each of the 81 placements some request gains: linear inequalities joined by *or*. They are decided in exact
rational arithmetic over **all** curves and costs at once by an SMT solver, and none exists.

Sizes matter only through the order of the sums of their subsets: 14 orders for four sizes, found by listing (the
numbers 1, 2, 14, 516 of orders are known: OEIS A009997) (1). Sizes with ties are covered: their curve is one of the
curves of a neighbouring order. Nothing is lost by calling the least load's latency 0 (it moves into c), the misses on
worker 0 nought (only differences move a request), and by numbering workers by what the largest request pays alone
(2). The solver is no rubber stamp: it finds the game of four requests on four workers behind NEW-28 (3), and
none with affine curves, as NEW-18 demands.

**Verdict: proved.**
"""

import itertools

import numpy as np
import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.latency import LatencyCurve, latency_table
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-27",
    source=DMODELS,
    where="routing of four requests of unequal size on three workers, any curve and any overlaps",
    says="four requests of any sizes on three workers whose latencies never fall with load have a pure equilibrium",
    verdict=Verdict.PROVED,
    means="Requests of unequal size that never settle (NEW-28) take at least four requests and four workers.",
)
#: One list of sizes for each order of the 15 subset sums of four sizes.
ORDERS = (
    (1, 2, 4, 8), (1, 4, 6, 8), (2, 3, 4, 8), (2, 3, 4, 10), (2, 3, 6, 10), (2, 4, 5, 8), (2, 4, 7, 8),
    (2, 4, 7, 10), (2, 6, 7, 10), (3, 4, 6, 8), (3, 4, 8, 10), (3, 5, 6, 7), (3, 6, 8, 10), (4, 5, 6, 8),
)  # fmt: skip


def a_game_without(sizes, workers, affine=False):
    """Decides whether latencies (never falling; or affine) and costs of misses exist without a pure equilibrium."""
    n, solver = len(sizes), z3.SolverFor("QF_LRA")
    loads = sorted({sum(c) for k in range(1, n + 1) for c in itertools.combinations(sizes, k)})
    f = [{load: z3.Real(f"f{j}_{load}") for load in loads} for j in range(workers)]
    c = [[z3.RealVal(0), *(z3.Real(f"c{i}_{j}") for j in range(1, workers))] for i in range(n)]
    for j in range(workers):
        solver.add(f[j][loads[0]] == 0, *(f[j][low] <= f[j][high] for low, high in itertools.pairwise(loads)))
        if affine:
            slope = z3.Real(f"a{j}")
            solver.add(*(f[j][load] == slope * (load - loads[0]) for load in loads))
    big = max(range(n), key=sizes.__getitem__)
    alone = [f[j][sizes[big]] + c[big][j] for j in range(workers)]
    solver.add(*(low <= high for low, high in itertools.pairwise(alone)))
    for at in itertools.product(range(workers), repeat=n):
        load = [sum(w for w, worker in zip(sizes, at, strict=True) if worker == j) for j in range(workers)]
        moves = [(i, j) for i in range(n) for j in range(workers) if j != at[i]]
        gain = [f[at[i]][load[at[i]]] + c[i][at[i]] > f[j][load[j] + sizes[i]] + c[i][j] for i, j in moves]
        solver.add(z3.Or(gain))
    answer = solver.check()
    assert answer in (z3.sat, z3.unsat)  # "unknown" would be no answer
    return answer == z3.sat


def latencies(table, sizes, miss, workers):
    """(sits, pay), both (placements, requests, workers): where each request is, and what it pays there or would pay.

    `table` (workers, total size) are latencies from a total size of 1, `miss` (requests, workers).
    """
    sits = np.array(list(itertools.product(range(workers), repeat=len(sizes))))[:, :, None] == np.arange(workers)
    size = np.asarray(sizes)[:, None]
    after = (sits * size).sum(1)[:, None, :] + np.where(sits, 0, size)
    return sits, np.asarray(table)[np.arange(workers), after - 1] + miss


def order(sizes):
    """The subsets of the requests by the sum of their sizes; None where two sums are equal."""
    subsets = [s for k in range(1, len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), k)]
    sums = [sum(sizes[i] for i in s) for s in subsets]
    return tuple(s for _, s in sorted(zip(sums, subsets, strict=True))) if len(set(sums)) == len(sums) else None


@pytest.mark.parametrize("count, known", [(2, 1), (3, 2), (4, 14)])
def test_these_are_all_orders(count, known):  # 1
    found = {order(sizes) for sizes in itertools.combinations(range(1, 13), count)} - {None}
    assert len(found) == known
    if count == 4:
        assert found == {order(sizes) for sizes in ORDERS}


def test_the_first_order():
    assert not a_game_without(ORDERS[0], 3)


@pytest.mark.slow  # some five seconds each
@pytest.mark.parametrize("sizes", ORDERS[1:])
def test_every_other_order(sizes):  # 2
    assert not a_game_without(sizes, 3)


def test_the_solver_can_say_both():  # 3
    assert a_game_without((1, 2, 3, 3), 4)
    assert not a_game_without((1, 2, 4), 3, affine=True)


@given(seed=st.integers(0, 2**31))
def test_the_shipped_curve_has_an_equilibrium(seed):  # 50 games a draw, sizes with ties included
    rng = np.random.default_rng(seed)
    for _ in range(50):
        sizes = rng.integers(1, 9, 4)
        top = int(sizes.sum())
        scale = lambda rng=rng: rng.choice([0.0, 0.1, 1.0, 5.0], 3) * rng.uniform(size=3)
        curve = LatencyCurve(scale(), scale(), scale(), np.full(3, top + rng.choice([0.1, 1.0, 9.0])), 2.0)
        miss = rng.uniform(0, rng.choice([0.1, 1.0, 9.0]), (4, 3))
        sits, pay = latencies(latency_table(curve, top), sizes, miss, 3)
        assert ((pay * sits).sum(2) <= pay.min(2)).all(1).any()
