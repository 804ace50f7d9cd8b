"""dmodels: how many GPUs, of which kind, split how, routed how, and how sure is the answer.

Names are resolved on first use (PEP 562), so that importing dmodels imports neither JAX nor anything else heavy,
and never changes the caller's `jax.config`. The first name that needs JAX tells XLA to carry out the parts of a program
on a CPU one after the other (`core.schedule`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core.names import resolved

if TYPE_CHECKING:  # the names of `_HOME` as type checkers and editors read them
    from .core.compilations import keep_compiled as keep_compiled
    from .core.devices import choose_device as choose_device
    from .core.flags import Flag as Flag
    from .core.hardware import GPU as GPU
    from .core.hardware import SLO as SLO
    from .core.hardware import Fabric as Fabric
    from .core.hardware import Parallel as Parallel
    from .core.model import Model as Model
    from .core.records import stack as stack
    from .core.units import parse as parse
    from .core.workload import Workload as Workload
    from .design.axes import choice as choice
    from .design.axes import grid as grid
    from .design.axes import zipped as zipped
    from .design.space import sweep as sweep
    from .fit.calibration import efficiency_for as efficiency_for
    from .models.latency import Efficiency as Efficiency
    from .models.latency import iteration_s as iteration_s
    from .models.latency import prefill_s as prefill_s
    from .models.latency import serve as serve
    from .models.memory import concurrent_sequences as concurrent_sequences
    from .models.memory import kv_bytes as kv_bytes
    from .models.memory import kv_bytes_per_token as kv_bytes_per_token
    from .models.traffic import Trace as Trace
    from .models.traffic import read_trace as read_trace
    from .studies.plan.ask import plan as plan

__version__ = "0.2.0"

#: Public name -> module that defines it.
_HOME = {
    "GPU": "core.hardware",
    "SLO": "core.hardware",
    "Fabric": "core.hardware",
    "Flag": "core.flags",
    "Model": "core.model",
    "Parallel": "core.hardware",
    "Trace": "models.traffic",
    "Workload": "core.workload",
    "choice": "design.axes",
    "choose_device": "core.devices",
    "concurrent_sequences": "models.memory",
    "grid": "design.axes",
    "keep_compiled": "core.compilations",
    "kv_bytes": "models.memory",
    "kv_bytes_per_token": "models.memory",
    "parse": "core.units",
    "plan": "studies.plan.ask",
    "Efficiency": "models.latency",
    "iteration_s": "models.latency",
    "prefill_s": "models.latency",
    "serve": "models.latency",
    "efficiency_for": "fit.calibration",
    "read_trace": "models.traffic",
    "stack": "core.records",
    "sweep": "design.space",
    "zipped": "design.axes",
}

__all__ = ["__version__", *_HOME]


if not TYPE_CHECKING:  # it would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        return resolved(__name__, _HOME, name)


def __dir__() -> list[str]:
    return sorted(__all__)
