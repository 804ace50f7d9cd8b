"""What a fleet costs. An instance is tp * pp * dp GPUs; prices are per GPU and hour, so instances never meet prices.

One of the papers sells 60 TP=2 instances as 60 GPUs and reports half the money (arXiv:2604.09613, Section 4.2);
`fleet_cost` therefore takes both counts and gives both back.
"""

from __future__ import annotations

from typing import NamedTuple

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real
from dmodels.core.units import HOURS_PER_YEAR, SECONDS_PER_HOUR


class FleetCost(NamedTuple):
    """A fleet, decomposed: gpus = instances * gpus_per_instance, always."""

    fleet_instances: Real
    gpus_per_instance: Real
    fleet_gpus: Real
    usd_per_hour: Real
    usd_per_year: Real


def fleet_cost(fleet_instances: Real, gpus_per_instance: Real, price_usd_per_hour: Real) -> FleetCost:
    """Dollars of `fleet_instances`, each of `gpus_per_instance` GPUs at `price_usd_per_hour` a GPU. A year is 8,760 h.

    >>> round(fleet_cost(60, 2, 2.21).usd_per_year / 1e6, 2)  # printed as 1.2
    2.32
    """
    gpus = fleet_instances * gpus_per_instance
    hourly = gpus * price_usd_per_hour
    return FleetCost(fleet_instances, gpus_per_instance, gpus, hourly, hourly * HOURS_PER_YEAR)


def usd_per_mtoken(usd_per_hour: Real, tokens_per_s: Real) -> Real:
    """Dollars per million tokens at a steady rate. 3.60 $/h at 1,000 token/s is 1 $/M. Infinite at rate 0.

    >>> round(float(usd_per_mtoken(3.6, 1000.0)), 9)
    1.0
    """
    return safe_divide(usd_per_hour / SECONDS_PER_HOUR * 1e6, tokens_per_s)
