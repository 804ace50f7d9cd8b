"""Servers under their engines' schedulers: played on traffic, and compared with the log of a real one."""

from __future__ import annotations

from .comparison import Compared, Metric, StraightLaw, compare
from .playing import Played, PoolOf, SimulatedServer, SplitServers, hosted_server, play, server
from .priorities import Kept, Together, plan_together
from .saved_plan import of_plan, read_plan

__all__ = [
    "Compared",
    "Kept",
    "Metric",
    "Played",
    "PoolOf",
    "SimulatedServer",
    "SplitServers",
    "StraightLaw",
    "Together",
    "compare",
    "hosted_server",
    "of_plan",
    "plan_together",
    "play",
    "read_plan",
    "server",
]
