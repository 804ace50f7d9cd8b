"""Phasor: routing by virtual freeness, with migration between prefill and decode and defragmentation.

The cluster simulator uses `policy`, `flow` and `defrag`; `router` is for a live gateway; `baselines` (the policies that
the paper compares with) is used by the ledger.
"""

from __future__ import annotations

from .policy import State, Workers, freeness, init, route, update, workers
from .router import PhasorRouter

__all__ = [
    "PhasorRouter",
    "State",
    "Workers",
    "freeness",
    "init",
    "route",
    "update",
    "workers",
]
