"""A planner's sweep: one pool sized (or, with an `instances` axis, only evaluated) at every point of named axes.

Axes of two kinds meet. What makes an instance (model, GPU, parallelism, precision) or its requests (workload, lengths)
is summed up once per combination, as the cells of a plan; numbers (rate, SLO bounds, price, instances) are data of the
compiled formula `sized_pool`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels import catalog
from dmodels.core.answers import Answer
from dmodels.core.errors import InputError, unknown
from dmodels.core.flags import Flag, flag_where
from dmodels.core.hardware import SLO
from dmodels.core.numerics import safe_divide
from dmodels.core.precision import Precision
from dmodels.core.records import Real, float64
from dmodels.core.workload import Workload
from dmodels.design.axes import choice, grid
from dmodels.design.files import tables
from dmodels.design.select import Explanation, best, explain, pareto
from dmodels.design.space import label, sweep
from dmodels.fit.refit import OwnCalibration
from dmodels.models.instance import Engine, Operating
from dmodels.models.memory import engine_memory, out_of_domain

from .plan import Layout
from .plan.calibration import ModelId, calibrated
from .plan.designs import Cells, Stage, cells
from .plan.evaluate import evaluate
from .plan.layouts import chosen_gpus, in_precision, instances, placed
from .plan.sizing import compressed

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

#: Axes that make an instance or its requests -> what is taken where the axis is not given.
BUILT = {
    "model": None,
    "gpu": None,
    "tp": 1,
    "pp": 1,
    "dp": 1,
    "ep": 1,
    "weights": Precision.AS_PUBLISHED,
    "kv": Precision.AS_PUBLISHED,
    "workload": None,
    "input_tokens": None,
    "output_tokens": None,
}
#: Axes that are numbers of the formula.
NUMBERS = (
    "rate_rps",
    "ttft_slo_s",
    "tpot_slo_s",
    "e2e_slo_s",
    "percentile",
    "price_usd_per_hour",
    "slowdown",
    "instances",
)
#: Bits of the largest number of instances.
_BITS = 22


@dataclass(frozen=True)
class Scenario:
    """Everything that is no axis. `base` holds one value for each of `BUILT` and `NUMBERS`; None: not given."""

    base: Mapping[str, Any]
    workload: Workload | None = None  # a trace; else base["workload"] names a bundled one, or lengths are given
    engine: Engine | None = None
    backend: str = "vllm"
    gpu_file: str | None = None
    measured: OwnCalibration | None = None  # instead of the shipped calibration


Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class DesignSweep(Answer):
    """Every point of a sweep, and what is to be seen in it by one output; rows hold a point's axes and outputs."""

    derived = ("points_count", "feasible_count", "fell", "best", "pareto")
    internal = ("points", "output", "top")
    points: xr.Dataset
    output: str
    top: int
    file: str | None

    def label(self, name: str) -> str:
        """What an axis or output is, in words, and its unit."""
        return label(self.points, name)

    def to_xarray(self) -> xr.Dataset:
        """All points, a dimension per axis."""
        return self.points

    def to_dataframe(self) -> pd.DataFrame:
        """A row of each point: its axes, its outputs."""
        import pandas as pd

        return pd.DataFrame(next(tables(self.points, max(self.points_count, 1))))

    @cached_property
    def explanation(self) -> Explanation:
        """What is feasible, and why the rest is not."""
        return explain(self.points)

    @property
    def points_count(self) -> int:
        return self.explanation.points_count

    @property
    def feasible_count(self) -> int:
        return self.explanation.feasible_count

    @property
    def fell(self) -> dict[str, int]:
        """Points that raise each flag."""
        return {str(flag.name).lower(): count for flag, count in self.explanation.fell.items()}

    @cached_property
    def best(self) -> Rows:
        """The `top` feasible points by `output`, the best first."""
        end = {"maximize" if "tokens_per_s" in self.output else "minimize": self.output}
        return _rows(best(self.points, **end, within_frac=float("inf")).isel(point=slice(self.top)))

    @cached_property
    def pareto(self) -> Rows:
        """The front of `output` against TTFT, or of TTFT against TPOT."""
        latency = "ttft_s" if self.output != "ttft_s" else "tpot_s"
        if "tokens_per_s" in self.output:
            return _rows(pareto(self.points, minimize=[latency], maximize=[self.output]))
        return _rows(pareto(self.points, minimize=[self.output, latency]))


