"""Pictures of a sweep: a Pareto front, a heat map over two axes, curves along one. Each takes a Dataset of `sweep`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dmodels.core.errors import InputError
from dmodels.design.pareto import pareto_mask
from dmodels.design.select import feasible
from dmodels.design.space import label

from . import style
from .naming import Group, name_groups, name_lines, note

if TYPE_CHECKING:
    import xarray as xr


def pareto(ds: xr.Dataset, output: str = "cost_usd_per_hour", against: str = "ttft_s", ax: Axes | None = None) -> Axes:
    """All feasible points in the plane of two outputs, smaller is better in both, the front drawn through.

    Colour tells the values of the axis with fewest of them.
    """
    ax = ax or style.panel(*style.ALONE)
    if output == against:
        raise InputError(f"pareto of {output} against itself; accepted are two outputs")
    good = np.asarray(feasible(ds).values)
    whole: Callable[[str], np.ndarray] = lambda name: np.asarray(
        ds[name].broadcast_like(ds.flags).transpose(*ds.flags.dims).values
    )
    x, y = whole(against), whole(output)
    hue = _short_axis(ds)
    groups: list[Group] = []
    if hue is None:
        ax.plot(x[good], y[good], ".", color=style.colour(0), markersize=style.DOT, alpha=0.6)
        groups.append(Group(x[good], y[good]))
    else:
        along = list(ds.flags.dims).index(hue)
        for place, value in enumerate(ds[hue].values):
            shown = np.take(good, place, along)
            colour = style.colour(place)
            mine = np.take(x, place, along)[shown], np.take(y, place, along)[shown]
            ax.plot(*mine, ".", color=colour, markersize=style.DOT, alpha=0.6)
            groups.append(Group(*mine, f"{hue} {_tell(value)}", place))
    front = pareto_mask(np.stack([np.where(good, x, np.inf).ravel(), y.ravel()], 1))
    order = np.argsort(x.ravel()[front])
    best = x.ravel()[front][order], y.ravel()[front][order]
    ax.plot(*best, "-", color=style.INK, linewidth=style.FINE)
    groups.append(Group(*best, "Pareto front", line=True))
    ax.set(xlabel=label(ds, against), ylabel=label(ds, output))
    _scales(ax, x[good], y[good])
    name_groups(ax, groups)
    return ax


def heatmap(ds: xr.Dataset, output: str = "cost_usd_per_hour", ax: Axes | None = None) -> Axes:
    """The best feasible `output` over the two longest axes; hatched where nothing is feasible."""
    ax = ax or style.panel(*style.ALONE)
    names = sorted(ds.flags.dims, key=lambda name: -ds.sizes[name])[:2]
    if len(names) < 2 or ds.sizes[names[1]] < 2:
        raise InputError("heatmap: accepted are sweeps over two axes or more, of two values or more")
    x, y = names
    best = _over(ds, output, [y, x])
    most = np.nanmax(best) / max(np.nanmin(best), 1e-300) if np.isfinite(best).any() else 1.0
    ax.add_patch(
        Rectangle(
            (0, 0),
            1,
            1,
            transform=ax.transAxes,
            facecolor=style.FILL,
            edgecolor=style.SOFT,
            hatch="////",
            linewidth=0,
            zorder=0,
        )
    )
    scale = "log" if most > 5 and np.nanmin(best) > 0 else "linear"
    drawn = ax.pcolormesh(np.arange(best.shape[1] + 1), np.arange(best.shape[0] + 1), best, cmap="viridis", norm=scale)
    bar = ax.figure.colorbar(drawn, ax=ax, label=label(ds, output))
    style.tidy(bar.ax).grid(False)
    if scale == "log":
        style.plain(bar.ax.yaxis)
    bar.outline.set_edgecolor(style.SOFT)
    for axis, name in ((ax.xaxis, x), (ax.yaxis, y)):
        values = ds[name].values if name in ds.coords else np.arange(float(ds.sizes[name]))
        axis.set_ticks(*_ticks(values))
    if np.isnan(best).any():
        note(ax, "hatched: nothing is feasible")
    ax.set(xlabel=label(ds, x), ylabel=label(ds, y))
    ax.grid(False)
    return ax


def _ticks(values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Where on an axis of cells to write what: every value of a few, round numbers between many."""
    count = len(values)
    if count <= 8 or values.dtype.kind != "f" or (np.diff(values) <= 0).any():
        places = np.unique(np.linspace(0, count - 1, min(count, 8)).astype(int))
        return places + 0.5, [_tell(values[i], 3) for i in places]
    low, high = values[0], values[-1]
    wide = low > 0 and high > 10 * low
    locator = ticker.LogLocator(subs=(1, 2, 5), numticks=15) if wide else ticker.MaxNLocator(7, steps=[1, 2, 5, 10])
    round_ones = [x for x in locator.tick_values(low, high) if low * (1 - 1e-9) <= x <= high * (1 + 1e-9)]
    return np.interp(round_ones, values, np.arange(count)) + 0.5, [_tell(float(x)) for x in round_ones]


