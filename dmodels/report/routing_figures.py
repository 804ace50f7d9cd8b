"""The routing game's figure: PoA-hat over time."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from . import style
from .naming import Group, name_groups


def index_over_time(end_s: np.ndarray, poa_hat: np.ndarray, regime: np.ndarray) -> Axes:
    """PoA-hat of each window (log scale) against its end, coloured by regime. Returns the axes."""
    ax = style.panel(*style.ALONE)
    end_s, poa_hat, regime = (np.asarray(a) for a in (end_s, poa_hat, regime))
    ax.plot(end_s, poa_hat, color=style.GRID, linewidth=style.THIN)
    groups = []
    for code, name, place in ((0, "below saturation", 0), (1, "transition", 4), (2, "saturated", 1)):
        at = regime == code
        if at.any():
            ax.plot(end_s[at], poa_hat[at], style.marker(place), markersize=style.DOT, color=style.colour(place))
            groups.append(Group(end_s[at], poa_hat[at], name, place))
    ax.set(xlabel="end of window [s]", ylabel="PoA-hat, Eq. (12) [1]", yscale="log")
    known = poa_hat[np.isfinite(poa_hat) & (poa_hat > 0)]
    style.plain(ax.yaxis, wide=known.size > 0 and known.max() > 8 * known.min())
    ax.margins(0.08)
    name_groups(ax, groups)
    return ax
