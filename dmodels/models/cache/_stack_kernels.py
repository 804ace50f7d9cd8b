"""Compiled loops of stack distances: ranks in an LRU stack, and the least number of slots that keeps an interval."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel

#: Slots that one entry of the summary over slots stands for.
_CHUNK = 128


@kernel
def lru_ranks(blocks, starts, count):
    """Rank (from 1) of every accessed block in the LRU stack as its request begins; 0 where it was never seen.

    A Fenwick tree over the order of touches holds a one at each block's last touch: those above a block's own last
    touch are the blocks used since. All blocks of a request are looked up first, then touched from last to first.
    """
    n = len(blocks)
    tree = np.zeros(n + 1, np.int32)
    last = np.zeros(count, np.int64)  # position of the last touch, from 1; 0: never
    ranks = np.zeros(n, np.int64)
    distinct = 0
    clock = 0
    for r in range(len(starts) - 1):
        for j in range(starts[r], starts[r + 1]):
            k = last[blocks[j]]
            if k > 0:
                older = 0
                while k > 0:
                    older += tree[k]
                    k &= k - 1
                ranks[j] = distinct - older + 1
        for j in range(starts[r + 1] - 1, starts[r] - 1, -1):
            b = blocks[j]
            k = last[b]
            if k > 0:
                while k <= n:
                    tree[k] -= 1
                    k += k & -k
            else:
                distinct += 1
            clock += 1
            last[b] = clock
            k = clock
            while k <= n:
                tree[k] += 1
                k += k & -k
    return ranks


@kernel
def least_slots(begin, end):
    """Least number of slots with which the greedy choice by earliest end keeps each interval [begin, end].

    Intervals come in the order of their ends; two may share a slot if one ends no later than the other begins. With k
    slots the greedy choice gives an interval the slot that was freed last before it begins, if there is any. The
    slots' times for k + 1 are those for k and one more (the inclusion property), so one array `freed` serves all k:
    what the new interval displaces at its own depth moves down, changing places with every later time that the deeper
    choice would have preferred.
    """
    n = len(begin)
    freed = np.full(n + 1, -1, np.int64)
    least = np.full(n // _CHUNK + 1, -1, np.int64)
    most = np.full(n // _CHUNK + 1, -1, np.int64)
    slots = np.zeros(n, np.int64)
    used = 0
    for i in range(n):
        s = begin[i]
        carried = np.int64(-2)  # nothing yet
        chunk = 0
        while chunk * _CHUNK <= used:
            first = chunk * _CHUNK
            if least[chunk] <= s and most[chunk] > carried:
                changed = False
                for k in range(first, min(first + _CHUNK, used + 1)):
                    v = freed[k]
                    if v <= s and v > carried:
                        if carried == -2:
                            slots[i] = k + 1
                            freed[k] = end[i]
                            if k == used:
                                used += 1
                        else:
                            freed[k] = carried
                        carried = v
                        changed = True
                if changed:
                    low, high = freed[first], freed[first]
                    for k in range(first + 1, min(first + _CHUNK, n + 1)):
                        low, high = min(low, freed[k]), max(high, freed[k])
                    least[chunk], most[chunk] = low, high
            if carried == -1:
                break  # an untouched slot was displaced: nothing deeper is in use
            chunk += 1
    return slots
