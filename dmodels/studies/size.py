"""What fits on one instance: where the memory of its GPUs goes, the sequences it holds, and the way out if none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.flags import Flag, usable
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.programs import at_once
from dmodels.core.records import Real, float64, stack
from dmodels.core.workload import Workload
from dmodels.models.memory import (
    LAYOUT_RULE,
    EngineMemory,
    Slots,
    WeightBytes,
    concurrent_sequences,
    default_sequences,
    default_utilization,
    engine_memory,
    kv_reserved_bytes,
    residents,
    sequences_by_bernstein,
    sequences_that_fit,
    stage,
    stored_weight_bytes,
    weight_bytes_per_gpu,
    with_kv_dtype,
    with_weight_dtype,
)

#: Longest context that is looked for where the model's config states none.
LONGEST_TOKENS = 2**22


@dataclass(frozen=True)
class Mixed(Answer):
    """Sequences of a workload's lengths per instance."""

    mean_bytes: float  # KV per GPU of a running sequence, seen at a random moment
    slots_count: int  # that stay within the budget with the asked probability (normal law, corrected for skewness)
    certain_count: int  # the same, guaranteed by Bernstein's inequality
    probability: float


@dataclass(frozen=True)
class Fix(Answer):
    """One change that makes it fit."""

    change: str
    slots_count: int


@dataclass(frozen=True)
class Size(Answer):
    """The answer of `size`."""

    derived = ("fits",)
    slots: Slots
    weights: WeightBytes
    longest_context_tokens: int  # longest single sequence that fits; 0: none
    binds: str  # what sets the limit, in words
    have_bytes: float  # that weights, activations, runtime and cache may take of a GPU together
    need_bytes: float  # of it, with one sequence
    mixed: Mixed | None
    fixes: tuple[Fix, ...]  # where nothing fits: each alone would do, the least of each kind

    @property
    def fits(self) -> bool:
        """At least one sequence fits, on a layout that engines run."""
        return bool(usable(int(self.slots.flags)))


class _Options(NamedTuple):
    utilization: float
    block_tokens: float
    batched_tokens: float
    max_sequences: float
    engine: EngineMemory


class _Try(NamedTuple):
    model: Model
    gpu: GPU
    parallel: Parallel
    context_tokens: float


@float64
def size(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    context_tokens: float,
    workload: Workload | None = None,
    utilization: float | None = None,
    block_tokens: int = 16,
    batched_tokens: int = 8192,
    probability: float = 0.99,
    max_sequences: int | None = None,
    backend: str = "vllm",
    release: str = "",
) -> Size:
    """Size one instance for sequences of `context_tokens` tokens, and for a workload's mix of lengths.

    The room is what `backend` leaves after its start-up run of `batched_tokens` tokens and `max_sequences` sequences,
    by default as many as it is started with unless told otherwise. Llama-3.1-70B in BF16 on 8 x H100 at 8,192 tokens:
    154 sequences of 320 MiB per GPU.
    """
    asked, memory = _Try(model, gpu, parallel, float(context_tokens)), engine_memory(backend, release)
    if utilization is None:
        utilization = float(default_utilization(memory, gpu, parallel, batched_tokens))
    sampled = default_sequences(backend, gpu) if max_sequences is None else float(max_sequences)
    options = _Options(float(utilization), float(block_tokens), float(batched_tokens), sampled, memory)
    changes = _changes(asked)
    everything = [asked, *(change for _, change in changes)]
    batch = stack(*everything)
    slots = jax.tree.map(np.asarray, _slots(batch, options))
    first = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(everything),))[0], slots)
    longest = _longest(asked, float(first.budget_bytes), options)
    fixes: dict[str, Fix] = {}
    if not int(first.flags) & Flag.OUT_OF_DOMAIN and 0 < longest < context_tokens:
        lengths = (options.block_tokens, options.batched_tokens)
        shorter = _reserved_bytes(model, parallel, float(longest), *lengths)
        ranks = float(parallel.dp)
        fixes["context"] = Fix(
            f"a context of {longest:,} tokens", int(ranks * float(sequences_that_fit(first.budget_bytes, shorter)))
        )
    for (text, _), count, flags in zip(changes, slots.slots_count[1:], slots.flags[1:], strict=True):
        if usable(int(flags)):
            fixes.setdefault(text.split()[0], Fix(text, int(count)))
    mixed = None if workload is None else _mixed(asked, workload, probability, options)
    weights = jax.tree.map(np.asarray, _weights(model, parallel))
    unusable = not usable(int(first.flags))
    taken = first.weight_bytes + first.activation_bytes + first.runtime_bytes
    return Size(
        slots=first,
        weights=weights,
        longest_context_tokens=longest,
        binds=_binds(first, float(context_tokens)),
        have_bytes=float(taken + first.budget_bytes),
        need_bytes=float(taken + first.sequence_bytes),
        mixed=mixed,
        fixes=tuple(fixes.values()) if unusable else (),
    )


