r"""PH-F. The fragmentation penalty $H_{frag}(w)$ as a property of the worker, Eq. (2).

"Free blocks that are physically available but practically unusable" depend on who asks: with f blocks free, a request
of k blocks strands $f \bmod k$ of them (1). One free block strands nothing for requests of one block and itself for
requests of two (2); ten strand 1, 0 and 10 for k = 3, 5 and 11. **Verdict: refuted.** A number per worker exists only
for a given distribution of sizes; the shipped penalty takes one (3).
"""

from fractions import Fraction as F

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmodels.models.freeness import expected_stranded_blocks, stranded_blocks
from proofs.claim import PHASOR, Claim, Verdict

CLAIM = Claim(
    id="PH-F",
    source=PHASOR,
    where="Eq. (2), Section 3.1",
    says="the stranded capacity H_frag is a property of the worker",
    verdict=Verdict.REFUTED,
    needs=("requests of one size, or a distribution of sizes to average over",),
    error="between 0 and all free blocks for the same worker",
    counterexample="A worker with one free block: nothing is stranded for requests of one block, everything for "
    "requests of two.",
    means="Measure fragmentation against the requests that you expect; the same worker is full for one and free for "
    "another.",
    minimal="least: with no free block nothing can be stranded; one is the least",
)


def most_used(free: int, size: int) -> int:
    """Blocks that requests of `size` can occupy, by counting them in."""
    used = 0
    while used + size <= free:
        used += size
    return used


def test_remainder():  # 1
    for free in range(30):
        for size in range(1, 12):
            assert F(free - most_used(free, size)) == free % size
            assert float(stranded_blocks(float(free), float(size))) == free % size


def test_one_free_block():  # 2
    assert [most_used(1, k) for k in (1, 2)] == [1, 0] and F(0 % 1) == F(0 % 2) == 0
    assert [float(stranded_blocks(10.0, k)) for k in (3.0, 5.0, 11.0)] == [1, 0, 10]


@given(free=st.integers(0, 500), sizes=st.lists(st.integers(1, 64), min_size=3, max_size=3))
def test_the_mean_over_sizes(free, sizes):  # 3
    got = float(expected_stranded_blocks(float(free), np.array(sizes, float), np.full(3, 1 / 3)))
    assert abs(got - sum(free % k for k in sizes) / 3) < 1e-9
