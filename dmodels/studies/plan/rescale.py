"""A question with other lengths: requests longer or shorter by a factor, or with another share in a prefix cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dmodels.core.errors import InputError

from .questions import Question
from .sizing import thresholds


def with_lengths(asked: Question, input_factor: float = 1.0, output_factor: float = 1.0) -> Question:
    """`asked` with all inputs times one factor and all outputs times another (at least one token).

    The thresholds that it asks about move with the mean total and stay where both pools have requests, so that the
    question keeps its shape: as many stages, no new program to compile. Nobody recorded such requests, so there is no
    trace any more. Factors of 1 give `asked` itself.
    """
    if input_factor == output_factor == 1.0:
        return asked
    old = asked.workload
    new = old.replace(
        input_tokens=old.input_tokens * input_factor,
        cached_tokens=old.cached_tokens * input_factor,
        output_tokens=np.where(old.output_tokens > 0, np.maximum(old.output_tokens * output_factor, 1.0), 0.0),
    )
    limits = thresholds(asked)
    if not limits:
        return replace(asked, workload=new, trace=None)
    taken = replace(asked, workload=new, trace=None).admitted.workload
    total = np.asarray(taken.total_tokens)[np.asarray(taken.weight_frac) > 0]
    if total.size and total.min() == total.max():  # nothing to tell two pools apart by
        return replace(asked, workload=new, trace=None, thresholds_tokens=())
    moved = np.array(limits) * float(new.mean_total_tokens) / float(old.mean_total_tokens)
    within = np.clip(np.round(moved), total.min(), np.nextafter(total.max(), 0.0))
    return replace(asked, workload=new, trace=None, thresholds_tokens=tuple(within.tolist()))


def with_prefix_hits(asked: Question, cached_frac: float) -> Question:
    """`asked` with this share of every input found in a prefix cache; like other lengths, nobody recorded it."""
    if not 0.0 <= cached_frac < 1.0:
        raise InputError(f"cached share {cached_frac:g}: accepted are shares from 0 to below 1")
    workload = asked.workload.replace(cached_tokens=cached_frac * asked.workload.input_tokens)
    return replace(asked, workload=workload, trace=None)
