r"""What a cell of measured kernels shares with its relatives.

The constants of a cell (kind, GPU, engine, number format, kernel, range) are $u = u_0 + \sum_l \beta_l + \varepsilon$
over the levels l that it belongs to: all cells, its range, its format, its GPU's generation, its GPU, its engine and
their combinations. Each $\beta$ is pulled to zero with its level's deviation. A cell that was never measured has the
sum of the levels that were, and a GPU that nobody measured has its generation, or what all GPUs have in common.

Given each cell's own fit $\hat u_c$ and its variance $v_c$ (per constant), the effects are the posterior mean of a
linear model with crossed random effects, $\beta = \Sigma B^T (B \Sigma B^T + \mathrm{diag}(v + d^2))^{-1} \hat u$
with B the cells' levels and $\Sigma$ the levels' variances; one linear system per constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg

from dmodels.core.records import Floats

#: Deviation of an effect in u, by level.
DEVIATION = {
    "all": 2.0,
    "range": 0.7,
    "dtype": 0.6,
    "dtype+range": 0.4,
    "generation": 0.5,
    "generation+dtype": 0.4,
    "generation+dtype+range": 0.25,
    "gpu": 0.3,
    "gpu+dtype": 0.2,
    "engine": 0.5,
    "engine+dtype": 0.5,
    "engine+dtype+range": 0.4,
    "generation+engine": 0.4,
    "generation+engine+dtype": 0.5,
    "generation+engine+dtype+range": 0.4,
    "kernel": 0.5,
    "kernel+range": 0.4,
    "kernel+dtype": 0.4,
    "kernel+dtype+range": 0.3,
    "kernel+generation": 0.4,
    "kernel+generation+dtype+range": 0.4,
}
#: What a cell adds of its own.
OWN = 0.4

#: GPU -> generation. A GPU that is not here has its own name as generation: nothing is known of it but the data sheet.
GENERATION = {
    "a100": "ampere",
    "h100": "hopper",
    "h200": "hopper",
    "h20": "hopper",
    "b200": "blackwell",
    "b300": "blackwell",
    "gb200": "blackwell",
    "gb300": "blackwell",
    "l40s": "ada",
    "l4": "ada",
    "rtx_4090": "ada",
    "rtx": "blackwell_rtx",
    "mi300x": "cdna3",
    "mi325x": "cdna3",
    "mi355x": "cdna4",
    "v100": "volta",
    "arc": "battlemage",
    "b60": "battlemage",
}


class Cell(NamedTuple):
    """Whose constants."""

    gpu: str
    engine: str
    dtype: str
    kernel: str  # "": not known
    range: int


def generation(gpu: str) -> str:
    """The GPU's generation, by its name or the first word of it.

    >>> generation("h200_sxm"), generation("gb300")
    ('hopper', 'blackwell')
    """
    return GENERATION.get(gpu) or GENERATION.get(gpu.split("_")[0], gpu)


def levels(cell: Cell) -> list[str]:
    """Names of the effects that add up in a cell."""
    facts = {
        "all": "",
        "range": str(cell.range),
        "dtype": cell.dtype,
        "generation": generation(cell.gpu),
        "gpu": cell.gpu,
        "engine": cell.engine,
        "kernel": cell.kernel,
    }
    names = [n for n in DEVIATION if cell.kernel or "kernel" not in n.split("+")]
    return [f"{name}={'|'.join(facts[part] for part in name.split('+'))}" for name in names]


def deviation(level: str) -> float:
    """The deviation of a level by its name."""
    return DEVIATION[level.split("=", 1)[0]]


def effects(cells: Sequence[Cell], u: Floats, variance: Floats) -> dict[str, Floats]:
    """Level -> effect (constants,), of the cells' own fits u (cells, constants), relative to the typical values, and of
    their variances.

    Normal equations in the levels, which are sparse: a cell has a dozen of a thousand levels.
    """
    paths = [levels(cell) for cell in cells]
    names = sorted({level for path in paths for level in path})
    at = {name: i for i, name in enumerate(names)}
    columns = [at[level] for path in paths for level in path]
    ends = np.cumsum([0, *map(len, paths)])
    belongs = scipy.sparse.csr_array((np.ones(len(columns)), columns, ends), shape=(len(cells), len(names)))
    prior = np.array([deviation(name) ** 2 for name in names])
    found = []
    for own, fitted in zip(variance.T + OWN**2, u.T, strict=True):
        precision = belongs.T @ scipy.sparse.diags_array(1.0 / own) @ belongs + scipy.sparse.diags_array(1.0 / prior)
        given = belongs.T @ (fitted / own)
        found.append(scipy.sparse.linalg.spsolve(precision.tocsc(), given, permc_spec="MMD_AT_PLUS_A"))
    return dict(zip(names, np.transpose(found), strict=True))


def expected(known: dict[str, Floats], cell: Cell, width: int) -> Floats:
    """What a cell's levels say of its constants, relative to the typical values."""
    return sum((known[level] for level in levels(cell) if level in known), np.zeros(width))
