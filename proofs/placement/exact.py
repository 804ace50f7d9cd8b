"""The placement game by its definition, in exact arithmetic: every profile, its costs, and whether anybody gains.

Slow and plain on purpose. Numbers are Fractions or ints; `literal` takes Eq. (6) as a list of cases (a copy of one's
own hides all others, a copy elsewhere hides recomputation), otherwise each read takes the cheapest way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proofs.cases import every


class Profile(NamedTuple):
    """One placement: tiers[i][b] (-1: not kept), what each worker pays, and the largest gain from moving alone."""

    tiers: tuple
    cost: tuple
    gain: object


def strategies(blocks: int, room: Sequence) -> list[tuple]:
    """All ways to keep at most room[t] blocks in tier t, None for no limit."""
    kinds = range(-1, len(room))
    fits = lambda row: all(k is None or row.count(t) <= k for t, k in enumerate(room))
    return [row for row in itertools.product(kinds, repeat=blocks) if fits(row)]


def cost(i: int, tiers: Sequence, rates, access, distance, recompute, literal: bool = False):
    """What worker i pays."""
    total = 0
    for b, rate in enumerate(rates[i]):
        own = [access[tiers[i][b]]] if tiers[i][b] >= 0 else []
        others = [distance[i][j] + access[row[b]] for j, row in enumerate(tiers) if j != i and row[b] >= 0]
        read = min(own or others or [recompute]) if literal else min([*own, *others, recompute])
        total += rate * read
    return total


def profiles(rates, access, rooms, distance, recompute, literal: bool = False) -> Iterator[Profile]:
    """Every profile. `rooms[i]` are worker i's places per tier."""
    n, m = len(rates), len(rates[0])
    lists = [strategies(m, room) for room in rooms]
    pays = {}
    for tiers in itertools.product(*lists):
        pays[tiers] = tuple(cost(i, tiers, rates, access, distance, recompute, literal) for i in range(n))
    least: dict = {}
    for tiers, paid in pays.items():
        for i in range(n):
            key = (i, tiers[:i], tiers[i + 1 :])
            least[key] = min(least.get(key, paid[i]), paid[i])
    for tiers, paid in pays.items():
        gain = max(paid[i] - least[i, tiers[:i], tiers[i + 1 :]] for i in range(n))
        yield Profile(tiers, paid, gain)


def extremes(*game, literal: bool = False):
    """(worst equilibrium, best equilibrium, optimum); None, None without equilibrium."""
    found = list(every(profiles(*game, literal=literal), "profiles of a placement game"))
    stable = [sum(p.cost) for p in found if p.gain == 0]
    return max(stable, default=None), min(stable, default=None), min(sum(p.cost) for p in found)


def switch(workers: int, hop) -> list[list]:
    """All workers at one distance."""
    return [[0 if i == j else hop for j in range(workers)] for i in range(workers)]
