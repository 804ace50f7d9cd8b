"""The design space of a plan: instance layouts (GPU, parallelism, precision) times stages (which requests, which role).

A *layout* says what one instance is. A *stage* says what a pool of them does: all requests, the short or the long
ones of a threshold, prefill only or decode only. A *scheme* is what one can deploy: a list of stages.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.hardware import GPU, SLO, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.precision import Precision
from dmodels.core.records import Real, filled, stack
from dmodels.core.workload import Workload
from dmodels.models.instance import Engine, Roofline, StepTable
from dmodels.models.latency import Efficiency
from dmodels.models.memory import (
    VLLM,
    EngineMemory,
    kv_bytes_per_token,
    kv_reserved_bytes,
    residents,
)
from dmodels.models.memory import stage as pipeline_stage
from dmodels.models.traffic import NO_GAPS, Requests, requests_between

#: Layouts and stages that a program is compiled for at least: small questions share one.
LEAST = 16

#: Share of the TTFT budget that the prefill workers of a prefill/decode split may use; decode entry gets the rest.
TTFT_SHARES = (0.5, 0.7, 0.85, 0.95)


class Role(StrEnum):
    """What a pool does for its requests."""

    SERVE = "serve"  # prefill and decode
    PREFILL = "prefill"
    DECODE = "decode"


class Stretch(StrEnum):
    """The traffic that replays size a fleet for."""

    TRACE = "trace"  # what was recorded
    NEXT = "next"  # as long a stretch again, which nobody has seen


class Kind(StrEnum):
    """How pools share the requests."""

    ONE_POOL = "one pool"
    TWO_POOLS = "two pools"  # short and long requests
    SPLIT = "prefill/decode split"


@dataclass(frozen=True)
class Layout(Answer):
    """One instance: its GPU, how it is spread, and in which precision it keeps weights and KV cache."""

    derived = ("gpus",)
    gpu: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    weights: str = Precision.AS_PUBLISHED
    kv: str = Precision.AS_PUBLISHED

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tp * self.pp * self.dp

    @property
    def parallel(self) -> str:
        """The layout in the field's notation."""
        return f"tp{self.tp}pp{self.pp}dp{self.dp}ep{self.ep}"

    @property
    def as_parallel(self) -> Parallel:
        """The same as models take it."""
        return Parallel(self.tp, self.pp, self.dp, self.ep)

    @property
    def degrees(self) -> str:
        """The same without what is not split: 'tp8', 'dp8 ep8'."""
        split = [f"{name}{n}" for name in ("tp", "pp", "dp", "ep") if (n := getattr(self, name)) > 1]
        return " ".join(split) or "tp1"

    def __str__(self) -> str:
        precision = "" if {self.weights, self.kv} == {Precision.AS_PUBLISHED} else f" w={self.weights} kv={self.kv}"
        return f"{self.gpu} {self.parallel}{precision}"


@dataclass(frozen=True)
class Stage:
    """What one pool does: requests whose total lies in (low, high], in one role."""

    name: str
    role: Role = Role.SERVE
    low_tokens: float = 0.0
    high_tokens: float = np.inf
    ttft_share: float = 1.0  # of the TTFT budget
    percentile_share: float = 1.0  # of the SLO's 1 - q: two stages of one request share it (union bound)


@dataclass(frozen=True)
class Scheme:
    """A way to deploy: which stages together serve every request."""

    kind: Kind
    name: str
    stages: tuple[int, ...]  # indices into the list of stages

    @property
    def in_turn(self) -> bool:
        """Whether each request passes all stages, rather than one of them."""
        return self.kind == Kind.SPLIT


class Instances(NamedTuple):
    """Layouts as records, batched over layouts: leaves of shape (layouts,)."""

    model: Model
    gpu: GPU
    parallel: Parallel
    efficiency: Efficiency


