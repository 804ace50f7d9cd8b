"""What comes out of the assignment solver."""

from __future__ import annotations

from typing import Any, NamedTuple

from dmodels.core.records import Real
from dmodels.solvers.solution import Solution


class Matching(NamedTuple):
    """Which column each row takes (-1: none), and what that costs in total."""

    columns: Any  # (..., n), whole
    cost: Any  # (...,)


def solution_of(
    columns: Real, cost: Real, u: Real, v: Real, gap: Real, reduced: Real, flags: Real, steps: Real
) -> Solution:
    """What an engine found, as `assign` returns it."""
    certificate = {"row_duals": u, "column_duals": v, "gap": gap, "reduced": reduced}
    return Solution(Matching(columns, cost), certificate, flags, steps)
