"""One fleet for all classes of requests, each kept to its own SLOs, under vLLM's scheduler with their priorities.

What a priority changes: who waits is admitted by it, and who gives way where memory is short. A prompt that was begun
is computed to its end first, so that a long one still holds up all others on its instance, however important.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.hardware import SLO
from dmodels.core.records import float64
from dmodels.fit.kernels import Hosted
from dmodels.sim.recordings import Recording, takes
from dmodels.sim.requests import Served
from dmodels.studies.plan.classes import RequestClass, which
from dmodels.studies.plan.designs import Kind, Layout
from dmodels.studies.plan.ensure import smallest
from dmodels.studies.plan.layouts import in_precision
from dmodels.studies.plan.machines import recording
from dmodels.studies.plan.questions import Question
from dmodels.studies.plan.replaying import broken, quantile, values
from dmodels.studies.plan.search import by_formula
from dmodels.studies.plan.sizing import Priced

from .playing import SimulatedServer, hosted_server

#: Requests that are replayed at most, and layouts that are tried: the cheapest by the closed forms.
_MOST_REQUESTS, _LAYOUTS = 20_000, 3
#: No fleet is looked for beyond so many times its size by the closed forms.
_FURTHEST = 4


@dataclass(frozen=True)
class Kept(Answer):
    """A class's latency at its percentile on the fleet, by priority and first come first served."""

    name: str
    priority: int
    metric: str
    bound_s: float
    by_priority_s: float
    in_order_s: float


@dataclass(frozen=True)
class Together(Answer):
    """One fleet for all classes; where none keeps all of their SLOs, the largest one that was tried."""

    derived = ("gpus",)
    layout: Layout
    instances: int
    holds: bool  # with priorities
    in_order_instances: int | None  # that first come first served takes; None: more than was tried
    usd_per_hour: float
    kept: tuple[Kept, ...]

    @property
    def gpus(self) -> int:
        """Of all instances."""
        return self.instances * self.layout.gpus


@float64
def plan_together(
    asked: Question, classes: Sequence[RequestClass], most_usd_per_hour: float = math.inf
) -> Together | None:
    """The cheapest of the fleets of one pool that keep every class's SLOs in a replay by priority, the lowest first.

    It costs `most_usd_per_hour` at most. The candidates are the layouts that serve all requests within the loosest
    bounds of any class by the closed forms; None: there is none.
    """
    whole = replace(asked, slo=loosest(classes), split=False, thresholds_tokens=())
    priced = by_formula(whole).priced
    stage = next(scheme.stages[0] for scheme in priced.schemes if scheme.kind == Kind.ONE_POOL)
    costs = priced.costs_usd_per_hour[:, stage]
    rows = [int(row) for row in np.argsort(costs, kind="stable") if math.isfinite(costs[row])]
    played = _Played(asked, classes)
    found: list[_Sized] = []
    for row in [row for row in rows if priced.layouts[row].pp == 1][:_LAYOUTS]:
        best = min((one.usd_per_hour for one in found if one.holds), default=most_usd_per_hour)
        found += _sized(priced, row, int(priced.instances[row, stage]), played, best)
    if not found:
        return None
    return _told(priced, min(found, key=lambda one: (not one.holds, one.usd_per_hour)), played)


def loosest(classes: Sequence[RequestClass]) -> SLO:
    """What all requests together keep where each class keeps its own."""
    ttft, tpot, e2e = (max(float(getattr(x.slo, name)) for x in classes) for name in ("ttft_s", "tpot_s", "e2e_s"))
    return SLO(ttft, tpot, e2e, min(float(x.slo.percentile) for x in classes))


