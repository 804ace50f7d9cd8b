"""Planners that move GPUs between prefill and decode, run in a loop and judged for stability.

`dmodels split` uses `planners` and `loop`; `stability` (step limits and cycles) is used by the ledger.
"""

from __future__ import annotations

from .loop import Course, Pools, Score, run, score
from .planners import (
    Cost,
    Observation,
    Planner,
    PlannerState,
    Pressure,
    anarchy_driven,
    best_response,
    planner,
    reactive,
    sla_target,
)
from .stability import limit, measured_cycle, radius, relay_cycle

__all__ = [
    "Cost",
    "Course",
    "Observation",
    "Planner",
    "PlannerState",
    "Pools",
    "Pressure",
    "Score",
    "anarchy_driven",
    "best_response",
    "limit",
    "measured_cycle",
    "planner",
    "radius",
    "reactive",
    "relay_cycle",
    "run",
    "score",
    "sla_target",
]
