"""Time of a step: from hardware terms (`steps`, `terms`), with prompts that share it (`mixed`), as laws of the batch
(`laws`, `curves`), and of a closed loop of clients on one instance (`serving`).
"""

from __future__ import annotations

from .batching_curve import MAX_IN_FLIGHT, NETKV_CURVE, BatchingCurve
from .curves import TableCurve, affine, as_curve, iteration_time, latency_table
from .laws import LatencyCurve, StepLaw, linear_law, singular_latency_s
from .mixed import MixedSteps, budget_of_ranks
from .most import Throughput, maximum_throughput
from .serving import Serving, serve, serve_disaggregated
from .steps import Efficiency, Part, Step, decode_step_s, iteration_s, parts, prefill_s, step, tokens_per_step
from .terms import (
    Exchange,
    all_reduce_bytes,
    decode_attention_flop,
    expert_exchange_bytes,
    expert_hit_frac,
    kv_read_bytes,
    peak_flop_per_s,
    prefill_attention_flop,
)

__all__ = [
    "MAX_IN_FLIGHT",
    "NETKV_CURVE",
    "BatchingCurve",
    "Efficiency",
    "Exchange",
    "LatencyCurve",
    "MixedSteps",
    "Part",
    "Serving",
    "Step",
    "StepLaw",
    "TableCurve",
    "Throughput",
    "affine",
    "all_reduce_bytes",
    "as_curve",
    "budget_of_ranks",
    "decode_attention_flop",
    "decode_step_s",
    "expert_exchange_bytes",
    "expert_hit_frac",
    "iteration_s",
    "iteration_time",
    "kv_read_bytes",
    "latency_table",
    "linear_law",
    "maximum_throughput",
    "parts",
    "peak_flop_per_s",
    "prefill_attention_flop",
    "prefill_s",
    "serve",
    "serve_disaggregated",
    "singular_latency_s",
    "step",
    "tokens_per_step",
]
