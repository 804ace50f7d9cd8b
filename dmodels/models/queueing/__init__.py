"""Queues: Erlang's formulas, an instance as a birth-death chain, prefill stalls, and backlogs of bursts and traces."""

from __future__ import annotations

from .birth_death import Occupancy, occupancy, ttft_quantile_s
from .formulas import (
    closed_loop_rps,
    erlang_b,
    erlang_c,
    fluid_occupancy,
    inverse_erlang_b,
    service_factor,
    sum_quantile_s,
    wait_mean_s,
    wait_tail,
)
from .lindley import Backlog, StepGrid, trace_backlog
from .packing import LastStep, PackedSteps, last_step, packed_frac, packed_steps, partial_fill
from .sharing import SharedSteps, met_quantiles, shared_steps
from .stalls import capped_mean_s, gamma_quantiles, stalled_tpot_s
from .transient import backlog_s, work_variance_s

__all__ = [
    "Backlog",
    "LastStep",
    "Occupancy",
    "PackedSteps",
    "SharedSteps",
    "StepGrid",
    "backlog_s",
    "capped_mean_s",
    "closed_loop_rps",
    "erlang_b",
    "erlang_c",
    "fluid_occupancy",
    "gamma_quantiles",
    "inverse_erlang_b",
    "last_step",
    "met_quantiles",
    "occupancy",
    "packed_frac",
    "packed_steps",
    "partial_fill",
    "service_factor",
    "shared_steps",
    "stalled_tpot_s",
    "sum_quantile_s",
    "trace_backlog",
    "ttft_quantile_s",
    "wait_mean_s",
    "wait_tail",
    "work_variance_s",
]
