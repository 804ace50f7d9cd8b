r"""A pure equilibrium in polynomial time: one limited tier on a hierarchical network, blocks of one size.

*Raising floors.* Imagine that a copy of every block floats at a distance of at most the smallest hop from every worker.
Then nobody's choice depends on the others, and each worker keeps the blocks it needs most. Now raise the floor of one
block after another by one hop. Where a part of the network holds no copy, the block has become dearer, and at most one
worker per part takes it in for its least valuable block c. That block is then missing near the worker who dropped it;
of those who now want c, the *nearest* takes it, drops a block of its own, and so on.

The value of a block that somebody keeps never falls between these steps: a newcomer to b appears only where no copy was
nearer than the floor, and who replaces a dropped copy of c is as near to all other holders as that copy was (the
distance is an ultrametric; the nearest is chosen). Each worker that moves trades its least valuable block for a
better one, so every worker's sorted list of values only rises. With K places in all, m blocks and L hops there are at
most n m (L + 1) values, so at most K n m (L + 1) moves. When the floors are gone, nobody wants to move.

Existence and polynomial time are stated by Gopalakrishnan et al., *Cache me if you can*, LATIN 2012; the algorithm and
the argument here are our own. An unlimited tier below the limited one changes nothing: it replaces recomputation.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.solvers.solution import Solution

from . import kernels
from .game import PlacementArrays, PlacementGame, placed
from .networks import levels
from .response import equilibrium_flag, regrets

#: What is known of a worker's least valuable block: its value, a lower bound on it, nothing.
_FRESH, _RISEN, _WRONG = range(3)


def hierarchical_equilibrium(game: PlacementGame) -> Solution:
    """A pure Nash equilibrium of a game with one limited tier on a hierarchical network, in polynomial time.

    Needs (or says in one sentence which is missing): distances of a hierarchical network (`placement_networks.levels`),
    blocks of one size, the same access cost at all workers, at most one limited tier that is faster than the fastest
    unlimited one. Capacities, rates and recomputation costs are free.

    value `Placement`; certificate `gain_s` (n,), what each worker could still save (0 up to rounding); steps: moves.
    """
    reason = not_hierarchical(game)
    if reason:
        raise InputError(reason)
    a = game.arrays()
    limited, unlimited = _tiers(a)
    n, m = a.demand.shape
    fallback = np.minimum(a.recompute, a.access[0, unlimited] if unlimited is not None else np.inf)
    tier = np.full((n, m), -1, np.int8)
    moves = 0
    if limited is not None:
        net = levels(a.distance)
        most = np.maximum(fallback - a.access[0, limited], 0.0)  # saved by the only copy
        held, moves = _raise_floors(a.demand, a.slots[:, limited], net.hop_s, net.group, most)
        tier[held] = limited
    if unlimited is not None:  # what is nearer in one's own slow tier than anywhere else
        away = kernels.outside(tier, a).T
        tier[(tier < 0) & (a.demand > 0) & (a.access[:, unlimited, None] < away)] = unlimited
    profile, gain = placed(a, tier), regrets(a, tier)
    return Solution(profile, {"gain_s": gain}, equilibrium_flag(profile, gain), np.int64(moves))


def not_hierarchical(game: PlacementGame) -> str:
    """Why `hierarchical_equilibrium` does not apply; empty where it does."""
    a = game.arrays()
    if not a.alike:
        return "block_bytes differ; the polynomial algorithm accepts blocks of one size"
    if (a.access != a.access[0]).any():
        return "access_s differs between workers; the polynomial algorithm accepts one cost per tier"
    if len(_limited(a)) > 1:
        return (
            f"{len(_limited(a))} limited tiers are faster than every unlimited one; the polynomial algorithm "
            "accepts one, because with two there may be no pure equilibrium"
        )
    if levels(a.distance) is None:
        return "distance_s is no hierarchical network (an ultrametric); the polynomial algorithm accepts only those"
    return ""


def _limited(a: PlacementArrays) -> list[int]:
    """Limited tiers that are used at all, all in use below the fastest unlimited one."""
    everything = (a.slots >= a.demand.shape[1]).all(0)
    fastest = a.access[0, everything].min(initial=np.inf)
    return [t for t in np.flatnonzero(~everything) if a.slots[:, t].any() and a.access[0, t] < fastest]


def _tiers(a: PlacementArrays) -> tuple[int | None, int | None]:
    """(the limited tier, the fastest unlimited tier), None where there is none."""
    limited = _limited(a)
    everything = np.flatnonzero((a.slots >= a.demand.shape[1]).all(0))
    unlimited = int(everything[a.access[0, everything].argmin()]) if everything.size else None
    return (limited[0] if limited else None), unlimited


@kernel
def _seen(i, b, held, count, group, floor):
    """Level at which worker i sees the nearest copy of b but its own: 0..L-1, at most the block's floor."""
    mine = 1 if held[i, b] else 0
    for l in range(floor[b]):
        if count[l, group[l, i], b] > mine:
            return l
    return floor[b]