class Cells(NamedTuple):
    """Every (layout, stage) pair as one batch: what `operate` needs, leaves of shape (cells, 1) or (cells, 1, k)."""

    steps: StepTable
    requests: Requests
    slo: SLO
    slots_count: Real  # sequences that memory holds with probability 0.99
    budget_bytes: Real  # for KV, per GPU
    longest_bytes: Real  # KV of the longest request, per GPU
    prompt_s: Real
    wait_steps: Real
    transfer_s_per_token: Real
    dp: Real
    pp: Real


def schemes(thresholds_tokens: list[float], split: bool) -> tuple[list[Stage], list[Scheme]]:
    """Stages and schemes: one pool; two pools for every threshold; a prefill/decode split for every TTFT share."""
    stages = [Stage("all")]
    found = [Scheme(Kind.ONE_POOL, "one pool", (0,))]
    for threshold in thresholds_tokens:
        at = len(stages)
        stages += [Stage("short", high_tokens=threshold), Stage("long", low_tokens=threshold)]
        found.append(Scheme(Kind.TWO_POOLS, f"two pools at {threshold:,.0f} tokens", (at, at + 1)))
    for share in TTFT_SHARES if split else ():
        at = len(stages)
        stages += [Stage("prefill", Role.PREFILL, ttft_share=share, percentile_share=0.5)]
        stages += [Stage("decode", Role.DECODE, ttft_share=1.0 - share, percentile_share=0.5)]
        found.append(Scheme(Kind.SPLIT, "prefill/decode split", (at, at + 1)))
    return stages, found


def cells(
    instances: Instances,
    workload: Workload,
    small: Workload,
    stages: list[Stage],
    slo: SLO,
    engine: Engine,
    memory: EngineMemory = VLLM,
) -> Cells:
    """Sum up each stage's requests, size each layout's memory for them, tabulate its steps, and pair all with all.

    `small` is the same workload compressed to a few hundred support points, on which the memory footprint is taken;
    `memory` says how the engine divides a GPU.
    """
    each = [_requests(workload, stage) for stage in stages]
    requests = stack(*each)
    percentile = 1.0 - (1.0 - float(slo.percentile)) * np.array([stage.percentile_share for stage in stages])
    share = np.array([stage.ttft_share for stage in stages])
    tpot = np.array([np.inf if stage.role == Role.PREFILL else float(slo.tpot_s) for stage in stages])
    promised = SLO(slo.ttft_s * share, tpot, np.broadcast_to(slo.e2e_s, share.shape), percentile)
    lengths = [_support(small, stage, own) for stage, own in zip(stages, each, strict=True)]
    inputs, outputs, weights = (np.stack(column) for column in zip(*lengths, strict=True))
    prefill, decode = (
        np.array([float(stage.role == role) for stage in stages]) for role in (Role.PREFILL, Role.DECODE)
    )
    e = instances.efficiency
    ranks = np.where(instances.parallel.dp > 1, e.dp_wait_steps, 0.0)
    others = np.where(ranks > 0.0, instances.parallel.dp - 1.0, 0.0)  # whose prompts share the step that was waited for
    of_stages = filled((requests, inputs, outputs, weights), LEAST)
    found = _size(filled(instances, LEAST), *of_stages, engine, memory)
    memory, steps = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(instances.parallel.tp), : len(stages)], found)

    def flat(leaf, first_axes: int = 2):  # (layouts or 1, stages or 1, ...) -> (cells, 1, ...)
        leaf = np.asarray(leaf)
        whole = np.broadcast_to(leaf, (len(instances.parallel.tp), len(stages), *leaf.shape[first_axes:]))
        return whole.reshape(-1, 1, *leaf.shape[first_axes:])

    by_stage = lambda record: jax.tree.map(lambda leaf: flat(np.asarray(leaf)[None]), record)
    by_layout = lambda leaf: flat(np.asarray(leaf)[:, None])
    return Cells(
        steps=jax.tree.map(flat, steps),
        requests=by_stage(requests),
        slo=by_stage(promised),
        slots_count=flat(memory["slots_count"]),
        budget_bytes=flat(memory["budget_bytes"]),
        longest_bytes=flat(memory["longest_bytes"]),
        prompt_s=flat(
            1e-3 * np.asarray(e.prompt_ms)[:, None] * (1.0 - decode) + others[:, None] * steps.extra_s[..., 0]
        ),
        wait_steps=flat(np.where(prefill, 0.5, (e.wait_steps + ranks)[:, None])),
        transfer_s_per_token=flat(memory["transfer_s_per_token"] * prefill),
        dp=by_layout(instances.parallel.dp),
        pp=by_layout(instances.parallel.pp),
    )


