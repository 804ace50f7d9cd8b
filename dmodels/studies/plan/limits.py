"""What there is to buy, and with what: GPUs over all pools and of each type, whole nodes, dollars an hour."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from math import inf, nextafter
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError, check_number
from dmodels.core.hardware import GPU
from dmodels.core.records import Real

#: Instances of one layout: (GPU type, instances, GPUs of each).
Part = tuple[str, int, int]
#: Room for rounding, as a factor on costs: in floating point 3 x 2.79 is a little over 8.37.
_ROUNDED = 1.0 + 1e-12


class Limits(NamedTuple):
    """Limits of a purchase. A type that `inventory` does not name is not limited by it."""

    max_gpus: float  # over all pools
    inventory: Mapping[str, float]  # GPUs that there are of a type
    node_gpus: int  # GPUs are bought by whole nodes of so many
    max_usd_per_hour: float

    @property
    def any(self) -> bool:
        """Whether the cheapest pool of each stage may not be the cheapest fleet."""
        return bool(
            np.isfinite(self.max_gpus) or self.inventory or self.node_gpus > 1 or np.isfinite(self.max_usd_per_hour)
        )

    @property
    def budget_usd_per_hour(self) -> float:
        """The most that may be spent, with room for rounding."""
        return self.max_usd_per_hour * _ROUNDED

    def missing_cents(self, usd_per_hour: float) -> int:
        """Cents an hour that have to be added for a fleet of that price."""
        enough = usd_per_hour <= self.budget_usd_per_hour
        return 0 if enough else math.ceil(100.0 * (usd_per_hour / _ROUNDED - self.max_usd_per_hour))

    def of(self, gpu: str) -> float:
        """GPUs of a type that one fleet may take."""
        return min(self.max_gpus, float(self.inventory.get(gpu, np.inf)))

    def bought(self, parts: Iterable[Part]) -> dict[str, int]:
        """GPUs of each type that are bought for a fleet."""
        return bought(self.node_gpus, parts)

    def allow(self, parts: Iterable[Part], usd_per_hour: float = 0.0) -> bool:
        """Whether a fleet of that price can be bought."""
        gpus = self.bought(parts)
        return (
            sum(gpus.values()) <= self.max_gpus
            and all(count <= self.of(gpu) for gpu, count in gpus.items())
            and usd_per_hour <= self.budget_usd_per_hour
        )


def bought(node_gpus: int, parts: Iterable[Part]) -> dict[str, int]:
    """GPUs of each type that are bought: whole nodes, which pools of one type share where they can.

    >>> bought(8, [("h100_sxm", 3, 2), ("h100_sxm", 1, 2), ("l40s", 1, 1)])
    {'h100_sxm': 8, 'l40s': 8}
    """
    types: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        types[part[0]].append(part)
    found = {}
    for gpu, own in types.items():
        alone = [int(in_nodes(node_gpus, count, each)) for _, count, each in own]
        shared = all(nested(node_gpus, a, b) for (*_, a), (*_, b) in combinations(own, 2))
        together = int(whole(node_gpus, sum(count * each for _, count, each in own)))
        found[gpu] = together if shared and len(own) > 1 else sum(alone)
    return found


def check(limits: Limits, gpus: Mapping[str, GPU]) -> None:
    """Limits that mean nothing are an `InputError`, and so are prices of zero: no fleet for nothing is the cheapest."""
    for gpu, facts in gpus.items():
        cost = "positive prices in USD/h; where you know none, the same for each type compares GPUs"
        check_number(f"price of {gpu}", float(facts.price_usd_per_hour), nextafter(0, 1), nextafter(inf, 0), cost)
    check_number("max_gpus", limits.max_gpus, 1, inf, "numbers from 1")
    check_number("node_gpus", limits.node_gpus, 1, inf, "whole numbers from 1", whole=True)
    check_number("max_usd_per_hour", limits.max_usd_per_hour, nextafter(0, 1), inf, "positive prices")
    for gpu, count in limits.inventory.items():
        if gpu not in gpus:
            raise InputError(f"inventory of {gpu}: accepted are the GPU types asked about, {', '.join(gpus)}")
        check_number(f"inventory of {gpu}", count, 0, inf, "numbers from 0")


def whole(node_gpus: int, gpus: Real) -> Real:
    """GPUs of the nodes that hold so many.

    >>> int(whole(8, 9)), int(whole(1, 9))
    (16, 9)
    """
    return node_gpus * np.ceil(np.asarray(gpus, float) / node_gpus)


def in_nodes(node_gpus: int, instances: Real, gpus_each: Real) -> Real:
    """GPUs of the nodes that hold `instances` of `gpus_each`: none is spread over nodes that would fit in one.

    >>> int(in_nodes(8, 3, 3)), int(in_nodes(8, 3, 4)), int(in_nodes(8, 2, 12)), float(in_nodes(8, np.inf, 4))
    (16, 16, 32, inf)
    """
    each = np.asarray(gpus_each, float)
    beside = np.maximum(np.floor(node_gpus / each), 1.0)  # instances in one node
    return node_gpus * np.ceil(np.asarray(instances, float) / beside) * np.ceil(each / node_gpus)


def nested(node_gpus: int, a: Real, b: Real) -> Real:
    """Whether instances of `a` and of `b` GPUs fill nodes together without a gap: one size divides the other, and the
    larger the node (or is whole nodes itself)."""
    small, large = np.minimum(a, b), np.maximum(a, b)
    return (large % small == 0) & ((node_gpus % large == 0) | ((large % node_gpus == 0) & (node_gpus % small == 0)))
