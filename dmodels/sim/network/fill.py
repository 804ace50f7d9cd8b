r"""Max-min fair rates by progressive filling, exact: one problem at a time, or a batch of them.

Flow f crosses the links path[f, :]; entries of -1 are no link. Repeatedly the link with the least remaining capacity
per unfrozen flow is filled: its flows get that share and leave, taking their rates from their other links. The result
is the lexicographically largest sorted vector of rates (Bertsekas and Gallager, Data Networks, 6.5.2); flows without
any link have rate inf.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import NONE, kernel
from dmodels.core.errors import InputError


@kernel
def fill(capacity, path, rate):
    """Max-min rates of the flows in `path` (F, P) on links of `capacity` (L,), written into `rate` (F,)."""
    flows, hops = path.shape
    left = capacity.copy()
    count = np.zeros(capacity.shape[0], np.int64)
    for f in range(flows):
        rate[f] = np.inf
        for p in range(hops):
            if path[f, p] >= 0:
                count[path[f, p]] += 1
                rate[f] = -1.0
    while True:
        share, tight = np.inf, NONE
        for k in range(capacity.shape[0]):
            if count[k] > 0 and left[k] / count[k] < share:
                share, tight = left[k] / count[k], k
        if tight < 0:
            return
        for f in range(flows):
            if rate[f] >= 0.0:
                continue
            crosses = False
            for p in range(hops):
                crosses |= path[f, p] == tight
            if not crosses:
                continue
            rate[f] = share
            for p in range(hops):
                k = path[f, p]
                if k >= 0:
                    left[k] = max(left[k] - share, 0.0)
                    count[k] -= 1


@kernel
def _fill_many(capacity, path, rate):
    for b in range(path.shape[0]):
        fill(capacity[b], path[b], rate[b])


def max_min_rates(capacity, path) -> np.ndarray:
    """Max-min fair rates: capacities (..., L), paths (..., F, P) with -1 for no link; rates (..., F).

    >>> max_min_rates([1.0, 2.0], [[0, -1], [0, 1], [1, -1]]).tolist()
    [0.5, 0.5, 1.5]
    """
    capacity, path = np.asarray(capacity, np.float64), np.asarray(path, np.int64)
    if not (capacity >= 0).all():
        raise InputError("capacity: a link has a negative or undefined rate; accepted: 0 or more")
    if path.ndim < 2 or path.max(initial=-1) >= capacity.shape[-1] or path.min(initial=0) < -1:
        raise InputError(f"path: shape {path.shape}; accepted: (..., flows, hops) of link numbers or -1")
    batch = np.broadcast_shapes(capacity.shape[:-1], path.shape[:-2])
    flat = int(np.prod(batch, dtype=int))
    links = np.ascontiguousarray(np.broadcast_to(capacity, (*batch, capacity.shape[-1]))).reshape(flat, -1)
    hops = np.ascontiguousarray(np.broadcast_to(path, (*batch, *path.shape[-2:]))).reshape(flat, *path.shape[-2:])
    rate = np.empty((flat, path.shape[-2]))
    _fill_many(links, hops, rate)
    return rate.reshape(*batch, path.shape[-2])
