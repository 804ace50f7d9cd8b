"""What to deploy for a model, a trace and SLOs: the study behind `dmodels plan`, `report` and `explore`."""

from __future__ import annotations

from .deployment import Deployment, Pool
from .designs import Kind, Layout, Precision, Role
from .launch import command, server, serving
from .questions import Question, check, question
from .rescale import with_lengths
from .search import GROWTH, Plan, plan
from .sensitivities import Change, sensitivity
from .sizing import Priced, price

__all__ = [
    "GROWTH",
    "Change",
    "Deployment",
    "Kind",
    "Layout",
    "Plan",
    "Pool",
    "Precision",
    "Priced",
    "Question",
    "Role",
    "check",
    "command",
    "plan",
    "price",
    "question",
    "sensitivity",
    "server",
    "serving",
    "with_lengths",
]
