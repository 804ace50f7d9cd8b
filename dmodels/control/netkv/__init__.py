"""NetKV: the decode worker chosen by the cost of moving the KV cache to it.

`dmodels transfer` and the network simulator use `policy`; `router` is for a live gateway; `joint` (a whole burst at
once, as a bound on what greedy choices miss) is used by the ledger. `kernels` has the cost, once.
"""

from __future__ import annotations

from .joint import Burst, burst_cost_s, joint_assignment
from .policy import POLICIES, choose, costs, dispatch, oracle_problems
from .records import Choice, DecodePool, Oracle, Requests, Scoring, TransferIntent
from .router import NetKVRouter

__all__ = [
    "POLICIES",
    "Burst",
    "Choice",
    "DecodePool",
    "NetKVRouter",
    "Oracle",
    "Requests",
    "Scoring",
    "TransferIntent",
    "burst_cost_s",
    "choose",
    "costs",
    "dispatch",
    "joint_assignment",
    "oracle_problems",
]
