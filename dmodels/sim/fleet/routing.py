"""Who gets the next request: routing policies, compiled, over the fleet's state."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import NONE, UNCOUNTED, kernel
from dmodels.core.errors import InputError
from dmodels.core.routing import CLOSED, RoutingPolicy, at_random, power_of_two

from .state import Router, recall

#: What a fleet's router can do.
POLICIES = (
    RoutingPolicy.ROUND_ROBIN,
    RoutingPolicy.RANDOM,
    RoutingPolicy.POWER_OF_TWO,
    RoutingPolicy.SHORTEST_QUEUE,
    RoutingPolicy.DYNAMO,
    RoutingPolicy.PROMPTS,
)
ROUND_ROBIN, RANDOM, POWER_OF_TWO, SHORTEST_QUEUE, DYNAMO, PROMPTS = (policy.number for policy in POLICIES)
#: Policies that look at no load, and those that draw random numbers.
BLIND = (RoutingPolicy.ROUND_ROBIN, RoutingPolicy.RANDOM)
GAMBLING = (RoutingPolicy.RANDOM, RoutingPolicy.POWER_OF_TWO)


@kernel(**UNCOUNTED)
def choose_pool(f, router, i):
    """The first pool whose context holds the request as the router estimates it; if more than `spill_queue` requests
    an instance wait there, a later pool where fewer do. -1: no pool holds it."""
    target = 0
    while target < f.pools.size and f.requests[i].route_tokens > f.pools[target].limit:
        target += 1
    if target == f.pools.size:
        return NONE
    share = f.pools[target].backlog / f.pools[target].size
    if share > router.spill_queue:
        for p in range(target + 1, f.pools.size):
            other = f.pools[p].backlog / f.pools[p].size
            if other <= router.spill_queue and other < share:
                return p
    return target


@kernel(**UNCOUNTED)
def choose(f, router, p, i):
    """An instance of pool p for request i, or -1 where none takes requests."""
    pool, request, policy = f.pools[p], f.requests[i], router.policy
    low, size = pool.start, pool.size
    if policy == ROUND_ROBIN:
        for _ in range(size):
            j = low + pool.turn % size
            pool.turn += 1
            if f.loads[j] < CLOSED:
                return j
        return NONE
    if policy == RANDOM:
        return at_random(f.loads, low, size, request.draw)
    if policy == POWER_OF_TWO:
        return power_of_two(f.loads, low, size, request.draw, request.draw2)
    begin = low + pool.turn % size
    best = NONE
    if policy == SHORTEST_QUEUE:
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
            hits = request.prefix_tokens if recall(f, j, request.prefix) >= 0 else 0
            if policy == PROMPTS:
                score = float(f.instances[j].prompts + request.prompt - max(request.cached, hits))
            else:
                score = float(f.loads[j]) - router.cache_weight * hits / request.prompt
            if score < cheapest:
                best, cheapest = j, score
    if best >= 0:
        pool.turn = best - low + 1
    return best


def router_of(policy: RoutingPolicy, cache_weight: float, spill_queue: float) -> Router:
    """A `Router` of a policy that fleets know; DYNAMO's omega is `cache_weight`, in requests."""
    if policy not in POLICIES:
        raise InputError(f"policy {policy!r}; accepted are {', '.join(POLICIES)}")
    return Router(RoutingPolicy(policy).number, float(cache_weight), float(spill_queue))
