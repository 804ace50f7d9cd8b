"""NetKV's Table I by experiment: which signals move the choice of the policy that stands for a system.

Two instances alike in everything but one signal, which then favours the other: a policy looks at the signal if its
choice follows. Systems without a policy here have no mark of ours.
"""

from __future__ import annotations

import numpy as np

from dmodels.control.netkv import DecodePool, Oracle, choose
from dmodels.core.routing import RoutingPolicy

#: System of Table I -> the policy that stands for it.
STAND_INS = {
    "mooncake": RoutingPolicy.CACHE_LOAD,
    "llmd_dynamo": RoutingPolicy.CACHE_LOAD,
    "netkv": RoutingPolicy.NETKV_FULL,
}


def follows(policy: RoutingPolicy, signal: str) -> bool:
    """True if the choice goes to the instance that the signal favours, whichever of the two it is."""
    chosen = []
    for favoured in range(2):
        hit, tier, congestion = np.full(2, 0.2), np.array([[0, 1]]), np.zeros(2)
        if signal == "cache":
            hit[favoured] = 0.8
        elif signal == "tier":  # one of the tiers has four times the bandwidth
            tier = np.array([[favoured != 0, favoured != 1]]).astype(int)
        else:
            congestion[1 - favoured] = 0.9
        speed = np.array([4e9, 1e9]) if signal == "tier" else np.full(2, 4e9)
        oracle = Oracle(tier, speed, np.zeros(2), congestion)
        pool = DecodePool(np.full(2, 1e12), np.zeros(2), np.full(2, 8.0))
        chosen.append(int(choose(policy, oracle, [0], [1e9], hit, pool).index[0]))
    return chosen == [0, 1]


def marks() -> dict[str, float]:
    """1 for each mark of Table I that a stand-in earns, 0 where it does not: cache, network."""
    out = {}
    for system, policy in STAND_INS.items():
        out[f"{system}_cache"] = float(follows(policy, "cache"))
        out[f"{system}_network"] = float(follows(policy, "tier") and follows(policy, "congestion"))
    return out
