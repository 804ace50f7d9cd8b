"""A server of one layout under an engine's scheduler, simulated on any requests.

The step law is the calibrated one, the KV blocks are those that the memory leaves, and the scheduler is the engine's
(`dmodels.sim.engines`). No formula of a queue is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmodels import catalog
from dmodels.core.answers import Answer
from dmodels.core.errors import InputError, unknown
from dmodels.core.hardware import Parallel
from dmodels.core.records import float64
from dmodels.core.workload import Workload
from dmodels.fit.calibration import efficiencies_of
from dmodels.fit.kernels import Hosted
from dmodels.fit.silicon import Effects
from dmodels.models.latency import Efficiency
from dmodels.models.memory import (
    EngineMemory,
    check_layout,
    engine_memory,
    kv_budget_bytes,
    kv_reserved_bytes,
    with_kv_dtype,
    with_weight_dtype,
)
from dmodels.models.traffic import Trace
from dmodels.sim.engines import POLICIES, EngineLaw, Policy, simulate
from dmodels.sim.estimate import Estimate
from dmodels.sim.recordings import drawn, recorded
from dmodels.sim.requests import Served
from dmodels.sim.verify import trace_metrics
from dmodels.studies.plan.calibration import precision_name

#: The step law is tabulated up to such contexts, and is straight beyond.
_LONGEST_TOKENS = 32_768


@dataclass(frozen=True)
class SimulatedServer:
    """Instances of one layout."""

    name: str
    law: EngineLaw
    policy: Policy
    instances: int
    prompt_s: float  # tokenizer, HTTP and scheduling, before an engine sees a prompt

    @property
    def parts(self) -> tuple[SimulatedServer, ...]:
        """The servers that a request passes."""
        return (self,)

    def serve(
        self, arrival_s: Any, input_tokens: Any, output_tokens: Any, *, limit_tokens: Any = None, priority: Any = None
    ) -> Served:
        """What clients see of these requests."""
        given = {"limit_tokens": limit_tokens, "priority": priority}
        found = self.inside(arrival_s, input_tokens, output_tokens, **given)
        return found._replace(first_token_s=found.first_token_s + self.prompt_s, end_s=found.end_s + self.prompt_s)

    def inside(
        self, arrival_s: Any, input_tokens: Any, output_tokens: Any, *, limit_tokens: Any = None, **options: Any
    ) -> Served:
        """What the engine's own clock sees of them, from its queue to the token."""
        given = {"instances": self.instances, "limit_tokens": limit_tokens} | options
        law = given.pop("law", self.law)
        return simulate(arrival_s, input_tokens, output_tokens, law, self.policy, **given)


@dataclass(frozen=True)
class SplitServers:
    """Prefill workers, which answer with one token, and decoders, to which they send the cache of every prompt."""

    parts: tuple[SimulatedServer, SimulatedServer]
    transfer_s_per_token: float  # of a prompt

    def serve(self, arrival_s: Any, input_tokens: Any, output_tokens: Any) -> Served:
        """What clients see: the first token is the decoder's, after the transfer and the wait there."""
        workers, decoders = self.parts
        asked, prompts, answers = (np.asarray(x) for x in (arrival_s, input_tokens, output_tokens))
        first = workers.serve(asked, prompts, np.ones_like(answers))
        there = first.end_s + self.transfer_s_per_token * prompts
        begun, end, restarts = there.copy(), there.copy(), np.asarray(first.restarts).copy()
        more = np.flatnonzero(answers > 1)
        order = more[np.argsort(there[more], kind="stable")]
        done = decoders.inside(there[order], prompts[order], answers[order], sent=True)
        begun[order], end[order] = done.first_token_s, done.end_s
        restarts[order] += np.asarray(done.restarts)
        return Served(asked, first.admitted_s, begun, end, answers, restarts=restarts)


@float64
def server(
    model: str,
    gpu: str,
    parallel: Parallel,
    *,
    backend: str = "vllm",
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    release: str = "",
    utilization: float | None = None,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 8192,
    instances: int = 1,
    gpu_file: str | None = None,
    effects: Effects | None = None,
    options: Mapping[str, Any] | None = None,
) -> SimulatedServer:
    """The server that an engine starts with these arguments; `options` are further ones of its policy.

    `release` of the engine, like "0.19.0", and `utilization` say what memory is left (`models.memory.engines`).
    """
    if backend not in POLICIES:
        raise unknown("backend", backend, tuple(POLICIES))
    if float(parallel.pp) > 1:
        raise InputError(
            f"pp = {float(parallel.pp):g}: accepted is 1, the engines' schedulers are simulated of one stage"
        )
    record, known = catalog.model(model), catalog.gpu_facts(gpu, gpu_file)["name"]
    record = with_weight_dtype(record, weight_dtype.lower()) if weight_dtype else record
    record = with_kv_dtype(record, kv_dtype.lower()) if kv_dtype else record
    named = known if known in catalog.gpus() else ""
    check_layout(record, parallel)
    machine = Hosted(record, catalog.gpu(gpu, gpu_file), named, backend, parallel)
    e = efficiencies_of([machine], [precision_name(record)], catalog.architecture(model), effects=effects)[0]
    layout = f"tp{float(parallel.tp):g}pp1dp{int(parallel.dp)}ep{float(parallel.ep):g}"
    return hosted_server(
        f"{catalog.model_name(model)} on {known} ({layout}, {backend})",
        machine,
        e,
        release=release,
        utilization=utilization,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        instances=instances,
        options=options,
    )


