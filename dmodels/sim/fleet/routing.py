"""Who gets the next request: routing policies, compiled, over the fleet's state."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from dmodels.core.compiled import kernel

from .state import CLOSED, recall


class Policy(IntEnum):
    """How a router picks an instance within a pool.

    ROUND_ROBIN   in turn
    RANDOM        at random
    POWER_OF_TWO  the less loaded of two at random
    JSQ           the one with the fewest requests (waiting and in flight), ties in turn
    CACHE_AWARE   the least of requests - weight x (share of the prompt that its cache holds)
    """

    ROUND_ROBIN = 0
    RANDOM = 1
    POWER_OF_TWO = 2
    JSQ = 3
    CACHE_AWARE = 4


@kernel
def choose_pool(f, i, spill_queue):
    """The first pool whose context holds the request as the router estimates it; if more than `spill_queue` requests an
    instance wait there, a later pool where fewer do. -1: no pool holds it."""
    target = 0
    while target < f.pools.size and f.requests[i].route_tokens > f.pools[target].limit:
        target += 1
    if target == f.pools.size:
        return -1
    share = f.pools[target].backlog / f.pools[target].size
    if share > spill_queue:
        for p in range(target + 1, f.pools.size):
            other = f.pools[p].backlog / f.pools[p].size
            if other <= spill_queue and other < share:
                return p
    return target


@kernel
def choose(f, policy, weight, p, i):
    """An instance of pool p for request i, or -1 where none takes requests."""
    pool, request = f.pools[p], f.requests[i]
    low, size = pool.start, pool.size
    if policy == 0:
        for _ in range(size):
            j = low + pool.turn % size
            pool.turn += 1
            if f.loads[j] < CLOSED:
                return j
        return -1
    if policy == 1 or policy == 2:
        first = _at_random(f, low, size, request.draw)
        if policy == 1 or first < 0:
            return first
        second = _at_random(f, low, size, request.draw2)
        return first if f.loads[first] <= f.loads[second] else second
    begin = low + pool.turn % size
    best = -1
    if policy == 3:
        least = np.int64(CLOSED)
        for j in range(low, low + size):  # a plain minimum, so that it compiles to vector code
            least = min(least, f.loads[j])
        if least < CLOSED:
            best = begin
            while f.loads[best] != least:
                best = best + 1 if best + 1 < low + size else low
    else:
        cheapest = np.inf
        for k in range(size):
            j = begin + k if begin + k < low + size else begin + k - size
            if f.loads[j] >= CLOSED:
                continue
            score = float(f.loads[j])
            if recall(f, j, request.prefix) >= 0:
                score -= weight * request.prefix_tokens / request.prompt
            if score < cheapest:
                best, cheapest = j, score
    if best >= 0:
        pool.turn = best - low + 1
    return best


@kernel
def _at_random(f, low, size, draw):
    """An open instance at random: the draw's, or the next open one after it."""
    first = min(size - 1, np.int64(draw * size))
    for k in range(size):
        j = low + (first + k) % size
        if f.loads[j] < CLOSED:
            return j
    return -1
