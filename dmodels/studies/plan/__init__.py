"""What to deploy for a model, a trace and SLOs: the study behind `dmodels plan`, `report` and `explore`."""

from __future__ import annotations

from .deployment import Deployment, Pool
from .designs import Layout
from .launch import command
from .questions import Question, check, question
from .rescale import with_lengths
from .search import GROWTH, Plan, Priced, plan, price
from .sensitivities import Change, sensitivity

__all__ = [
    "GROWTH",
    "Change",
    "Deployment",
    "Layout",
    "Plan",
    "Pool",
    "Priced",
    "Question",
    "check",
    "command",
    "plan",
    "price",
    "question",
    "sensitivity",
    "with_lengths",
]
