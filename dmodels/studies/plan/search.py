"""The main job: from a model, a workload and SLOs to what to deploy, what limits it, and how sure that is.

Every layout x stage x number of instances is a point; all points are evaluated in one batch (`evaluate`), and the
smallest pool of a stage is found exactly (`sizing`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from dmodels.catalog.agreement import trusted_load
from dmodels.core.answers import Answer
from dmodels.core.flags import Flag
from dmodels.core.records import float64
from dmodels.models.instance import Operating

from .calibration import Calibration
from .deployment import Deployment, Pool
from .designs import Kind
from .evaluate import saturating_instances, sweep_instances
from .fleets import Fleets, fleets, points_count
from .margins import LEVELS, Margins, Strain, fewest, flags, strain
from .promises import Ensured
from .questions import Question
from .reach import Reach, reach
from .rejections import Rejection, rejections
from .robust import alike, simplest
from .sizing import Priced, Ranked, cheapest, least_usd_per_hour, price

#: Growth of the rate that the headroom is looked for in.
GROWTH = np.linspace(1.0, 2.22, 62)


@dataclass(frozen=True)
class Plan(Answer):
    """The answer: the simplest fleet of those that the model cannot tell from the cheapest.

    `best` is None where nothing meets the SLOs; `rejections` then says why and what would.
    """

    derived = ("points_count", "outside")
    internal = ("question", "priced")
    picture = "dmodels.report.plan_figures:figure"
    question: Question = field(repr=False)
    best: Deployment | None
    cheapest: Deployment | None  # the least cost by the point estimate: `best` itself, or what it was preferred to
    kinds: tuple[Deployment, ...]  # the best of each kind: the recommended one, then the cheapest first
    by_gpu: tuple[Deployment, ...]  # the best on each GPU type alone, cheapest first
    by_threshold: tuple[tuple[float, float], ...]  # (threshold, USD/h) of two pools; inf: infeasible
    rejections: tuple[Rejection, ...]
    headroom_frac: float  # how much the rate may grow before an SLO breaks
    survives_loss: bool  # whether each pool may lose one instance and keep the SLOs
    sure_frac: float  # probability, under the model's error, that it keeps the SLOs; 0: below one half
    priced: Priced = field(repr=False)
    ensured: Ensured | None = None  # how replays chose the number of instances, where they did

    @property
    def points_count(self) -> int:
        """Points that the pictures show."""
        return points_count(self.priced)

    @cached_property
    def fleets(self) -> Fleets:
        """The points and fronts that the pictures show."""
        return fleets(self.priced)

    @cached_property
    def reach(self) -> Reach:
        """How far the closed forms of the recommended pools go."""
        return reach(self.priced, self.best.pools) if self.best else Reach((), False)

    @property
    def outside(self) -> tuple[str, ...]:
        """Where the closed forms of the recommended pools are off, or were never checked."""
        return self.reach.outside

    def records(self) -> list[dict[str, Any]]:
        """A row of each pool of the recommended fleet and of its alternatives, units in the names."""
        several = (*self.by_gpu, self.cheapest, *reversed(self.kinds))  # of equals the recommended one stays
        fleets = {(d.kind, d.name, tuple(d.parts)): d for d in several if d}
        return [
            {
                "recommended": d is self.best,
                "kind": str(d.kind),
                "fleet": d.name,
                "fleet_gpus": d.gpus,
                "fleet_usd_per_hour": d.usd_per_hour,
                "pool": pool.stage.name,
                "gpu": pool.layout.gpu,
                "layout": pool.layout.parallel,
                "instances": pool.instances,
                "gpus": pool.gpus,
                "usd_per_hour": pool.usd_per_hour,
                "ttft_s": d.seen(pool, "TTFT"),
                "tpot_s": d.seen(pool, "TPOT"),
                "load_frac": pool.load_frac,
                "binding": pool.binding,
            }
            for d in fleets.values()
            for pool in d.pools
        ]

    @property
    def baseline(self) -> Deployment | None:
        """The homogeneous fleet: one pool."""
        return next((d for d in self.kinds if d.kind == Kind.ONE_POOL), None)

    @property
    def formula_usd_per_hour(self) -> float:
        """What the cheapest plan by the closed forms costs; inf: there is none."""
        return least_usd_per_hour(self.priced)

    def indistinguishable(self) -> list[Deployment]:
        """Alternatives whose cost interval overlaps the best's: the model cannot tell which is cheaper."""
        if self.best is None:
            return []
        others = {(d.kind, d.name, tuple(d.parts)): d for d in (*self.by_gpu, *self.kinds)}
        others.pop((self.best.kind, self.best.name, tuple(self.best.parts)))
        return [d for d in others.values() if alike(self.best, d)]


