"""vLLM's `vllm bench serve --save-result`: an object a run; with --save-detailed also the latencies of each request.

Fields: vllm/benchmarks/serve.py of vLLM 0.33. The file names no GPU and no parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .point import LatencyStats, LoadPoint, number, stats, text

_NAMES = {"mean_s": "mean_{}_ms", "p50_s": "median_{}_ms", "p90_s": "p90_{}_ms", "p95_s": "p95_{}_ms"}
_NAMES |= {"p99_s": "p99_{}_ms"}


def knows(document: Any) -> bool:
    """Whether a document is such a result."""
    return isinstance(document, dict) and {"request_throughput", "total_input_tokens", "model_id"} <= set(document)


def read(document: Any, where: str) -> Iterator[LoadPoint]:
    """The point of a run."""
    completed = number(document, "completed", where)
    each = max(completed, 1.0)
    rate = document.get("request_rate")
    yield LoadPoint(
        form="vllm-bench",
        where=where,
        input_tokens=number(document, "total_input_tokens", where) / each,
        output_tokens=number(document, "total_output_tokens", where) / each,
        throughput_rps=number(document, "request_throughput", where),
        ttft=latency(document, "ttft", where),
        tpot=latency(document, "tpot", where),
        e2e=latency(document, "e2el", where),
        completed_count=completed,
        failed_count=number(document, "failed", where, 0.0),
        duration_s=number(document, "duration", where),
        asked_rate_rps=math.inf if rate == "inf" else number(document, "request_rate", where),
        max_concurrency_count=number(document, "max_concurrency", where),
        model=text(document, "model_id"),
        engine=engine(text(document, "backend")),
    )


def latency(document: Any, name: str, where: str) -> LatencyStats:
    """A latency under vLLM's names, which SGLang shares."""
    return stats(document, where, 1e-3, {ours: theirs.format(name) for ours, theirs in _NAMES.items()})


def engine(backend: str) -> str:
    """An engine that the generator names; a protocol ("openai-chat") names none."""
    name = backend.lower()
    known = {"vllm": "vllm", "sglang": "sglang", "trt": "trtllm", "tensorrt-llm": "trtllm"}
    return next((ours for theirs, ours in known.items() if name.startswith(theirs)), "")
