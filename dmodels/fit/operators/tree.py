"""The tree by which an engine chooses its kernel, learned from which kernel ran which shape (CART, Gini impurity)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dmodels.core.records import Floats
from dmodels.models.operators.choice import Tree, feature

#: Nodes below the root at most, and rows of a leaf at least.
DEPTH, LEAF = 8, 5


def learn(
    shape: Mapping[str, Floats], kernel: np.ndarray, features: Sequence[str], weight: Floats | float = 1.0
) -> Tree:
    """The tree of `kernel` (rows,), numbers from 0, over features of the shapes; `weight`: rows that each stands for.

    >>> learn({"m": np.arange(20.0)}, (np.arange(20) > 9).astype(int), ["m"])
    ['m', 9.5, 0, 1]
    """
    values = {name: np.asarray(feature(shape, name), float) for name in features}
    ran = np.eye(int(kernel.max()) + 1)[kernel] * np.broadcast_to(weight, kernel.shape)[:, None]
    return _grow(values, ran, DEPTH)


def _grow(values: dict[str, Floats], ran: Floats, depth: int) -> Tree:
    counts = ran.sum(axis=0)
    common = int(counts.argmax())
    if depth == 0 or counts[common] == counts.sum():
        return common
    best, split = _impurity(counts[None])[0] * (1.0 - 1e-9), None
    for name, x in values.items():
        order = np.argsort(x, kind="stable")
        below = np.cumsum(ran[order], axis=0)[:-1]
        ordered = x[order]
        ok = ordered[1:] > ordered[:-1]
        ok[: LEAF - 1] = False
        ok[len(ok) - LEAF + 1 :] = False
        if not ok.any():
            continue
        cost = np.where(ok, _impurity(below) + _impurity(counts - below), np.inf)
        at = int(cost.argmin())
        if cost[at] < best:
            best, split = cost[at], (name, float((ordered[at] + ordered[at + 1]) / 2.0))
    if split is None:
        return common
    name, threshold = split
    low = values[name] <= threshold
    sides = [_grow({k: v[s] for k, v in values.items()}, ran[s], depth - 1) for s in (low, ~low)]
    return sides[0] if sides[0] == sides[1] else [name, threshold, *sides]


def _impurity(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=-1)
    return total - (counts**2).sum(axis=-1) / np.maximum(total, 1e-9)
