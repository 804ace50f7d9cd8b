"""Compiled loops of `bound` for hierarchies: where to put copies of a block if each place has its price."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel

from .networks import Levels


class Nodes(NamedTuple):
    """A hierarchical network as a tree: nodes 0..n-1 are the workers, then each level's parts, the root last.

    child, first  children of inner node v (numbered from 0 without the workers): child[first[v]:first[v + 1]]
    code          (V, T): where the cost of a read across node v from tier t stands in `outer`
    outer         (Q,): what the cheapest copy outside of a part can cost, rising; the last is inf, no copy
    """

    child: np.ndarray
    first: np.ndarray
    code: np.ndarray
    outer: np.ndarray


def tree_nodes(net: Levels, access: np.ndarray) -> Nodes:
    """The tree of `levels`, for tiers with the same access costs (T,) at all workers."""
    n = net.group.shape[1]
    read = net.hop_s[:, None] + access
    outer = np.append(np.unique(read[np.isfinite(read)]), np.inf)
    below = np.arange(n)  # the node of the level below that each worker is in
    child, first, code, total = [], [0], [], n
    for level, group in enumerate(net.group):
        for part in range(group.max() + 1):
            child += np.unique(below[group == part]).tolist()
            first.append(len(child))
            code.append(np.searchsorted(outer, read[level]))
        below = total + group
        total += int(group.max()) + 1
    codes = np.array(code, np.int64).reshape(len(code), access.size)
    return Nodes(np.array(child, np.int64), np.array(first), codes, outer)


@kernel
def _node(v, q, children, first, code, f):
    """Least cost (T + 1,) of inner node v with outside state q by its best tier; the last: no copy that counts."""
    tiers = code.shape[1]
    out = np.full(tiers + 1, np.inf)
    for h in range(tiers + 1):
        inside = q if h == tiers else min(q, code[v, h])
        total, extra = 0.0, np.inf
        for c in range(first[v], first[v + 1]):
            x = children[c]
            total += f[x, inside, tiers]
            if h < tiers:
                extra = min(extra, f[x, inside, h] - f[x, inside, tiers])
        out[h] = total + (extra if h < tiers else 0.0)
    return out


@kernel
def tree_blocks(start, stop, a, prices, nodes, found):
    """Blocks start..stop-1 of `found`: least cost with prices, and where the copies are. Exact."""
    demand, access, capacity, recompute, size = a.demand, a.access[0], a.capacity, a.recompute, a.size
    child, first, code, outer = nodes
    value, used = found
    n, tiers = capacity.shape
    inner, states = code.shape[0], outer.size
    f = np.empty((n + inner, states, tiers + 1))  # by node, outside state, and the tier it must hold (last: any)
    todo = np.empty((n + inner, 3), np.int64)
    for b in range(start, stop):
        for i in range(n):
            w = demand[i, b]
            for q in range(states):
                o = min(outer[q], recompute[b])
                least = w * o
                for t in range(tiers):
                    f[i, q, t] = np.inf
                    if size[b] <= capacity[i, t]:
                        f[i, q, t] = w * min(access[t], o) + prices[i, t] * size[b]
                        least = min(least, f[i, q, t])
                f[i, q, tiers] = least
        for v in range(inner):
            for q in range(states):
                by = _node(v, q, child, first, code, f)
                f[n + v, q, :tiers] = by[:tiers]
                f[n + v, q, tiers] = by.min()
        root = n + inner - 1
        value[b] = f[root, states - 1, tiers]
        used[b] = False
        depth = 1
        todo[0] = (root, states - 1, tiers)
        while depth:  # walk down the best choices
            depth -= 1
            x, q, must = todo[depth]
            if x < n:
                h = must
                if must == tiers and f[x, q, tiers] < demand[x, b] * min(outer[q], recompute[b]):
                    h = np.argmin(f[x, q, :tiers])
                if h < tiers:
                    used[b, x, h] = True
                continue
            v = x - n
            h = must if must < tiers else np.argmin(_node(v, q, child, first, code, f))
            inside = q if h == tiers else min(q, code[v, h])
            chosen, extra = -1, np.inf
            for c in range(first[v], first[v + 1]):
                more = f[child[c], inside, h] - f[child[c], inside, tiers]
                if more < extra:
                    chosen, extra = c, more
            for c in range(first[v], first[v + 1]):
                todo[depth] = (child[c], inside, h if c == chosen else tiers)
                depth += 1
