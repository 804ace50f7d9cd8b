"""Traffic: traces and their file formats, workloads by length, classes of requests, burstiness."""

from __future__ import annotations

from .bursts import Burstiness, burstiness
from .requests import GAP_EDGES, GAP_WEIGHTS, LEVELS, NO_GAPS, Requests, requests_between
from .trace import BLOCK_TOKENS, TRACE_FORMATS, Trace, prefix_hits, read_trace, with_prefix_hits
from .workload import (
    CHUNK_TOKENS,
    LengthClass,
    Split,
    between,
    compress,
    condition,
    iterations,
    quantile,
    split,
    whole,
)

__all__ = [
    "BLOCK_TOKENS",
    "CHUNK_TOKENS",
    "GAP_EDGES",
    "GAP_WEIGHTS",
    "LEVELS",
    "NO_GAPS",
    "TRACE_FORMATS",
    "Burstiness",
    "LengthClass",
    "Requests",
    "Split",
    "Trace",
    "between",
    "burstiness",
    "compress",
    "condition",
    "iterations",
    "prefix_hits",
    "quantile",
    "read_trace",
    "requests_between",
    "split",
    "whole",
    "with_prefix_hits",
]
