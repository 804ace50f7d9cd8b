"""Distances between workers: what a read of one block costs on top of the tier, (n, n) seconds, row i reads from j.

On *hierarchical* networks (one switch; GPUs in a node, nodes in a rack, racks in a hall) the distance depends only on
the smallest part that holds both: d(i, j) <= max(d(i, k), d(k, j)), an ultrametric. There one limited tier has
equilibria that are found in polynomial time, and per-block optima are exact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError


def complete(workers: int, hop_s: float) -> np.ndarray:
    """All workers at one distance, as GPUs on one NVLink switch."""
    return two_level(workers, workers, hop_s, hop_s)


def two_level(workers: int, node_workers: int, nvlink_s: float, infiniband_s: float) -> np.ndarray:
    """Nodes of `node_workers` on NVLink, InfiniBand between nodes; the last node may be smaller.

    >>> two_level(3, 2, 1.0, 9.0).tolist()
    [[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]]
    """
    return fat_tree(workers, (node_workers,), (nvlink_s, infiniband_s))


def fat_tree(workers: int, group_workers: tuple[int, ...], level_s: tuple[float, ...]) -> np.ndarray:
    """A tree with full bisection bandwidth: workers in nodes, nodes in racks, racks in pods.

    group_workers  workers in one group of each level below the top, smallest first, each a multiple of the one before
    level_s        what a read costs within a group of each level, and last across all: one more than group_workers
    """
    if workers < 1 or len(level_s) != len(group_workers) + 1:
        raise InputError(
            f"{workers} workers, {len(group_workers)} groups, {len(level_s)} levels; "
            "accepted: at least 1 worker, and one level more than groups"
        )
    sizes = (1, *group_workers)
    if any(big < 1 or big % small for small, big in pairwise(sizes)):
        raise InputError(f"group_workers = {group_workers}; accepted: each a multiple of the one before")
    _from_zero(level_s)
    at = np.arange(workers)
    out = np.full((workers, workers), float(level_s[-1]))
    for size, cost in zip(reversed(group_workers), reversed(level_s[:-1]), strict=True):
        group = at // size
        out[group[:, None] == group] = cost
    np.fill_diagonal(out, 0.0)
    return out


def line(workers: int, hop_s: float | np.ndarray) -> np.ndarray:
    """Workers in a row, `hop_s` between neighbours: one number, or one for each of the n - 1 links."""
    hops = np.broadcast_to(np.asarray(hop_s, np.float64), (max(workers - 1, 0),))
    _from_zero(hops)
    at = np.concatenate([[0.0], np.cumsum(hops)])
    return np.abs(at[:, None] - at)


def ring(workers: int, hop_s: float, directed: bool = False) -> np.ndarray:
    """Workers in a circle; `directed`: data travel one way only, so reading from the predecessor is one hop.

    >>> ring(4, 1.0, directed=True)[0].tolist()
    [0.0, 3.0, 2.0, 1.0]
    """
    _from_zero((hop_s,))
    at = np.arange(workers)
    forth = (at[:, None] - at) % workers
    return hop_s * np.where(directed, forth, np.minimum(forth, (-forth) % workers)).astype(float)


def shortest_paths(links_s) -> np.ndarray:
    """Distances over given direct links (n, n), inf where there is none; row i holds what i pays to read from j."""
    links = np.array(links_s, np.float64)
    if links.ndim != 2 or links.shape[0] != links.shape[1]:
        raise InputError(f"links_s has shape {links.shape}; accepted: (workers, workers)")
    np.fill_diagonal(links, 0.0)
    _from_zero(links)
    for k in range(len(links)):  # Floyd and Warshall
        np.minimum(links, links[:, k, None] + links[k], out=links)
    return links


class Levels(NamedTuple):
    """A hierarchical network taken apart.

    hop_s  (L,): the different distances, rising
    group  (L, n): which part of the network that has at most this diameter each worker is in, numbered from 0
    """

    hop_s: np.ndarray
    group: np.ndarray


def levels(distance_s) -> Levels | None:
    """The tree of a hierarchical network; None if distances are not symmetric or no ultrametric."""
    d = np.asarray(distance_s, np.float64)
    n = len(d)
    off = ~np.eye(n, dtype=bool)
    hops = np.unique(d[off]) if n > 1 else np.zeros(1)
    groups = np.empty((len(hops), n), np.int64)
    for at, hop in enumerate(hops):
        near = (d <= hop) | ~off
        first = near.argmax(1)  # each worker's nearest-numbered companion names the part
        if not (near == (first[:, None] == first)).all():  # nor symmetric, at the smaller of two distances
            return None
        groups[at] = np.unique(first, return_inverse=True)[1]
    return Levels(hops, groups)


def _from_zero(values) -> None:
    values = np.asarray(values, np.float64)
    if np.isnan(values).any() or (values < 0).any():
        raise InputError(f"distances hold {np.min(values)}; accepted are numbers from 0, inf where there is no path")
