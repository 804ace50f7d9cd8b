r"""NEW-24. One limited tier, blocks of one size, a hierarchical network: raising floors ends in an equilibrium.

**Verdict: proved**; at most $K n m (L + 1)$ moves for K places in all, n workers, m blocks and L different distances.
*Proof.* A copy of every block floats at the smallest hop from everybody; then the best response does not depend on
the others. Raise the floors of blocks one by one, hop by hop. Only workers in parts without a copy see the block go
away, and after one of each part has taken it in, the others there see it as near as before. Invariant: *no kept block
loses value for its keeper between settled states.* (a) A newcomer k to a raised block saw no copy nearer than the
floor, so no keeper sees k nearer than the floor either. (b) i drops c; of those who now want c the nearest, k, takes
it. For a keeper h of c: k saw no copy nearer than d(i, k), nor did i; if $d(i, h) > d(i, k)$ then $d(k, h) = d(i, h)$
(two longest sides of an ultrametric triangle are equal, 1), so h sees the new copy where the old one was; and $d(i,
h) \le d(i, k)$ would give $d(k, h) \le d(i, k)$, so k would have kept seeing h as near as i and would not want c more
than before. Everybody else who wanted c sees k at most as far as i was (1). So each move replaces a worker's least
value by a larger one and nothing falls; a worker has at most n m (L + 1) values to climb through. When all floors are
gone the game is the real one. (2) The shipped code, against the exact definition: POA-2.3; here larger games, whose
certificates must be zero, and best responses that stay. (3) The ultrametric is needed for the argument: on a line the
code refuses.
"""

import numpy as np
import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.games.placement import (
    PlacementGame,
    best_response_dynamics,
    fat_tree,
    hierarchical_equilibrium,
    levels,
    line,
)
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-24",
    source=DMODELS,
    where="games.placement_hierarchy.hierarchical_equilibrium",
    says="With one limited tier on a hierarchical network, raising floors finds a pure equilibrium in at most "
    "K n m (L + 1) moves",
    verdict=Verdict.PROVED,
    needs=("blocks of one size", "the same access cost at all workers"),
    means="A stable placement of HBM over NVLink and InfiniBand is a matter of seconds for 200 GPUs and 20,000 blocks.",
)


def follows(hypotheses, conclusion) -> bool:
    """True if no real numbers satisfy the hypotheses without the conclusion (decided exactly)."""
    solver = z3.Solver()
    solver.add(*hypotheses, z3.Not(conclusion))
    return solver.check() == z3.unsat


def test_the_two_longest_sides_of_a_triangle_are_equal():  # 1: for all real distances
    ih, ik, kh = z3.Reals("d_ih d_ik d_kh")
    ultrametric = [z3.Or(x <= y, x <= z) for x, y, z in ((ih, ik, kh), (ik, kh, ih), (kh, ih, ik))]
    assert follows([*ultrametric, ih > ik], kh == ih)  # (b), first case: h sees the new copy where the old one was
    assert follows([*ultrametric, ih <= ik], kh <= ik)  # (b), second case: k sees h as near as it saw i
    far = z3.Real("d_wi")  # w wanted c as well, and is at least as far from i as k, the nearest who does
    wk = z3.Real("d_wk")
    third = [z3.Or(x <= y, x <= z) for x, y, z in ((far, ik, wk), (ik, wk, far), (wk, far, ik))]
    assert follows([*third, far >= ik], wk <= far)
    assert not follows([ih > ik], kh == ih)  # and it is the ultrametric that does it


@settings(max_examples=8)
@given(seed=st.integers(0, 2**31))
def test_larger_games_end_in_equilibria(seed):  # 2
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 13)), int(rng.integers(2, 30))
    d = fat_tree(n, (2, 8), (1.0, 4.0, 9.0))
    rates = rng.zipf(1.6, (n, m)).clip(max=1000) * rng.uniform(0.5, 1.0, (n, m))
    capacity = np.stack([rng.integers(0, m, n), np.full(n, np.inf)], 1)
    game = PlacementGame(rates, [0.5, rng.uniform(1, 12)], capacity, d, rng.uniform(2, 20, m))
    s = hierarchical_equilibrium(game)
    assert s.flags == 0 and (s.certificate["gain_s"] <= 1e-9 * s.value.cost_s).all()
    assert int(best_response_dynamics(game, s.value.tier).steps) == 0
    assert int(s.steps) <= capacity[:, 0].sum() * n * m * (len(levels(d).hop_s) + 1)


def test_a_line_is_refused():  # 3
    with pytest.raises(InputError, match="ultrametric"):
        hierarchical_equilibrium(PlacementGame(np.ones((3, 2)), [0.0], [1.0], line(3, 1.0), 4.0))
