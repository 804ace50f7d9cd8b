"""What to deploy for a model, a trace and SLOs: the study behind `dmodels plan`, `report` and `explore`."""

from __future__ import annotations

from dmodels.core.precision import Precision

from .classes import Apart, RequestClass, plan_apart, tightest, with_others
from .deployment import Deployment, Pool
from .designs import Kind, Layout, Role, Stretch
from .launch import command, server, serving
from .limits import Limits
from .machines import recording
from .margins import Margins
from .promises import Ensured, Promise, Replayed, Verified
from .questions import Question, check, question
from .regions import Region, Regional, in_cheapest_region, plan_regions
from .replaying import replay
from .rescale import with_lengths, with_prefix_hits
from .reverse import TARGETS, Solved, at_limit, solved
from .search import GROWTH, Plan, by_formula
from .sensitivities import Change, sensitivity
from .sizing import Priced, price
from .solve import plan, verify
from .suggestions import Suggestion, suggestions
from .tail import Tail, costly, long_tailed, tails

__all__ = [
    "GROWTH",
    "TARGETS",
    "Apart",
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
    "Region",
    "Regional",
    "Replayed",
    "RequestClass",
    "Role",
    "Solved",
    "Stretch",
    "Suggestion",
    "Tail",
    "Verified",
    "at_limit",
    "by_formula",
    "check",
    "command",
    "costly",
    "in_cheapest_region",
    "long_tailed",
    "plan",
    "plan_apart",
    "plan_regions",
    "price",
    "question",
    "recording",
    "replay",
    "sensitivity",
    "server",
    "serving",
    "solved",
    "suggestions",
    "tails",
    "tightest",
    "verify",
    "with_lengths",
    "with_others",
    "with_prefix_hits",
]
