r"""PH-F. The fragmentation penalty $H_{frag}(w)$ of Eq. (2): "free blocks that are physically available but practically
unusable for large bursts without consolidation".

**Verdict: conditional** on a given size of request, or a distribution of sizes to average over, which the definition's
large bursts only hint at. With f blocks free, a request of k blocks strands $f \bmod k$ of them (1), and averaged over
sizes this is a number per worker (3). Without it there is none: one free block strands nothing for requests of one
block and itself for requests of two (2); ten strand 1, 0 and 10 for k = 3, 5 and 11.
"""

import itertools

import numpy as np
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.freeness import expected_stranded_blocks, stranded_blocks
from proofs.cases import every
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-F",
    source=PHASOR,
    where="Eq. (2), Section 3.1",
    says="the stranded capacity H_frag is a property of the worker",
    verdict=Verdict.CONDITIONAL,
    needs=("requests of one size, or a distribution of sizes to average over",),
    error="between 0 and all free blocks for the same worker",
    counterexample="A worker with one free block: nothing is stranded for requests of one block, everything for "
    "requests of two.",
    means="Measure fragmentation against the requests that you expect; the same worker is full for one and free for "
    "another.",
)


def most_used(free: int, size: int) -> int:
    """Blocks that requests of `size` can occupy, by counting them in."""
    used = 0
    while used + size <= free:
        used += size
    return used


def test_remainder():  # 1
    for free, size in every(itertools.product(range(30), range(1, 12)), "pairs of free blocks and a size"):
        assert free - most_used(free, size) == free % size


def test_one_free_block():  # 2
    assert [1 - most_used(1, k) for k in (1, 2)] == [0, 1]
    assert [10 - most_used(10, k) for k in (3, 5, 11)] == [1, 0, 10]


def test_one_number_needs_the_mix_of_sizes():  # 3: requests of two blocks are a share p, the others of one
    p = sp.Symbol("p", positive=True)
    for free in every(range(1, 30), "counts of free blocks"):
        mean = (1 - p) * (free - most_used(free, 1)) + p * (free - most_used(free, 2))
        assert sp.diff(mean, p) == free % 2  # with an odd number free the penalty moves with the mix


def test_the_shipped_remainder():  # 1
    for free, size in every(itertools.product(range(30), range(1, 12)), "pairs of free blocks and a size"):
        assert float(stranded_blocks(float(free), float(size))) == free - most_used(free, size)


@given(free=st.integers(0, 500), sizes=st.lists(st.integers(1, 64), min_size=3, max_size=3))
def test_the_mean_over_sizes(free, sizes):  # 3
    got = float(expected_stranded_blocks(float(free), np.array(sizes, float), np.full(3, 1 / 3)))
    assert abs(got - sum(free % k for k in sizes) / 3) < 1e-9
