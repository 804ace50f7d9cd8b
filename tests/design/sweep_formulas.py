"""Small formulas that tests sweep over; in a file of their own so that other processes can import them."""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.flags import Flag, flag_where
from dmodels.core.records import Real, Record, quantity


class Machine(Record):
    """A machine with a price and a speed curve."""

    price_usd_per_hour: Real = quantity()
    speeds_rps: Real = quantity()  # (3,)


def fleet(machine: Machine, rate_rps, headroom_frac=0.0, tp=1.0):
    """Machines for a rate, and what they cost."""
    speed = jnp.sum(machine.speeds_rps) * jnp.sqrt(tp)
    machines = jnp.ceil(rate_rps * (1.0 + headroom_frac) / speed)
    wait = jnp.exp(-machines / 7.0) / (machines * speed - rate_rps)
    return {
        "machines_count": machines,
        "cost_usd_per_hour": machines * machine.price_usd_per_hour,
        "wait_s": wait,
        "flags": flag_where(machines > 500.0, Flag.NO_FIT),
    }


SMALL = Machine(2.0, [1.0, 2.0, 3.0])
LARGE = Machine(9.0, [10.0, 20.0, 30.0])
