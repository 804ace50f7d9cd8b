"""Where a plan's latency constants come from, and how wrong they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmodels.core.model import Model
from dmodels.models.latency import Efficiency

from .designs import Layout

#: Without measured data for a layout's GPU: the interval that is assumed for its step times.
ASSUMED_INTERVAL = (0.7, 1.4)


@dataclass(frozen=True)
class Calibration:
    """Efficiencies and 80 % intervals (factors on predicted times) of each layout, with their provenance."""

    provenance: str
    efficiencies: dict[Layout, Efficiency]
    intervals80: dict[Layout, tuple[float, float]]

    def efficiency(self, layout: Layout) -> Efficiency:
        """Constants of one layout."""
        return self.efficiencies[layout]

    def interval80(self, layout: Layout) -> tuple[float, float]:
        """(low, high) factors on the predicted times."""
        return self.intervals80[layout]


def calibrated(model_name: str, model: Model, layouts: Sequence[Layout], backend: str) -> Calibration:
    """The calibration of each layout for a serving engine."""
    return Calibration("assumed: global constants, times within -30 % / +40 %", {x: Efficiency() for x in layouts},
                       {x: ASSUMED_INTERVAL for x in layouts})  # fmt: skip
