"""The laws of operators with the shipped constants against measured kernels that their fit held out.

Every tenth shape, by a hash that is the same on every GPU, was never fitted: those are predicted here from the
constants that plans use, twice: by the kernel that a plan chooses, and by the kernel that the row states (an engine is
measured with several kernels on one shape, of which a plan can only mean one). What the refit found with a whole
(GPU, engine) or a whole GPU left out stands beside it, as the constants' file says it. Reads ../shared/data/operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels.core.records import float64
from dmodels.fit.kernels import shipped
from dmodels.fit.operators.predicted import predicted
from dmodels.fit.operators.rows import tables
from dmodels.fit.operators.samples import Sample, catalogue_name, hardware, samples
from dmodels.models.operators import Choice

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "operators"
LEFT_OUT = {"pair": "a (GPU, engine) left out", "gpu": "a GPU left out"}


@benchmark()
def operators(quick: bool) -> Iterator[Row]:
    """Measured kernels that were held out of the fit: the shipped laws' error by kind of kernel."""
    found = [t._replace(gpu=catalogue_name(t.gpu)) for t in tables(FOLDER)]
    rows = {"rows": 8, "tested": 20} if quick else {}
    for kind, cells in sorted(samples(found[:: 20 if quick else 1], **rows).items()):
        for stated, name in ((False, "new shapes"), (True, "new shapes, kernel stated")):
            errors = _errors(kind, cells, stated)
            if errors.size:
                yield {"class": f"{kind}, {name}"} | _quantiles(errors)
    for of in shipped().provenance["held_out_error"]:
        for protocol, name in LEFT_OUT.items():
            yield {
                "class": f"{of['kind']}, {name}",
                "rows": of[f"{protocol}_count"],
                "median error": of[f"{protocol}_median"],
                "p90 error": of[f"{protocol}_p90"],
            }


@float64
def _errors(kind: str, cells: list[Sample], stated: bool) -> np.ndarray:
    """|predicted / measured - 1| of the held-out rows, by the kernel that they state or that a plan chooses."""
    found = [np.zeros(0)]
    for sample in cells:
        gpu, engine, dtype, kernel, _ = sample.cell
        choice, rows = shipped().choice(kind, gpu, engine, dtype), sample.held_out
        if stated and kernel in choice.kernels:
            i = choice.kernels.index(kernel)
            choice = Choice(choice.u[i : i + 1], 0, (kernel,))
        guess = predicted(kind, rows.shape, dtype, hardware([gpu])[gpu], choice, warm=1.0)
        found.append(np.abs(guess / rows.seconds - 1.0))
    return np.concatenate(found)


def _quantiles(errors: np.ndarray) -> Row:
    median, p90 = np.quantile(errors, (0.5, 0.9))
    return {"rows": len(errors), "median error": float(median), "p90 error": float(p90)}