def hosted_server(
    name: str,
    machine: Hosted,
    efficiency: Efficiency,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    release: str = "",
    utilization: float | None = None,
    instances: int = 1,
    options: Mapping[str, Any] | None = None,
) -> SimulatedServer:
    """The server of a model on its GPUs at these efficiencies; the other arguments are those of `server`."""
    ranks, record = int(machine.parallel.dp), machine.model
    limits = {"slots": max_num_seqs * ranks, "step_tokens": max_num_batched_tokens * ranks}
    policy = POLICIES[machine.engine](1, **limits, **(options or {}))
    blocks = _blocks(
        machine,
        policy.block_tokens,
        utilization,
        batched_tokens=max_num_batched_tokens,
        sequences=max_num_seqs,
        engine=engine_memory(machine.engine, release),
    )
    if blocks < 1:
        raise InputError(f"{name}: no memory is left for the KV cache; `dmodels size` says what would fit")
    longest = int(min(_LONGEST_TOKENS, float(record.max_context_tokens) or _LONGEST_TOKENS))
    law = EngineLaw.of(record, machine.gpu, machine.parallel, efficiency, longest_tokens=longest, **limits)
    return SimulatedServer(name, law, policy._replace(kv_blocks=blocks), instances, 1e-3 * float(efficiency.prompt_ms))


def _blocks(
    machine: Hosted,
    block_tokens: int,
    utilization: float | None,
    *,
    batched_tokens: int,
    sequences: int,
    engine: EngineMemory,
) -> int:
    """KV blocks of an instance: the bytes that its memory leaves over what a token of a sequence of 4,096 reserves, so
    that windows count for what they keep."""
    model, parallel = machine.model, machine.parallel
    typical = min(4096.0, float(model.max_context_tokens) or 4096.0)
    held = kv_reserved_bytes(model, typical, parallel.tp, block_tokens, batched_tokens)
    room = kv_budget_bytes(
        model, machine.gpu, parallel, utilization, batched_tokens=batched_tokens, sequences=sequences, engine=engine
    )
    return int(float(room) / (float(held) / typical * block_tokens)) * int(parallel.dp)


@dataclass(frozen=True)
class Played(Answer):
    """What servers made of requests, by pool."""

    internal = ("served",)

    pools: tuple[dict[str, Estimate], ...]
    labels: tuple[str, ...]
    rate_rps: float
    requests_count: int
    cut_count: int  # left out as warm-up or as the end of the run
    restarts_count: int
    source: str  # of the requests, in words
    served: tuple[tuple[np.ndarray, Served], ...]  # prompts' tokens, and what became of the requests


class PoolOf(NamedTuple):
    """A server, and the requests that are its own: those of a total in (low_tokens, high_tokens]."""

    label: str
    server: SimulatedServer | SplitServers
    low_tokens: float = 0.0
    high_tokens: float = np.inf


def play(
    pools: Sequence[PoolOf],
    traffic: Trace | Workload,
    *,
    rate_rps: float | None = None,
    count: int | None = None,
    seed: int = 0,
    percentile: float = 0.99,
    stationary: bool | None = None,
) -> Played:
    """Metrics of `sim.verify.trace_metrics` over a trace at its own rate or at `rate_rps`, or over a drawn workload.

    Every request of a trace counts; of drawn ones, whose load is steady, warm-up and end are cut.
    """
    if isinstance(traffic, Trace):
        given = recorded(traffic, rate_rps, seed=seed)
    else:
        given = drawn(traffic if rate_rps is None else traffic.at_rate(rate_rps), seed, count or 20_000)
    everyone: Any = given.requests()
    if count is not None:
        everyone = everyone._make(column[:count] for column in everyone)
    steady = not isinstance(traffic, Trace) if stationary is None else stationary
    total = everyone.input_tokens + everyone.output_tokens
    found, served = [], []
    for pool in pools:
        mine = (total > pool.low_tokens) & (total <= pool.high_tokens)
        own = everyone._make(column[mine] for column in everyone)
        done = pool.server.serve(own.arrival_s, own.input_tokens, own.output_tokens)
        found.append(trace_metrics(done, percentile, stationary=steady))
        served.append((own.input_tokens, done))
    kept = sum(int(part["requests_count"].value) for part in found)
    span = float(everyone.arrival_s[-1] - everyone.arrival_s[0])
    return Played(
        pools=tuple(found),
        labels=tuple(pool.label for pool in pools),
        rate_rps=(everyone.arrival_s.size - 1) / span if span > 0 else np.inf,
        requests_count=everyone.arrival_s.size,
        cut_count=everyone.arrival_s.size - kept,
        restarts_count=sum(int(done.restarts.sum()) for _, done in served if done.restarts is not None),
        source=given.source,
        served=tuple(served),
    )
