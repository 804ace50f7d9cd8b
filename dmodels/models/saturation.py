r"""Where does a deployment saturate? The knee of a load sweep.

Section 5.2 of "The Price of Anarchy in Disaggregated Inference": prefill is limited by FLOPs, decode by bandwidth. The
closed-loop prediction (`queueing.closed_loop_rps`, knee 1 + Z/S) needs a service time and a think time, both measured
below saturation; the singular curve of Eq. (9) needs its pole, which a sweep that stays below cannot give.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real


class Knee(NamedTuple):
    """The knee of a sweep, and the two grid points between which the sweep can place it."""

    load: float  # where the line through the origin of the light-load points meets the ceiling
    ceiling_rps: float
    slope_rps: float  # throughput per client at light load
    after: float  # the last grid point on the line
    upto: float  # the first grid point off it


def knee(load: Real, throughput_rps: Real, tolerance: float = 0.1, light: int = 3) -> Knee:
    """The knee from a load sweep of a closed loop: where throughput leaves the line of its `light` lowest loads.

    A point is on the line while it reaches (1 - tolerance) of it. Table 4 of the paper (340B), from 8 clients on: 0.158
    requests/s per client, ceiling 18.0, knee 114 in (96, 128].
    """
    load, rate = np.asarray(load, np.float64), np.asarray(throughput_rps, np.float64)
    if load.ndim != 1 or load.shape != rate.shape or load.size <= light or (np.diff(load) <= 0).any() or light < 1:
        raise InputError(f"load {load.shape}, throughput {rate.shape}; accepted: over {light} points, rising loads")
    if not (np.isfinite(rate) & (rate > 0)).all() or load[0] <= 0:
        raise InputError("loads and throughputs must be positive and finite")
    slope = float((rate[:light] / load[:light]).mean())
    off = np.flatnonzero(rate < (1.0 - tolerance) * slope * load)
    first = int(off[0]) if off.size else load.size
    ceiling = float(rate[first:].max()) if off.size else np.inf
    upto = float(load[first]) if off.size else np.inf
    return Knee(ceiling / slope, ceiling, slope, float(load[first - 1]) if first else 0.0, upto)
