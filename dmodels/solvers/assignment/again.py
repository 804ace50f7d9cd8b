"""An assignment again after some of its costs have changed: one augmenting path for each pair that broke."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmodels.core.errors import InputError
from dmodels.solvers.solution import Solution

from .host import is_floating, rematched
from .records import solution_of
from .solve import assign


def reassign(cost: Any, before: Solution, maximize: bool = False) -> Solution:
    """`assign(cost, maximize)` of one (n, m) table, from the answer to a table of this shape that differs in few rows.

    A worker joins in another's place, a request turns out longer: the old duals still fit all rows whose pairs are
    their cheapest under them, so only the others are matched anew, each along one shortest augmenting path (the dynamic
    Hungarian algorithm: G. A. Mills-Tettey, A. Stentz and M. B. Dias, CMU-RI-TR-07-27, 2007). Which rows these are is
    found from the duals, in one pass over the table. Value, certificate and flags are those of `assign`, computed from
    the new costs alone; where they would not prove the answer, or `before` was not proved, `assign` is asked.

    >>> first = assign([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    >>> second = reassign([[4, 1, 3], [2, 0, 5], [0, 2, 9]], first)
    >>> second.value.columns.tolist(), int(second.value.cost), int(second.certificate["gap"])
    ([2, 1, 0], 3, 0)
    """
    table = np.asarray(cost)
    columns = np.asarray(before.value.columns)
    if table.ndim != 2 or columns.shape != table.shape[:1]:
        raise InputError(f"cost has shape {table.shape}; accepted is (rows, columns) with the rows of `before`")
    if np.shape(before.certificate["column_duals"]) != table.shape[1:]:
        raise InputError(f"cost has {table.shape[1]} columns; accepted is as many as `before` has")
    known = int(before.flags) == 0 and min(table.shape) > 0
    if not known or not (table.dtype.kind in "iub" or is_floating(table.dtype)):
        return assign(table, maximize)
    duals = (before.certificate["row_duals"], before.certificate["column_duals"])
    found = rematched(table, columns, *duals, maximize)
    return assign(table, maximize) if found is None else solution_of(*found)
