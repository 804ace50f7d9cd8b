"""Prefill and decode instances, request by request: Phasor's routing, migration, gathering; TaiChi's hybrid workers."""

from __future__ import annotations

from .disaggregated import Stages, prefill
from .measured import measure
from .records import ClusterRun, Control, Flow, Hybrid, Signal, Workers
from .simulation import simulate

__all__ = [
    "ClusterRun",
    "Control",
    "Flow",
    "Hybrid",
    "Signal",
    "Stages",
    "Workers",
    "measure",
    "prefill",
    "simulate",
]