@float64
def by_formula(asked: Question, calibration: Calibration | None = None) -> Plan:
    """Answer a question by the closed forms alone, with the layouts' own calibration or another one. Deterministic;
    infeasible is an answer (`best` is None)."""
    priced = price(asked, calibration)
    ranked = cheapest(priced, priced.costs_usd_per_hour, priced.as_sized.ttft_s)
    usd_per_hour = {found.scheme: found.usd_per_hour for found in ranked}
    of_kind: list[Deployment] = []
    of_type: dict[str, list[Deployment]] = {}
    best, headroom, survives, sure = None, 0.0, False, 0.0
    if ranked:
        firsts, alone = _first_of_each(ranked, _kind), {name: _on_one_type(priced, name) for name in asked.gpus}
        looked_at = sized(priced, [*firsts, *itertools.chain(*alone.values())])
        of_kind = [deployment(looked_at, found) for found in firsts]
        of_type = {name: [deployment(looked_at, found) for found in own] for name, own in alone.items()}
        best = simplest([*of_kind, *itertools.chain(*of_type.values())])
        headroom, survives, sure = _margins(looked_at, best)
    return Plan(
        asked,
        best=best,
        cheapest=of_kind[0] if of_kind else None,
        kinds=with_best_first(best, of_kind),
        by_gpu=tuple(sorted((found[0] for found in of_type.values() if found), key=lambda d: d.usd_per_hour)),
        by_threshold=tuple(
            (priced.stages[scheme.stages[0]].high_tokens, usd_per_hour.get(scheme, np.inf))
            for scheme in priced.schemes
            if scheme.kind == Kind.TWO_POOLS
        ),
        rejections=tuple(rejections(priced)),
        headroom_frac=headroom,
        survives_loss=survives,
        sure_frac=sure,
        priced=priced,
    )


def _kind(found: Ranked) -> Kind:
    return found.scheme.kind


def _on_one_type(priced: Priced, gpu: str) -> list[Ranked]:
    """The cheapest fleet of each kind on one GPU type, cheapest first."""
    own = np.array([[x.gpu == gpu] for x in priced.layouts])
    costs = np.where(own, priced.costs_usd_per_hour, np.inf)
    return _first_of_each(cheapest(priced, costs, priced.as_sized.ttft_s), _kind)


def with_best_first(best: Deployment | None, kinds: Iterable[Deployment]) -> tuple[Deployment, ...]:
    """One deployment of each kind, of its own the recommended one."""
    return () if best is None else (best, *(d for d in kinds if d.kind != best.kind))


def _first_of_each(ranked: Iterable[Ranked], key: Callable[[Ranked], Hashable]) -> list[Ranked]:
    seen: dict[Hashable, Ranked] = {}
    for entry in ranked:
        seen.setdefault(key(entry), entry)
    return list(seen.values())


class Sized(NamedTuple):
    """Some cells' smallest pools looked at from all sides, in one batch."""

    priced: Priced
    rows: dict[int, int]  # cell -> row of the arrays
    at: Operating  # (rows, 2 + growths): as sized, with one instance less, and with the rate grown by `GROWTH`
    low_instances: np.ndarray  # (rows,) with step times at the low end of their 80 % interval
    high_instances: np.ndarray
    saturating_instances: np.ndarray  # (rows,) real numbers that just keep up


def sized(priced: Priced, schemes: Iterable[Ranked]) -> Sized:
    """The cells of these schemes at the numbers of instances in `priced.instances`."""
    places = sorted({place for found in schemes for place in zip(found.rows, found.scheme.stages, strict=True)})
    at = np.array([priced.cell(*place) for place in places], int)
    cells = jax.tree.map(lambda leaf: np.asarray(leaf)[at], priced.cells)
    asked, count = priced.question, priced.instances.reshape(-1, 1)[at]
    counts = np.concatenate([count, np.maximum(count - 1.0, 0.5), count / GROWTH], 1)
    ends = np.array([priced.calibration.confidences[priced.layouts[row]].tpot for row, _ in places])
    kept = priced.strain.ttft[at]  # what the confidence asks of TTFT, beside the steps
    low, high = (
        fewest(cells, priced.rate_rps, asked.engine, asked.margins, Strain(end, kept)).instances for end in ends.T
    )
    found = sweep_instances(cells, counts, priced.rate_rps, asked.engine)
    stable = priced.stable_instances.reshape(-1)[at]
    saturating = saturating_instances(cells, stable, priced.rate_rps, asked.engine)
    return Sized(priced, {int(cell): row for row, cell in enumerate(at)}, found, low, high, saturating)


def deployment(sized: Sized, found: Ranked) -> Deployment:
    """What to deploy of a scheme with a layout for each stage."""
    places = list(zip(found.rows, found.scheme.stages, strict=True))
    low, high = (
        sum(float(end[sized.rows[sized.priced.cell(*place)]]) * sized.priced.layouts[place[0]].gpus for place in places)
        for end in (sized.low_instances, sized.high_instances)
    )
    pools = tuple(_pool(sized, *place) for place in places)
    gpus = sum(pool.gpus for pool in pools)
    low, high = min(low, gpus), max(high, gpus)  # a confidence above 0.9 takes slower steps than the interval's end
    node = sized.priced.question.node_gpus
    return Deployment(found.scheme.kind, found.scheme.name, pools, low, high, node_gpus=node)


