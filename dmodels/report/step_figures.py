"""The picture of a step: each operator's milliseconds, and the part that the data sheet alone would take."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmodels.studies.step import StepTimes

from . import style


def figure(answer: StepTimes, title: str = "A mean step") -> Figure:
    """Bars, longest first, with the roofline's part filled."""
    return style.figure(lambda axes: operators(answer, axes, title), style.ALONE[0], 0.42 * len(answer.operators) + 1.3)


def operators(answer: StepTimes, axes: Axes, title: str) -> None:
    """One bar per operator; its share and what binds stand beside it."""
    found = sorted(answer.operators, key=lambda o: o.seconds)
    places = range(len(found))
    took = [1e3 * o.seconds for o in found]
    axes.barh(places, took, color=style.FILL, edgecolor=style.SOFT, linewidth=style.EDGE, label="expected")
    least = [t * o.roofline_frac for t, o in zip(took, found, strict=True)]
    axes.barh(places, least, color=style.colour(0), label="at the data sheet's rates")
    axes.set_yticks(places, [o.name for o in found])
    axes.grid(False, axis="y")
    for place, (o, ms) in enumerate(zip(found, took, strict=True)):
        style.words(axes, f"{o.share_frac:.0%}, {o.binds}", (ms, place), "right")
    axes.set(xlabel="time in a mean step [ms]", xlim=(0, 1.3 * max(took)), title=title)
    axes.legend(loc="lower right", **style.LEGEND)
