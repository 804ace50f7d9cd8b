"""The compiled loop of eviction policies: one cache, request by request, with exact frequencies."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from dmodels.core.compiled import kernel

LRU, LFU, KVBM = 0, 1, 2

#: Frequencies stop doubling here: an unsigned 32-bit counter.
MOST = 2**32 - 1


@kernel
def replay(blocks, starts, steps, count, capacity, rule, threshold, forget):
    """(hit, gone): whether each access hits, and at a miss the request at whose end the block was let go (-1: new).

    A request looks all its blocks up, then updates their frequencies, then stores those that were missing, head
    first: a block enters while there is room, and over the capacity only with a frequency of at least `threshold`.
    What is too much leaves in order of (frequency, last use), blocks of earlier requests before the request's own;
    those go from the tail. `steps` (requests,) is the number of decay steps up to each request. `forget`: a block
    that leaves starts anew with frequency 1; otherwise frequencies outlive their stay, until they decay to 0.

    A decay step lowers every frequency by one, so what is kept is frequency plus steps, which no step changes; blocks
    at 0 (at most `steps`) have no order but that of their last use, and move to a heap of their own.
    """
    n = len(blocks)
    hit = np.zeros(n, np.bool_)
    gone = np.full(n, -1, np.int64)
    left = np.full(count, -1, np.int64)
    level = np.zeros(count, np.int64)  # frequency plus the decay steps at its last update
    known = np.zeros(count, np.bool_)
    held = np.zeros(count, np.bool_)
    stamp = np.full(count, -1, np.int64)  # order of the block's last update; older entries in the heaps are void
    owner = np.full(count, -1, np.int64)  # request of its last use
    live = [(np.int64(0), np.int64(-1), np.int64(0))]
    idle = [(np.int64(-1), np.int64(0))]
    clock = 0
    size = 0
    for r in range(len(starts) - 1):
        now = steps[r]
        for j in range(starts[r], starts[r + 1]):
            b = blocks[j]
            hit[j] = held[b]
            if not held[b]:
                gone[j] = left[b]
        for j in range(starts[r], starts[r + 1]):
            b = blocks[j]
            if owner[b] == r:
                continue
            owner[b] = r
            stamp[b] = -2 - j  # its place; entries in the heaps are void: own blocks do not leave by frequency
            f = max(level[b] - now, 0) if known[b] else 0
            if f == 0:
                f = 1
            elif rule == KVBM:
                f = min(2 * f, MOST)
            elif rule == LFU:
                f += 1
            known[b] = True
            level[b] = f + now if rule != LRU else 0
            if not held[b] and (size < capacity or f >= threshold):
                held[b] = True
                size += 1
        while size > capacity:  # blocks of earlier requests
            while len(live) > 0 and live[0][0] <= now:
                _, s, b = heappop(live)
                if held[b] and stamp[b] == s:
                    heappush(idle, (s, b))
            if len(idle) > 0:
                s, b = heappop(idle)
            elif len(live) > 0:
                _, s, b = heappop(live)
            else:
                break
            if held[b] and stamp[b] == s:
                held[b] = False
                left[b] = r
                size -= 1
                if forget:
                    known[b] = False
        for j in range(starts[r + 1] - 1, starts[r] - 1, -1):
            b = blocks[j]
            if stamp[b] != -2 - j:
                continue  # it stands nearer to the head too
            clock += 1
            stamp[b] = clock
            if held[b] and size > capacity:
                held[b] = False
                size -= 1
            if held[b]:
                heappush(live, (level[b], stamp[b], b))
            else:
                left[b] = r
                if forget:
                    known[b] = False
    return hit, gone
