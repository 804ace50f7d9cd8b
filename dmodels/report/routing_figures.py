"""Figures of the routing game: PoA-hat over time, and maps over (omega, tau) like Figure 6 of the anarchy paper."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmodels.studies.router_map import RouterMap

from . import style
from .naming import Group, name_groups


def index_over_time(start_s: np.ndarray, poa_hat: np.ndarray, regime: np.ndarray, ax: Axes | None = None) -> Axes:
    """PoA-hat of each window (log scale) against its end, coloured by regime. Returns the axes."""
    ax = ax or style.panel(7, 3.5)
    start_s, poa_hat, regime = (np.asarray(a) for a in (start_s, poa_hat, regime))
    ax.plot(start_s, poa_hat, color=style.GRID, linewidth=1, zorder=1)
    groups = []
    for code, name, place in ((0, "below saturation", 0), (1, "transition", 4), (2, "saturated", 1)):
        at = regime == code
        if at.any():
            ax.plot(start_s[at], poa_hat[at], style.marker(place), markersize=4, color=style.colour(place), zorder=2)
            groups.append(Group(start_s[at], poa_hat[at], name, place))
    ax.set(xlabel="end of window [s]", ylabel="PoA-hat, Eq. (12) [1]", yscale="log")
    known = poa_hat[np.isfinite(poa_hat) & (poa_hat > 0)]
    style.plain(ax.yaxis, wide=known.size > 0 and known.max() > 8 * known.min())
    ax.margins(0.08)
    name_groups(ax, groups)
    return ax


def tau_omega_map(
    values: np.ndarray, tau: np.ndarray, omega: np.ndarray, title: str, ax: Axes | None = None, most: bool = False
) -> Axes:
    """One map: rows tau, columns omega, each cell with its number, the least (or `most`) in bold. Returns the axes."""
    ax = ax or style.panel(4.4, 3.6)
    values = np.asarray(values, float)
    low, high = np.nanmin(values), np.nanmax(values)
    image = ax.imshow(values, cmap="YlOrRd", vmin=low, vmax=max(high, low * (1 + 1e-9) + 1e-12), aspect="auto")
    best = np.unravel_index(np.nanargmax(values) if most else np.nanargmin(values), values.shape)
    for (i, j), value in np.ndenumerate(values):
        dark = (value - low) > 0.6 * max(high - low, 1e-300)
        weight = "bold" if (i, j) == best else "normal"
        ax.text(
            j,
            i,
            f"{value:.4g}",
            ha="center",
            va="center",
            color="white" if dark else "black",
            weight=weight,
            fontsize=8,
        )
    ax.grid(False)
    ax.set(xticks=range(len(omega)), yticks=range(len(tau)), xlabel="omega [1]", ylabel="tau [1]", title=title)
    ax.set_xticklabels([f"{v:g}" for v in omega])
    ax.set_yticklabels([f"{v:g}" for v in tau])
    ax.figure.colorbar(image, ax=ax).ax.tick_params(labelsize=style.SMALL)
    return ax


def router_maps(maps: RouterMap, title: str = "") -> Figure:
    """The four maps of a `studies.router_map.RouterMap` in one figure. Returns it."""
    figure, axes = style.panels(2, 2, 9.6, 7)
    panels = (
        ("price of anarchy of the law [1]", maps.poa),
        ("TTFT P99 [s]", maps.ttft_p99_s),
        ("ITL P99 [ms]", maps.itl_p99_s * 1e3),
        ("throughput [requests/s]", maps.throughput_rps),
    )
    for ax, (name, values) in zip(axes.flat, panels, strict=True):
        tau_omega_map(values, maps.tau, maps.omega, name, ax, most=values is maps.throughput_rps)
    figure.suptitle(title)
    return figure
