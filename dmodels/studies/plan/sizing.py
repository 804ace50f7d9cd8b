"""Every cell's smallest pool and its price, and the cheapest way to put pools together.

A scheme (one pool, two pools at a threshold, a prefill/decode split) costs the sum of its stages' cheapest pools,
unless these take more GPUs than there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.model import Model
from dmodels.core.records import Real, float64
from dmodels.core.workload import Workload
from dmodels.models.instance import Operating
from dmodels.models.memory import kv_reserved_bytes
from dmodels.models.memory import stage as pipeline_stage
from dmodels.models.traffic import compress

from .admitted import Admitted
from .calibration import Calibration, ModelId, calibrated
from .designs import Cells, Layout, Scheme, Stage, cells, schemes
from .evaluate import sweep_instances
from .layouts import in_precision, instances, layouts
from .limits import in_nodes, nested, whole
from .margins import Strain, strain
from .margins import fewest as smallest_pools
from .questions import Question
from .tuning import tuned_calibration

#: Thresholds that are asked about: powers of two and their 1.5-fold, those that leave requests on both sides.
_THRESHOLDS = sorted(2.0**k * m for k in range(7, 20) for m in (1.0, 1.5))
#: Cells by total and by output to which a workload is compressed for the memory footprint.
_SUPPORT = (40, 6)
#: The support is filled up to a multiple of this.
_ROOM = 512


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
    strain: Strain  # that the pools were sized for

    def cell(self, row: int, stage: int) -> int:
        """Place of a (layout, stage) pair among the cells."""
        return row * len(self.stages) + stage

    @float64
    def longest_context_tokens(self, row: int, stage: int) -> float:
        """The longest request, in blocks of 16 tokens, whose cache a GPU of this pool holds; inf: any of 2^30."""
        x = self.layouts[row]
        budget = self.cells.budget_bytes[self.cell(row, stage), 0]
        batched = self.question.engine.max_num_batched_tokens
        blocks = _blocks_held(in_precision(self.question.model, x), float(x.pp), float(x.tp), budget, float(batched))
        return 16.0 * float(blocks)

    def cell_of(self, pool: Any) -> int:
        """Place of a recommended pool among the cells."""
        return self.cell(self.layouts.index(pool.layout), self.stages.index(pool.stage))

    @property
    def gpu_prices_usd_per_hour(self) -> np.ndarray:
        """Price of one GPU of each layout."""
        return np.asarray([float(self.question.gpus[x.gpu].price_usd_per_hour) for x in self.layouts])

    @property
    def prices_usd_per_hour(self) -> np.ndarray:
        """Price of one instance of each layout."""
        return np.asarray(self.gpu_prices_usd_per_hour * self.instance_gpus)

    @property
    def instance_gpus(self) -> np.ndarray:
        """GPUs of an instance of each layout."""
        return np.array([float(x.gpus) for x in self.layouts])

    @cached_property
    def as_sized(self) -> Operating:
        """The steady state of every cell's smallest pool, arrays like `instances`."""
        counts = np.where(np.isfinite(self.instances), self.instances, 1.0).reshape(-1, 1)
        found = sweep_instances(self.cells, counts, self.rate_rps, self.question.engine)
        return Operating(*(column.reshape(self.instances.shape) for column in found))

    @property
    def rate_rps(self) -> float:
        """Requests a second that the engines take."""
        return self.admitted.rate_rps

    @property
    def pool_gpus(self) -> np.ndarray:
        """GPUs of each cell's smallest pool; inf where there is none."""
        return np.asarray(self.instances * self.instance_gpus[:, None])

    @property
    def bought_gpus(self) -> np.ndarray:
        """The same in whole nodes."""
        return np.asarray(in_nodes(self.question.node_gpus, self.instances, self.instance_gpus[:, None]))

    @property
    def costs_usd_per_hour(self) -> np.ndarray:
        """Price of each cell's smallest pool; inf where there is none, or where it cannot be bought."""
        limits = self.question.limits
        costs: np.ndarray = self.bought_gpus * self.gpu_prices_usd_per_hour[:, None]
        there = np.array([limits.of(x.gpu) for x in self.layouts])[:, None]
        within = (self.bought_gpus <= there) & (costs <= limits.budget_usd_per_hour)
        return np.asarray(np.where(within, costs, np.inf))


@jax.jit
def _blocks_held(model: Model, pp: Real, tp: Real, budget_bytes: Real, max_batched_tokens: Real) -> Real:
    """Blocks of 16 tokens of one request that fit; inf: 2^26 do. The need grows with the blocks: in two scans."""
    part, each = pipeline_stage(model, pp), jnp.arange(1.0, 2**13 + 1)

    def held(blocks: Real) -> Real:
        need = kv_reserved_bytes(part, 16.0 * blocks, tp, max_batched_tokens=max_batched_tokens)
        return jnp.sum(jnp.where(need <= budget_bytes, 1.0, 0.0))

    many = held(each * each.size)
    return jnp.where(many == each.size, jnp.inf, many * each.size + held(many * each.size + each))


