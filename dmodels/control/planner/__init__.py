"""Planners that move GPUs between prefill and decode, run in a loop (`dmodels split` uses them); planners that buy what
a forecast needs, and the predictors that make it."""

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
from .predictors import Predictor, arima, constant, forecasts, kalman, seasonal
from .scaling import ScalingCourse, scale

__all__ = [
    "Cost",
    "Course",
    "Observation",
    "Planner",
    "PlannerState",
    "Predictor",
    "Pressure",
    "ScalingCourse",
    "Score",
    "TandemPools",
    "anarchy_driven",
    "arima",
    "best_response",
    "constant",
    "forecasts",
    "kalman",
    "planner",
    "reactive",
    "run",
    "scale",
    "score",
    "seasonal",
    "sla_target",
]
