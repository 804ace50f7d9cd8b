"""The shipped calibration: efficiencies of any (GPU, backend, precision, architecture), and how wrong they may be.

data/calibration.json holds the effects that `dmodels fit` finds in the measured rows, with where they come from, and
data/intervals.json the quantiles of the error on rows that were held out. Both are made by tools/make_calibration.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.files import read_text
from dmodels.core.hardware import Parallel
from dmodels.core.model import Model
from dmodels.core.precision import FORMAT_BYTES
from dmodels.core.records import float64
from dmodels.models.latency import Efficiency

from . import hierarchy
from .conformal import Interval, Quantiles
from .kernels import EIGHT_BITS
from .points import GATHERING
from .silicon import Effects

if TYPE_CHECKING:
    from .kernels import Hosted


def efficiency_for(
    gpu_name: str,
    backend: str = "",
    precision: str = "",
    model: str = "",
    mode: str = "agg",
    parallel: Parallel | None = None,
    effects: Effects | None = None,
) -> Efficiency:
    """Calibrated efficiencies of one GPU under one backend and precision, and of a model's kernels if given.

    `effects` are those of a calibration of one's own; without them, the shipped ones.

    What was not measured falls back level by level: an unknown backend or precision adds nothing, an unmeasured GPU
    has its generation's effects, and "", a GPU that is in no catalogue, what all GPUs share. `precision` is "bf16",
    "fp8", "fp4" or "int4", "" as published; `parallel` is the layout on which the model's kernels run (one GPU).

    >>> 0.0 < float(efficiency_for("h200_sxm", "vllm", "fp8").hbm_frac) <= 1.0
    True
    """
    from dmodels import catalog
    from dmodels.models.memory import with_weight_dtype

    from .kernels import Hosted
    from .points import nearest_model

    system, name = _system(gpu_name), nearest_model(model) if model else ""
    architecture = catalog.architecture(name) if name else ""
    if not (system and name):  # no kernels to ask about
        names = hierarchy.levels(system, backend, precision, architecture, mode)
        return _efficiency(effects or calibration(), names)
    record = with_weight_dtype(catalog.model(name), precision) if precision else catalog.model(name)
    hosted = Hosted(record, catalog.gpu(system), system, backend, Parallel() if parallel is None else parallel)
    return efficiencies_of([hosted], [precision], architecture, mode, effects)[0]


def efficiencies_of(
    hosted: Sequence[Hosted],
    precisions: Sequence[str],
    architecture: str,
    mode: str = "agg",
    effects: Effects | None = None,
) -> list[Efficiency]:
    """Calibrated efficiencies of instances of one architecture: what their kernels say, and what serving adds.

    The effects of serving were found beside the kernels of the formats that the rows state, so those are asked.
    """
    from .kernels import beside_rows, efficiencies

    stated = [one._replace(model=as_stated(one.model, one.engine, architecture)) for one in hosted]
    return [
        _efficiency(
            effects or calibration(), hosted_levels(one, precision, architecture, mode), hierarchy.origin(told)
        ).replace(beside_rows=beside_rows(one.gpu_name, one.engine))
        for one, precision, told in zip(hosted, precisions, efficiencies(stated), strict=True)
    ]


def hosted_levels(one: Hosted, precision: str, architecture: str, mode: str = "agg") -> tuple[str, ...]:
    """The effects of an instance; the last is its deployment's."""
    ran = hierarchy.deployment(one.model, one.parallel)
    return hierarchy.levels(one.gpu_name, one.engine, precision, architecture, mode, ran=ran)


def deployment_measured(one: Hosted, precision: str, architecture: str) -> bool:
    """The shipped calibration has rows of this deployment."""
    return hosted_levels(one, precision, architecture)[-1] in calibration().levels


def as_stated(model: Model, engine: str, architecture: str) -> Model:
    """`model` with its 8-bit matrices in the formats that the calibration's rows of its engine and architecture state.

    As it is where there are no such rows.
    """
    formats = _fp8_formats().get(f"{engine}+{architecture}")
    if formats is None:
        return model
    dense, experts = (FORMAT_BYTES[name] for name in formats)
    stated = {"attention_dtype_bytes": dense, "dense_dtype_bytes": dense, "expert_dtype_bytes": experts}
    return model.replace(
        **{name: size for name, size in stated.items() if EIGHT_BITS[0] < float(getattr(model, name)) < EIGHT_BITS[1]}
    )