class _Played:
    """The requests of a question with their classes, on any server."""

    def __init__(self, asked: Question, classes: Sequence[RequestClass]) -> None:
        given = recording(asked).faster(1.0 + asked.margins.headroom_frac)
        own = which(classes, *_totals(asked, given))
        part = given.part(0.0, min(1.0, _MOST_REQUESTS / given.size))
        self.requests, self.own, self.classes = part.requests(), own[: part.size], classes
        self.priority = np.array([kind.priority for kind in classes])[self.own]

    def on(self, server: SimulatedServer, by_priority: bool) -> list[Served]:
        """What each class sees."""
        arrival, inputs, outputs, _ = self.requests
        served = server.serve(arrival, inputs, outputs, priority=self.priority if by_priority else None)
        return [served.at(self.own == k) for k in range(len(self.classes))]

    def keeps(self, server: SimulatedServer, by_priority: bool) -> bool:
        """Whether every class keeps its SLOs."""
        seen = self.on(server, by_priority)
        return not any(broken(served, kind.slo) for served, kind in zip(seen, self.classes, strict=True))


def _totals(asked: Question, given: Recording) -> tuple[np.ndarray, np.ndarray | None]:
    """(total tokens, labels) of the requests of a recording, as the classes are told by them."""
    trace = asked.trace
    if trace is None:
        return given.input_tokens + given.output_tokens, None
    taken = takes(trace, float(asked.model.max_context_tokens))
    total = trace.input_tokens + trace.output_tokens
    return total[taken], None if trace.labels is None else trace.labels[taken]


class _Sized(NamedTuple):
    """A layout with the fewest instances that hold, or with the most that were tried."""

    layout: Layout
    instances: int
    most: int
    holds: bool
    usd_per_hour: float


def _sized(priced: Priced, row: int, guess: int, played: _Played, most_usd_per_hour: float) -> list[_Sized]:
    """The fewest instances of a layout; [] where one costs too much."""
    asked, layout = priced.question, priced.layouts[row]
    price, spare = float(priced.prices_usd_per_hour[row]), asked.margins.spare_count
    affordable = min(most_usd_per_hour, asked.limits.max_usd_per_hour) * (1.0 + 1e-9) / price
    most = int(min(affordable, asked.limits.of(layout.gpu) / layout.gpus, _FURTHEST * guess + spare)) - spare
    if most < 1:
        return []
    one = _server(priced, layout)
    fewest = smallest(lambda count: played.keeps(replace(one, instances=count), True), guess, 1, most)
    count = fewest or most
    bought = asked.limits.bought([(layout.gpu, count + spare, layout.gpus)])[layout.gpu]
    return [_Sized(layout, count, most, fewest is not None, bought * price / layout.gpus)]


def _told(priced: Priced, found: _Sized, played: _Played) -> Together:
    """A fleet beside the same one first come first served."""
    one, spare = _server(priced, found.layout), priced.question.margins.spare_count
    in_order = smallest(
        lambda count: played.keeps(replace(one, instances=count), False), found.instances, 1, found.most
    )
    seen = [played.on(replace(one, instances=found.instances), by_priority) for by_priority in (True, False)]
    kept = [
        Kept(kind.name, kind.priority, metric, bound, *(quantile(x, float(kind.slo.percentile)) for x in (first, then)))
        for kind, *both in zip(played.classes, *seen, strict=True)
        for (metric, bound, first), (_, _, then) in zip(*(values(x, kind.slo) for x in both), strict=True)
        if math.isfinite(bound)
    ]
    return Together(
        found.layout,
        found.instances + spare,
        holds=found.holds,
        in_order_instances=None if in_order is None else in_order + spare,
        usd_per_hour=found.usd_per_hour,
        kept=tuple(kept),
    )


def _server(priced: Priced, layout: Layout) -> SimulatedServer:
    """An instance of a layout."""
    asked = priced.question
    place = Hosted(
        in_precision(asked.model, layout), asked.gpus[layout.gpu], layout.gpu, asked.backend, layout.as_parallel
    )
    limits = int(asked.engine.max_num_seqs_count), int(asked.engine.max_num_batched_tokens)
    efficiency = priced.calibration.efficiency(layout)
    return hosted_server(str(layout), place, efficiency, max_num_seqs=limits[0], max_num_batched_tokens=limits[1])
