"""The answer where no one fleet is it: a fleet for each class of requests or region, or one for all by priority."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dmodels.core.units import HOURS_PER_YEAR, counted
from dmodels.studies.plan import Apart, Plan, Regional, command
from dmodels.studies.plan.parts import PartPlan

from .plan_tables import classes_table, regions_table, together_table
from .plan_words import load, per_year
from .text import Table

if TYPE_CHECKING:
    from dmodels.studies.servers import Together


class Parted(NamedTuple):
    """What keeps the SLOs although no one fleet keeps the tightest of them for all requests."""

    how: str
    gpus: int
    usd_per_hour: float
    table: Table
    fleets: Mapping[str, PartPlan]

    @property
    def card(self) -> Table:
        """The answer as a few numbers."""
        month = f"{self.usd_per_hour * HOURS_PER_YEAR / 12.0:,.0f}"
        return "In short", ["GPUs", "USD a month", "as"], [[self.gpus, month, self.how]]

    @property
    def launches(self) -> list[str]:
        """How to start each fleet."""
        lines = []
        for name, part in self.fleets.items():
            for pool in part.best.pools if part.best is not None else ():
                lines += [f"# {name}, {pool.stage.name}: {pool.instances} x", command(pool, part.plan.question)]
        return lines

    def sentence(self, answer: Plan) -> str:
        """What to deploy."""
        cost = f"${self.usd_per_hour:,.2f}/h, {per_year(self.usd_per_hour * HOURS_PER_YEAR)}"
        return f"Deploy {counted(self.gpus, 'GPU')} as {self.how} for {load(answer)}: {cost}."


def parted(
    answer: Plan, apart: Apart | None = None, together: Together | None = None, regions: Regional | None = None
) -> Parted | None:
    """The cheapest of what was tried beside one fleet; None: one fleet is the answer, or nothing is."""
    if answer.best is not None:
        return None
    found = []
    if together is not None and together.holds:
        usd = together.usd_per_hour
        found.append(Parted("one fleet by priority", together.gpus, usd, together_table(together), {}))
    if apart is not None and apart.fits and apart.gpus is not None:
        fleets = {share.requests.name: share for share in apart.shares}
        how = "a fleet for each class of requests"
        found.append(Parted(how, apart.gpus, apart.usd_per_hour, classes_table(apart), fleets))
    if regions is not None and regions.together and regions.fits:
        sites = {site.region: site for site in regions.together}
        gpus = sum(site.best.bought_gpus for site in regions.together if site.best is not None)
        found.append(Parted("fleets in several regions", gpus, regions.usd_per_hour, regions_table(regions), sites))
    return min(found, key=lambda one: one.usd_per_hour, default=None)
