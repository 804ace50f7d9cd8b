"""The room for the KV cache that the memory model leaves against what engines log at their start.

The lines and their addresses are in data/engine_logs.csv. The engines' own constants (a sampler's bytes per logit, a
driver's and a communicator's bytes) are medians over these same lines; what depends on model, layout and settings is
not fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels import Parallel, catalog
from dmodels.core.files import csv_rows
from dmodels.core.hardware import GPU
from dmodels.core.records import float64
from dmodels.core.units import GIB
from dmodels.models.memory import engine_memory, kv_budget_bytes, weight_bytes_per_gpu, with_weight_dtype

LOGS = Path(__file__).parent / "data" / "engine_logs.csv"


@benchmark()
def memory(quick: bool) -> Iterator[Row]:
    """Room for the KV cache and bytes of weights, by the formulas, against what engines log at their start."""
    rows = logs()
    yield _spread("room for the KV cache", [(kv_gib(row), float(row["kv_gib"])) for row in rows])
    loaded = [row for row in rows if row["weights_gib"]]
    yield _spread("weights", [(weights_gib(row), float(row["weights_gib"])) for row in loaded])
    for row in rows:
        logged, found = float(row["kv_gib"]), kv_gib(row)
        yield {"line": f"{row['model']} on {row['tp']} {row['gpu']}, {row['engine']}", "logged": logged, "found": found}


def logs() -> list[dict[str, str]]:
    """The lines of the logs."""
    return list(csv_rows(LOGS.read_text(encoding="utf-8")))


@float64
def kv_gib(row: dict[str, str]) -> float:
    """The room for the cache of one GPU, by the formulas."""
    gpu = GPU(float(row["gpu_gib"]) * GIB, 1e12, 1e15, nvlink_bytes_per_s_oneway=float(row["link_gb_s"]) * 1e9)
    asked = Parallel(float(row["tp"])), float(row["utilization"]), float(row["batched_tokens"]), float(row["sequences"])
    return float(kv_budget_bytes(_model(row), gpu, *asked, engine_memory(row["engine"], row["release"]))) / GIB


@float64
def weights_gib(row: dict[str, str]) -> float:
    """The weights on one GPU, by the formulas."""
    return float(weight_bytes_per_gpu(_model(row), Parallel(float(row["tp"]))).total_bytes) / GIB


def _model(row: dict[str, str]):
    model = catalog.model(row["model"])
    return with_weight_dtype(model, row["weight_dtype"]) if row["weight_dtype"] else model


def _spread(name: str, pairs: list[tuple[float, float]]) -> Row:
    found, logged = np.array(pairs).T
    median, p90 = np.quantile(np.abs(found / logged - 1.0), (0.5, 0.9))
    return {"class": name, "rows": len(pairs), "median error": float(median), "p90 error": float(p90)}
