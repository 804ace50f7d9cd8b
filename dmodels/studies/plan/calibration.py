"""Where a plan's latency constants come from, and how wrong they may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dmodels import catalog
from dmodels.core.answers import Answer
from dmodels.core.errors import unknown
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.fit.calibration import deployment_measured, efficiencies_of, interval, quantiles
from dmodels.fit.kernels import Hosted
from dmodels.fit.refit import OwnCalibration
from dmodels.models.latency import Efficiency

from .designs import Layout

#: Engines whose measured speeds the calibration holds.
BACKENDS = ("vllm", "sglang", "trtllm")
#: Correlation of the errors of two layouts on one GPU type, by how new model and GPU are to the calibration (as
#: `Quantiles.novelty`): of TPOT on 41 measured layouts that it did not see, 13 pairs of them on one GPU and engine. On
#: two GPU types it was -0.25 to 0.1, and counts as none.
SHARED_FRAC = {"deployment": 0.1, "known": 0.1, "pair": 0.35, "model": 0.55}
#: Assumed intervals of step times and TTFT: on a GPU type of which nothing was measured, for pipeline stages, and for
#: instances beyond a scale-up domain.
ASSUMED = {"tpot": (0.6, 1.7), "ttft": (0.5, 2.5)}


@dataclass(frozen=True)
class Confidence(Answer):
    """80 % intervals of one layout's predictions, as factors on them, and what they rest on."""

    tpot: tuple[float, float]
    ttft: tuple[float, float]
    provenance: str
    shared_frac: float = SHARED_FRAC["model"]  # correlation of the error with that of another layout on this GPU type


@dataclass(frozen=True)
class Calibration:
    """Efficiencies and intervals of each layout."""

    efficiencies: dict[Layout, Efficiency]
    confidences: dict[Layout, Confidence]

    def efficiency(self, layout: Layout) -> Efficiency:
        """Constants of one layout."""
        return self.efficiencies[layout]


class ModelId(NamedTuple):
    """The model that a calibration is asked for."""

    name: str  # in the catalogue, or of the user's own config
    architecture: str  # its `model_type`


#: Precisions by the bytes per weight above which they begin.
PRECISIONS = ((1.5, "bf16"), (0.75, "fp8"), (0.525, "fp4"), (0.0, "int4"))


def calibrated(
    model_id: ModelId,
    models: Sequence[Model],
    layouts: Sequence[Layout],
    gpus: Mapping[str, GPU],
    backend: str,
    *,
    own: OwnCalibration | None = None,
) -> Calibration:
    """The calibration for each layout under a serving engine; `models` as the layouts store them.

    It is the shipped one, or that of measurements of one's `own`, whose spread is the interval of the pair measured. A
    fine-tune's config has its architecture's effects and its own kernels.
    """
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    measured = {system for _, system in quantiles().pairs}
    name = model_id.name if model_id.name in catalog.models() else ""
    known_gpus = catalog.gpus()  # a GPU of the user's own file may be in no catalogue
    hosted = [
        Hosted(
            model,
            gpus[layout.gpu],
            layout.gpu if layout.gpu in known_gpus else "",
            backend,
            Parallel(layout.tp, 1.0, layout.dp, layout.ep),
        )
        for layout, model in zip(layouts, models, strict=True)
    ]
    effects = own.effects if own else None
    precisions = [precision_name(model) for model in models]
    found = efficiencies_of(hosted, precisions, model_id.architecture, effects=effects)
    confidences = {}
    for layout, one, precision in zip(layouts, hosted, precisions, strict=True):
        if own and (name, layout.gpu, backend) in own.pairs and layout.pp == 1:
            said = f"calibrated on {own.points_count} measured points of your own"
            confidences[layout] = Confidence(own.spread80["tpot"], own.spread80["ttft"], said, SHARED_FRAC["known"])
        elif layout.gpu in measured and layout.pp == 1 and layout.gpus <= float(gpus[layout.gpu].gpus_per_node):
            there = deployment_measured(one, precision, model_id.architecture)
            wide = interval(layout.gpu, backend, name, architecture=model_id.architecture, deployment=there)
            tpot, ttft = (tuple(map(float, wide[metric]["80"])) for metric in ("tpot", "ttft"))
            novelty = quantiles().novelty(layout.gpu, name, model_id.architecture, there)
            confidences[layout] = Confidence(tpot, ttft, _known(novelty, layout.gpu), SHARED_FRAC[novelty])
        else:
            confidences[layout] = Confidence(**ASSUMED, provenance=f"assumed: {layout} was not measured")
    return Calibration(dict(zip(layouts, found, strict=True)), confidences)


def _known(novelty: str, gpu: str) -> str:
    return {
        "deployment": f"calibrated on this model and {gpu}",
        "known": f"calibrated on this model and {gpu}, in other deployments",
        "pair": f"calibrated on this architecture and on {gpu}, not on this pair",
        "model": f"calibrated on {gpu} with other architectures",
    }[novelty]


def precision_name(model: Model) -> str:
    """The name of the precision in which most weights are stored, by the bytes of one.

    Groups of 128 integers tell of "int4" (AWQ, GPTQ); in groups of 32 they take as much as NVFP4, and count as that.
    """
    bytes_each = float(model.expert_dtype_bytes if float(model.n_moe_layers) > 0 else model.dense_dtype_bytes)
    return next(name for least, name in PRECISIONS if bytes_each > least)
