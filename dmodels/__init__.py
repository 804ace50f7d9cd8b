"""dmodels: how many GPUs, of which kind, split how, routed how, and how sure is the answer.

Names are resolved on first use (PEP 562), so that importing dmodels imports neither JAX nor anything else heavy,
and never changes the caller's `jax.config`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

#: Public name -> module that defines it.
_HOME = {
    "GPU": "core.hardware",
    "SLO": "core.hardware",
    "Fabric": "core.hardware",
    "Flag": "core.flags",
    "Model": "core.model",
    "Parallel": "core.hardware",
    "Trace": "models.trace",
    "Workload": "core.workload",
    "choice": "design.space",
    "concurrent_sequences": "models.memory",
    "grid": "design.space",
    "kv_bytes": "models.memory",
    "kv_bytes_per_token": "models.memory",
    "parse": "core.units",
    "Efficiency": "models.latency",
    "iteration_s": "models.latency",
    "prefill_s": "models.latency",
    "serve": "models.latency_serving",
    "efficiency_for": "fit.calibration",
    "read_trace": "models.trace",
    "stack": "core.records",
    "sweep": "design.space",
    "zipped": "design.space",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dmodels' has no attribute {name!r}")
    return getattr(import_module(f"dmodels.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