def curves(ds: xr.Dataset, output: str = "cost_usd_per_hour", ax: Axes | None = None) -> Axes:
    """`output` along the longest axis of numbers, a line per value of the next one; flagged points are drawn hollow.

    Over further axes the best feasible value is taken.
    """
    ax = ax or style.panel(*style.ALONE)
    numbers = [name for name in ds.flags.dims if name in ds.coords and ds[name].dtype.kind == "f"]
    if not numbers:
        raise InputError("curves: accepted are sweeps with an axis of numbers")
    x = max(numbers, key=lambda name: ds.sizes[name])
    hue = _short_axis(ds, besides=x)
    along = ds[x].values
    lines = [(None, ds)] if hue is None else [(value, ds.isel({hue: i})) for i, value in enumerate(ds[hue].values)]
    ends: list[tuple[float, str, int]] = []
    for place, (value, part) in enumerate(lines):
        colour = style.colour(place)
        good = _over(part, output, [x])
        ax.plot(along, good, "-", marker=".", color=colour)
        every = _over(part, output, [x], flagged=True)
        bad = np.isnan(good) & np.isfinite(every)
        ax.plot(along[bad], every[bad], "o", mfc="none", markersize=style.DOT, color=colour)
        drawn = np.where(np.isnan(good), every, good)
        if hue is not None and np.isfinite(drawn).any():
            ends.append((drawn[np.isfinite(drawn)][-1], f"{hue} {_tell(value)}", place))
    if not bool(feasible(ds).all()):
        note(ax, "hollow: flagged")
    ax.set(xlabel=label(ds, x), ylabel=label(ds, output))
    _scales(ax, along, _over(ds, output, [x] if hue is None else [x, hue], flagged=True))
    name_lines(ax, ends)
    return ax


def _over(ds: xr.Dataset, output: str, keep: list[str], flagged: bool = False) -> np.ndarray:
    """The best value of `output` over all axes but `keep`; NaN where nothing is feasible."""
    values = ds[output].broadcast_like(ds.flags)
    most = "tokens_per_s" in output
    worst = -np.inf if most else np.inf
    values = values.where(np.isfinite(values), worst)
    if not flagged:
        values = values.where(feasible(ds), worst)
    others = [dim for dim in ds.flags.dims if dim not in keep]
    found = (values.max(others, skipna=False) if most else values.min(others, skipna=False)).transpose(*keep).values
    return np.where(np.isfinite(found), found, np.nan)


def _short_axis(ds: xr.Dataset, besides: str | None = None) -> str | None:
    """The axis that colours tell apart: of those with 2 to 8 values, the one with fewest."""
    fits = [dim for dim in ds.flags.dims if dim != besides and dim in ds.coords and 2 <= ds.sizes[dim] <= 8]
    return min(fits, key=lambda dim: ds.sizes[dim], default=None)


def _scales(ax: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """A logarithmic axis for what spans a factor of ten or more."""
    for values, scale in ((x, ax.set_xscale), (y, ax.set_yscale)):
        values = values[np.isfinite(values)]
        if values.size and values.min() > 0 and values.max() >= 10 * values.min():
            scale("log")
            style.plain(ax.xaxis if scale == ax.set_xscale else ax.yaxis)


def _tell(value: Any, digits: int = 4) -> str:
    return style.number(float(f"{value:.{digits}g}")) if isinstance(value, float | np.floating) else str(value)


def tornado(ds: xr.Dataset, output: str, ax: Axes | None = None) -> Axes:
    """Bars from the base value to `output` at the ends of each argument's span (`one_at_a_time`), widest on top.

    Each end bears the argument's value there; one that is flagged is hatched.
    """
    ax = ax or style.panel(*style.ALONE)
    base = float(ds[f"base_{output}"])
    spans = np.stack([ds.low.values, ds.high.values], axis=1)
    reach = np.abs(np.nan_to_num(ds[output].values - base, posinf=0.0, neginf=0.0)).max(axis=1)
    for y, place in enumerate(np.argsort(reach)):
        for end in (0, 1):
            value, bad = float(ds[output].values[place, end]), int(ds.flags.values[place, end]) != 0
            if np.isfinite(value):
                ax.barh(
                    y,
                    value - base,
                    left=base,
                    height=0.6,
                    color=style.colour(end),
                    alpha=0.9,
                    hatch="//" if bad else "",
                )
                right = value > base or (value == base and end == 1)
                style.words(
                    ax,
                    _tell(float(spans[place][end])),
                    (value, y),
                    "right" if right else "left",
                    color=style.writing(end),
                )
    ax.set_yticks(range(len(reach)), ds.argument.values[np.argsort(reach)])
    ax.margins(x=0.15)
    style.across(ax, base, color=style.INK, linestyle="-")
    if (ds.flags.values != 0).any():
        note(ax, "hatched: flagged")
    ax.set(xlabel=label(ds, output))
    return ax
