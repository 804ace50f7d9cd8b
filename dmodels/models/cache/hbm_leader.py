r"""HBM as Stackelberg leader: it commits to a promotion threshold, and the tiers below hold what is best against it.

"The Price of Anarchy in Disaggregated Inference", section 4.2: HBM "acts as a leader by setting eviction policies, and
lower tiers respond optimally", with a threshold on KVBM's frequency. Here: a full HBM stores a block only if its
frequency is at least theta, and evicts the least frequent. Every block outlives its eviction somewhere (G4 is
unbounded), so frequencies do not depend on the lower tiers, and the leader's course depends on theta alone.

The followers' best response is exact. A lower tier serves an access that missed HBM if it kept the block from when
HBM let it go (or from its last use, where HBM did not store it). Which of these intervals k slots keep at most is
solved for all k at once by earliest end first (`stack_distance.belady_distances`); the choices for G2 and for G2 and
G3 together are nested, so they are best for every increasing sequence of access costs. (Blocks may move down a tier,
not up: nothing is fetched before it is asked for. Proof: proofs/placement/prop_p5_followers.py.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from . import _stack_kernels as kernels
from .eviction import Policy, replay
from .stack_distance import belady_distances, numbered

#: Thresholds worth trying: frequencies are powers of two, less the decay. 1 stores everything.
THRESHOLDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Leader(NamedTuple):
    """Share of the block accesses that each tier serves, per threshold, and what no leader could exceed."""

    threshold: np.ndarray  # (thresholds,)
    tier_frac: np.ndarray  # (thresholds, tiers), HBM first
    bound_frac: np.ndarray  # (tiers,) when HBM too knows the future


def leader(
    ids: np.ndarray,
    starts: np.ndarray | None,
    hbm_blocks: float,
    lower_blocks: Sequence[float],
    thresholds: Sequence[float] = THRESHOLDS,
    decay_steps: np.ndarray | None = None,
) -> Leader:
    """Where accesses are served when HBM of `hbm_blocks` commits to each threshold.

    lower_blocks  sizes of the tiers below, fastest first; inf for an unbounded one

    >>> found = leader(np.array([1, 2, 1, 3, 1]), None, 1, [1.0], [1.0, 2.0])
    >>> found.tier_frac.tolist()        # storing everything, HBM always holds the wrong block; G2 then holds the right
    [[0.0, 0.4], [0.4, 0.0]]
    """
    blocks, starts, _ = numbered(ids, starts)
    when = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    sums = np.cumsum(np.asarray(lower_blocks, np.float64))
    rows = []
    for threshold in thresholds:
        hit, gone = replay(blocks, starts, hbm_blocks, Policy.KVBM, decay_steps, threshold, forget=False)
        again = gone >= 0
        slots = kernels.least_slots(gone[again], when[again])
        below = [(slots <= size).sum() for size in sums]
        rows.append(np.diff([0, hit.sum(), *(hit.sum() + np.array(below))]))
    distances = belady_distances(blocks, starts)
    best = [(distances <= size).sum() for size in np.concatenate([[0.0], sums]) + hbm_blocks]
    accesses = max(len(blocks), 1)
    return Leader(np.array(thresholds, float), np.array(rows) / accesses, np.diff([0, *best]) / accesses)


def best_threshold(found: Leader, tier_s: np.ndarray, miss_s: float) -> tuple[int, np.ndarray, float]:
    """(index of the best threshold, mean access cost of each, least cost of any leader) at costs `tier_s` (tiers,)."""
    cost = lambda frac: frac @ tier_s + (1.0 - frac.sum(axis=-1)) * miss_s
    costs = cost(found.tier_frac)
    return int(np.argmin(costs)), costs, float(cost(found.bound_frac))
