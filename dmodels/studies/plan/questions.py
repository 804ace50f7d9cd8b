"""What is asked of a plan: model, GPUs, workload, SLOs and the options of the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dmodels import catalog
from dmodels.core.errors import InputError, check_number, unknown
from dmodels.core.hardware import GPU, SLO
from dmodels.core.model import Model
from dmodels.core.precision import Precision
from dmodels.core.workload import Workload
from dmodels.fit.refit import OwnCalibration, read_own
from dmodels.models.instance import Engine
from dmodels.models.memory import EngineMemory, engine_memory
from dmodels.models.traffic import Trace

from .admitted import Admitted, admitted
from .designs import Stretch
from .layouts import chosen_gpus
from .limits import Limits
from .limits import check as check_limits
from .margins import Margins
from .margins import check as check_margins

#: Precisions of the KV cache that every engine can be told.
CACHES = Precision.AS_PUBLISHED, Precision.BF16, Precision.FP8


@dataclass(frozen=True)
class Question:
    """What is asked: everything that the answer depends on, with the defaults next to their use."""

    model_name: str
    model: Model
    gpus: dict[str, GPU]
    workload: Workload  # what arrives; served is what of it fits the model's context
    slo: SLO
    workload_name: str = "workload"
    tp: tuple[int, ...] = (1, 2, 4, 8)
    pp: tuple[int, ...] = (1,)
    wide_ep: tuple[int, ...] = (16, 32)  # GPUs to spread experts over beyond `tp`, each with attention of its own
    weights: tuple[str, ...] = (Precision.AS_PUBLISHED,)
    kv: tuple[str, ...] = (Precision.AS_PUBLISHED,)
    thresholds_tokens: tuple[float, ...] | None = None  # None: powers of two and their 1.5-fold
    split: bool = True
    engine: Engine = field(default_factory=Engine)
    backend: str = "vllm"
    max_gpus: float = np.inf  # that there are, over all pools
    inventory: Mapping[str, float] = field(default_factory=dict)  # GPUs that there are of a type
    node_gpus: int = 1  # GPUs are bought by whole nodes of so many
    max_usd_per_hour: float = np.inf
    margins: Margins = field(
        default_factory=Margins
    )  # growth, lost instances and model error that the fleet is sized for
    architecture: str = ""  # the config's `model_type`: what its calibration goes by
    served_name: str = ""  # the model's name on the engine's command line: the Hugging Face id where there is one
    trace: Trace | None = None  # that the workload was read from: its times, and the order of its lengths
    size_for: Stretch = Stretch.TRACE  # of such traffic
    measured: OwnCalibration | None = None  # instead of the shipped calibration
    tuned: bool = False  # as the servers of MLPerf (`fit.tuned`), instead of as usual
    checkpoint: str = ""  # the name of weights in the precision asked for, where the published ones are in another

    def __post_init__(self) -> None:
        for name in ("weights", "kv"):
            given = _several(getattr(self, name))
            if not all(isinstance(one, str) for one in given):
                raise InputError(f"{name} = {getattr(self, name)!r:.80}: accepted are names of precisions, like 'fp8'")
            object.__setattr__(self, name, tuple(map(Precision.named, given)))
        if odd := [one for one in self.kv if one not in CACHES]:
            raise InputError(f"kv {odd[0]}: accepted are {', '.join(CACHES)}, which engines can be started with")
        for name, least in (("tp", 1), ("pp", 1), ("wide_ep", 0)):
            object.__setattr__(self, name, _degrees(name, getattr(self, name), least))
        if self.thresholds_tokens is not None:
            object.__setattr__(self, "thresholds_tokens", _several(self.thresholds_tokens))
            for tokens in self.thresholds_tokens:
                check_number("thresholds_tokens", tokens, 0, np.inf, "total tokens, like 2048")
        for name in ("split", "tuned"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} = {getattr(self, name)!r:.80}: accepted are True and False")
        object.__setattr__(self, "size_for", Stretch(self.size_for))
        check_limits(self.limits, self.gpus)
        check_margins(self.margins)

    @property
    def limits(self) -> Limits:
        """What can be bought."""
        return Limits(self.max_gpus, self.inventory, self.node_gpus, self.max_usd_per_hour)

    @property
    def unlimited(self) -> Question:
        """The same, with as many GPUs and as much money as it takes."""
        return replace(self, max_gpus=np.inf, inventory={}, max_usd_per_hour=np.inf)

    @property
    def memory(self) -> EngineMemory:
        """How the engine shares out a GPU's memory."""
        return engine_memory(self.backend, tuned=self.tuned)

    @property
    def rate_rps(self) -> float:
        """Requests a second that arrive."""
        return float(self.workload.rate_rps)

    @property
    def admitted(self) -> Admitted:
        """The requests among them that fit the model's context."""
        return admitted(self.workload, float(self.model.max_context_tokens))


