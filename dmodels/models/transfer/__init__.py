"""Moving a KV cache: transfer times and paths, what stale telemetry may cost, and when the network can be ignored."""

from __future__ import annotations

from .choice import ObliviousLoss, oblivious_loss
from .paths import fan_out_time_s, pipelined_transfer_s, shared_transfer_s, staged_transfer_s
from .staleness import (
    correlation_time_s,
    cost_staleness_tolerance,
    refresh_interval_s,
    same_tier_tolerance,
    stale_regret_bound_s,
    tier_staleness_tolerance,
    worst_stale_regret_s,
)
from .times import (
    PostPrefill,
    effective_bandwidth_bytes_per_s,
    effective_bytes,
    first_step_s,
    kv_cache_bytes,
    post_prefill_latency,
    queue_delay_s,
    slot_wait_s,
    transfer_time_s,
)

__all__ = [
    "ObliviousLoss",
    "PostPrefill",
    "correlation_time_s",
    "cost_staleness_tolerance",
    "effective_bandwidth_bytes_per_s",
    "effective_bytes",
    "fan_out_time_s",
    "first_step_s",
    "kv_cache_bytes",
    "oblivious_loss",
    "pipelined_transfer_s",
    "post_prefill_latency",
    "queue_delay_s",
    "refresh_interval_s",
    "same_tier_tolerance",
    "shared_transfer_s",
    "slot_wait_s",
    "staged_transfer_s",
    "stale_regret_bound_s",
    "tier_staleness_tolerance",
    "transfer_time_s",
    "worst_stale_regret_s",
]
