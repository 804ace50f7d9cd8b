"""Where a plan's latency constants come from, and how wrong they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmodels import catalog
from dmodels.core.answers import Answer
from dmodels.core.errors import unknown
from dmodels.core.model import Model
from dmodels.fit.calibration import efficiency_for, interval, quantiles
from dmodels.fit.refit import OwnCalibration
from dmodels.models.latency import Efficiency

from .designs import Layout

#: Engines whose measured speeds the calibration holds.
BACKENDS = ("vllm", "sglang", "trtllm")
#: Assumed intervals of step times and TTFT: on a GPU type of which nothing was measured, and for pipeline stages.
ASSUMED = {"tpot": (0.6, 1.7), "ttft": (0.5, 2.5)}


@dataclass(frozen=True)
class Confidence(Answer):
    """80 % intervals of one layout's predictions, as factors on them, and what they rest on."""

    tpot: tuple[float, float]
    ttft: tuple[float, float]
    provenance: str


@dataclass(frozen=True)
class Calibration:
    """Efficiencies and intervals of each layout."""

    efficiencies: dict[Layout, Efficiency]
    confidences: dict[Layout, Confidence]

    def efficiency(self, layout: Layout) -> Efficiency:
        """Constants of one layout."""
        return self.efficiencies[layout]


def calibrated(
    model_name: str,
    precisions: Sequence[Model],
    layouts: Sequence[Layout],
    backend: str,
    own: OwnCalibration | None = None,
) -> Calibration:
    """The calibration for each layout under a serving engine; `precisions` are the layouts' models.

    It is the shipped one, or that of measurements of one's `own`, whose spread is the interval of the pair measured.
    """
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    measured = {system for _, system in quantiles().pairs}
    if model_name not in catalog.models():  # a config.json of the user's own: no architecture's effects are known
        model_name = ""
    known_gpus = catalog.gpus()  # a GPU of the user's own file may be in no catalogue
    efficiencies, confidences = {}, {}
    for layout, model in zip(layouts, precisions, strict=True):
        named = layout.gpu if layout.gpu in known_gpus else ""
        effects = own.effects if own else None
        efficiencies[layout] = efficiency_for(named, backend, _precision(model), model_name, effects=effects)
        if own and (model_name, layout.gpu, backend) in own.pairs and layout.pp == 1:
            said = f"calibrated on {own.points_count} measured points of your own"
            confidences[layout] = Confidence(own.spread80["tpot"], own.spread80["ttft"], said)
        elif layout.gpu in measured and layout.pp == 1:
            found = interval(layout.gpu, backend, model_name)
            tpot, ttft = (tuple(map(float, found[metric]["80"])) for metric in ("tpot", "ttft"))
            confidences[layout] = Confidence(tpot, ttft, _known(model_name, layout.gpu))
        else:
            confidences[layout] = Confidence(**ASSUMED, provenance=f"assumed: {layout} was not measured")
    return Calibration(efficiencies, confidences)


def _known(model_name: str, gpu: str) -> str:
    novelty = quantiles().novelty(gpu, model_name)
    return {
        "known": f"calibrated on this model and {gpu}",
        "pair": f"calibrated on this architecture and on {gpu}, not on this pair",
        "model": f"calibrated on {gpu} with other models",
    }[novelty]


def _precision(model: Model) -> str:
    """The name of the precision in which most weights are stored."""
    bytes_each = float(model.expert_dtype_bytes if float(model.n_moe_layers) > 0 else model.dense_dtype_bytes)
    return "bf16" if bytes_each > 1.5 else "fp8" if bytes_each > 0.75 else "fp4"
