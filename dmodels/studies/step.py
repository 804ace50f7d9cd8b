"""Where the milliseconds of an instance go: its maximum throughput, and the step at that load, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.programs import at_once
from dmodels.core.records import float64
from dmodels.fit.calibration import deployment_measured, efficiencies_of, interval
from dmodels.fit.kernels import Hosted, label
from dmodels.fit.silicon import Effects
from dmodels.models.latency import Efficiency, MixedSteps, Part, maximum_throughput, serve
from dmodels.models.memory import check_layout, engine_memory

from .plan.calibration import precision_name

#: Kinds of kernels (`models.operators`) behind a part of the step; the others are what serving adds.
KERNELS: Mapping[str, tuple[str, ...]] = {
    "attention projections": ("gemm",),
    "dense feed-forward": ("gemm",),
    "output head": ("gemm",),
    "routed experts": ("moe",),
    "attention of decodes": ("generation_attention", "generation_mla"),
    "attention of prompts": ("context_attention", "context_mla"),
    "all-reduce": ("all_reduce",),
}
SERVING = "serving points"
#: Parts below this share of the step are left out.
NEGLIGIBLE = 1e-5


@dataclass(frozen=True)
class OperatorTime(Answer):
    """One operator of a step, on the fullest GPU."""

    name: str
    seconds: float
    share_frac: float  # of the step
    bytes: float
    flop: float
    roofline_frac: float  # of its time, what the data sheet alone would take
    binds: str  # "memory", "arithmetic", "link", "launches" or "host"
    source: str  # what its time rests on


@dataclass(frozen=True)
class StepTimes(Answer):
    """The answer of `step_times`."""

    picture = "dmodels.report.step_figures:figure"
    operators: tuple[OperatorTime, ...]
    step_s: float
    decode_count: float  # requests that decode in it
    prompt_tokens: float  # new prompt tokens in it, over the whole instance
    mixed_frac: float  # of the steps, those that compute prompts at all
    tokens_per_s: float  # output tokens of the instance at its maximum
    concurrency: float  # the fewest requests in flight that reach 99 % of it
    ttft_s: float  # mean, at that concurrency
    tpot_s: float
    tpot_80: tuple[float, float]  # factors on times that hold 80 % of measured ones
    fits: bool


@float64
def step_times(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    *,
    input_tokens: float,
    output_tokens: float,
    concurrency: float | None = None,
    name: str = "",
    architecture: str = "",
    gpu_name: str = "",
    backend: str = "vllm",
    effects: Effects | None = None,
) -> StepTimes:
    """The step of an instance with `concurrency` requests in flight, or at its maximum throughput.

    `name`, `architecture` and `gpu_name` (of the catalogue) say whose calibration it is; `effects` are those of a
    calibration of one's own (`fit.calibration.read`). The step is the mean
    of those that compute prompts and those that only decode: with n requests decoding, n / E[O] prompts begin in it, as
    many as answers end, and it lasts as long as TPOT.
    """
    if float(parallel.pp) > 1:
        raise InputError(f"pp = {float(parallel.pp):g}: accepted is 1, a step of pipeline stages has no single GPU")
    check_layout(model, parallel)
    machine = Hosted(model, gpu, gpu_name, backend, parallel)
    precision = precision_name(model)
    e = efficiencies_of([machine], [precision], architecture, effects=effects)[0]
    place = (model, gpu, parallel, input_tokens, output_tokens)
    engine = engine_memory(backend)
    most = _most(*place, efficiency=e, engine=engine)
    shown = most.at
    if concurrency is not None:
        shown = _serve(*place, concurrency=concurrency, efficiency=e, engine=engine)
    fits = float(shown.resident_max_count) >= 1.0
    decoding = float(shown.decode_count) if fits else 1.0
    prompts, mixed_frac, found = _mean_step(machine, e, input_tokens, output_tokens, decoding)
    step_s = sum(float(part.seconds) for part in found.values())
    there = deployment_measured(machine, precision, architecture)
    wide = interval(gpu_name, backend, name, architecture=architecture, deployment=there)["tpot"]["80"]
    return StepTimes(
        operators=tuple(_operator(key, part, step_s, machine) for key, part in found.items()),
        step_s=step_s,
        decode_count=decoding,
        prompt_tokens=prompts,
        mixed_frac=mixed_frac,
        tokens_per_s=float(most.tokens_per_s),
        concurrency=float(most.concurrency) if fits else 0.0,
        ttft_s=float(shown.ttft_s),
        tpot_s=float(shown.tpot_s),
        tpot_80=(float(wide.low), float(wide.high)),
        fits=fits,
    )


# a user asks about one instance: nothing is compiled for it
_most, _serve = at_once(maximum_throughput), at_once(serve)
_shared, _parts = at_once(MixedSteps.shared), at_once(MixedSteps.parts)


def _mean_step(
    machine: Hosted, e: Efficiency, input_tokens: float, output_tokens: float, decoding: float
) -> tuple[float, float, dict[str, Part]]:
    """(prompt tokens, share of the steps that compute any, parts) of the mean step: some steps compute prompts, most
    only decode (`models.latency.mixed`)."""
    model, gpu, parallel = machine.model, machine.gpu, machine.parallel
    context, attended = input_tokens + output_tokens / 2.0, input_tokens / 2.0
    budget = parallel.dp * e.prefill_batch_tokens
    steps = MixedSteps(model, gpu, parallel, context, input_tokens, attended, budget_tokens=budget, efficiency=e)
    busy, tokens = (float(x) for x in _shared(steps, decoding / output_tokens))
    busy = min(busy, 1.0)
    plain, mixed = (_parts(steps, decoding, w) for w in (0.0, tokens))
    mean = lambda a, b: (1.0 - busy) * float(a) + busy * float(b)
    found = {name: Part(*map(mean, plain[name], mixed[name])) for name in plain}
    least = NEGLIGIBLE * sum(part.seconds for part in found.values())
    return busy * tokens, busy, {name: part for name, part in found.items() if part.seconds > least}


def _operator(name: str, part: Part, step_s: float, machine: Hosted) -> OperatorTime:
    seconds, least = float(part.seconds), float(part.least_s)
    gpu, moved, flop = machine.gpu, float(part.bytes), float(part.flop)
    if name in ("all-reduce", "expert exchange"):
        binds = "link" if least > 0.5 * seconds else "launches"
    elif least == 0.0:
        binds = "host" if name == "host per request" else "launches"
    else:
        binds = "memory" if moved / float(gpu.hbm_bytes_per_s) >= 0.999 * least else "arithmetic"
    latent = int(float(machine.model.n_mla_layers) > 0)
    kinds = KERNELS.get(name, ())
    source = label(machine, kinds[min(latent, len(kinds) - 1)]) if kinds else SERVING
    return OperatorTime(name, seconds, seconds / step_s, moved, flop, least / seconds, binds, source)
