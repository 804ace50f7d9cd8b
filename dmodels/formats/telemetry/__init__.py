"""Telemetry of engines: Prometheus' answers and scrapes as the demand, the workload and the latencies they show."""

from __future__ import annotations

from .observe import Histogram, Telemetry, observe, read_workload, summarised, workload
from .series import Series, increase, read_series

__all__ = [
    "FORMATS",
    "Histogram",
    "Series",
    "Telemetry",
    "increase",
    "observe",
    "read_series",
    "read_workload",
    "summarised",
    "workload",
]

#: Name -> what it is.
FORMATS = {
    "prometheus-json": "Prometheus query_range answers (JSON) of vLLM, SGLang, Dynamo",
    "prometheus-text": "an engine's /metrics (text exposition) of vLLM, SGLang, Dynamo",
}