def _pool(sized: Sized, row: int, stage: int) -> Pool:
    priced = sized.priced
    cell, count = priced.cell(row, stage), int(priced.instances[row, stage])
    now = Operating(*(float(value[sized.rows[cell], 0]) for value in sized.at))
    requests, layout = priced.cells.requests, priced.layouts[row]
    load = float(sized.saturating_instances[sized.rows[cell]]) / count
    return Pool(
        stage=priced.stages[stage],
        layout=layout,
        instances=count,
        price_usd_per_hour=float(priced.question.gpus[layout.gpu].price_usd_per_hour),
        request_share_frac=float(requests.share_frac[cell, 0]),
        longest_tokens=float(requests.longest_tokens[cell, 0]),
        context_tokens=min(priced.admitted.limit_tokens, priced.longest_context_tokens(row, stage)),
        ttft_s=now.ttft_s,
        ttft_mean_s=now.ttft_mean_s,
        tpot_s=now.tpot_s,
        tpot_mean_s=now.tpot_mean_s,
        e2e_s=now.e2e_s,
        decode_count=now.decode_count,
        slots_count=now.slots_count,
        tokens_per_s=now.tokens_per_s * count,
        binding=_binding(sized, cell, count),
        confidence=priced.calibration.confidences[layout],
        load_frac=load,
        extrapolated=_beyond(priced, cell, load),
    )


def _beyond(priced: Priced, cell: int, load: float) -> tuple[str, ...]:
    """The latencies that `tools/make_agreement.py` does not vouch for at that load."""
    cells, engine = priced.cells, priced.question.engine
    requests = jax.tree.map(lambda leaf: leaf[cell, 0], cells.requests)
    if not requests.output_tokens > 0:  # prefill workers: one prompt after another, no batch that fills (M/G/1)
        return ()
    slots = min(float(cells.slots_count[cell, 0]), float(engine.max_num_seqs_count) * float(cells.dp[cell, 0]))
    forms = {"TTFT": "plan_ttft_p99", "TPOT": "plan_tpot_p99", "E2E": "plan_e2e_p99"}
    cv = float(np.sqrt(requests.output_scv))
    return tuple(name for name, form in forms.items() if load > trusted_load(form, slots, cv))


def _binding(sized: Sized, cell: int, count: int) -> str:
    """What breaks first with one instance less, in a planner's words."""
    at, slo, own = sized.at, sized.priced.cells.slo, sized.rows[cell]
    flags = int(at.flags[own, 1])
    if count == 1:
        return "all service"
    if flags == 0:
        return sized.priced.question.margins.words or "nothing"
    if flags & Flag.OVERLOAD:
        return "throughput"
    broken = [
        name
        for name, bound, value in (
            ("TTFT", slo.ttft_s, at.ttft_s),
            ("TPOT", slo.tpot_s, at.tpot_s),
            ("E2E", slo.e2e_s, at.e2e_s),
        )
        if float(value[own, 1]) > float(bound[cell, 0])
    ]
    return " and ".join(broken) or "memory"


def _margins(sized: Sized, found: Deployment) -> tuple[float, bool, float]:
    """(growth of the rate that is still served within the SLOs, whether every pool may lose an instance, the
    probability that all of it holds)."""
    room, survives, at = np.inf, True, []
    for pool in found.pools:
        at.append(sized.priced.cell_of(pool))
        flags = sized.at.flags[sized.rows[at[-1]]]
        broken = np.flatnonzero(flags[2:])
        room = min(room, GROWTH[broken[0] - 1] - 1.0 if broken.size else GROWTH[-1] - 1.0)
        survives &= flags[1] == 0 and pool.instances > 1
    # what it is sized for may lie between two steps of `GROWTH`
    room = max(float(room), sized.priced.question.margins.headroom_frac)
    return room, bool(survives), _sure(sized.priced, found, at)


def _sure(priced: Priced, found: Deployment, at: list[int]) -> float:
    """The greatest confidence at which every pool keeps its SLOs, all as much slower than predicted."""
    levels = [strain(level, [pool.confidence for pool in found.pools]) for level in LEVELS]
    rows = np.tile(at, len(levels))
    cells = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], priced.cells)
    counts = np.tile([float(pool.instances) for pool in found.pools], len(levels))[:, None]
    slower = Strain(*(np.concatenate(column) for column in zip(*levels, strict=True)))
    broken = flags(cells, counts, priced.rate_rps, priced.question.engine, Margins(), slower)
    kept = (broken.reshape(len(levels), -1) == 0).all(1)
    return float(LEVELS[kept.cumprod().sum() - 1]) if kept[0] else 0.0
