"""The plan of a part of the traffic: of a class of requests, or of a region."""

from __future__ import annotations

from dataclasses import dataclass

from dmodels.core.answers import Answer

from .deployment import Deployment
from .search import Plan


@dataclass(frozen=True)
class PartPlan(Answer):
    """A part of the requests, and its own fleet."""

    derived = ("best", "usd_per_hour", "keeps_slos_probability")
    internal = ("plan",)
    share_frac: float  # of the requests
    plan: Plan

    @property
    def best(self) -> Deployment | None:
        """What to deploy for it; None: nothing meets its SLOs."""
        return self.plan.best

    @property
    def usd_per_hour(self) -> float:
        """Of its fleet; inf: there is none."""
        return float("inf") if self.best is None else self.best.usd_per_hour

    @property
    def keeps_slos_probability(self) -> float | None:
        """That its fleet keeps its SLOs under the model's error (0: below 0.5); None: there is no fleet."""
        return None if self.best is None else self.plan.sure_frac
