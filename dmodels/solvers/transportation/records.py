"""What goes into the transportation solver and what comes out, problem by problem."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: States of a problem: solved (or to be), without a feasible shipment, not to be solved, given up after many paths.
SOLVED, INFEASIBLE, BAD, GIVEN_UP = 0, 1, 2, 3

#: How the loops for one kind of problem end: left to the general loop, with a proof, with a proof that there is no way.
LEFT, PROVED, NO_WAY = 0, 1, 2


class Placement(NamedTuple):
    """Which column each row goes to, how many each column gets, and what that costs in total."""

    columns: Any  # (..., n), whole; -1 where the problem has no answer
    loads: Any  # (..., m)
    cost: Any  # (...,)


class Shipment(NamedTuple):
    """How much each row ships to each column, how much each column gets, and what that costs in total."""

    flow: Any  # (..., n, m)
    loads: Any  # (..., m)
    cost: Any  # (...,)


class Problems(NamedTuple):
    """Problems for the compiled loop; arrays of leading size 1 are shared by all of them."""

    cost: np.ndarray  # (B, n, m)
    supply: np.ndarray  # (B, n)
    price: np.ndarray  # (B, m, segments) of each column's congestion
    width: np.ndarray  # (B, m, segments): how much each segment takes


class Shipped(NamedTuple):
    """Where the compiled loop writes: `columns` where these have a size, else `flow`."""

    columns: np.ndarray  # (B, n) or (0, n)
    flow: np.ndarray  # (B, n, m) or (0, n, m)
    row_duals: np.ndarray  # (B, n)
    column_duals: np.ndarray  # (B, m)
    loads: np.ndarray  # (B, m)
    cost: np.ndarray
    gap: np.ndarray
    state: np.ndarray
    steps: np.ndarray