def interval(
    gpu_name: str,
    backend: str = "",
    model: str = "",
    mode: str = "agg",
    architecture: str = "",
    deployment: bool = False,
) -> dict[str, dict[str, Interval]]:
    """Multipliers of a predicted latency that bound the measured one: `interval(...)["tpot"]["80"].high`.

    Keys: "ttft" and "tpot"; "80" and "95" per cent. Conformal quantiles of the error on held-out rows of the same kind,
    predicted without their engine's release: a pair of model and GPU that was measured (`deployment`: in its layout,
    too), one that was not, or an architecture that was not. `architecture` is that of a model that is in no catalogue.
    """
    system, measured = _system(gpu_name), quantiles()
    novelty = measured.novelty(system, model, architecture, deployment)
    return measured.multipliers(novelty, system, backend, mode, stated=True)


@cache
def calibration() -> Effects:
    """The shipped effects."""
    return load(_shipped())


def _shipped() -> str:
    return files("dmodels.fit").joinpath("data/calibration.json").read_text(encoding="utf-8")


@cache
def _fp8_formats() -> dict[str, list[str]]:
    formats: dict[str, list[str]] = json.loads(_shipped())["fp8_formats"]
    return formats


@cache
def quantiles() -> Quantiles:
    """The shipped error quantiles."""
    return Quantiles.from_json(files("dmodels.fit").joinpath("data/intervals.json").read_text(encoding="utf-8"))


def load(text: str) -> Effects:
    """Effects from the text of a calibration file."""
    stored = json.loads(text)["effects"]
    beta = [[stored[level].get(name, 0.0) for name in hierarchy.NAMES] for level in stored]
    return Effects(tuple(stored), np.array(beta))


def dump(effects: Effects, provenance: Mapping[str, Any], formats: Mapping[str, Sequence[str]] | None = None) -> str:
    """The text of a calibration file: effects above 1e-4, where they come from, and `points.fp8_formats` if given."""
    stored = {}
    for level, row in zip(effects.levels, effects.beta, strict=True):
        stored[level] = {n: round(float(b), 4) for n, b in zip(hierarchy.NAMES, row, strict=True) if abs(b) > 1e-4}
    named = {} if formats is None else {"fp8_formats": {place: list(pair) for place, pair in formats.items()}}
    document = {"provenance": dict(provenance), **named, "effects": stored}
    return json.dumps(document, indent=1) + "\n"


def read(path: str | Path) -> Effects:
    """Effects from a calibration file of the user's own."""
    try:
        found = load(read_text(path))
        if len(found.levels) and np.isfinite(found.beta).all():
            return found
    except InputError:
        raise
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        pass
    raise InputError(f"{path}: not a calibration; accepted is a file that `dmodels fit --out` wrote")


def table(effects: Effects, cells: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Efficiencies per (GPU, backend, precision), by name, without any architecture's effects."""
    out = []
    for system, backend, precision in cells:
        e = _efficiency(effects, hierarchy.levels(system, backend, precision, "", "agg"))
        out.append(
            {"gpu": system, "backend": backend, "precision": precision}
            | {name: float(getattr(e, name)) for name in hierarchy.NAMES}
        )
    return out


def _efficiency(effects: Effects, names: Sequence[str], origin: np.ndarray | None = None) -> Efficiency:
    place = {level: i for i, level in enumerate(effects.levels)}
    added = [effects.beta[place[name]] for name in names if name in place]
    gathers = float(any(f"backend={engine}" in names for engine in GATHERING))
    return _host(sum(added, hierarchy.origin() if origin is None else origin), gathers)


@float64
def _host(u: np.ndarray, gathers: float) -> Efficiency:
    e = hierarchy.efficiency(u, gathers)
    return Efficiency(**{name: float(getattr(e, name)) for name in hierarchy.NAMES})


@lru_cache
def _system(gpu_name: str) -> str:
    from dmodels import catalog

    return catalog.gpu_facts(gpu_name)["name"] if gpu_name else ""