def _rows(points: xr.Dataset) -> Rows:
    columns = {str(name): np.atleast_1d(points[name].values) for name in [*points.coords, *points.data_vars]}
    return [
        {name: values[i if values.size > 1 else 0].item() for name, values in columns.items()}
        for i in range(points.sizes["point"])
    ]


#: What pictures call the outputs that a sweep can rank by, and then the axes too; {} is the percentile.
OUTPUTS = {
    "instances": "instances",
    "gpus": "GPUs",
    "cost_usd_per_hour": "cost",
    "cost_usd_per_mtoken": "cost of a million output tokens",
    "ttft_s": "TTFT{}",
    "tpot_s": "TPOT{}",
    "e2e_s": "E2E{}",
    "output_tokens_per_s": "output",
    "user_tokens_per_s": "output per user",
    "gpu_tokens_per_s": "output per GPU",
    "decode_count": "requests that decode at a time",
    "slots_count": "slots",
}
IN_WORDS = {
    "rate_rps": "request rate",
    "input_tokens": "input length",
    "output_tokens": "output length",
    "ttft_slo_s": "TTFT{} at most",
    "tpot_slo_s": "TPOT{} at most",
    "e2e_slo_s": "E2E{} at most",
    "price_usd_per_hour": "price of a GPU",
    "slowdown": "step times over predicted ones",
    **OUTPUTS,
}


@float64
def sweep_designs(
    scenario: Scenario,
    axes: Mapping[str, Sequence[Any]],
    *,
    output: str = "cost_usd_per_mtoken",
    top: int = 10,
    out: str | None = None,
    **options: Any,
) -> DesignSweep:
    """`sized_pool` over `axes`: name of `BUILT` or `NUMBERS` -> values, ranked by `output`. `options` go to `sweep`."""
    for name, values in axes.items():
        if name not in BUILT and name not in NUMBERS:
            raise unknown("axis", name, [*BUILT, *NUMBERS])
        if not len(values):
            raise InputError(f"axis {name!r} is empty; accepted is at least one value")
    if output not in OUTPUTS:
        raise unknown("output", output, OUTPUTS)
    built = {name: list(values) for name, values in axes.items() if name in BUILT}
    known = {**BUILT, **scenario.base}
    combinations = [{**known, **dict(zip(built, row, strict=True))} for row in itertools.product(*built.values())]
    batch, per_row = _cells(scenario, combinations)
    given: dict[str, Any] = {}
    stride = len(combinations)
    for name, values in axes.items():  # a place among the combinations, axis by axis
        if name in built:
            stride //= len(values)
            given[name] = choice(stride * np.arange(float(len(values))), values)
        else:
            given[name] = grid(*values)
    for name in BUILT:
        given.setdefault(name, 0.0)
    for name in NUMBERS:
        if name not in given and known.get(name) is not None:
            given[name] = float(known[name])
    fixed_lengths = scenario.workload is None and known["workload"] is None and "workload" not in axes
    if "rate_rps" not in given and fixed_lengths:
        raise InputError("rate is missing: fixed lengths have no rate of their own")
    engine = scenario.engine or Engine()
    points = sweep(sized_pool, batch=batch, per_row=per_row, engine=engine, out=out, **given, **options)
    share = "" if "percentile" in axes else f" P{100.0 * float(given.get('percentile', 0.99)):g}"
    for name, words in IN_WORDS.items():
        if name in points.variables:
            points[name].attrs["long_name"] = words.format(share)
    return DesignSweep(points, output, top, out)