@jax.jit
def _size(instances: Instances, requests: Requests, inputs, outputs, weights, engine: Engine, engine_memory):
    """Memory and step tables of every layout (rows) for every stage (columns), in one compiled program."""
    model, gpu, parallel, efficiency = instances
    batched_tokens = engine.max_num_batched_tokens
    part = pipeline_stage(model, parallel.pp)
    wide = jax.tree.map(lambda leaf: leaf[:, None], Instances(part, gpu, parallel, efficiency))

    def over_stages(layout):
        held = functools.partial(
            residents,
            *layout,
            batched_tokens=batched_tokens,
            max_sequences=engine.max_num_seqs_count,
            engine=engine_memory,
        )
        return jax.vmap(held)(inputs, outputs, weights)

    held = jax.lax.map(over_stages, (model, gpu, parallel))
    tokens = requests.longest_tokens[None]
    longest = kv_reserved_bytes(wide.model, tokens, wide.parallel.tp, max_batched_tokens=batched_tokens)
    nic = gpu.nic_bytes_per_s_per_gpu_oneway
    memory = {
        "slots_count": held.count,
        "budget_bytes": held.budget_bytes[:, :1],
        "longest_bytes": longest,
        "transfer_s_per_token": safe_divide(kv_bytes_per_token(part, parallel.tp), nic, 0.0)[:, None],
    }
    sent = jax.tree.map(lambda leaf: leaf[None], requests)
    whole = jax.tree.map(lambda leaf: leaf[:, None], instances)
    budget = jnp.reshape(batched_tokens, (1, 1))
    roofline = Roofline(whole.model, whole.gpu, whole.parallel, sent, whole.efficiency, budget)
    return memory, roofline.table()


def _requests(workload: Workload, stage: Stage) -> Requests:
    requests = requests_between(workload, stage.low_tokens, stage.high_tokens)
    if stage.role == Role.PREFILL:  # a prompt leaves when it is computed
        nothing = 0.0 * requests.output_edge_tokens
        return requests.replace(output_tokens=0.0, output_edge_tokens=nothing, gap_tokens=NO_GAPS, output_scv=0.0)
    if stage.role == Role.DECODE:
        return requests.replace(
            prefill_tokens=0.0,
            prefill_square=0.0,
            prefill_edge_tokens=0.0 * requests.prefill_edge_tokens,
        )
    return requests


def _support(workload: Workload, stage: Stage, requests: Requests) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths for the memory footprint: a prefill worker holds prompts only, for about the same time each."""
    total = np.asarray(workload.total_tokens)
    here = (total > stage.low_tokens) & (total <= stage.high_tokens)
    weights = np.where(here, workload.weight_frac, 0.0)
    outputs = np.ones_like(total) if stage.role == Role.PREFILL else np.asarray(workload.output_tokens)
    if not weights.any() and requests.share_frac > 0:  # a stage so narrow that compression left nothing in it
        alike = np.full_like(total, requests.input_tokens), np.full_like(total, max(requests.output_tokens, 1.0))
        return *alike, np.full_like(total, 1.0 / len(total))
    return np.asarray(workload.input_tokens), outputs, weights