@at_once
def _slots(batch: _Try, options: _Options) -> Slots:
    p = batch.parallel
    return concurrent_sequences(
        batch.model,
        batch.gpu,
        batch.context_tokens,
        tp=p.tp,
        pp=p.pp,
        dp=p.dp,
        ep=p.ep,
        **options._asdict(),
    )


@at_once
def _reserved_bytes(model: Model, parallel: Parallel, tokens: Real, block_tokens: float, batched_tokens: float) -> Real:
    """Of one sequence, on a GPU of the fullest stage."""
    return kv_reserved_bytes(stage(model, parallel.pp), tokens, parallel.tp, block_tokens, batched_tokens)


_weights = at_once(weight_bytes_per_gpu)


def _changes(asked: _Try) -> list[tuple[str, _Try]]:
    """Single changes, the mildest first: KV in FP8, more tensor parallelism, weights in FP8 and FP4, more stages."""
    model, _, p, _ = asked
    found = []
    if float(model.kv_dtype_bytes) > 1:
        found.append(("KV cache in FP8", asked._replace(model=with_kv_dtype(model, "fp8"))))
    for degree in (2, 4, 8, 16, 32, 64):
        if degree > float(p.tp):
            found.append((f"tp = {degree}", asked._replace(parallel=p.replace(tp=degree))))
    if float(model.params_count) > 0:
        for dtype, limit in (("fp8", 1.1), ("fp4", 0.6)):
            if stored_weight_bytes(model) > limit:
                text = f"weights in {dtype.upper()}"
                found.append((text, asked._replace(model=with_weight_dtype(model, dtype))))
    for degree in (2, 4, 8):
        if degree > float(p.pp):
            found.append((f"pp = {degree}", asked._replace(parallel=p.replace(pp=degree))))
    return found


def _longest(asked: _Try, budget_bytes: float, options: _Options) -> int:
    """Tokens of the longest single sequence that fits, in whole blocks, at most the model's own limit."""
    limit = float(asked.model.max_context_tokens) or LONGEST_TOKENS
    block_tokens = options.block_tokens
    fits, most = 0, int(limit // block_tokens)
    while fits < most:  # a thousand lengths at a time, each time between the longest that fits and the next
        blocks = np.round(np.linspace(fits + 1.0, most, 1024))
        held = _reserved_bytes(asked.model, asked.parallel, block_tokens * blocks, block_tokens, options.batched_tokens)
        count = int(np.searchsorted(np.asarray(held), budget_bytes, side="right"))  # held never falls
        most = int(blocks[count]) - 1 if count < blocks.size else most
        fits = int(blocks[count - 1]) if count else fits
    return int(block_tokens * fits)


def _mixed(asked: _Try, workload: Workload, probability: float, options: _Options) -> Mixed:
    held = residents(
        asked.model,
        asked.gpu,
        asked.parallel,
        input_tokens=workload.input_tokens,
        output_tokens=workload.output_tokens,
        weights=workload.weight_frac,
        probability=probability,
        **options._asdict(),
    )
    certain = float(asked.parallel.dp) * float(sequences_by_bernstein(held.budget_bytes, held.each, probability))
    return Mixed(
        mean_bytes=float(held.each.mean_bytes),
        slots_count=int(held.count),
        certain_count=min(int(certain), int(held.count)),
        probability=float(probability),
    )


def _binds(slots: Slots, context_tokens: float) -> str:
    flags = int(slots.flags)
    if flags & Flag.OUT_OF_DOMAIN:
        return f"no engine runs the layout: {LAYOUT_RULE}"
    if float(slots.budget_bytes) <= 0:
        return "weights, activations and runtime alone exceed the usable memory"
    if flags & Flag.NO_FIT:
        return f"the KV cache of one sequence of {context_tokens:,.0f} tokens exceeds what the weights leave"
    return "memory for the KV cache"
