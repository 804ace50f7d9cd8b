"""Assignment problems of several sizes in one call: padded by size class for a device, by shape for the host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import jax
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.numerics import power_of_two
from dmodels.core.records import Floats, Real
from dmodels.solvers import device
from dmodels.solvers.solution import Solution

from .records import Matching
from .solve import assign

#: Least side of a size class; the others are powers of two.
SMALLEST = 8


def assign_many(costs: Sequence[Real], maximize: bool = False, *, backend: str = "auto") -> list[Solution]:
    """`assign` of matrices (n, m) of any sizes in float64, one `Solution` each, in their order.

    On a device they are padded to size classes (sides of powers of two) and solved class by class; on the host, shape
    by shape. A row that is made up takes a column that is made up with it, at no cost, and neither may be used by
    others; so the answer and its duals are those of the matrix itself.

    >>> [s.value.columns.tolist() for s in assign_many([[[4, 1, 3], [2, 0, 5], [3, 2, 2]], [[7.0, 5.0]]])]
    [[1, 0, 2], [1]]
    """
    given = [np.asarray(cost, np.float64) for cost in costs]
    for k, cost in enumerate(given):
        if cost.ndim != 2:
            raise InputError(f"costs[{k}] has shape {cost.shape}; accepted is (rows, columns)")
    on_device = device.takes_device(backend, (len(given),), host_cores=device.HOST_CORES)
    sets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k, cost in enumerate(given):
        sets[_class_of(cost.shape) if on_device and cost.size else cost.shape].append(k)
    answers: list[Solution | None] = [None] * len(given)
    for shape, members in sets.items():
        if on_device and 0 not in shape:
            stacked = np.stack([_padded(given[k], shape, maximize) for k in members])
        else:
            stacked = np.stack([given[k] for k in members])
        found = assign(stacked, maximize, backend="device" if on_device else "cpu")
        for row, k in enumerate(members):
            one = jax.tree.map(lambda leaf, row=row: leaf[row], found)
            answers[k] = one if stacked.shape[1:] == given[k].shape else _cut(one, given[k].shape)
    return [answer for answer in answers if answer is not None]


def _class_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """(shorter, longer) side of the class; the longer has room for the columns that come with made-up rows."""
    few, many = sorted(shape)
    short = max(SMALLEST, power_of_two(few))
    return short, max(SMALLEST, power_of_two(many + short - few))


def _padded(cost: Floats, shape: tuple[int, int], maximize: bool) -> Floats:
    """The matrix, wide, in a corner of one of its class."""
    wide = cost if cost.shape[0] <= cost.shape[1] else cost.T
    out = np.full(shape, -np.inf if maximize else np.inf)
    n, m = wide.shape
    out[:n, :m] = wide
    extra = np.arange(shape[0] - n)
    out[n + extra, m + extra] = 0.0
    return out


def _cut(solution: Solution, shape: tuple[int, ...]) -> Solution:
    """The answer for the matrix itself; its cost and gap are those of the padded one."""
    (n, m), (few, many) = shape, sorted(shape)
    columns = solution.value.columns[:few]
    u, v = solution.certificate["row_duals"][:few], solution.certificate["column_duals"][:many]
    if n > m:
        back = np.full(n, -1, np.int64)
        back[columns[columns >= 0]] = np.flatnonzero(columns >= 0)
        columns, u, v = back, v, u
    certificate = {**solution.certificate, "row_duals": u, "column_duals": v}
    return Solution(Matching(columns, solution.value.cost), certificate, solution.flags, solution.steps)
