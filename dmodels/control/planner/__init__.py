"""Planners that move GPUs between prefill and decode, run in a loop; `dmodels split` uses them."""

from __future__ import annotations

from .loop import Course, Score, TandemPools, run, score
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

__all__ = [
    "Cost",
    "Course",
    "Observation",
    "Planner",
    "PlannerState",
    "Pressure",
    "Score",
    "TandemPools",
    "anarchy_driven",
    "best_response",
    "planner",
    "reactive",
    "run",
    "score",
    "sla_target",
]