@kernel
def _value(i, b, demand, hop, most, level):
    """What keeping b saves worker i if it sees the nearest other copy at `level`; level L: there is none."""
    if level < hop.size and hop[level] < most[b]:
        return demand[i, b] * hop[level]
    return demand[i, b] * most[b]


@kernel
def _least(i, demand, hop, most, held, count, group, floor, places, number):
    """(value, position in its list) of the least valuable block that i keeps."""
    worst, where = np.inf, -1
    for p in range(number[i]):
        b = places[i, p]
        v = _value(i, b, demand, hop, most, _seen(i, b, held, count, group, floor))
        if v < worst:
            worst, where = v, p
    return worst, where


@kernel
def _touch(b, held, stale):
    """A copy of b has gone: to those who keep b it is worth more, and their least value found earlier is a bound."""
    for k in range(held.shape[0]):
        if held[k, b] and stale[k] == _FRESH:
            stale[k] = _RISEN


@kernel
def _nearer(b, taker, held, count, group, floor, lca, stale):
    """Before `taker` takes b in: whoever keeps b and will see this copy nearer must look again."""
    for k in range(held.shape[0]):
        if held[k, b] and lca[k, taker] < _seen(k, b, held, count, group, floor):
            stale[k] = _WRONG


@kernel
def _raise_floors(demand, slots, hop, group, most):
    """(held (n, m), moves): see the module."""
    n, m = demand.shape
    L = hop.size
    held = np.zeros((n, m), np.bool_)
    count = np.zeros((L, n, m), np.int32)
    floor = np.zeros(m, np.int64)
    places = np.zeros((n, max(1, slots.max())), np.int64)
    number = np.zeros(n, np.int64)
    least, where, stale = np.zeros(n), np.zeros(n, np.int64), np.full(n, _WRONG)
    lca = np.zeros((n, n), np.int64)
    for i in range(n):
        for k in range(n):
            while lca[i, k] < L - 1 and group[lca[i, k], i] != group[lca[i, k], k]:
                lca[i, k] += 1
    for i in range(n):  # all floors at the smallest hop: each keeps what it needs most
        value = np.empty(m)
        for b in range(m):
            value[b] = -_value(i, b, demand, hop, most, 0)
        order = np.argsort(value, kind="mergesort")
        for p in range(min(slots[i], m)):
            b = order[p]
            if value[b] < 0.0:
                places[i, number[i]] = b
                number[i] += 1
                held[i, b] = True
                for l in range(L):
                    count[l, group[l, i], b] += 1
    moves = 0
    for level in range(L):
        for b in range(m):
            floor[b] = level + 1
            _touch(b, held, stale)
            for first in range(n):
                part = group[level, first]
                if count[level, part, b] > 0:
                    continue
                who, what, gone = first, b, -1  # `who` considers taking `what`, which `gone` dropped
                while True:
                    nearest = L + 1
                    taker = -1
                    start, stop = (who, who + 1) if gone < 0 else (0, n)
                    for k in range(start, stop):
                        if held[k, what] or slots[k] == 0 or (gone >= 0 and lca[k, gone] >= nearest):
                            continue
                        v = _value(k, what, demand, hop, most, _seen(k, what, held, count, group, floor))
                        if v <= 0.0:
                            continue
                        if number[k] >= slots[k]:
                            if stale[k] == _WRONG or (stale[k] == _RISEN and v > least[k]):
                                least[k], where[k] = _least(
                                    k, demand, hop, most, held, count, group, floor, places, number
                                )
                                stale[k] = _FRESH
                            if v <= least[k]:
                                continue
                        taker = k
                        nearest = 0 if gone < 0 else lca[k, gone]
                    if taker < 0:
                        break
                    moves += 1
                    _nearer(what, taker, held, count, group, floor, lca, stale)
                    dropped = -1
                    if number[taker] < slots[taker]:
                        places[taker, number[taker]] = what
                        number[taker] += 1
                    else:
                        dropped = places[taker, where[taker]]
                        places[taker, where[taker]] = what
                        held[taker, dropped] = False
                        _touch(dropped, held, stale)
                    held[taker, what] = True
                    stale[taker] = _WRONG
                    for l in range(L):
                        count[l, group[l, taker], what] += 1
                        if dropped >= 0:
                            count[l, group[l, taker], dropped] -= 1
                    if dropped < 0:
                        break
                    gone, what = taker, dropped
    return held, moves
