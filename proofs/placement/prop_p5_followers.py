r"""NEW-30. The tiers below HBM have one best answer for all their sizes and all increasing access costs.

Each access that misses HBM could be served below if its block was kept since HBM let it go: an interval. A tier of
$c_1$ places stands above one of $c_2$, and blocks may move down, not up (nothing is fetched before it is asked for).
Greedy by earliest end, with the place freed last before an interval begins, keeps for every k a largest family $S_k$
that k places hold, and $S_1 \subseteq S_2 \subseteq \dots$, so serving $S_{c_1}$ from the first tier and the rest of
$S_{c_1 + c_2}$ from the second minimises the sum of access costs for all $\alpha_1 \le \alpha_2 \le \gamma$.

Proof. Earliest end is optimal for each k (Carlisle & Lloyd 1995). Nested: with k + 1 places the times at which places
were freed are those with k places and one more; by induction over intervals, if k places accept an interval so do
k + 1, and the one more is what the deeper choice displaces (`_stack_kernels.least_slots`). With $H_1$ served by the
first tier and $H_2$ by both, the cost is $\gamma N - (\gamma - \alpha_2) H_2 - (\alpha_2 - \alpha_1) H_1$ (1). Since
blocks do not move up, what the first tier serves was there all the time: $H_1 \le |S_{c_1}|$; and $H_2 \le
|S_{c_1 + c_2}|$. Both bounds are met at once (2): the rest of $S_{c_1+c_2}$ takes the second tier's places and, while
these are full, free ones of the first. There are enough at any time, their number rises only with newcomers (3), and
who waits there moves down when $S_{c_1}$ claims the place.

**Verdict: proved.** The exact search in (2) is over every assignment of intervals to tiers.
"""

import itertools
from fractions import Fraction as F

import numpy as np
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.models.cache import _stack_kernels as kernels
from dmodels.models.cache import belady_distances
from proofs.claim import DMODELS, Claim, Verdict

CLAIM = Claim(
    id="NEW-30",
    source=DMODELS,
    where="models/hbm_leader.leader, models/stack_distance.belady_distances",
    says="Earliest end first gives nested families, and so the best lower tiers for all sizes and increasing costs",
    verdict=Verdict.PROVED,
    means="What DRAM and SSD could serve at best follows from one pass over a trace, whatever their sizes and prices.",
)

intervals = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=6)


def fits(chosen, places):
    """Whether `places` hold these intervals [a, b), which need a place in every gap a, ..., b - 1."""
    return all(sum(a <= gap < b for a, b in chosen) <= places for gap in range(11))


def slots(found):
    """The shipped greedy choice, on intervals in the order of their ends."""
    return kernels.least_slots(np.array([a for a, _ in found]), np.array([b for _, b in found]))


def test_the_cost_is_that_of_two_sizes():  # 1
    one, two, miss, first, second, missed = sp.symbols("alpha_1 alpha_2 gamma H_1 h_2 missed")
    cost = one * first + two * second + miss * missed
    count = first + second + missed
    assert sp.expand(cost - (miss * count - (miss - two) * (first + second) - (two - one) * first)) == 0


@settings(max_examples=40)
@given(found=intervals, first=st.integers(0, 2), second=st.integers(0, 2), costs=st.tuples(*[st.integers(0, 9)] * 3))
def test_no_assignment_is_cheaper(found, first, second, costs):  # 2
    found = sorted(((a, a + length) for a, length in found), key=lambda one: one[1])
    alpha = sorted(F(c, 3) for c in costs)
    least = slots(found)
    kept = [[iv for iv, k in zip(found, least, strict=True) if k <= size] for size in (first, first + second)]
    assert fits(kept[0], first) and fits(kept[1], first + second)
    ours = alpha[0] * len(kept[0]) + alpha[1] * (len(kept[1]) - len(kept[0])) + alpha[2] * (len(found) - len(kept[1]))
    for assigned in itertools.product(range(3), repeat=len(found)):
        tiers = [[iv for iv, t in zip(found, assigned, strict=True) if t == k] for k in range(3)]
        if fits(tiers[0], first) and fits(tiers[1], second):
            assert ours <= sum((alpha[t] for t in assigned), F(0))


@given(found=intervals, first=st.integers(0, 2), second=st.integers(0, 2))
def test_nothing_has_to_move_up(found, first, second):  # 3
    found = sorted(((a, a + length) for a, length in found), key=lambda one: one[1])
    least = slots(found)
    at = lambda low, high, gap: [
        iv for iv, k in zip(found, least, strict=True) if low < k <= high and iv[0] <= gap < iv[1]
    ]
    waiting = [max(len(at(first, first + second, gap)) - second, 0) for gap in range(11)]
    for gap in range(11):
        assert waiting[gap] <= first - len(at(0, first, gap))
        new = sum(a == gap for a, _ in at(first, first + second, gap))
        assert waiting[gap] - (waiting[gap - 1] if gap else 0) <= new


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_the_optimum_has_the_inclusion_property_and_at_most_one_hit_per_reuse(stream):
    distances = belady_distances(np.array(stream, np.int64))
    hits = [(distances <= k).sum() for k in range(8)]
    assert hits == sorted(hits) and hits[-1] == len(stream) - len(set(stream))
    assert np.all(np.diff(np.diff(hits)) <= 0)  # each further place is worth no more than the one before
