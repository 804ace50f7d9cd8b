"""Choosing among evaluated points: the feasible, the best with their ties, Pareto fronts, and why the others fell.

All take a Dataset of `sweep`; flags are looked at first, so that a point which is no answer is never chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dmodels.core.errors import InputError, unknown
from dmodels.core.flags import MEANINGS, WARNINGS, Flag, usable

from .pareto import pareto_mask

__all__ = ["Explanation", "best", "explain", "feasible", "nearest_feasible", "pareto", "pareto_mask", "take"]

if TYPE_CHECKING:
    import xarray as xr


def feasible(ds: xr.Dataset) -> xr.DataArray:
    """True at each point without a flag, or with none but a warning (`core.flags.WARNINGS`)."""
    if "flags" not in ds:
        raise InputError("the dataset has no 'flags'; accepted are those that sweep returns")
    good: xr.DataArray = (ds.flags & ~int(WARNINGS)) == 0
    return good


def pareto(
    ds: xr.Dataset, minimize: Sequence[str] = (), maximize: Sequence[str] = (), equals: bool = False
) -> xr.Dataset:
    """The feasible points that no other feasible point dominates, along a new dimension `point`.

    They are ordered by the first objective, best first. `equals` keeps all points of equal objectives, else the first.
    """
    least, most = ([_flat(ds, name) for name in _names(chosen)] for chosen in (minimize, maximize))
    if not least and not most:
        raise InputError("no objective is named; accepted are outputs to minimize=... or maximize=...")
    costs = np.stack([*least, *map(np.negative, most)], 1)
    costs[~_flat_feasible(ds)] = np.inf
    places = np.flatnonzero(pareto_mask(costs, equals))
    return take(ds, places[np.lexsort(costs[places].T[::-1])])


def best(
    ds: xr.Dataset,
    minimize: str | None = None,
    maximize: str | None = None,
    within_frac: float = 0.0,
    interval: tuple[str, str] | None = None,
) -> xr.Dataset:
    """The best feasible points along a new dimension `point`: the best one first, and all that tie with it.

    within_frac  points worse by at most this share of the best value tie as well
    interval     outputs that hold the ends of each value's interval: points whose interval reaches the best one's are
                 kept, because the model cannot tell which is better

    No point is feasible: the result has none. `explain` then says why.
    """
    if (minimize is None) == (maximize is None):
        raise InputError("minimize and maximize: accepted is one of them")
    objective, cost = (minimize, np.positive) if minimize is not None else (str(maximize), np.negative)
    value = np.where(_flat_feasible(ds), cost(_flat(ds, objective)), np.inf)
    value = np.where(np.isnan(value), np.inf, value)
    if not np.isfinite(value).any():
        return take(ds, np.array([], np.int64))
    top = int(np.argmin(value))
    kept = np.isfinite(value) & (value <= value[top] + within_frac * abs(value[top]))
    if interval is not None:
        ends = np.sort(np.stack([cost(_flat(ds, name)) for name in interval]), axis=0)
        kept |= np.isfinite(value) & (ends[0] <= ends[1, top])
    places = np.flatnonzero(kept)
    return take(ds, places[np.argsort(value[places], kind="stable")])


@dataclass(frozen=True)
class Explanation:
    """How many points fell to which flag. A point may have several; `alone` counts those that have no other."""

    points_count: int
    feasible_count: int
    fell: dict[Flag, int]
    alone: dict[Flag, int]

    def __str__(self) -> str:
        lines = [f"{self.feasible_count:,} of {self.points_count:,} points are feasible"]
        for flag, count in sorted(self.fell.items(), key=lambda item: -item[1]):
            warned = " (a warning)" if flag & WARNINGS else f", {self.alone[flag]:,} for this alone"
            lines.append(f"{count:,}: {MEANINGS[flag]}{warned}")
        return "\n".join(lines)


def explain(ds: xr.Dataset) -> Explanation:
    """Why points fell: the count of each flag, and of points that only this flag keeps from being feasible."""
    flags = np.asarray(ds.flags.values).ravel()
    hard = flags & ~int(WARNINGS)
    raised = [flag for flag in MEANINGS if (flags & int(flag)).any()]
    fell = {flag: int(((flags & int(flag)) != 0).sum()) for flag in raised}
    alone = {flag: int((hard == int(flag)).sum()) for flag in raised}
    return Explanation(flags.size, int(usable(flags).sum()), fell, alone)


def nearest_feasible(ds: xr.Dataset, **point: Any) -> xr.Dataset | None:
    """The feasible point nearest to `point` (labels along the axes): fewest axes changed, then fewest steps along them.

    A Dataset without dimensions, with `changed` in its attributes; None where nothing is feasible.
    """
    space = ds.flags
    at = {}
    for name, label in point.items():
        if name not in space.dims:
            raise unknown("axis", name, map(str, space.dims))
        labels = ds[name].values if name in ds.coords else np.arange(ds.sizes[name])
        places = np.flatnonzero(labels == label)
        if not places.size:
            raise InputError(f"axis {name!r} has no {label!r}; accepted: {', '.join(map(str, labels[:8]))}")
        at[name] = int(places[0])
    if missing := [str(dim) for dim in space.dims if dim not in at and space.sizes[dim] > 1]:
        raise InputError(f"no label for {', '.join(missing)}; accepted is one for each axis")
    here = np.array([at.get(dim, 0) for dim in space.dims])
    good = np.argwhere(np.asarray(feasible(ds).values))
    if not len(good):
        return None
    steps = np.abs(good - here)
    nearest = np.lexsort((steps.sum(1), (steps > 0).sum(1)))[0]
    found = ds.isel(dict(zip(space.dims, good[nearest], strict=True)))
    changed = [str(dim) for dim, step in zip(space.dims, steps[nearest], strict=True) if step]
    return found.assign_attrs(changed=changed)


def take(ds: xr.Dataset, places: np.ndarray) -> xr.Dataset:
    """The points at flat places (C order over the axes of the space) along a new dimension `point`."""
    import xarray as xr

    dims = list(ds.flags.dims)
    if not dims:
        return ds.expand_dims("point").isel(point=np.zeros(len(places), np.int64))
    index = np.unravel_index(np.asarray(places, np.int64), [ds.sizes[dim] for dim in dims])
    return ds.isel({dim: xr.DataArray(part, dims="point") for dim, part in zip(dims, index, strict=True)})


def _flat(ds: xr.Dataset, name: str) -> np.ndarray:
    """One number per point, in C order."""
    if name not in ds:
        raise unknown("output", name, map(str, ds.data_vars))
    if set(ds[name].dims) - set(ds.flags.dims):
        raise InputError(f"{name} has dimensions {ds[name].dims}; accepted is one number per point")
    return np.asarray(ds[name].broadcast_like(ds.flags).transpose(*ds.flags.dims).values, np.float64).ravel()


def _flat_feasible(ds: xr.Dataset) -> np.ndarray:
    return np.asarray(feasible(ds).values).ravel()


def _names(given: str | Sequence[str] | Mapping[str, Any]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
