r"""How much faster than the calibrated law servers are that were tuned for a benchmark: MLPerf's, by the GPU's maker.

A submission to MLPerf may do what a usual deployment does not: engines built for one model and one mix of lengths, a
batch as large as the memory holds, FP8 weights and cache, requests sorted before they are batched, no HTTP. What all
of this is worth together is one factor $f$ on the speed of every step, with an interval, found from the GPUs that
public runs used and those that a plan asks for. The mean c over models of the mean over submitters of
$\log(\text{asked}/\text{used})$ is drawn to 0 as far as the disagreement s of n models explains it,
$\log f = c\,(1 - s^2/(n c^2))^+$; the interval is that of a run whose model, or whose submitter, was left out.

The file is written by `python -m benchmarks mlperf`. A GPU whose maker has no run has the factor of all.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from dmodels.models.latency import Efficiency

from .hierarchy import OF_PEAK

#: Efficiencies that are seconds.
_TIMES = (
    "hop_us",
    "exchange_us",
    "node_exchange_us",
    "node_hop_us",
    "layer_us",
    "moe_layer_us",
    "request_us",
    "prefill_layer_us",
    "prompt_ms",
)


class Tuned(NamedTuple):
    """The factor of one maker's GPUs."""

    factor: float  # steps of a tuned server are so many times as fast
    low: float  # 80 % interval of a run's own factor
    high: float
    runs_count: int
    source: str

    @property
    def latency(self) -> tuple[float, float]:
        """80 % interval of a latency, as factors on the one that is predicted with `factor`."""
        return self.factor / self.high, self.factor / self.low

    @property
    def provenance(self) -> str:
        """In words."""
        return (
            f"tuned as {self.source}: steps {self.factor:.2f} times as fast as calibrated "
            f"(80 %: {self.low:.2f} to {self.high:.2f}, {self.runs_count} runs)"
        )


def maker(gpu_name: str) -> str:
    """Who makes a GPU of the catalogue.

    >>> maker("mi300x"), maker("h200_sxm")
    ('amd', 'nvidia')
    """
    return "amd" if gpu_name.lower().removeprefix("amd-").startswith("mi") else "nvidia"


def tuned(gpu_name: str) -> Tuned:
    """The factor that applies to a GPU."""
    known = _shipped()
    own = known["makers"].get(maker(gpu_name), known["makers"]["all"])
    return Tuned(own["factor"], own["low"], own["high"], int(own["runs_count"]), known["source"])


def faster(efficiency: Efficiency, factor: float) -> Efficiency:
    """Every part of a step, and what goes before it, `factor` times as fast.

    >>> float(faster(Efficiency(), 2.0).layer_us)
    16.0
    """
    shares = {name: getattr(efficiency, name) * factor for name in OF_PEAK}
    times = {name: getattr(efficiency, name) / factor for name in _TIMES}
    return replace(efficiency, **shares, **times)


@cache
def _shipped() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("dmodels.fit").joinpath("data/tuned.json").read_text(encoding="utf-8"))
    return found
