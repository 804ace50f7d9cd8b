"""A server of one layout under an engine's scheduler: simulated on any requests, and beside the log of a real one.

The step law is the calibrated one, the KV blocks are those that the memory leaves, and the scheduler is the engine's
(`dmodels.sim.engines`). No formula of a queue is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize

from dmodels import catalog
from dmodels.core.answers import Answer
from dmodels.core.errors import InputError, unknown
from dmodels.core.hardware import Parallel
from dmodels.core.records import Floats, float64
from dmodels.fit.calibration import efficiencies_of
from dmodels.fit.kernels import Hosted
from dmodels.fit.silicon import Effects
from dmodels.formats.telemetry.request_log import RequestLog
from dmodels.models.memory import kv_budget_bytes, kv_reserved_bytes, stage, with_kv_dtype, with_weight_dtype
from dmodels.sim.engines import POLICIES, EngineLaw, Policy, simulate
from dmodels.sim.requests import Served

from .plan.calibration import precision_name

#: The step law is tabulated up to such contexts, and is straight beyond.
_LONGEST_TOKENS = 32_768
#: Requests of a log that a law is explained on.
_EXPLAINED = 2_000


@dataclass(frozen=True)
class Server:
    """Instances of one layout."""

    name: str
    law: EngineLaw
    policy: Policy
    instances: int
    prompt_s: float  # tokenizer, HTTP and scheduling, before an engine sees a prompt
    extra_s: float = 0.0  # of a request, outside of the engine

    def serve(self, arrival_s: Any, input_tokens: Any, output_tokens: Any, *, limit_tokens: Any = None) -> Served:
        """What clients see of these requests."""
        found = self.inside(arrival_s, input_tokens, output_tokens, limit_tokens=limit_tokens)
        late = self.prompt_s + self.extra_s
        return found._replace(first_token_s=found.first_token_s + late, end_s=found.end_s + late)

    def inside(
        self, arrival_s: Any, input_tokens: Any, output_tokens: Any, *, limit_tokens: Any = None, **options: Any
    ) -> Served:
        """What the engine's own clock sees of them, from its queue to the token."""
        given = {"instances": self.instances, "limit_tokens": limit_tokens} | options
        law = given.pop("law", self.law)
        return simulate(arrival_s, input_tokens, output_tokens, law, self.policy, **given)


@float64
def server(
    model: str,
    gpu: str,
    parallel: Parallel,
    *,
    backend: str = "vllm",
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    utilization: float = 0.9,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 8192,
    instances: int = 1,
    gpu_file: str | None = None,
    effects: Effects | None = None,
    options: dict[str, Any] | None = None,
) -> Server:
    """The server that an engine starts with these arguments; `options` are further ones of its policy.

    KV blocks: the bytes that the memory leaves over those that a sequence of 4,096 tokens reserves a token, so that
    windows count for what they keep.
    """
    if backend not in POLICIES:
        raise unknown("backend", backend, tuple(POLICIES))
    record, hardware = catalog.model(model), catalog.gpu(gpu, gpu_file)
    record = with_weight_dtype(record, weight_dtype.lower()) if weight_dtype else record
    record = with_kv_dtype(record, kv_dtype.lower()) if kv_dtype else record
    known = catalog.gpu_facts(gpu, gpu_file)["name"]
    hosted = Hosted(record, hardware, known if known in catalog.gpus() else "", backend, parallel)
    e = efficiencies_of([hosted], [precision_name(record)], catalog.architecture(model), effects=effects)[0]
    kind = POLICIES[backend]
    block = int((options or {}).get("block_tokens", kind(1).block_tokens))
    typical = min(4096.0, float(record.max_context_tokens) or 4096.0)
    part = stage(record, parallel.pp)
    each = float(kv_reserved_bytes(part, typical, parallel.tp, max(block, 1), max_num_batched_tokens)) / typical
    room = float(kv_budget_bytes(record, hardware, parallel, utilization, max_num_batched_tokens, max_num_seqs))
    blocks = int(room / (each * block)) * int(parallel.dp)
    if blocks < 1:
        raise InputError(f"{model} on {gpu}: {room / 2**30:.1f} GiB are left for the KV cache; `dmodels size` says more")
    ranks = int(parallel.dp)
    policy = kind(
        blocks, slots=max_num_seqs * ranks, step_tokens=max_num_batched_tokens * ranks, **(options or {})
    )
    law = EngineLaw.of(
        record,
        hardware,
        parallel,
        e,
        slots=policy.slots,
        step_tokens=policy.step_tokens,
        longest_tokens=int(min(_LONGEST_TOKENS, float(record.max_context_tokens) or _LONGEST_TOKENS)),
    )
    layout = f"tp{float(parallel.tp):g}pp{float(parallel.pp):g}dp{ranks}ep{float(parallel.ep):g}"
    name = f"{catalog.model_name(model)} on {known} ({layout}, {backend})"
    return Server(name, law, policy, instances, 1e-3 * float(e.prompt_ms))


