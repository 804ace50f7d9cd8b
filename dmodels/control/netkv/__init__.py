"""NetKV: the decode worker chosen by the cost of moving the KV cache to it.

`dmodels transfer` and the network simulator use `policy`; `router` is for a live gateway; `joint` (a whole burst at
once, as a bound on what greedy choices miss) is used by the ledger.
"""

from __future__ import annotations

from .joint import Burst, burst_cost_s, joint_assignment
from .policy import Choice, Oracle, Policy, Pool, TransferIntent, choose, costs, dispatch, oracle_problems
from .router import Candidate, Decision, InFlight, Tier, score, select

__all__ = [
    "Burst",
    "Candidate",
    "Choice",
    "Decision",
    "InFlight",
    "Oracle",
    "Policy",
    "Pool",
    "Tier",
    "TransferIntent",
    "burst_cost_s",
    "choose",
    "costs",
    "dispatch",
    "joint_assignment",
    "oracle_problems",
    "score",
    "select",
]
