r"""What storing one block more costs everybody else, measured on a trace: section 5.3's externality, for every size.

A block that is stored and not used again holds one of C places for the time T(C) that an LRU cache leaves it there,
and each place less costs $h'(C)$ hits per access, so that it takes $E(C) = T(C)\,h'(C)$ hits from others, T counted in
accesses. Both factors come from one pass: h is the curve of stack distances, and T solves Little's law for a cache
that keeps every block for at most T accesses after its last use, $\frac1N\sum_j \min(\text{gap}_j, T) = C$.
Under the independent reference model this is `che.eviction_externality`.
"""

from __future__ import annotations

import numpy as np

from .stack_distance import numbered, previous, stack_distances


def residence_accesses(ids: np.ndarray, sizes_blocks: np.ndarray) -> np.ndarray:
    """T (sizes,): accesses for which an LRU cache keeps a block after its last use; inf where it never lets it go.

    >>> residence_accesses(np.array([1, 2, 1, 2, 3, 4, 5, 6]), np.array([0.0, 1.0, 99.0])).tolist()
    [0.0, 1.0, inf]
    """
    blocks, _, _ = numbered(ids, None)
    before = previous(blocks)
    again = np.flatnonzero(before >= 0)
    gaps = np.sort(again - before[again]).astype(np.float64)
    forever = len(blocks) - len(again)  # last uses: the cache holds them until T
    # accesses x blocks held with T at each gap; linear in between
    held = np.concatenate([[0.0], np.cumsum(gaps) + gaps * (len(gaps) - 1 - np.arange(len(gaps)) + forever)])
    knots = np.concatenate([[0.0], gaps])
    asked = np.asarray(sizes_blocks, np.float64) * max(len(blocks), 1)
    beyond = knots[-1] + (asked - held[-1]) / max(forever, 1)
    time = np.where(asked <= held[-1], np.interp(asked, held, knots), beyond)
    return np.where(time >= len(blocks), np.inf, time)


def lost_hits(ids: np.ndarray, starts: np.ndarray | None, sizes_blocks: np.ndarray, width: float = 0.1) -> np.ndarray:
    """Hits (sizes,) that all others lose for each block that is stored and never used again.

    width  the slope of the hit curve at C is taken between C (1 - width) and C (1 + width)
    """
    sizes = np.asarray(sizes_blocks, np.float64)
    distances = np.sort(stack_distances(ids, starts))
    count = lambda size: np.searchsorted(distances, size, side="right")
    low, high = np.floor(sizes * (1 - width)), np.ceil(sizes * (1 + width))
    slope = (count(high) - count(low)) / np.maximum(high - low, 1.0) / max(len(distances), 1)
    time = residence_accesses(ids, sizes)
    return np.where(np.isfinite(time), time, 0.0) * slope
