r"""The fleet that one would sign: of those that the model cannot tell apart in cost, the simplest.

A pool's step times err by a log-normal factor, and so does the cost of its fleet, with the standard deviation s that
the ends of its 80 % interval of GPUs tell. Layouts on one GPU type share a part of their errors, the same layout all of
it, so that the logarithm of the ratio of two fleets' costs has the variance

$$s_a^2 C_{aa} + s_b^2 C_{bb} - 2 s_a s_b C_{ab}, \qquad C_{ab} = \sum_{p \in a} \sum_{q \in b} w_p w_q c_{pq}$$

for shares w of the pools in each fleet's cost, and correlations c of the layouts' errors.

Where one of several pools has a single instance, nothing stands in for it. Nobody signs that to save less than a second
one costs: beside a fleet without such a pool they count with the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .deployment import Deployment, Pool

#: The upper end of the 80 % interval of a normal variable, in standard deviations.
_UPPER = 1.2816
#: However wrong the model may be, a simpler fleet is not worth more than this over the cheapest.
MOST_PREMIUM = 0.25


def premium(cheapest: Deployment, other: Deployment) -> float:
    """What a simpler fleet may cost more, as a share: the upper end of the 80 % interval of the ratio of the costs, or
    what the second instances cost that the cheapest lacks and the other has."""
    second = sum(pool.usd_per_hour for pool in lone(cheapest)) if all(p.instances > 1 for p in other.pools) else 0.0
    return min(max(_unsure_frac(cheapest, other), second / cheapest.usd_per_hour), MOST_PREMIUM)


def told_apart(cheapest: Deployment, other: Deployment) -> bool:
    """Whether the model knows that the other costs more."""
    return other.usd_per_hour > (1.0 + _unsure_frac(cheapest, other)) * cheapest.usd_per_hour


def _unsure_frac(cheapest: Deployment, other: Deployment) -> float:
    return math.expm1(min(_UPPER * ratio_sd(cheapest, other), 1.0))


def lone(fleet: Deployment) -> list[Pool]:
    """Of several pools those of one instance."""
    return [pool for pool in fleet.pools if pool.instances == 1] if len(fleet.pools) > 1 else []


def alike(cheapest: Deployment, other: Deployment) -> bool:
    """Whether the model cannot tell which of two fleets is cheaper: the 80 % interval of the ratio holds 1; of a fleet
    that may be infeasible, whether its least cost is within what the other may cost."""
    if math.isinf(ratio_sd(cheapest, other)):
        (low, high), (its_low, its_high) = (_costs(fleet) for fleet in (cheapest, other))
        return its_low <= high and low <= its_high
    return abs(math.log(other.usd_per_hour / cheapest.usd_per_hour)) <= _UPPER * ratio_sd(cheapest, other)


def ratio_sd(one: Deployment, other: Deployment) -> float:
    """Standard deviation of the logarithm of the ratio of two fleets' costs; inf: one may be infeasible."""
    mine, its = _error_sd(one), _error_sd(other)
    if math.isinf(mine) or math.isinf(its):
        return math.inf
    both = mine * its * _shared_frac(one, other)
    return math.sqrt(max(mine**2 * _shared_frac(one, one) + its**2 * _shared_frac(other, other) - 2.0 * both, 0.0))


def _costs(fleet: Deployment) -> tuple[float, float]:
    """What it costs at the ends of its 80 % interval."""
    each = fleet.usd_per_hour / fleet.gpus
    return each * fleet.gpus_low, each * fleet.gpus_high


def _error_sd(fleet: Deployment) -> float:
    """Of the logarithm of its GPUs, where all of its pools err together."""
    if fleet.gpus_low <= 0 or math.isinf(fleet.gpus_high):
        return math.inf
    return math.log(fleet.gpus_high / fleet.gpus_low) / (2.0 * _UPPER)


def _shared_frac(one: Deployment, other: Deployment) -> float:
    """C of the equation."""
    costs = [[pool.usd_per_hour for pool in fleet.pools] for fleet in (one, other)]
    weighted = (
        mine * its * _correlation(p, q)
        for p, mine in zip(one.pools, costs[0], strict=True)
        for q, its in zip(other.pools, costs[1], strict=True)
    )
    return sum(weighted) / (sum(costs[0]) * sum(costs[1]))


def _correlation(one: Pool, other: Pool) -> float:
    """Of the errors of two pools' step times."""
    if one.layout == other.layout:
        return 1.0
    if one.layout.gpu != other.layout.gpu:
        return 0.0
    return min(one.confidence.shared_frac, other.confidence.shared_frac)


def simplest(found: Sequence[Deployment]) -> Deployment:
    """Of fleets that cost no more above the cheapest than `premium`, the simplest.

    Simpler are, in this order: measured GPUs, fewer pools, fewer GPU types, fewer pools of one instance; then the
    cheaper. The model errs by more where it knows less, so one that it knows to be a little dearer than the cheapest is
    looked at again beside the one that it may take for alike: none that costs less is simpler.
    """
    cheapest = min(found, key=lambda fleet: (round(fleet.usd_per_hour, 6), len(fleet.pools)))

    def near(fleet: Deployment) -> bool:
        return fleet.usd_per_hour <= (1.0 + premium(cheapest, fleet)) * cheapest.usd_per_hour

    chosen = min((x for x in found if x is cheapest or near(x)), key=complexity)
    return min((x for x in found if x.usd_per_hour <= chosen.usd_per_hour), key=complexity)


#: What the entries of `complexity` are, of the fleet that has the greater one.
HARDER = (
    "on GPUs or a layout that nobody measured",
    "for more pools to run",
    "for more types of GPU to run",
    "for more pools of one instance",
)


#: The same of the fleet that has the smaller one.
EASIER = "measured", "fewer pools", "fewer GPU types", "fewer pools of one instance"


def harder(cheapest: Deployment, simplest: Deployment, why: Sequence[str] = HARDER) -> str:
    """In which respect the cheapest fleet is harder to run than the simplest; "" where it is not."""
    pairs = zip(why, complexity(cheapest), complexity(simplest), strict=False)
    return next((found for found, mine, other in pairs if mine > other), "")


def complexity(fleet: Deployment) -> tuple[bool, int, int, int, float]:
    """What makes a fleet harder to run, the worst first."""
    pools = fleet.pools
    return (
        any(pool.confidence.provenance.startswith("assumed") for pool in pools),
        len(pools),
        len({pool.layout.gpu for pool in pools}),
        len(lone(fleet)),
        round(fleet.usd_per_hour, 6),
    )