@dataclass(frozen=True)
class Metric(Answer):
    """A figure of the log beside the simulation's."""

    name: str
    simulated_s: float
    measured_s: float
    error_frac: float


@dataclass(frozen=True)
class StraightLaw(Answer):
    """W + H n + P w for n requests that decode and w prompt tokens in a step."""

    base_s: float
    per_request_s: float
    per_prompt_token_s: float
    apart_frac: float  # root mean square of first and last tokens' differences, over the duration


@dataclass(frozen=True)
class Compared(Answer):
    """A log beside its simulation."""

    internal = ("log", "simulated")

    metrics: tuple[Metric, ...]
    requests_count: int
    restarts_count: int  # that the simulated scheduler made
    measured_law: StraightLaw  # that would explain the log
    simulated_law: StraightLaw  # of the calibration, found in the same way in the simulation
    slower: float  # times the calibrated step, the law that comes closest to the log
    log: RequestLog
    simulated: Served


def compare(asked: Server, log: RequestLog) -> Compared:
    """The log's requests, at their own times, simulated beside what was measured."""
    found = asked.inside(log.served.arrival_s, log.input_tokens, log.served.output_tokens)
    start = asked.law.seconds(1, 1000, 0, 0)
    full = asked.law.seconds(min(64, asked.policy.slots), 1000, 0, 0)
    prompt = (asked.law.seconds(1, 1000, 1000, 500) - start) / 1000.0
    first = np.array([start, max((full - start) / 63.0, 1e-6), max(prompt, 1e-7)])
    return Compared(
        metrics=_metrics(found, log.served),
        requests_count=len(log.ids),
        restarts_count=int(found.restarts.sum()) if found.restarts is not None else 0,
        measured_law=_straight(asked, log, log.served, first),
        simulated_law=_straight(asked, log, found, first),
        slower=_slower(asked, log),
        log=log,
        simulated=found,
    )


def _metrics(simulated: Served, measured: Served) -> tuple[Metric, ...]:
    found = []
    for name in ("ttft", "tpot", "e2e"):
        mine, theirs = (_finite(getattr(served, f"{name}_s")) for served in (simulated, measured))
        if not theirs.size:
            continue
        for label, of in (("mean", np.mean), ("p50", np.median), ("p99", partial(np.quantile, q=0.99))):
            found.append(_metric(f"{name}_{label}_s", float(of(mine)), float(of(theirs))))
    spans = [float(served.end_s.max() - served.arrival_s[0]) for served in (simulated, measured)]
    return (*found, _metric("duration_s", *spans))


def _metric(name: str, simulated_s: float, measured_s: float) -> Metric:
    return Metric(name, simulated_s, measured_s, simulated_s / measured_s - 1.0 if measured_s else np.nan)


def _finite(values: Floats) -> Floats:
    kept: Floats = values[np.isfinite(values)]
    return kept


def _apart(asked: Server, log: RequestLog, target: Served, law: EngineLaw) -> float:
    """How far a law's tokens are from the target's, over the duration: root mean square of first and last tokens."""
    kept = slice(0, _EXPLAINED)
    arrival, prompts, answers = (x[kept] for x in (target.arrival_s, log.input_tokens, target.output_tokens))
    found = asked.inside(arrival, prompts, answers, law=law)
    gaps = np.concatenate(
        [found.first_token_s - target.first_token_s[kept], found.end_s - target.end_s[kept]]
    )
    span = float(target.end_s[kept].max() - target.arrival_s[0])
    return float(np.sqrt(np.mean(gaps**2))) / span


def _straight(asked: Server, log: RequestLog, target: Served, start: Floats) -> StraightLaw:
    """The straight law whose tokens come closest to the target's (Nelder and Mead's search)."""
    apart = lambda x: _apart(asked, log, target, EngineLaw.straight(*np.exp(x)))
    found = optimize.minimize(apart, np.log(start), method="Nelder-Mead", options={"maxfev": 160, "xatol": 1e-3})
    return StraightLaw(*(float(x) for x in np.exp(found.x)), float(found.fun))


def _slower(asked: Server, log: RequestLog) -> float:
    """The factor on the calibrated law that comes closest to the log."""
    apart = lambda x: _apart(asked, log, log.served, asked.law.scaled(float(np.exp(x))))
    found = optimize.minimize_scalar(apart, bounds=(np.log(0.25), np.log(4.0)), method="bounded", options={"xatol": 1e-3})
    return float(np.exp(found.x))
