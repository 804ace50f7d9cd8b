"""The main job: from a model, a workload and SLOs to what to deploy, what limits it, and how sure that is.

Every layout x stage x number of instances is a point; all points are evaluated in one batch (`studies.evaluate`). A
scheme (one pool, two pools at a threshold, a prefill/decode split) costs the sum of its stages' cheapest pools, and the
smallest pool of a stage is found exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from dmodels.catalog.agreement import trusted_load
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import float64
from dmodels.core.workload import Workload
from dmodels.models.instance import Operating
from dmodels.models.traffic import compress

from .admitted import Admitted
from .calibration import Calibration, calibrated
from .deployment import Deployment, Pool
from .designs import Cells, Layout, Scheme, Stage, cells, schemes
from .evaluate import fewest_instances, sweep_instances
from .fleets import Fleets, fleets
from .layouts import in_precision, instances, layouts
from .questions import Question, question
from .rejections import Rejection, rejections

__all__ = ["Plan", "Priced", "Question", "cheapest", "compressed", "plan", "price", "question", "thresholds"]

#: Thresholds that are asked about: powers of two and their 1.5-fold, those that leave requests on both sides.
_THRESHOLDS = sorted(2.0**k * m for k in range(7, 20) for m in (1.0, 1.5))
#: Cells by total and by output to which a workload is compressed for the memory footprint.
SUPPORT = (40, 6)
#: The support is filled up to a multiple of this.
_ROOM = 256
#: Growth of the rate that the headroom is looked for in.
GROWTH = np.linspace(1.0, 2.22, 62)


@dataclass(frozen=True)
class Priced:
    """Every cell's smallest pool and its price; the arrays have a row per layout and a column per stage."""

    question: Question
    admitted: Admitted  # the traffic that is sized for: what fits the model's context
    layouts: list[Layout]
    stages: list[Stage]
    schemes: list[Scheme]
    cells: Cells
    calibration: Calibration
    instances: np.ndarray
    stable_instances: np.ndarray

    def cell(self, row: int, stage: int) -> int:
        """Place of a (layout, stage) pair among the cells."""
        return row * len(self.stages) + stage

    @property
    def prices_usd_per_hour(self) -> np.ndarray:
        """Price of one instance of each layout."""
        return np.array([float(self.question.gpus[x.gpu].price_usd_per_hour) * x.gpus for x in self.layouts])

    @property
    def rate_rps(self) -> float:
        """Requests a second that the engines take."""
        return self.admitted.rate_rps

    @property
    def costs_usd_per_hour(self) -> np.ndarray:
        """Price of each cell's smallest pool; inf where there is none."""
        gpus = self.instances * np.array([[x.gpus] for x in self.layouts])
        cost = self.instances * self.prices_usd_per_hour[:, None]
        return np.where(gpus <= self.question.max_gpus, cost, np.inf)


@dataclass(frozen=True)
class Plan:
    """The answer. `best` is None where nothing meets the SLOs; `rejections` then says why and what would."""

    question: Question
    best: Deployment | None
    kinds: tuple[Deployment, ...]  # the best of each kind, cheapest first
    by_gpu: tuple[Deployment, ...]  # the best on each GPU type alone, cheapest first
    by_threshold: tuple[tuple[float, float], ...]  # (threshold, USD/h) of two pools; inf: infeasible
    rejections: tuple[Rejection, ...]
    headroom_frac: float  # how much the rate may grow before an SLO breaks
    survives_loss: bool  # whether each pool may lose one instance and keep the SLOs
    fleets: Fleets  # the points and fronts that the pictures show
    calibration: Calibration
    priced: Priced

    @property
    def points_count(self) -> int:
        """Points that were evaluated for the pictures."""
        return self.fleets.points_count

    @property
    def baseline(self) -> Deployment | None:
        """The homogeneous fleet: one pool."""
        return next((d for d in self.kinds if d.kind == "one pool"), None)

    def indistinguishable(self) -> list[Deployment]:
        """Alternatives whose cost interval overlaps the best's: the model cannot tell which is cheaper."""
        if self.best is None:
            return []
        top = self.best.usd_per_hour * self.best.gpus_high / self.best.gpus
        others = {(d.kind, d.name, d.gpus): d for d in (*self.by_gpu, *self.kinds)}
        others.pop((self.best.kind, self.best.name, self.best.gpus))
        return [d for d in others.values() if d.usd_per_hour * d.gpus_low / d.gpus <= top]


