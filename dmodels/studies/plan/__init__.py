"""What to deploy for a model, a trace and SLOs: the study behind `dmodels plan`, `report` and `explore`."""

from __future__ import annotations

from .deployment import Deployment, Pool
from .designs import Kind, Layout, Precision, Role
from .launch import command, server, serving
from .limits import Limits
from .machines import recording
from .margins import Margins
from .promises import Ensured, Promise, Replayed, Verified
from .questions import Question, check, question
from .replaying import replay
from .rescale import with_lengths
from .search import GROWTH, Plan, by_formula
from .sensitivities import Change, sensitivity
from .sizing import Priced, price
from .solve import plan, verify

__all__ = [
    "GROWTH",
    "Change",
    "Deployment",
    "Ensured",
    "Kind",
    "Layout",
    "Limits",
    "Margins",
    "Plan",
    "Pool",
    "Precision",
    "Priced",
    "Promise",
    "Question",
    "Replayed",
    "Role",
    "Verified",
    "by_formula",
    "check",
    "command",
    "plan",
    "price",
    "question",
    "recording",
    "replay",
    "sensitivity",
    "server",
    "serving",
    "verify",
    "with_lengths",
]
