"""SGLang's `bench_serving --output-file`: an object a line, with the engine's own flags.

Fields: sglang/benchmark/serving.py of SGLang 0.5.23.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .point import LoadPoint, degree, number, text
from .vllm_bench import engine, latency

#: How a quantization of SGLang's `--quantization` begins -> the precision of the weights.
_PRECISIONS = {
    **dict.fromkeys(("fp8", "w8a8_fp8", "modelopt_fp8", "blockwise"), "fp8"),
    **dict.fromkeys(("modelopt_fp4", "nvfp4", "mxfp4", "petit_nvfp4"), "fp4"),
    **dict.fromkeys(("awq", "gptq", "marlin", "moe_wna16"), "int4"),
}


def knows(document: Any) -> bool:
    """Whether a document is such a result."""
    return isinstance(document, dict) and {"request_throughput", "mean_e2e_latency_ms"} <= set(document)


def read(document: Any, where: str) -> Iterator[LoadPoint]:
    """The point of a line."""
    completed = number(document, "completed", where)
    each = max(completed, 1.0)
    rate = document.get("request_rate")
    info = document.get("server_info")
    own: Mapping[str, Any] = info if isinstance(info, Mapping) else {}
    gpus, ranks = degree(own, "tp_size", where), max(degree(own, "attn_dp_size", where), 1)
    if own.get("enable_dp_attention") is True:
        ranks = max(degree(own, "dp_size", where), ranks)
    yield LoadPoint(
        form="sglang-bench",
        where=where,
        input_tokens=number(document, "total_input_tokens", where) / each,
        output_tokens=number(document, "total_output_tokens", where) / each,
        throughput_rps=number(document, "request_throughput", where),
        ttft=latency(document, "ttft", where),
        tpot=latency(document, "tpot", where),
        e2e=latency(document, "e2e_latency", where),
        completed_count=completed,
        duration_s=number(document, "duration", where),
        asked_rate_rps=math.nan if rate == "trace" else number(document, "request_rate", where, math.inf),
        max_concurrency_count=number(document, "max_concurrency", where),
        model=text(own, "model_path"),
        engine=engine(text(document, "backend")),
        release=text(own, "version"),
        precision=_precision(own),
        tp=gpus // ranks if gpus else 0,
        pp=degree(own, "pp_size", where),
        dp=ranks if gpus else 0,
        ep=degree(own, "ep_size", where),
    )


def _precision(own: Mapping[str, Any]) -> str:
    """What the weights were loaded in, if that was asked for; "": as the checkpoint stores them."""
    asked = text(own, "quantization")
    return next((precision for begins, precision in _PRECISIONS.items() if asked.startswith(begins)), "")
