"""The shipped calibration: efficiencies of any (GPU, backend, precision, architecture), and how wrong they may be.

data/calibration.json holds the effects that `dmodels fit` finds in the measured rows, with where they come from, and
data/intervals.json the quantiles of the error on rows that were held out. Both are made by tools/make_calibration.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dmodels.core.records import float64
from dmodels.models.latency import Efficiency

from . import hierarchy
from .conformal import Interval, Quantiles
from .silicon import Effects


def efficiency_for(
    gpu_name: str,
    backend: str = "",
    precision: str = "",
    model: str = "",
    mode: str = "agg",
    effects: Effects | None = None,
) -> Efficiency:
    """Calibrated efficiencies of one GPU under one backend and precision, and of a model's architecture if given.

    `effects` are those of a calibration of one's own; without them, the shipped ones.

    What was not measured falls back level by level: an unknown backend or precision adds nothing, an unmeasured GPU
    has its generation's effects, and "", a GPU that is in no catalogue, what all GPUs share. `precision` is "bf16",
    "fp8", "fp4" or "int4".

    >>> 0.0 < float(efficiency_for("h200_sxm", "vllm", "fp8").hbm_frac) <= 1.2
    True
    """
    from .points import family

    architecture = family(model) if model else ""
    return _efficiency(
        effects or calibration(), hierarchy.levels(_system(gpu_name), backend, precision, architecture, mode)
    )


def interval(gpu_name: str, backend: str = "", model: str = "", mode: str = "agg") -> dict[str, dict[str, Interval]]:
    """Multipliers of a predicted latency that bound the measured one: `interval(...)["tpot"]["80"].high`.

    Keys: "ttft" and "tpot"; "80" and "95" per cent. Conformal quantiles of the error on held-out rows of the same kind:
    a pair of model and GPU that was measured, one that was not, or a model that was not.
    """
    return quantiles().multipliers(_system(gpu_name), backend, model, mode, stated=True)


@lru_cache(maxsize=1)
def calibration() -> Effects:
    """The shipped effects."""
    return load(files("dmodels.fit").joinpath("data/calibration.json").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def quantiles() -> Quantiles:
    """The shipped error quantiles."""
    return Quantiles.from_json(files("dmodels.fit").joinpath("data/intervals.json").read_text(encoding="utf-8"))


def load(text: str) -> Effects:
    """Effects from the text of a calibration file."""
    stored = json.loads(text)["effects"]
    beta = [[stored[level].get(name, 0.0) for name in hierarchy.NAMES] for level in stored]
    return Effects(tuple(stored), np.array(beta))


def dump(effects: Effects, provenance: Mapping[str, Any]) -> str:
    """The text of a calibration file: effects above 1e-4, and where they come from."""
    stored = {}
    for level, row in zip(effects.levels, effects.beta, strict=True):
        stored[level] = {n: round(float(b), 4) for n, b in zip(hierarchy.NAMES, row, strict=True) if abs(b) > 1e-4}
    document = {"provenance": dict(provenance), "effects": stored}
    return json.dumps(document, indent=1) + "\n"


def read(path: str | Path) -> Effects:
    """Effects from a calibration file of the user's own."""
    return load(Path(path).read_text(encoding="utf-8"))


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


def _efficiency(effects: Effects, names: Sequence[str]) -> Efficiency:
    place = {level: i for i, level in enumerate(effects.levels)}
    u = hierarchy.origin() + sum((effects.beta[place[n]] for n in names if n in place), np.zeros(len(hierarchy.NAMES)))
    return _host(u)


@float64
def _host(u: np.ndarray) -> Efficiency:
    e = hierarchy.efficiency(u)
    return Efficiency(**{name: float(getattr(e, name)) for name in hierarchy.NAMES})


@lru_cache(maxsize=64)
def _system(gpu_name: str) -> str:
    from dmodels import catalog

    return catalog.gpu_facts(gpu_name)["name"] if gpu_name else ""
