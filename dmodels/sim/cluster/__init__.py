"""Prefill and decode instances with Phasor's routing, migration and defragmentation, request by request."""

from __future__ import annotations

from .disaggregated import Stages, prefill
from .records import ClusterRun, Control, Flow, Signal, Workers
from .simulation import simulate

__all__ = [
    "ClusterRun",
    "Control",
    "Flow",
    "Signal",
    "Stages",
    "Workers",
    "prefill",
    "simulate",
]
