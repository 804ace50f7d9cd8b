"""Prefill and decode instances with Phasor's routing, migration and defragmentation, request by request."""

from __future__ import annotations

from .disaggregated import Signal, Stages, prefill
from .measured import measure
from .simulation import Cluster, Control, Flow, Run, simulate

__all__ = [
    "Cluster",
    "Control",
    "Flow",
    "Run",
    "Signal",
    "Stages",
    "measure",
    "prefill",
    "simulate",
]
