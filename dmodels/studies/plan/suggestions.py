"""What was not asked about but pays: the whole plan again with one choice made otherwise, and its price in quality or
effort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.precision import Precision
from dmodels.core.records import float64
from dmodels.core.workload import Workload
from dmodels.models.memory import stored_weight_bytes
from dmodels.models.traffic import with_prefix_hits

from .questions import Question
from .search import Plan
from .sizing import least_usd_per_hour, price, saved_frac

#: What saves less is not worth a sentence.
_WORTH_FRAC = 0.05
#: Token budgets of a step that are tried.
_CHUNKS = (2048.0, 4096.0, 16384.0)


@dataclass(frozen=True)
class Suggestion(Answer):
    """A choice that makes the cheapest plan cheaper, by the closed forms."""

    what: str
    flags: str  # that ask for it
    usd_per_hour: float  # of the cheapest plan then
    saves_frac: float  # of what the cheapest plan costs as it was asked for; 1: there was none
    takes: str  # the price of it


@float64
def suggestions(answer: Plan) -> list[Suggestion]:
    """What saves 5 % or more, the most first."""
    now = answer.formula_usd_per_hour
    found = []
    for what, flags, takes, other in _others(answer.question):
        cost = least_usd_per_hour(price(other))
        saved = saved_frac(now, cost)
        if saved >= _WORTH_FRAC:
            found.append(Suggestion(what, flags, cost, saved, takes))
    best_of = {entry.what: entry for entry in sorted(found, key=lambda entry: entry.saves_frac)}
    return sorted(best_of.values(), key=lambda entry: -entry.saves_frac)


def _others(asked: Question) -> Iterator[tuple[str, str, str, Question]]:
    wide = stored_weight_bytes(asked.model) > 1.5
    eight_bit = any(float(gpu.peak_fp8_flop_per_s) > 0 for gpu in asked.gpus.values())
    as_published = (Precision.AS_PUBLISHED,)
    if eight_bit and asked.kv == as_published:
        fp8 = (Precision.FP8,)
        if wide and asked.weights == as_published:
            takes = "an FP8 checkpoint, and a check of the answers' quality"
            other = replace(asked, weights=fp8, kv=fp8)
            yield "FP8 weights and KV cache", "--weights fp8 --kv fp8", takes, other
        other = replace(asked, kv=fp8)
        yield "an FP8 KV cache", "--kv fp8", "a check of the answers' quality at long contexts", other
    for chunk in _CHUNKS:
        if chunk != float(asked.engine.max_num_batched_tokens):
            other = replace(asked, engine=asked.engine.replace(max_num_batched_tokens=chunk))
            flag = f"--max-num-batched-tokens {chunk:.0f}"
            yield "another token budget of a step", flag, "a setting of the engine", other
    if asked.trace is not None and asked.trace.block_ids is not None and not np.any(asked.trace.cached_tokens):
        trace = with_prefix_hits(asked.trace)
        other = replace(asked, trace=trace, workload=Workload.from_trace(trace, asked.rate_rps))
        yield "prefix caching", "--prefix-hits", "routing that sends a prefix where its cache is", other
