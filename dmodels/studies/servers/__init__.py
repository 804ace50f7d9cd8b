"""Servers under their engines' schedulers: played on traffic, and compared with the log of a real one."""

from __future__ import annotations

from .comparison import Compared, Metric, StraightLaw, compare
from .playing import Played, PoolOf, SimulatedServer, SplitServers, play, server
from .saved_plan import of_plan, read_plan

__all__ = [
    "Compared",
    "Metric",
    "Played",
    "PoolOf",
    "SimulatedServer",
    "SplitServers",
    "StraightLaw",
    "compare",
    "of_plan",
    "play",
    "read_plan",
    "server",
]
