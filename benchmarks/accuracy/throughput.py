"""Predicted against published maximum throughputs of whole instances (TensorRT-LLM's performance overviews).

Each row is the output tokens per second and GPU of an engine that is given more requests than it can run at once.
None of these rows is in the calibration. Reads ../shared/data/throughput_trtllm.csv.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels import catalog
from dmodels.core.files import csv_rows
from dmodels.core.hardware import Parallel
from dmodels.core.records import float64
from dmodels.fit.calibration import efficiencies_of
from dmodels.fit.kernels import Hosted
from dmodels.models.latency import maximum_throughput
from dmodels.models.memory import engine_memory, with_kv_dtype, with_weight_dtype

FILE = Path(__file__).parents[3] / "shared" / "data" / "throughput_trtllm.csv"


@benchmark()
def throughput(quick: bool) -> Iterator[Row]:
    """Maximum output tokens per second and GPU: predicted against 161 published ones that nothing was fitted to."""
    rows = list(csv_rows(FILE.read_text(encoding="utf-8")))[:: 8 if quick else 1]
    ratios = np.array([predicted(row) / float(row["measured_per_gpu"]) for row in rows])
    yield {"class": "all"} | _spread(ratios)
    classes: dict[str, list[float]] = defaultdict(list)
    for row, value in zip(rows, ratios, strict=True):
        classes[f"{row['model']} {row['w']} on {row['gpu']} {row['layout']}"].append(value)
        classes[f"{row['isl']}/{row['osl']} tokens"].append(value)
    for name, values in sorted(classes.items()):
        yield {"class": name} | _spread(np.array(values))


def _spread(ratios: np.ndarray) -> Row:
    """How predictions over measurements lie: their geometric mean, median error, and share within a factor 1.25."""
    return {
        "rows": len(ratios),
        "predicted/measured": float(np.exp(np.mean(np.log(ratios)))),
        "median error": float(np.median(np.abs(ratios - 1.0))),
        "within 1.25x": float(np.mean(np.abs(np.log(ratios)) <= np.log(1.25))),
    }


@float64
def predicted(row: dict[str, str]) -> float:
    """Output tokens per second and GPU."""
    tp, dp, ep = (float(n) for n in re.fullmatch(r"tp(\d+)dp(\d+)ep(\d+)", row["layout"]).groups())
    published = catalog.model(row["model"])
    model = with_weight_dtype(published, row["w"]) if row["w"] not in ("", "published") else published
    model = model if row["w"] == "bf16" else with_kv_dtype(model, "fp8")
    gpu, parallel = catalog.gpu(row["gpu"]), Parallel(tp, 1.0, dp, ep)
    machine = Hosted(model, gpu, row["gpu"], "trtllm", parallel)
    e = efficiencies_of([machine], [row["w"][:3] or "bf16"], catalog.architecture(row["model"]))[0]
    lengths = float(row["isl"]), float(row["osl"])
    found = maximum_throughput(model, gpu, parallel, *lengths, e, engine=engine_memory("trtllm"))
    return float(found.tokens_per_s) / float(parallel.gpus)
