"""Names written beside what they name, so that no reader has to match colours with a legend.

Lines are named at the right edge, where they end; clouds of points and crossing lines at their own emptiest place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from . import style


def name_lines(axes: Axes, ends: Sequence[tuple[float, str, int]], size: float = style.SMALL) -> None:
    """Write each line's name at the right edge, at the height (data) where it ends, pushed apart where they crowd.

    `ends` holds (height, name, number of the series). Call it after the limits are set.
    """
    if not ends:
        return
    inside = axes.transAxes.inverted()
    low, high = axes.get_ylim()
    at = [
        axes.transData.transform((axes.get_xlim()[1], np.clip(y, min(low, high), max(low, high)))) for y, _, _ in ends
    ]
    heights = np.array([inside.transform(point)[1] for point in at])
    lines = np.array([name.count("\n") + 1 for _, name, _ in ends])
    step = 1.25 * size / (72 * axes.bbox.height / style.paper(axes).dpi)
    for height, (_, name, place) in zip(_apart(heights, step * lines), ends, strict=True):
        style.words(
            axes,
            name,
            (1.0, height),
            "right",
            xycoords="axes fraction",
            fontsize=size,
            color=style.writing(place),
        )


class Group(NamedTuple):
    """Points or a line with the name it shall bear; without a name it only keeps its room."""

    x: Any
    y: Any
    name: str = ""
    place: int | None = None  # number of the series; None: ink
    line: bool = False  # its points are joined


def name_groups(axes: Axes, groups: Sequence[Group]) -> None:
    """Write each name beside a point of its group: where it hides fewest points, no words, and others are far.

    `groups` are all that is drawn. Call it after other words are written. Names are taken to be
    as wide as their mean letter makes them, which spares measuring them.
    """
    _ = axes.viewLim  # the limits that follow the data are only now worked out
    scale = style.paper(axes).dpi / 72
    clouds = [_on_paper(axes, group) for group in groups]
    written = [text.get_window_extent() for text in axes.texts]
    corners = [(np.asarray(box.min), np.asarray(box.max)) for box in written]
    taken = [((low + high) / 2, (high - low) / 2) for low, high in corners]
    for own, group in zip(clouds, groups, strict=True):
        if not group.name or not len(own):
            continue
        half = scale * style.SMALL * np.array([0.3 * len(group.name), 0.65])
        steps = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j])
        points = own[np.linspace(0, len(own) - 1, min(len(own), 60)).astype(int)]
        centres = (points[:, None] + steps * (half + 3 * scale)).reshape(-1, 2)
        fits = ((centres - half >= axes.bbox.min) & (centres + half <= axes.bbox.max)).all(axis=1)
        for centre, size in taken:
            fits &= (np.abs(centres - centre) >= half + size).any(axis=1)
        hidden = sum((_beyond(centres, half, cloud) <= scale).sum(axis=1) for cloud in clouds)
        others = [_beyond(centres, half, cloud).min(axis=1) for cloud in clouds if cloud is not own and len(cloud)]
        room = np.minimum(np.min(others, axis=0) / scale, 30.0) if others else 0.0
        best = centres[np.argmax(np.where(fits, 0.0, -1e6) - 10.0 * hidden + room)]
        taken.append((best, half))
        x, y = axes.transAxes.inverted().transform(best)
        style.words(
            axes,
            group.name,
            (x, y),
            xycoords="axes fraction",
            ha="center",
            va="center",
            bbox=style.HALO,
            color=style.INK if group.place is None else style.writing(group.place),
        )


def name_marks(axes: Axes, marks: Sequence[tuple[float, str, str]], foot: float = 0.05) -> None:
    """Write (place, name, colour) of vertical lines beside them, from `foot` upwards, towards the wider side."""
    ordered = sorted(marks)
    left = np.mean([x for x, _, _ in ordered]) > np.mean(axes.get_xlim())
    for rank, (x, name, colour) in enumerate(ordered if left else ordered[::-1]):
        style.words(
            axes,
            name,
            (x, foot + 0.075 * rank),
            "left" if left else "right",
            xycoords=("data", "axes fraction"),
            color=colour,
            bbox=style.HALO,
        )


def note(axes: Axes, words: str) -> None:
    """What a mark means that belongs to no one line, above the axes at the right."""
    axes.set_title(words, loc="right", fontsize=style.SMALL, color=style.SOFT, fontweight="normal")


def _on_paper(axes: Axes, group: Group) -> np.ndarray:
    """The group's points in pixels, (n, 2), those inside the axes; a line is filled between its points."""
    x, y = (np.asarray(values, float).ravel() for values in (group.x, group.y))
    known = np.isfinite(x) & np.isfinite(y)
    points = axes.transData.transform(np.stack([x[known], y[known]], axis=1))
    points = points[np.isfinite(points).all(axis=1)]
    if group.line and len(points) > 1:
        at = np.linspace(0, len(points) - 1, 12 * len(points))
        points = np.stack([np.interp(at, np.arange(len(points)), points[:, k]) for k in (0, 1)], axis=1)
    inside = ((points >= axes.bbox.min) & (points <= axes.bbox.max)).all(axis=1)
    return points[inside]


def _beyond(centres: np.ndarray, half: np.ndarray, cloud: np.ndarray) -> np.ndarray:
    """Pixels from boxes to points, (boxes, points); 0 inside."""
    if len(cloud) > 400:
        cloud = cloud[np.linspace(0, len(cloud) - 1, 400).astype(int)]
    away: np.ndarray = np.maximum(np.abs(centres[:, None] - cloud[None]) - half, 0.0).max(axis=2)
    return away


def _apart(wanted: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Heights near the wanted ones, in the same order, each with its room, inside [0, 1] where that is possible.

    Least squares by pooling neighbours that would overlap (isotonic regression of the shifted heights).
    """
    order = np.argsort(wanted, kind="stable")
    centre = np.cumsum(room[order]) - room[order] / 2
    blocks: list[list[float]] = []  # [sum, count]
    for value in wanted[order] - centre:
        blocks.append([value, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    level = np.concatenate([np.full(int(count), total / count) for total, count in blocks])
    placed = np.clip(level, 0.0, max(1.0 - room.sum(), 0.0)) + centre
    answer: np.ndarray = np.empty_like(placed)
    answer[order] = placed
    return answer
