"""The fleet that one would sign: of those that the model cannot tell apart in cost, the simplest."""

from __future__ import annotations

from collections.abc import Sequence

from .deployment import Deployment

#: The median absolute error of a normal variable, over the upper end of its 80 % interval.
_MEDIAN = 0.6745 / 1.2816
#: However wrong the model may be, a simpler fleet is not worth more than this over the cheapest.
MOST_PREMIUM = 0.25


def premium(cheapest: Deployment) -> float:
    """What a simpler fleet may cost more, as a share: the median error of the cheapest one's own cost.

    >>> from types import SimpleNamespace as Fleet
    >>> round(premium(Fleet(gpus=10, gpus_high=12.0)), 3), premium(Fleet(gpus=10, gpus_high=float("inf")))
    (0.101, 0.25)
    """
    return min(float((cheapest.gpus_high / cheapest.gpus) ** _MEDIAN) - 1.0, MOST_PREMIUM)


def alike(cheapest: Deployment, other: Deployment) -> bool:
    """Whether the model cannot tell which of two fleets is cheaper: the intervals of their costs overlap."""
    top = cheapest.usd_per_hour * cheapest.gpus_high / cheapest.gpus
    return other.usd_per_hour * other.gpus_low / other.gpus <= top


def simplest(found: Sequence[Deployment]) -> Deployment:
    """Of fleets that cost no more above the cheapest than the model errs, the simplest.

    Simpler are, in this order: measured GPUs, fewer pools, fewer GPU types, no pool of one instance; then the cheaper.
    """
    cheapest = min(found, key=lambda fleet: (round(fleet.usd_per_hour, 6), len(fleet.pools)))
    near = (1.0 + premium(cheapest)) * cheapest.usd_per_hour
    return min((x for x in found if x is cheapest or (x.usd_per_hour <= near and alike(cheapest, x))), key=complexity)


#: What the entries of `complexity` are, of the fleet that has the greater one.
HARDER = (
    "on GPUs or a layout that nobody measured",
    "for more pools to run",
    "for more types of GPU to run",
    "for a pool of one instance",
)


def harder(cheapest: Deployment, simplest: Deployment) -> str:
    """In which respect the cheapest fleet is harder to run than the simplest; "" where it is not."""
    pairs = zip(HARDER, complexity(cheapest), complexity(simplest), strict=False)
    return next((why for why, mine, other in pairs if mine > other), "")


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
