r"""TB-2. "Why Splitting Always Helps" (title of Section 3).

**Verdict: refuted**, inside the section's own assumptions, in three ways. (1) Ceilings: a load of 0.9 instances, 80 %
short, rho = 4 needs 1 instance together and 2 apart. (2) Eq. (8) is negative iff
$\rho_l < (1-\alpha)/(1 - \alpha/\rho)$. (3) Multiplexing: two queues need a safety margin each. With P(wait) <= 0.1 and
no gain from batching, 1, 10 and 100 erlang need 3, 16 and 115 servers together, and 4, 18 and 122 in halves.

**What the authors could answer.** That the title is about Eq. (7), which has no ceilings and is never negative for rho
>= 1, and that the caveats follow in the same section. Eq. (6), three lines earlier, has the ceilings, and Eq. (8) of
Section 4 corrects (7) and can be negative. A title may exaggerate; a reader who plans four GPUs may not know. The
verdict stands for always; for large fleets with little long work splitting does save by the paper's model.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.multiplexing import multiplexed_savings, multiplexing_break_even_load
from dmodels.models.pooling import break_even_rho_long, routed_savings, savings
from proofs.claim import TOKEN_BUDGET, Claim, Verdict

CLAIM = Claim(
    id="TB-2",
    source=TOKEN_BUDGET,
    where="Section 3, title",
    says="splitting the fleet in two pools always helps",
    verdict=Verdict.REFUTED,
    counterexample="A load of 0.9 instances, 80 % of it short and four times as fast apart: one instance together, "
    "two apart.",
    means="Small fleets lose: keep one pool until a split saves a whole instance and each pool carries its own bursts.",
    minimal="searched: the claim breaks at one instance already, for every share and speed-up that leaves both "
    "pools a load",
)


def test_two_ceilings_cost_an_instance():  # 1
    load, alpha, rho = Fraction(9, 10), Fraction(8, 10), 4
    assert math.ceil(load) == 1 and math.ceil(alpha * load / rho) + math.ceil((1 - alpha) * load) == 2
    s = savings(0.8, 1.0, 4.0, 1.0, 0.9)
    assert (float(s.homo_instances_count), float(s.dual_instances_count)) == (1, 2)


def test_when_equation_8_is_negative():  # 2
    a, r, l = sp.symbols("alpha rho rho_l", positive=True)
    edge = (1 - a) / (1 - a / r)
    assert sp.simplify((1 - a / r - (1 - a) / l).subs(l, edge)) == 0
    assert sp.simplify(sp.diff(1 - a / r - (1 - a) / l, l) - (1 - a) / l**2) == 0  # increasing in rho_l


@given(alpha=st.floats(0.01, 0.99), rho=st.floats(1.01, 64), factor=st.floats(0.1, 10))  # 2
def test_the_code_has_the_same_edge(alpha, rho, factor):
    saved = float(routed_savings(alpha, rho, factor * float(break_even_rho_long(alpha, rho))))
    assert abs(factor - 1) < 1e-6 or (saved < 0) == (factor < 1)


def _servers(load: float, wait: float = 0.1) -> int:
    """Fewest servers with P(wait) <= `wait`, from the textbook recursion of Erlang B."""
    blocking, n = 1.0, 0
    while True:
        n += 1
        blocking = load * blocking / (n + load * blocking)
        if n > load and blocking * n / (n - load * (1 - blocking)) <= wait + 1e-12:
            return n


def test_two_queues_need_two_margins():  # 3
    assert [(_servers(r), 2 * _servers(r / 2)) for r in (1.0, 10.0, 100.0)] == [(3, 4), (16, 18), (115, 122)]
    split = multiplexed_savings(0.5, 1.0, [1.0, 10.0, 100.0])  # and the shipped code agrees with the recursion
    np.testing.assert_allclose(split, [1 - 4 / 3, 1 - 18 / 16, 1 - 122 / 115])


def test_the_break_even_load_is_that_of_square_root_staffing():  # 3
    for phi, r in ((0.33, 1.614), (0.9, 1.614), (0.5, 4.0)):
        load = float(multiplexing_break_even_load(phi, r, 1.0))
        loss = [_staffed(phi * x / r) + _staffed((1 - phi) * x) - _staffed(x) for x in (load / 2, load, 2 * load)]
        assert loss[0] > 0 > loss[2] and abs(loss[1]) < 1e-9 * load


def _staffed(load: float) -> float:
    return load + math.sqrt(load)


def test_nothing_smaller():
    """One instance is the least there is: at any load of at most 1 a split with work in both pools needs two."""
    for load, alpha, rho in itertools.product((Fraction(1, 10), Fraction(9, 10), Fraction(1)), (1, 5, 9), (1, 4, 64)):
        share = Fraction(alpha, 10)
        assert math.ceil(load) == 1 < math.ceil(share * load / rho) + math.ceil((1 - share) * load)
