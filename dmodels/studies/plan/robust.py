"""The fleet that one would sign: of those that the model cannot tell apart in cost, the simplest."""

from __future__ import annotations

from collections.abc import Sequence

from .deployment import Deployment

#: A simpler fleet may cost so much more than the cheapest: the median error of a step time as a plan knows it.
PREMIUM = 0.10


def alike(cheapest: Deployment, other: Deployment) -> bool:
    """Whether the model cannot tell which of two fleets is cheaper: the intervals of their costs overlap."""
    top = cheapest.usd_per_hour * cheapest.gpus_high / cheapest.gpus
    return other.usd_per_hour * other.gpus_low / other.gpus <= top


def simplest(found: Sequence[Deployment]) -> Deployment:
    """Of fleets that cost about as little as the cheapest, and that the model cannot tell from it, the simplest.

    Simpler are, in this order: measured GPUs, fewer pools, fewer GPU types, no pool of one instance; then the cheaper.
    """
    cheapest = min(found, key=lambda fleet: (round(fleet.usd_per_hour, 6), len(fleet.pools)))
    near = (1.0 + PREMIUM) * cheapest.usd_per_hour
    return min((x for x in found if x is cheapest or (x.usd_per_hour <= near and alike(cheapest, x))), key=complexity)


def complexity(fleet: Deployment) -> tuple[bool, int, int, int, float]:
    """What makes a fleet harder to run, the worst first."""
    pools = fleet.pools
    return (
        any(pool.confidence.provenance.startswith("assumed") for pool in pools),
        len(pools),
        len({pool.layout.gpu for pool in pools}),
        sum(pool.instances == 1 for pool in pools) if len(pools) > 1 else 0,
        round(fleet.usd_per_hour, 6),
    )