def question(
    model: str | Path,
    gpus: str | Sequence[str],
    workload: Workload | Trace,
    slo: SLO,
    *,
    rate_rps: float | None = None,
    gpu_file: str | None = None,
    prices_usd_per_hour: Mapping[str, float] | None = None,
    inventory: Mapping[str, float] | None = None,
    calibration: str | Path | None = None,
    **options: Any,
) -> Question:
    """A `Question` from names: a catalogue model, HF id or config.json, and catalogue GPUs (or those of `gpu_file`),
    at `prices_usd_per_hour` of one GPU where these differ; of those in `inventory` there are so many.

    A `Trace` is planned for as it came, its times scaled to `rate_rps`; a `Workload` has lengths and a rate alone.
    `calibration` is a file that `dmodels fit --out` wrote; other options are fields of `Question`.
    """
    known_options = [one.name for one in fields(Question)]
    for option in options:
        if option not in known_options:
            raise unknown("option", option, [*known_options, "calibration"])
    if calibration is not None:
        options["measured"] = read_own(calibration)
    trace = workload if isinstance(workload, Trace) else None
    if isinstance(workload, Trace):
        workload = Workload.from_trace(workload, rate_rps)
    elif rate_rps is not None:
        workload = workload.at_rate(rate_rps)
    check(workload, slo)
    name, record = catalog.model_name(model), catalog.model(model)
    local = Path(model)  # engines are given the folder of a config.json
    served = catalog.models().get(name, {}).get("hf_id", str(local.parent if local.suffix == ".json" else model))
    chosen = chosen_gpus([name.strip() for name in gpus.split(",")] if isinstance(gpus, str) else gpus, gpu_file)
    for option, given in (("prices_usd_per_hour", prices_usd_per_hour), ("inventory", inventory)):
        if given is not None and not isinstance(given, Mapping):
            raise InputError(f"{option} = {given!r:.80}: accepted is a number for each GPU type")
    for gpu, price in (prices_usd_per_hour or {}).items():
        known = catalog.gpu_facts(gpu, gpu_file)["name"]
        if known not in chosen:
            raise InputError(f"gpu.price.{known}: accepted are prices of {', '.join(chosen)}")
        chosen[known] = chosen[known].replace(price_usd_per_hour=price)
    stock = {catalog.gpu_facts(gpu, gpu_file)["name"]: float(n) for gpu, n in (inventory or {}).items()}
    facts = {"inventory": stock, "architecture": catalog.architecture(model), "served_name": served, "trace": trace}
    return Question(name, record, chosen, workload, slo, **facts, **options)


def _several(given: Any) -> tuple[Any, ...]:
    """One or several of something; text and bytes are one."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else (given,)


def _degrees(name: str, given: Any, least: int) -> tuple[int, ...]:
    """Degrees of parallelism to try: one, or several."""
    degrees = _several(given)
    whole = all(isinstance(degree, int | np.integer) and degree >= least for degree in degrees)
    if not whole or (least > 0 and not degrees):
        raise InputError(f"{name} = {given!r}: accepted are whole numbers from {least}")
    return tuple(map(int, degrees))


def check(workload: Workload, slo: SLO) -> None:
    """What no plan can answer is an `InputError`."""
    if not (np.isfinite(workload.rate_rps) and float(workload.rate_rps) > 0):
        raise InputError(f"rate {float(workload.rate_rps):g} req/s: accepted are positive numbers")
    if not 0.5 <= float(slo.percentile) < 1:
        raise InputError(f"percentile {float(slo.percentile):g}: accepted are shares from 0.5 to below 1, like 0.99")
    if not float(np.max(workload.output_tokens)) > 0:
        raise InputError("workload: no request generates a token; accepted are traces with output lengths")
