"""Ray's llmperf: the summary of a run, all times in seconds.

Fields: src/llmperf and token_benchmark_ray.py of ray-project/llmperf. Its inter-token latency is the whole request's
time over its tokens, first token included; the time after the first is worked out from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .point import LatencyStats, LoadPoint, number, stats, text


def knows(document: Any) -> bool:
    """Whether a document is such a summary."""
    return isinstance(document, dict) and "results_ttft_s_mean" in document


def read(document: Any, where: str) -> Iterator[LoadPoint]:
    """The point of a run."""
    outputs = number(document, "results_number_output_tokens_mean", where)
    ttft, e2e = _latency(document, "ttft_s", where), _latency(document, "end_to_end_latency_s", where)
    after = (e2e.mean_s - ttft.mean_s) / max(outputs - 1.0, 1.0)
    yield LoadPoint(
        form="llmperf",
        where=where,
        input_tokens=number(document, "results_number_input_tokens_mean", where),
        output_tokens=outputs,
        throughput_rps=number(document, "results_num_completed_requests_per_min", where) / 60.0,
        ttft=ttft,
        tpot=LatencyStats(after if after > 0 else math.nan),
        e2e=e2e,
        completed_count=number(document, "results_num_completed_requests", where),
        failed_count=number(document, "results_number_errors", where, 0.0),
        max_concurrency_count=number(document, "num_concurrent_requests", where),
        model=text(document, "model"),
    )


def _latency(document: Any, name: str, where: str) -> LatencyStats:
    names = {"mean_s": f"results_{name}_mean"}
    names |= {f"p{q}_s": f"results_{name}_quantiles_p{q}" for q in (50, 90, 95, 99)}
    return stats(document, where, 1.0, names)
