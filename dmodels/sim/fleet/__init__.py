"""Pools of instances behind a router, request by request, with failures, changes of size and prefix caches.

`simulate` serves a list of requests, `closed_loop` clients that wait for their answers; `start`, `advance` and
`answers` run the same fleet in steps, for a controller that looks in between.
"""

from __future__ import annotations

from dmodels.core.routing import RoutingPolicy

from .records import Change, Event, Pool, Prefixes
from .routing import POLICIES
from .simulation import advance, answers, by_pool, simulate, start
from .state import Simulation

__all__ = [
    "POLICIES",
    "Change",
    "Event",
    "Pool",
    "Prefixes",
    "RoutingPolicy",
    "Simulation",
    "advance",
    "answers",
    "by_pool",
    "simulate",
    "start",
]
