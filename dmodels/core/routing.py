"""Routing policies: one name each, and the rules that simulators, games and live routers share."""

from __future__ import annotations

from enum import StrEnum

from .compiled import kernel

#: A load from which on an instance takes no requests.
CLOSED = 1 << 40


class RoutingPolicy(StrEnum):
    """How a router picks an instance; the value is the name that users read. `number` is for compiled loops."""

    ROUND_ROBIN = "round robin"
    RANDOM = "random"
    POWER_OF_TWO = "power of two"  # the less loaded of two drawn at random
    SHORTEST_QUEUE = "shortest queue"
    LOAD = "least delay"  # queueing delay plus first decode step
    CACHE = "cache affine"  # longest prefix hit, load breaks ties
    CACHE_LOAD = "cache and load"  # weighted sum of miss and load (NetKV's CLA*)
    DYNAMO = "dynamo"  # load plus omega per block that is not cached
    MARGINAL_COST = "marginal cost"  # what the request adds to the cost of all
    NETKV_TOPO = "NetKV, topology"  # post-prefill latency on static tier bandwidths
    NETKV_STATIC = "NetKV, static"  # ... and the transfers in flight
    NETKV_FULL = "NetKV, full"  # ... and the congestion that the operator reports
    PROMPTS = "least prompt tokens"  # to compute before its own prompt and for it (Mooncake's Conductor, least TTFT)
    FREENESS = "freeness"  # most free KV memory per request that is there (Llumnix' dispatch)

    @property
    def number(self) -> int:
        return list(RoutingPolicy).index(self)


@kernel
def at_random(loads, low, size, draw):
    """The instance of low..low+size-1 that `draw` in [0, 1) names, or the next one that takes requests; -1: none."""
    first = min(size - 1, int(draw * size))
    for k in range(size):
        j = low + (first + k) % size
        if loads[j] < CLOSED:
            return j
    return -1


@kernel
def power_of_two(loads, low, size, draw, other_draw):
    """The less loaded of two different instances at random, of equals the first drawn; -1 where none takes requests."""
    first = at_random(loads, low, size, draw)
    if first < 0 or size == 1:
        return first
    # the second among the others; a closed one hands on to the next, as the first does
    step = 1 + min(size - 2, int(other_draw * (size - 1)))
    for _ in range(size - 1):
        second = low + (first - low + step) % size
        if loads[second] < CLOSED:
            return second if loads[second] < loads[first] else first
        step = step + 1 if step < size - 1 else 1
    return first
