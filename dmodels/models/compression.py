r"""Compressing prompts just above a threshold, so that they fit the pool below it.

The token-budget paper's section 7: "Requests slightly above $B_{short}$ could be served in the short pool if their
prompts were compressed". A request of p prompt and o output tokens with $p + o > B$ is compressed to $B - o$ prompt
tokens if at least the share `keep_frac` of its prompt remains: $\kappa p \le B - o$. A compressor reads
`tokens_per_s` prompt tokens a second, so it costs $\lambda E[p\,1_{compressed}] / r$ compressors, and $p/r$ seconds of
TTFT. What compression does to answers has no model here: `keep_frac` is what the user's evaluation allows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real, Record, float64, quantity
from dmodels.core.workload import Workload


class Compression(Record):
    """A compressor in front of the pools."""

    keep_frac: Real = quantity(0.5)  # least share of a prompt that may remain
    tokens_per_s: Real = quantity(50_000.0)  # prompt tokens that one compressor reads a second
    instances_per_compressor: Real = quantity(0.5)  # its price, in serving instances


class CompressedTraffic(NamedTuple):
    """What arrives at the pools, and the compressor's part."""

    workload: Workload
    compressed_frac: float  # share of the requests
    compressors_per_rps: float  # busy compressors per request a second
    delay_s: float  # longest time that compressing adds to a TTFT


@float64
def compressed(workload: Workload, threshold_tokens: float, compression: Compression) -> CompressedTraffic:
    """The workload with its borderline prompts compressed to the threshold. Cached prefixes shrink with their prompt.

    >>> mixed = Workload([1000.0, 9000.0, 60000.0], [100.0, 192.0, 100.0], [0.5, 0.3, 0.2])
    >>> found = compressed(mixed, 8192.0, Compression(keep_frac=0.5, tokens_per_s=9000.0))
    >>> found.workload.input_tokens.tolist(), found.compressed_frac, round(found.compressors_per_rps, 9)
    ([1000.0, 8000.0, 60000.0], 0.3, 0.3)
    """
    keep, speed, price = (
        float(x) for x in (compression.keep_frac, compression.tokens_per_s, compression.instances_per_compressor)
    )
    if not (0 < keep <= 1 and speed > 0 and price >= 0 and threshold_tokens > 0):
        raise InputError(
            f"keep_frac {keep:g}, tokens_per_s {speed:g}, instances_per_compressor {price:g}, threshold_tokens "
            f"{threshold_tokens:g}; accepted: keep_frac above 0 and at most 1, no price below 0, others above 0"
        )
    prompt, room = workload.input_tokens, threshold_tokens - workload.output_tokens
    shrinks = (prompt > room) & (room >= keep * prompt) & (room > 0)
    left = np.where(shrinks, room, prompt)
    cached = workload.cached_tokens * np.where(prompt > 0, left / np.where(prompt > 0, prompt, 1.0), 1.0)
    read = np.where(shrinks, prompt, 0.0)
    return CompressedTraffic(
        workload.replace(input_tokens=left, cached_tokens=cached),
        float(workload.mean(shrinks.astype(float))),
        float(workload.mean(read)) / speed,
        float(read.max(initial=0.0)) / speed,
    )
