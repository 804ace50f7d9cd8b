"""Regions, each with GPUs and prices of its own: the one that serves everything cheapest, or the traffic over several.

A fleet lies in one region: prefill and decode share a fabric, and a router its queue. Where no region has the GPUs for
all of the traffic, it is divided: regions are filled to the rate that they can serve, the cheapest per request first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dmodels import catalog
from dmodels.core.answers import Answer
from dmodels.core.errors import InputError

from .parts import PartPlan
from .questions import Question
from .reverse import at_limit
from .search import by_formula

#: A share of the traffic that is lost in rounding rates, and not looked for.
_LOST = 2e-3


@dataclass(frozen=True)
class Region(Answer):
    """What there is in one place."""

    name: str
    inventory: Mapping[str, float]  # GPU type -> how many there are
    price_usd_per_hour: Mapping[str, float] = field(default_factory=dict)  # of one GPU, where it is not as elsewhere


@dataclass(frozen=True)
class Site(PartPlan):
    """What one region serves, and with what."""

    region: str


@dataclass(frozen=True)
class Regional(Answer):
    """The regions, each serving everything alone, and several of them together where none does."""

    derived = ("served_frac", "usd_per_hour", "fits")
    alone: tuple[Site, ...]  # cheapest first
    together: tuple[Site, ...]  # empty where one is enough

    @property
    def served_frac(self) -> float:
        """Share of the traffic that is served."""
        return 1.0 if not self.together else min(1.0, sum(site.share_frac for site in self.together))

    @property
    def usd_per_hour(self) -> float:
        """Of the cheapest region that serves everything, or of all that are needed."""
        return sum(site.usd_per_hour for site in self.together) if self.together else self.alone[0].usd_per_hour

    @property
    def fits(self) -> bool:
        """Whether everything is served."""
        return self.served_frac > 1.0 - _LOST


def in_region(asked: Question, region: Region) -> Question:
    """The question where only this region's GPUs can be bought, at its prices."""
    if not region.inventory:
        raise InputError(f"region {region.name}: names no GPUs; accepted are types with how many there are")
    there = {_known(gpu, asked, region): float(count) for gpu, count in region.inventory.items()}
    prices = {_known(gpu, asked, region): price for gpu, price in region.price_usd_per_hour.items()}
    gpus = {
        name: gpu.replace(price_usd_per_hour=prices[name]) if name in prices else gpu
        for name, gpu in asked.gpus.items()
        if name in there
    }
    return replace(asked, gpus=gpus, inventory=there)


def _known(gpu: str, asked: Question, region: Region) -> str:
    """The name of a type as the question has it."""
    name = gpu if gpu in asked.gpus else catalog.gpu_facts(gpu)["name"]
    if name not in asked.gpus:
        raise InputError(f"region {region.name}: {name}: accepted are the types asked about, {', '.join(asked.gpus)}")
    return str(name)


def in_cheapest_region(asked: Question, regions: Sequence[Region]) -> Question:
    """The question in the region that `plan_regions` puts first."""
    return _alone(asked, regions)[0].plan.question


def plan_regions(asked: Question, regions: Sequence[Region]) -> Regional:
    """Each region's fleet for all of the traffic, and where none has one, fleets in several; by the closed forms."""
    alone = _alone(asked, regions)
    return Regional(alone, () if alone[0].best is not None else _together(asked, regions))


def _alone(asked: Question, regions: Sequence[Region]) -> tuple[Site, ...]:
    """Each region with a fleet for everything, the cheapest first."""
    names = [region.name for region in regions]
    if not names or len(set(names)) < len(names):
        raise InputError(f"regions {', '.join(names)}: accepted are regions, each once")
    sites = [Site(1.0, by_formula(in_region(asked, region)), region.name) for region in regions]
    return tuple(sorted(sites, key=lambda site: site.usd_per_hour))


def _together(asked: Question, regions: Sequence[Region]) -> tuple[Site, ...]:
    """Regions filled one after another, the cheapest per request first."""
    full = []
    for region in regions:
        question = at_limit(in_region(asked, region), "rate", ensure=False)
        answer = by_formula(question)
        if answer.best is not None:
            full.append((answer.best.usd_per_hour / question.rate_rps, region, question.rate_rps, answer))
    left, sites = asked.rate_rps, []
    for _, region, rate_rps, answer in sorted(full, key=lambda one: one[0]):
        if left <= _LOST * asked.rate_rps:
            break
        if rate_rps > left:  # the last one serves what is left
            own = in_region(asked, region)
            rate_rps, answer = left, by_formula(replace(own, workload=own.workload.at_rate(left)))
        sites.append(Site(rate_rps / asked.rate_rps, answer, region.name))
        left -= rate_rps
    return tuple(sites)
