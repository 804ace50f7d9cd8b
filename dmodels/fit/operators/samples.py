"""From tables of measured kernels to the constants of the laws: cells, their relatives, and what was held out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.catalog.gpu_table import load_gpus
from dmodels.catalog.tables import find, index
from dmodels.core.hardware import GPU
from dmodels.core.records import Floats, float64
from dmodels.models.operators import law, typical

from .cells import Fitted, Prior, fit_cell
from .hierarchy import OWN, Cell, effects, expected
from .rows import Kernels, KernelTable, read

#: Rows of a cell that the fit sees, and rows held out that are predicted.
ROWS, TESTED = 700, 400
#: Deviation of a constant from its relatives in the first round, when there are none yet.
FIRST = 1.2
#: Fewer rows than this are no cell of their own.
FEWEST = 8
GPU_FILE = Path(__file__).parents[1] / "data" / "operators_gpus.csv"


class Sample(NamedTuple):
    """A cell's rows: those fitted, those held out, and of how many the fitted ones are a sample."""

    cell: Cell
    fitted: Kernels
    held_out: Kernels
    count: int


@cache
def _catalogue() -> dict[str, dict[str, Any]]:
    return load_gpus(GPU_FILE)


def catalogue_name(gpu: str) -> str:
    """The catalogue's name of a GPU that a table names, or of one that plans do not offer."""
    return find("GPU", gpu, index({name: facts["aliases"] for name, facts in _catalogue().items()}))


def hardware(names: Iterable[str]) -> dict[str, GPU]:
    """The records of GPUs by the names given."""
    fields = tuple(GPU.__dataclass_fields__)
    found = {}
    for name in names:
        facts = _catalogue()[catalogue_name(name)]
        found[name] = GPU(**{field: facts[field] for field in fields if field in facts})
    return found


def samples(tables: Iterable[KernelTable], rows: int = ROWS, tested: int = TESTED) -> dict[str, list[Sample]]:
    """Kind -> samples of its cells."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for table in tables:
        for kernels in read(table):
            of = law(kernels.kind)
            at = np.searchsorted(of.edges, kernels.shape[of.switch], side="left")
            out = kernels.held_out
            for i in range(len(of.edges) + 1):
                train, test = np.flatnonzero((at == i) & ~out), np.flatnonzero((at == i) & out)
                if len(train) >= FEWEST:
                    cell = Cell(kernels.gpu, kernels.engine, kernels.dtype, kernels.kernel, i)
                    fitted, held_out = (kernels.take(_spread(a, most)) for a, most in ((train, rows), (test, tested)))
                    found[kernels.kind].append(Sample(cell, fitted, held_out, len(train)))
    return found


def _spread(index: np.ndarray, most: int) -> np.ndarray:
    if len(index) <= most:
        return index
    return np.sort(np.random.default_rng(0).choice(index, most, replace=False))


@float64
def fit_kind(
    kind: str,
    cells: list[Sample],
    gpus: dict[str, GPU],
    rounds: int = 2,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, Floats], list[Fitted]]:
    """Effects of the levels (in u, relative to the typical values), and each cell's own constants (in u)."""
    origin = typical(kind)[0]
    width, known = len(origin), {}
    fitted: list[Fitted] = []
    for turn in range(rounds):
        deviation = np.full(width, OWN if turn else FIRST)
        new = []
        for i, s in enumerate(cells):
            mean = origin + expected(known, s.cell, width)
            prior = Prior(mean, deviation, fitted[i].u if turn else mean)
            k = s.fitted
            new.append(fit_cell(kind, s.cell.dtype, gpus[s.cell.gpu], k.shape, k.seconds, prior=prior, rows=ROWS))
        fitted = new
        known = effects(
            [s.cell for s in cells], np.array([f.u for f in fitted]) - origin, np.array([f.variance for f in fitted])
        )
        say(f"{kind}: round {turn + 1} of {rounds}, {len(cells)} cells, {sum(f.steps for f in fitted)} steps")
    return known, fitted