def sized_pool(
    batch: Cells,
    per_row: Mapping[str, Real],
    engine: Engine,
    model: Real,
    gpu: Real,
    tp: Real,
    pp: Real,
    dp: Real,
    ep: Real,
    weights: Real,
    kv: Real,
    workload: Real,
    input_tokens: Real,
    output_tokens: Real,
    rate_rps=0.0,
    ttft_slo_s=np.inf,
    tpot_slo_s=np.inf,
    e2e_slo_s=np.inf,
    percentile=0.99,
    price_usd_per_hour=-1.0,
    slowdown=1.0,
    instances=None,
) -> dict[str, Real]:
    """One pool: the fewest instances that keep the SLOs (or `instances` of them), what they cost and how they run.

    Arguments from `model` to `output_tokens` are places that add up to a row of `batch`. A rate of 0 is the workload's
    own, a negative price the catalogue's. Where no number keeps the SLOs, the fewest that keep up are shown, flagged.
    """
    places = (model, gpu, tp, pp, dp, ep, weights, kv, workload, input_tokens, output_tokens)
    row = jnp.round(sum(places)).astype(jnp.int32)
    cell, own = jax.tree.map(lambda leaf: jnp.asarray(leaf)[row], (batch, dict(per_row)))
    cell = cell._replace(slo=SLO(ttft_slo_s, tpot_slo_s, e2e_slo_s, percentile))
    rate = jnp.where(rate_rps > 0, rate_rps, own["rate_rps"])
    price = jnp.where(price_usd_per_hour < 0, own["price_usd_per_hour"], price_usd_per_hour)

    at = lambda count: evaluate(cell, count, rate, slowdown, engine)
    if instances is None:
        instances, point = _fewest(at)
    else:
        point = at(instances)
    served = jnp.where(point.flags & Flag.OVERLOAD, jnp.nan, point.tokens_per_s)  # not what arrives
    gpus, tokens = instances * own["gpus"], instances * served
    cost = gpus * price
    unserved = point.flags & ~int(Flag.OVERLOAD | Flag.SLO_MISS)  # of what no memory holds, the one reason is enough
    wrong = flag_where(own["runs"] == 0, Flag.OUT_OF_DOMAIN)
    wrong = wrong | flag_where(~((rate > 0) & (instances >= 1) & (slowdown > 0)), Flag.OUT_OF_DOMAIN)
    return {
        "instances": instances,
        "gpus": gpus,
        "cost_usd_per_hour": cost,
        "cost_usd_per_mtoken": safe_divide(cost, 3600.0 * 1e-6 * tokens),
        "ttft_s": point.ttft_s,
        "tpot_s": point.tpot_s,
        "e2e_s": point.e2e_s,
        "output_tokens_per_s": tokens,
        "user_tokens_per_s": safe_divide(1.0, point.tpot_mean_s),
        "gpu_tokens_per_s": safe_divide(served, own["gpus"]),
        "decode_count": point.decode_count,
        "slots_count": point.slots_count,
        "flags": jnp.where(point.flags & Flag.NO_FIT, unserved, point.flags) | wrong,
    }


def _fewest(at: Callable[[Real], Operating]) -> tuple[Real, Operating]:
    """(the fewest instances without a flag, or if none has none without OVERLOAD, the state there).

    Both are found bit by bit; one last round of the same loop evaluates the answer, so the formula is compiled once.
    """
    blocking = np.array([int(Flag.OVERLOAD), 0x7FFFFFFF], np.int32)
    both = jax.vmap(at)

    def bit(i, state):
        wanting, _ = state
        stable, kept = wanting + 1.0
        answer = jnp.where(kept > 2.0**_BITS, stable, kept)
        last = i > _BITS
        trial = jnp.where(last, answer, wanting + 2.0 ** (_BITS - i))
        point = both(trial)
        return jnp.where(~last & ((point.flags & blocking) != 0), trial, wanting), point

    empty = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), jax.eval_shape(both, jnp.ones(2)))
    (stable, kept), point = jax.lax.fori_loop(0, _BITS + 2, bit, (jnp.zeros(2), empty))
    instances = jnp.where(kept + 1.0 > 2.0**_BITS, stable, kept) + 1.0
    return instances, jax.tree.map(lambda leaf: leaf[0], point)