def price(asked: Question, calibration: Calibration | None = None) -> Priced:
    """Size every cell's smallest pool; `calibration` is that of a question with the same layouts."""
    taken = asked.admitted
    degrees, formats = (asked.tp, asked.pp), (asked.weights, asked.kv)
    found = layouts(asked.model, asked.gpus, *degrees, *formats, wide_ep=asked.wide_ep, backend=asked.backend)
    models = [in_precision(asked.model, layout) for layout in found]
    if calibration is None:
        model_id = ModelId(asked.model_name, asked.architecture)
        calibration = calibrated(model_id, models, found, asked.gpus, asked.backend, own=asked.measured)
        calibration = tuned_calibration(calibration) if asked.tuned else calibration
    records = instances(models, asked.gpus, found, calibration.efficiency)
    stages, ways = schemes(thresholds(asked), asked.split)
    support = compressed(taken.workload)
    batch = cells(records, taken.workload, support, stages, asked.slo, asked.engine, memory=asked.memory)
    each = [calibration.confidences[layout] for layout in found for _ in stages]
    at = strain(asked.margins.confidence, each)
    fewest = smallest_pools(batch, taken.rate_rps, asked.engine, asked.margins, at)
    sized = {
        name: np.where(taken.none, np.inf, count).reshape(len(found), len(stages))
        for name, count in fewest._asdict().items()
    }
    return Priced(asked, taken, found, stages, ways, cells=batch, calibration=calibration, strain=at, **sized)


def compressed(workload: Workload) -> Workload:
    """The support on which memory is sized: a few hundred points, filled up with points of no weight, so that a
    workload of other lengths needs no other program."""
    small = compress(workload, *_SUPPORT) if workload.input_tokens.shape[-1] > 600 else workload
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
        fits = f"{np.ceil(total.min()):,.0f} to below {total.max():,.0f}"
        raise InputError(f"threshold {wanted[0]:,.0f} tokens: leaves a pool empty; accepted are {fits}")
    return kept


class Ranked(NamedTuple):
    """A scheme with a layout for each of its stages."""

    scheme: Scheme
    rows: tuple[int, ...]  # of the layouts
    usd_per_hour: float


def cheapest(priced: Priced, costs: np.ndarray, ttft_s: np.ndarray | float = 0.0) -> list[Ranked]:
    """The cheapest layouts of every feasible scheme, cheapest scheme first.

    Ties go to fewer pools, then to the lower TTFT: `ttft_s`, as `costs`, has a row per layout and a column per stage.
    No scheme takes more, over all its pools, than can be bought.
    """
    ttft_s = ttft_s + np.zeros_like(costs)
    least = np.nanmin(costs, axis=0, initial=np.inf)
    quickest = np.argmin(np.where(costs <= least * (1.0 + 1e-12), ttft_s, np.inf), axis=0)
    found, limited = [], priced.question.limits.any
    for scheme in priced.schemes:
        at = list(scheme.stages)
        if limited and len(at) == 2:
            cost, rows = _cheapest_two(priced, costs[:, at], ttft_s[:, at], at)
        else:
            rows = tuple(int(row) for row in quickest[at])
            cost = float(sum(costs[rows, at]))
        late = float((np.sum if scheme.in_turn else np.max)(ttft_s[rows, at]))
        if np.isfinite(cost):
            found.append((late, Ranked(scheme, rows, cost)))
    order = sorted(found, key=lambda entry: (round(entry[1].usd_per_hour, 6), len(entry[1].rows), entry[0]))
    return [ranked for _, ranked in order]


def least_usd_per_hour(priced: Priced) -> float:
    """What the cheapest fleet costs; inf: there is none."""
    ranked = cheapest(priced, priced.costs_usd_per_hour)
    return ranked[0].usd_per_hour if ranked else np.inf


def saved_frac(now_usd_per_hour: float, then_usd_per_hour: float) -> float:
    """Share of a cost that another one saves; of none at all (inf), all of it where the other is one.

    >>> saved_frac(10.0, 6.0), saved_frac(np.inf, 6.0), saved_frac(np.inf, np.inf)
    (0.4, 1.0, 0.0)
    """
    if not np.isfinite(now_usd_per_hour):
        return float(np.isfinite(then_usd_per_hour))
    return 1.0 - then_usd_per_hour / now_usd_per_hour


def _cheapest_two(
    priced: Priced, costs: np.ndarray, ttft_s: np.ndarray, at: Sequence[int]
) -> tuple[float, tuple[int, ...]]:
    """(cost, the layout of each of two stages) that together cost least of what can be bought: all pairs are tried.

    Pools of one type stand in the same nodes where their instances fill these together.
    """
    limits, each = priced.question.limits, priced.instance_gpus
    kinds = np.array([x.gpu for x in priced.layouts])
    alike = kinds[:, None] == kinds
    beside = alike & nested(limits.node_gpus, each[:, None], each)
    one, two = priced.pool_gpus[:, at].T
    joint = whole(limits.node_gpus, one[:, None] + two)
    alone = np.add.outer(*priced.bought_gpus[:, at].T)
    gpus = np.where(beside, joint, alone)
    total = np.add.outer(*costs.T)
    known = np.isfinite(total)
    total = np.where(beside & known, joint * priced.gpu_prices_usd_per_hour, total)
    there = np.array([limits.of(kind) for kind in kinds])
    within = (gpus <= limits.max_gpus) & (~alike | (gpus <= there)) & (total <= limits.budget_usd_per_hour)
    total = np.where(known & within, total, np.inf)
    late = np.where(total <= total.min() * (1.0 + 1e-12), np.add.outer(*ttft_s.T), np.inf)
    best = np.unravel_index(int(np.argmin(np.where(np.isfinite(total), late, np.inf))), total.shape)
    return float(total[best]), (int(best[0]), int(best[1]))
