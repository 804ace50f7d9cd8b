"""Who gets the next request: routing policies, compiled, over the fleet's state."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from .compiled import kernel
from .fleet_state import recall


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
            if f.instances[j].open:
                return j
        return -1
    if policy == 1 or policy == 2:
        first = _at_random(f, low, size, request.draw)
        if policy == 1 or first < 0:
            return first
        second = _at_random(f, low, size, request.draw2)
        return first if _load(f, first) <= _load(f, second) else second
    best, least = -1, np.inf
    begin = pool.turn % size
    for k in range(size):
        j = low + (k + begin if k + begin < size else k + begin - size)
        if not f.instances[j].open:
            continue
        score = float(_load(f, j))
        if policy == 4 and recall(f, j, request.prefix) >= 0:
            score -= weight * request.prefix_tokens / request.prompt
        if score < least:
            best, least = j, score
            if score == 0.0 and policy == 3:
                break
    if best >= 0:
        pool.turn = best - low + 1
    return best


@kernel
def _load(f, j):
    return f.instances[j].in_flight + f.instances[j].waiting


@kernel
def _at_random(f, low, size, draw):
    """An open instance at random: the draw's, or the next open one after it."""
    first = min(size - 1, np.int64(draw * size))
    for k in range(size):
        j = low + (first + k) % size
        if f.instances[j].open:
            return j
    return -1