@float64
def plan(asked: Question) -> Plan:
    """Answer a question. Deterministic; infeasible is an answer (`best` is None)."""
    priced = price(asked)
    costs, sized = priced.costs_usd_per_hour, _sized(priced)
    ttft = sized.at.ttft_s[:, 0].reshape(costs.shape)
    kinds = _first_of_each(cheapest(priced, costs, ttft), lambda scheme: scheme.kind)
    deployments = tuple(_deployment(sized, scheme, rows) for scheme, rows, _ in kinds)
    by_gpu = []
    for name in asked.gpus:
        own = np.array([x.gpu == name for x in priced.layouts])
        found = cheapest(priced, np.where(own[:, None], costs, np.inf), ttft)
        by_gpu += [_deployment(sized, *found[0][:2])] if found else []
    best = deployments[0] if deployments else None
    threshold_costs = []
    for scheme in priced.schemes:
        if scheme.kind == "two pools":
            total = float(sum(costs[:, s].min() for s in scheme.stages))
            threshold_costs.append((priced.stages[scheme.stages[0]].high_tokens, total))
    headroom, survives = _margins(sized, *kinds[0][:2]) if kinds else (0.0, False)
    return Plan(
        asked,
        best,
        deployments,
        tuple(sorted(by_gpu, key=lambda d: d.usd_per_hour)),
        tuple(threshold_costs),
        tuple(rejections(priced)),
        headroom,
        survives,
        fleets(priced),
        priced.calibration,
        priced,
    )


def price(asked: Question) -> Priced:
    """Size every cell's smallest pool."""
    taken = asked.admitted
    small = compressed(taken.workload)
    found = layouts(asked.model, asked.gpus, asked.tp, asked.pp, asked.weights, asked.kv)
    models = [in_precision(asked.model, layout) for layout in found]
    calibration = calibrated(asked.model_name, models, found, asked.backend)
    records = instances(models, asked.gpus, found, calibration.efficiency)
    stages, ways = schemes(thresholds(asked), asked.split)
    batch = cells(records, taken.workload, small, stages, asked.slo, asked.engine)
    fewest = fewest_instances(batch, taken.rate_rps, asked.engine)
    shape = (len(found), len(stages))
    sized = (np.where(taken.none, np.inf, x).reshape(shape) for x in (fewest.instances, fewest.stable_instances))
    return Priced(asked, taken, found, stages, ways, batch, calibration, *sized)


def compressed(workload: Workload) -> Workload:
    """The support on which memory is sized: a few hundred points, filled up with points of no weight, so that a
    workload of other lengths needs no other program."""
    small = compress(workload, *SUPPORT) if workload.input_tokens.shape[-1] > 600 else workload
    k = small.input_tokens.shape[-1]
    fill = lambda values: np.pad(np.broadcast_to(values, (k,)), (0, -k % _ROOM), mode="edge")
    weight = np.pad(small.weight_frac, (0, -k % _ROOM))
    inputs, outputs, cached = map(fill, (small.input_tokens, small.output_tokens, small.cached_tokens))
    return small.replace(input_tokens=inputs, output_tokens=outputs, weight_frac=weight, cached_tokens=cached)


def thresholds(asked: Question) -> list[float]:
    """The thresholds of two pools that are tried: those asked for that leave requests on both sides."""
    taken = asked.admitted.workload
    total = np.asarray(taken.total_tokens)[np.asarray(taken.weight_frac) > 0]
    wanted = _THRESHOLDS if asked.thresholds_tokens is None else asked.thresholds_tokens
    kept = [float(t) for t in wanted if (total <= t).any() and (total > t).any()]
    if asked.thresholds_tokens and not kept:
        low, high = total.min(), total.max()
        raise InputError(f"threshold {wanted[0]:g} tokens: leaves a pool empty; accepted are {low:g} to below {high:g}")
    return kept


#: A scheme, a layout row per stage, USD/h.
Ranked = tuple[Scheme, tuple[int, ...], float]


def cheapest(priced: Priced, costs: np.ndarray, ttft_s: np.ndarray | float = 0.0) -> list[Ranked]:
    """(scheme, a layout row per stage, USD/h) of all feasible schemes, cheapest first.

    Ties go to fewer pools, then to the lower TTFT: `ttft_s`, as `costs`, has a row per layout and a column per stage.
    """
    least = np.nanmin(costs, axis=0, initial=np.inf)
    delay = np.where(costs <= least * (1.0 + 1e-12), ttft_s, np.inf)
    rows, delay = np.argmin(delay, axis=0), delay.min(axis=0)
    found = [(s, tuple(int(rows[i]) for i in s.stages), float(sum(least[i] for i in s.stages))) for s in priced.schemes]
    late: Callable[[Scheme], float] = lambda s: (sum if s.in_turn else max)(delay[i] for i in s.stages)
    return sorted((f for f in found if np.isfinite(f[2])), key=lambda f: (round(f[2], 6), len(f[1]), late(f[0])))


def _first_of_each(ranked: Iterable[Ranked], key: Callable[[Scheme], Hashable]) -> list[Ranked]:
    seen: dict[Hashable, Ranked] = {}
    for entry in ranked:
        seen.setdefault(key(entry[0]), entry)
    return list(seen.values())


