r"""NEW-18. Requests of unequal size under Dynamo's own cost: a weighted potential; but the optimum is NP-hard.

A request of $w_i$ blocks on worker j pays $a_j L_j + b_j + c_{ij}$, $L_j$ the blocks there, its own included, and
$c_{ij}$ what its misses cost: Eq. (1) with any overlaps and omega. Let $\Phi = \sum_j a_j L_j^2/2 + \sum_i
w_i(a_{\sigma_i} w_i/2 + b_{\sigma_i} + c_{i\sigma_i})$. A move of i changes $\Phi$ by $w_i$ times its change for i (1):
pure equilibria exist for every omega and re-routing ends (2). Least total cost is another matter: two identical
workers without caches cost $\sum_j L_j^2$, least where the sizes halve evenly, which is Partition (3).

**Verdict: proved.** (Affine latencies only: under the singular curve NEW-28 has no equilibrium.)
"""

import itertools
from fractions import Fraction as F

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.router import block_costs
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-18",
    source=DMODELS,
    where="models.router.block_costs with requests of unequal size",
    says="routing by Dynamo's cost has a weighted potential when requests differ in size, for every omega and overlap",
    verdict=Verdict.PROVED,
    needs=("cost is affine in the blocks on a worker",),
    means="Long and short prompts may be re-routed by their own cost without cycling; the best packing of long prompts "
    "is hard, so leave it to the solver's bound.",
)


def test_a_move_changes_the_potential_by_its_weight():  # 1: from worker j with load L to worker k with load M
    w, load, other = sp.symbols("w L M", positive=True)
    a, b, c = sp.symbols("a:2"), sp.symbols("b:2"), sp.symbols("c:2")
    before = a[0] * load**2 / 2 + a[1] * other**2 / 2 + w * (a[0] * w / 2 + b[0] + c[0])
    after = a[0] * (load - w) ** 2 / 2 + a[1] * (other + w) ** 2 / 2 + w * (a[1] * w / 2 + b[1] + c[1])
    gain = (a[1] * (other + w) + b[1] + c[1]) - (a[0] * load + b[0] + c[0])
    assert sp.expand(after - before - w * gain) == 0


@given(sizes=st.lists(st.integers(1, 64), min_size=3, max_size=6), seed=st.integers(0, 2**31))
def test_rerouting_by_the_shipped_cost_ends(sizes, seed):  # 2
    rng = np.random.default_rng(seed)
    missing = [[int(rng.integers(0, w + 1)) for _ in range(3)] for w in sizes]  # blocks to prefill there
    omega = float(rng.integers(0, 5))
    at = [int(j) for j in rng.integers(0, 3, len(sizes))]
    load = lambda j: sum(w for w, k in zip(sizes, at, strict=True) if k == j)
    phi = lambda: (
        sum(F(load(j)) ** 2 / 2 for j in range(3))
        + sum(w * (F(w, 2) + F(omega) * missing[i][at[i]]) for i, w in enumerate(sizes))
    )
    for _ in range(100_000):
        moved = False
        for i, w in enumerate(sizes):
            active = np.array([load(j) + (0 if at[i] == j else w) for j in range(3)], float)
            pay = np.asarray(block_costs(np.array(missing[i], float), active, omega))
            if pay.min() < pay[at[i]]:
                before, saved, moved = phi(), pay[at[i]] - pay.min(), True
                at[i] = int(pay.argmin())
                assert before - phi() == w * F(float(saved))
        if not moved:
            break
    assert not moved


def test_the_optimum_is_partition():  # 3: 3, 1, 1, 2, 2, 1 halve evenly into 5 and 5; with 4 for a 1 they cannot
    def least(sizes):
        return min(
            sum(w for w, s in zip(sizes, side, strict=True) if s) ** 2
            + sum(w for w, s in zip(sizes, side, strict=True) if not s) ** 2
            for side in itertools.product((0, 1), repeat=len(sizes))
        )

    assert least((3, 1, 1, 2, 2, 1)) == F(10**2, 2) and least((2, 2, 2, 4, 4, 5)) > F(19**2, 2)
