"""NetKV's Table I by experiment: which signals move the choice of the policy that stands for a system.

Two instances alike in everything but one signal, which then favours the other: a policy looks at the signal if its
choice follows. It decides for each request if the second of two equal ones goes where the first did not. Systems
without a policy here have no mark of ours.

GORGO takes the least of a region's round trip, its queue, and the seconds of prefill that a request's own misses take:
NetKV's cost with regions as tiers, round trips as latencies and prefill's bytes of cache a second as bandwidth.
"""

from __future__ import annotations

import numpy as np

from dmodels.control.netkv import DecodePool, Oracle, choose, dispatch
from dmodels.core.routing import RoutingPolicy

#: System of Table I -> the policy that stands for it, and the signals that make up its network.
STAND_INS = {
    "distserve": (RoutingPolicy.LOAD, ("tier", "congestion")),
    "mooncake": (RoutingPolicy.CACHE_LOAD, ("tier", "congestion")),
    "llmd_dynamo": (RoutingPolicy.CACHE_LOAD, ("tier", "congestion")),
    "gorgo": (RoutingPolicy.NETKV_TOPO, ("region",)),
    "netkv": (RoutingPolicy.NETKV_FULL, ("tier", "congestion")),
}


def scene(signal: str = "", favoured: int = 0) -> tuple[Oracle, np.ndarray, DecodePool]:
    """Two idle instances of which `signal` favours one: what the operator tells, prefix hits, and their state."""
    hit, tier, congestion = np.full(2, 0.2), np.array([[0, 1]]), np.zeros(2)
    speed, latency_s = np.full(2, 4e9), np.zeros(2)
    if signal == "cache":
        hit[favoured] = 0.8
    elif signal in ("tier", "region"):  # one of the tiers has four times the bandwidth, or no distance
        tier = np.array([[favoured != 0, favoured != 1]]).astype(int)
        speed[1], latency_s[1] = (1e9, 0.0) if signal == "tier" else (4e9, 0.1)
    elif signal == "congestion":
        congestion[1 - favoured] = 0.9
    pool = DecodePool(np.full(2, 1e12), np.zeros(2), np.full(2, 8.0))
    return Oracle(tier, speed, latency_s, congestion), hit, pool


def follows(policy: RoutingPolicy, signal: str) -> bool:
    """True if the choice goes to the instance that the signal favours, whichever of the two it is."""
    chosen = []
    for favoured in range(2):
        oracle, hit, pool = scene(signal, favoured)
        chosen.append(int(choose(policy, oracle, [0], [1e9], hit, pool).index[0]))
    return chosen == [0, 1]


def decides_per_request(policy: RoutingPolicy) -> bool:
    """True if the second of two equal requests goes to the instance that the first did not take."""
    oracle, hit, pool = scene()
    chosen, *_ = dispatch(policy, oracle, [0, 0], [1e9, 1e9], hit, pool)
    return len(set(chosen.index.tolist())) == 2


def marks() -> dict[str, float]:
    """1 for each mark of Table I that a stand-in earns, 0 where it does not: cache, network, per request."""
    out = {}
    for system, (policy, network) in STAND_INS.items():
        out[f"{system}_cache"] = float(follows(policy, "cache"))
        out[f"{system}_network"] = float(all(follows(policy, signal) for signal in network))
        out[f"{system}_per_request"] = float(decides_per_request(policy))
    return out
