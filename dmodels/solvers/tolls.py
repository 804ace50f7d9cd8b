r"""What price per resource makes users' own choices good: marginal-cost tolls, and demand that answers to the price.

A user who takes resource j costs itself $f_j(x_j)$ and the others $x_j f_j'(x_j)$. Charged for that, selfish users
split as the social optimum does (Pigou 1920; Beckmann, McGuire and Winsten 1956).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dmodels.core.records import Real, float64

from .functions import as_array, check_shape
from .solution import Solution
from .wardrop import latencies_shape, marginal, wardrop


@float64
def elastic_wardrop(
    latency: Callable[[Real], Real], willingness: Callable[[Real], Real], users: Real, capacity: Real
) -> Solution:
    r"""Wardrop's equilibrium when users stay away from what costs more than it is worth to them.

    `willingness` maps a demand (...) to what the last of so many users would pay, nonincreasing; `users` (...) is the
    demand at price 0 at most. Those who stay away use one more resource, whose latency $W(users - y)$ rises with their
    number y, so `wardrop` solves it all. `value`: `loads`, `level` (what each user pays), `served` (their sum).
    Certificate and flags as of `wardrop`, with the stayers as a resource.

    One resource f = x, willingness 1 - r: half of the users come.

    >>> s = elastic_wardrop(lambda x: x, lambda r: 1.0 - r, 1.0, jnp.array([jnp.inf]))
    >>> round(float(s.value["served"]), 9)
    0.5
    """
    users = jnp.asarray(users, float)
    room = jnp.asarray(capacity, float)
    shape = latencies_shape(latency, jnp.zeros(room.shape or (1,)) + 0.0 * users[..., None])
    wanted = "a function of the demand to what the last user would pay, of the same shape"
    check_shape("willingness", willingness, wanted, shape[:-1], jnp.zeros(shape[:-1]))
    latency, willingness = as_array(latency), as_array(willingness)

    def everywhere(x: Real) -> Real:
        away = willingness(users - x[..., -1])
        return jnp.concatenate([latency(x[..., :-1]), away[..., None]], axis=-1)

    endless = jnp.full((*room.shape[:-1], 1), jnp.inf)
    found = wardrop(everywhere, users, jnp.concatenate([room, endless], axis=-1))
    loads = found.value["loads"][..., :-1]
    value = {"loads": loads, "level": found.value["level"], "served": jnp.sum(loads, axis=-1)}
    return Solution(value, found.certificate, found.flags, found.steps)


@float64
def marginal_cost_tolls(
    latency: Callable[[Real], Real],
    demand: Real,
    capacity: Real,
    willingness: Callable[[Real], Real] | None = None,
) -> Solution:
    r"""Tolls $x_j f_j'(x_j)$ at the social optimum, in the unit of the latencies: under them it is the equilibrium.

    Arguments as of `wardrop`; with `willingness`, demand answers to latency and toll (`elastic_wardrop`; `demand` is
    then the number of users), and the optimum counts what service is worth to those who come. `value`: `loads`,
    `tolls` (..., m), `income` $\sum_j x_j t_j$, `level` (latency and toll together, alike on all used resources),
    `served`. Certificate: `spread` of latency plus toll, as of `wardrop` but computed from the loads; `excess`.

    Pigou's roads f = x and f = 1 with one unit of traffic: a toll of 1/2 on the first, income 1/4.

    >>> s = marginal_cost_tolls(lambda x: jnp.array([1.0, 0.0]) * x + jnp.array([0.0, 1.0]), 1.0, jnp.full(2, jnp.inf))
    >>> s.value["tolls"].round(6).tolist(), round(float(s.value["income"]), 6)
    ([0.5, 0.0], 0.25)
    """
    latencies_shape(latency, jnp.zeros(jnp.shape(capacity) or (1,)) + 0.0 * jnp.asarray(demand, float)[..., None])
    latency = as_array(latency)
    if willingness is None:
        found = wardrop(marginal(latency), demand, capacity)
    else:
        found = elastic_wardrop(marginal(latency), willingness, demand, capacity)
    loads = found.value["loads"]
    at, slope = jax.jvp(latency, (loads,), (jnp.ones_like(loads),))
    tolls = loads * slope
    paid, level = at + tolls, found.value["level"]
    served = jnp.sum(loads, axis=-1)
    used = loads > 1e-9 * served[..., None]
    spread = (jnp.max(jnp.where(used, paid, -jnp.inf), axis=-1) - jnp.min(paid, axis=-1)) / jnp.abs(level)
    income = jnp.sum(loads * tolls, axis=-1)
    value = {"loads": loads, "tolls": tolls, "income": income, "level": level, "served": served}
    return Solution(value, dict(found.certificate, spread=spread), found.flags, found.steps)
