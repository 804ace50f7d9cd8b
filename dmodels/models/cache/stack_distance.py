r"""Stack distances: the least capacity at which each access hits, so that one pass gives the hit rate of every size.

An access hits a cache of C blocks iff its distance is at most C (Mattson et al., IBM Systems Journal 9(2), 1970).
Two caches have one: least recently used out, and the optimum, which knows the future (Belady, IBM Systems Journal
5(2), 1966).

A trace is `ids`, block identifiers one after another, and `starts` (requests + 1,): request i has
ids[starts[i]:starts[i + 1]]. A request looks all its blocks up before it writes any, then holds them, and when it
ends the cache is cut to its capacity. Blocks are prefixes, so they are touched from last to first: a tail goes before
its head. `starts=None` makes every access a request of its own, which is the textbook's stream.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.errors import InputError

from . import _stack_kernels as kernels


def stack_distances(ids: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
    """LRU stack distance of every access, float64 (accesses,); inf at a block's first use.

    >>> stack_distances(np.array([1, 2, 3, 2, 1, 1])).tolist()
    [inf, inf, inf, 2.0, 3.0, 1.0]
    """
    blocks, starts, count = numbered(ids, starts)
    ranks = kernels.lru_ranks(blocks, starts, count)
    return np.where(ranks > 0, ranks.astype(np.float64), np.inf)


def belady_distances(ids: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
    """The same for the optimum (MIN): no policy has more hits at any capacity than this one, inf at a first use.

    A hit needs its block kept from the block's previous use to this one. Keeping as many of these intervals as C
    slots hold is solved by earliest end first (Carlisle & Lloyd, Discrete Applied Mathematics 59, 1995). A block need
    not be stored after its use, so this bounds policies with admission too: at C it lies between the classical MIN,
    which always stores, at C and at C + 1.

    >>> belady_distances(np.array([1, 2, 3, 2, 1, 1])).tolist()      # LRU needs 3 slots for the first 1
    [inf, inf, inf, 1.0, 2.0, 1.0]
    """
    blocks, starts, _ = numbered(ids, starts)
    when = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    before = previous(blocks)
    again = np.flatnonzero(before >= 0)
    distances = np.full(len(blocks), np.inf)
    distances[again] = kernels.least_slots(when[before[again]], when[again])
    return distances


def usable(distances: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Distances under the prefix accounting: a block counts only when all earlier blocks of its request hit.

    The running maximum within each request. Where identifiers name whole prefixes (hashes chained from the start, as
    in Mooncake's traces) a block is never used more recently or more often than its head, LRU and MIN hold heads
    whenever they hold tails, and both accountings agree.

    >>> usable(np.array([2.0, 5.0, 3.0, 1.0]), np.array([0, 3, 4])).tolist()
    [2.0, 5.0, 5.0, 1.0]
    """
    return _running_max(np.asarray(distances, np.float64), checked_starts(starts, len(distances)))


def _running_max(distances: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Running maximum within segments: ranks of the values, offset by segment, make it one accumulate."""
    order = np.unique(distances, return_inverse=True)
    values, rank = order[0], order[1].reshape(-1)
    segment = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    offset = segment * max(len(values), 1)
    return values[np.maximum.accumulate(rank + offset) - offset] if len(distances) else distances


def hit_frac(distances: np.ndarray, sizes_blocks: np.ndarray) -> np.ndarray:
    """Share of the accesses (sizes,) that hit caches of `sizes_blocks` (sizes,), by their distances; 0 of none.

    >>> hit_frac(np.array([np.inf, 2.0, 1.0, np.inf]), np.array([0, 1, 2, 10])).tolist()
    [0.0, 0.25, 0.5, 0.5]
    """
    found = np.sort(distances[np.isfinite(distances)])
    return np.searchsorted(found, sizes_blocks, side="right") / max(len(distances), 1)


def previous(blocks: np.ndarray) -> np.ndarray:
    """Index of the previous access to the same block, -1 at the first."""
    order = np.argsort(blocks, kind="stable")
    found = np.full(len(blocks), -1)
    same = blocks[order[1:]] == blocks[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def numbered(ids: np.ndarray, starts: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, int]:
    """(blocks numbered from 0, starts, how many blocks there are), checked."""
    ids = np.asarray(ids)
    if ids.ndim != 1:
        raise InputError(f"ids: an array of shape {ids.shape}; accepted is one dimension")
    if ids.size and ids.dtype.kind not in "iu":
        raise InputError(f"ids: of kind {ids.dtype}; accepted are whole numbers")
    starts = np.arange(len(ids) + 1) if starts is None else checked_starts(starts, len(ids))
    names, blocks = np.unique(ids, return_inverse=True)
    return blocks.reshape(-1).astype(np.int64), starts, len(names)


def checked_starts(starts: np.ndarray, accesses: int) -> np.ndarray:
    """`starts` as int64; refused unless it rises from 0 to the number of accesses."""
    found = np.asarray(starts)
    if found.ndim != 1 or not len(found) or found[0] != 0 or found[-1] != accesses or np.any(np.diff(found) < 0):
        raise InputError(f"starts: accepted are whole numbers that rise from 0 to the number of accesses, {accesses}")
    return found.astype(np.int64)