def _cells(scenario: Scenario, combinations: Sequence[Mapping[str, Any]]) -> tuple[Cells, dict[str, np.ndarray]]:
    """The cells of all combinations, and what else depends on them: leaves with a leading axis."""
    engine = scenario.engine or Engine()
    models = {name: catalog.model(name) for name in {row["model"] for row in combinations}}
    gpus = {row["gpu"]: chosen_gpus([row["gpu"]], scenario.gpu_file) for row in combinations}  # {asked: {name: record}}
    canonical = {asked: next(iter(found)) for asked, found in gpus.items()}
    records = {name: record for found in gpus.values() for name, record in found.items()}
    rows = [
        Layout(
            canonical[row["gpu"]],
            *(int(row[k]) for k in ("tp", "pp", "dp", "ep")),
            Precision.named(row["weights"]),
            Precision.named(row["kv"]),
        )
        for row in combinations
    ]
    stored = [in_precision(models[row["model"]], layout) for row, layout in zip(combinations, rows, strict=True)]
    groups: dict[tuple, list[int]] = {}
    for place, row in enumerate(combinations):
        key = (row["model"], row["workload"], row["input_tokens"], row["output_tokens"])
        groups.setdefault(key, []).append(place)
    parts, order, rates = [], [], np.zeros(len(rows))
    for (model, *traffic), places in groups.items():
        layouts, own = [rows[i] for i in places], [stored[i] for i in places]
        model_id = ModelId(catalog.model_name(model), catalog.architecture(model))
        calibration = calibrated(model_id, own, layouts, records, scenario.backend, own=scenario.measured)
        workload = _workload(scenario, *traffic)
        batch = instances(own, records, layouts, calibration.efficiency)
        memory = engine_memory(scenario.backend)
        parts.append(cells(batch, workload, compressed(workload), [Stage("all")], SLO(), engine, memory=memory))
        rates[places] = float(workload.rate_rps)
        order += places
    back = np.argsort(order)
    joined = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf)[:, 0] for leaf in leaves])[back], *parts)
    per_row = {
        "gpus": np.array([float(layout.gpus) for layout in rows]),
        "price_usd_per_hour": np.array([float(records[layout.gpu].price_usd_per_hour) for layout in rows]),
        "rate_rps": rates,
        "runs": np.array([float(_runs(*pair, records)) for pair in zip(rows, stored, strict=True)]),
    }
    return joined, per_row


def _runs(layout: Layout, model, records) -> bool:
    """Whether an engine can run the layout: stages that lie in a node, or whole experts over several, degrees that
    divide the model, and units for the precision."""
    gpu = records[layout.gpu]
    units = {"fp8": gpu.peak_fp8_flop_per_s, "fp4": gpu.peak_fp4_flop_per_s}
    able = all(units.get(dtype[:3], np.inf) > 0 for dtype in (layout.weights, layout.kv))
    odd = bool(out_of_domain(model, layout.as_parallel))
    spread = layout.tp == layout.pp == 1 and layout.dp == layout.ep
    return able and not odd and placed(gpu, layout.tp * layout.dp, beyond=spread)


def _workload(scenario: Scenario, name: str | None, inputs: float | None, outputs: float | None) -> Workload:
    if (inputs is None) != (outputs is None):
        raise InputError("input_tokens and output_tokens: accepted are both or neither")
    if inputs is not None:
        return Workload.fixed(float(inputs), float(outputs), float(scenario.base.get("rate_rps") or 1.0))
    if name is not None:
        return catalog.workload(name)
    if scenario.workload is None:
        raise InputError("workload is missing; accepted are a bundled one, a trace, or input_tokens with output_tokens")
    return scenario.workload