class _Sized(NamedTuple):
    """Every cell's smallest pool looked at from all sides, in one batch."""

    priced: Priced
    at: Operating  # (cells, 2 + growths): as sized, with one instance less, and with the rate grown by `GROWTH`
    low_instances: np.ndarray  # (cells,) with step times at the low end of their 80 % interval
    high_instances: np.ndarray


def _sized(priced: Priced) -> _Sized:
    asked, k = priced.question, len(priced.stages)
    count = np.where(np.isfinite(priced.instances), priced.instances, 1.0).reshape(-1, 1)
    at = sweep_instances(
        priced.cells,
        np.concatenate([count, np.maximum(count - 1.0, 0.5), count / GROWTH], 1),
        priced.rate_rps,
        asked.engine,
    )
    ends = np.array([priced.calibration.confidences[x].tpot for x in priced.layouts])
    low, high = (
        fewest_instances(priced.cells, priced.rate_rps, asked.engine, np.repeat(end, k)).instances for end in ends.T
    )
    return _Sized(priced, at, low, high)


def _deployment(sized: _Sized, scheme: Scheme, rows: tuple[int, ...]) -> Deployment:
    places = list(zip(rows, scheme.stages, strict=True))
    low, high = (
        sum(float(end[sized.priced.cell(*place)]) * sized.priced.layouts[place[0]].gpus for place in places)
        for end in (sized.low_instances, sized.high_instances)
    )
    return Deployment(scheme.kind, scheme.name, tuple(_pool(sized, *place) for place in places), low, high)


def _pool(sized: _Sized, row: int, stage: int) -> Pool:
    priced = sized.priced
    cell, count = priced.cell(row, stage), int(priced.instances[row, stage])
    now = {name: float(value[cell, 0]) for name, value in sized.at._asdict().items()}
    requests, layout = priced.cells.requests, priced.layouts[row]
    return Pool(
        priced.stages[stage],
        layout,
        count,
        float(priced.question.gpus[layout.gpu].price_usd_per_hour),
        float(requests.share_frac[cell, 0]),
        float(requests.longest_tokens[cell, 0]),
        priced.admitted.limit_tokens,
        now["ttft_s"],
        now["ttft_mean_s"],
        now["tpot_s"],
        now["tpot_mean_s"],
        now["e2e_s"],
        now["decode_count"],
        now["slots_count"],
        now["tokens_per_s"] * count,
        _binding(sized, cell, count),
        priced.calibration.confidences[layout],
        *_checked(priced, cell, count),
    )


def _checked(priced: Priced, cell: int, count: int) -> tuple[float, tuple[str, ...]]:
    """Load of an instance, and the latencies that `tools/make_agreement.py` does not vouch for at that load."""
    cells, engine = priced.cells, priced.question.engine
    steps, requests = (jax.tree.map(lambda leaf: leaf[cell, 0], x) for x in (cells.steps, cells.requests))
    slots = min(float(cells.slots_count[cell, 0]), float(engine.max_num_seqs_count) * float(cells.dp[cell, 0]))
    most_rps = np.interp(slots, steps.decode_count, steps.arrival_rps)
    load = priced.rate_rps * float(requests.share_frac) / count / max(float(most_rps), 1e-300)
    if not requests.output_tokens > 0:  # prefill workers: one prompt after another, no batch that fills (M/G/1)
        return load, ()
    forms = {"TTFT": "plan_ttft_p99", "TPOT": "plan_tpot_p99", "E2E": "plan_e2e_p99"}
    cv = float(np.sqrt(requests.output_scv))
    return load, tuple(name for name, form in forms.items() if load > trusted_load(form, slots, cv))


def _binding(sized: _Sized, cell: int, count: int) -> str:
    """What breaks first with one instance less, in a planner's words."""
    at, slo = sized.at, sized.priced.cells.slo
    flags = int(at.flags[cell, 1])
    if flags == 0 or count == 1:
        return "all service"
    if flags & Flag.OVERLOAD:
        return "throughput"
    broken = [
        name
        for name, bound, value in (
            ("TTFT", slo.ttft_s, at.ttft_s),
            ("TPOT", slo.tpot_s, at.tpot_s),
            ("E2E", slo.e2e_s, at.e2e_s),
        )
        if float(value[cell, 1]) > float(bound[cell, 0])
    ]
    return " and ".join(broken) or "memory"


def _margins(sized: _Sized, scheme: Scheme, rows: tuple[int, ...]) -> tuple[float, bool]:
    """(growth of the rate that is still served within the SLOs, whether every pool may lose an instance)."""
    room, survives = np.inf, True
    for row, stage in zip(rows, scheme.stages, strict=True):
        flags = sized.at.flags[sized.priced.cell(row, stage)]
        broken = np.flatnonzero(flags[2:])
        room = min(room, GROWTH[broken[0] - 1] - 1.0 if broken.size else GROWTH[-1] - 1.0)
        survives &= flags[1] == 0 and sized.priced.instances[row, stage] > 1
    return float(room), bool(survives)
