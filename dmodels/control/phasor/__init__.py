"""Phasor: routing by virtual freeness, with migration between prefill and decode and defragmentation.

The cluster simulator uses `policy`, `flow` and `defrag`; `router` is for a live gateway.
"""

from __future__ import annotations

from .policy import WorkerLoads, Workers, freeness, init, route, update, workers
from .router import PhasorRouter

__all__ = [
    "PhasorRouter",
    "WorkerLoads",
    "Workers",
    "freeness",
    "init",
    "route",
    "update",
    "workers",
]
