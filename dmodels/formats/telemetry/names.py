"""The metrics of vLLM, SGLang and Dynamo by what they mean; of several names for one thing, the first there counts.

vLLM: vllm/v1/metrics/loggers.py of 0.33 (its inter-token latency was called time_per_output_token_seconds, and both are
emitted for a while); SGLang: sglang/srt/observability of 0.5.23; Dynamo: the frontend's metrics of 1.6.
"""

from __future__ import annotations

#: Meaning -> names, without `_bucket`, `_sum`, `_count` of histograms and `_total` of counters.
HISTOGRAMS = {
    "ttft": (
        "vllm:time_to_first_token_seconds",
        "sglang:time_to_first_token_seconds",
        "dynamo_frontend_time_to_first_token_seconds",
    ),
    "itl": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
        "dynamo_frontend_inter_token_latency_seconds",
    ),
    "e2e": (
        "vllm:e2e_request_latency_seconds",
        "sglang:e2e_request_latency_seconds",
        "dynamo_frontend_request_duration_seconds",
    ),
    "input_tokens": (
        "vllm:request_prompt_tokens",
        "sglang:prompt_tokens_histogram",
        "dynamo_frontend_input_sequence_tokens",
    ),
    "output_tokens": (
        "vllm:request_generation_tokens",
        "sglang:generation_tokens_histogram",
        "dynamo_frontend_output_sequence_tokens",
    ),
}
COUNTERS = {
    "requests": ("vllm:request_success", "sglang:num_requests", "dynamo_frontend_requests"),
    "prefix_queries": ("vllm:prefix_cache_queries", "sglang:prompt_tokens"),
    "prefix_hits": ("vllm:prefix_cache_hits", "sglang:cached_tokens"),
}
GAUGES = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "dynamo_frontend_inflight_requests"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "dynamo_frontend_queued_requests"),
    "kv_frac": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
}
#: Labels by which replicas of an engine differ.
REPLICA = ("instance", "pod", "engine", "engine_index", "tp_rank", "dp_rank", "worker_id")
#: Who reports metrics: how their names begin.
REPORTERS = ("vllm", "sglang", "dynamo_frontend")


def reporter(name: str) -> str:
    """Who reports a metric.

    >>> reporter("vllm:num_requests_running")
    'vllm'
    """
    return next(one for one in REPORTERS if name.startswith(one))
