r"""k breakpoints on a line: the cheapest way to cut a mass distribution into classes, each priced by its upper end.

Points 0..n-1 in order, `reached[j]` = mass up to and including point j (nondecreasing), `price[j]` per unit of mass of
a class that ends at j. Choose $j_1 \le \dots \le j_k = n-1$ to minimise
$\sum_m price_{j_m} (reached_{j_m} - reached_{j_{m-1}})$.

Dynamic programme over the number of classes, O(k n^2) and vectorised over pairs; what is found for k classes holds the
answers for fewer.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag

from .solution import Solution


def solve(price, reached, classes_count: int) -> Solution:
    """The best breakpoints. `value`: index (k,) and cost; `certificate`: potential (k, n), the least cost to get there.

    The certificate is Bellman's: potential[m, j] <= potential[m-1, i] + price[j] (reached[j] - reached[i]) for every
    i <= j, so no choice of breakpoints is cheaper than potential[-1, -1]; and the choice returned costs just that.
    """
    price, reached = np.asarray(price, np.float64), np.asarray(reached, np.float64)
    n = len(price)
    if price.shape != reached.shape or price.ndim != 1 or n == 0:
        raise InputError(f"price and reached have shapes {price.shape} and {reached.shape}; accepted: equal, (n,)")
    if classes_count < 1:
        raise InputError(f"classes_count = {classes_count}: accepted are whole numbers from 1")
    if not np.isfinite(reached).all() or (np.diff(reached) < 0).any() or np.isnan(price).any():
        raise InputError("reached must be finite and nondecreasing, and price must not hold NaN")
    potential = np.full((classes_count, n), np.inf)
    potential[0] = _cost(price, reached, 0.0)
    earlier = np.tri(n, dtype=bool).T  # i <= j: a class may be empty
    step = np.where(earlier, _cost(price[None], reached[None], reached[:, None]), np.inf)
    for m in range(1, classes_count):
        potential[m] = np.min(potential[m - 1][:, None] + step, 0)
    index, cost = breaks(price, reached, potential), potential[-1, -1]
    flags = np.int32(0 if np.isfinite(cost) else Flag.INFEASIBLE)
    return Solution({"index": index, "cost": cost}, {"potential": potential}, flags, np.int32(classes_count))


def breaks(price, reached, potential) -> np.ndarray:
    """The breakpoints whose cost is `potential[-1, -1]`; of the first k rows, those of k classes."""
    index = np.full(len(potential), len(price) - 1)
    for m in range(len(potential) - 1, 0, -1):
        last = index[m]
        through = potential[m - 1, : last + 1] + _cost(price[last], reached[last], reached[: last + 1])
        index[m - 1] = np.argmin(through)
    return index


def _cost(price, reached, start):
    """price x mass, and 0 for no mass even where the price is infinite."""
    mass = reached - start
    with np.errstate(invalid="ignore"):
        return np.where(mass > 0, price * mass, 0.0)
