"""A plan for servers that are tuned as those of MLPerf (`fit.tuned`)."""

from __future__ import annotations

from dmodels.fit.tuned import faster, tuned

from .calibration import Calibration, Confidence


def tuned_calibration(known: Calibration) -> Calibration:
    """Efficiencies and intervals of tuned servers: every layout's steps by its GPU's factor, and what that rests on."""
    factors = {layout: tuned(layout.gpu) for layout in known.efficiencies}
    return Calibration(
        {layout: faster(own, factors[layout].factor) for layout, own in known.efficiencies.items()},
        {layout: Confidence(factor.latency, factor.latency, factor.provenance) for layout, factor in factors.items()},
    )
