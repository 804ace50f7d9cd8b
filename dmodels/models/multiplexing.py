"""Two queues instead of one: what a split loses because each pool needs a safety margin of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real, jit

from .queueing import erlang_c


@jit  # or the search's loop would be compiled anew at each call
def servers_count(load: Real, wait_probability: Real) -> Real:
    """Fewest servers at which an arrival waits with at most `wait_probability` (Erlang C): integer bisection.

    >>> [float(servers_count(x, 0.1)) for x in (1.0, 10.0, 100.0)]
    [3.0, 16.0, 115.0]
    """
    load, wait_probability = jnp.broadcast_arrays(jnp.asarray(load), jnp.asarray(wait_probability))
    # low never suffices; high does: ten deviations above the load an arrival waits with less than 1e-20
    allowed = wait_probability * (1.0 + 1e-6)  # the quadrature behind Erlang C is good to 1e-7
    low, high = jnp.floor(load), jnp.ceil(load + 10.0 * jnp.sqrt(load)) + 40.0

    def halve(_: Real, bounds: tuple[Real, Real]) -> tuple[Real, Real]:
        low, high = bounds
        middle = jnp.floor((low + high) / 2)
        enough = (middle > load) & (erlang_c(jnp.maximum(middle, 1.0), load) <= allowed)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    _, found = jax.lax.fori_loop(0, 40, halve, (low, high))
    return jnp.where(load > 0, found, 0.0)


def multiplexed_savings(work_frac: Real, rate_ratio: Real, load: Real, wait_probability: Real = 0.1) -> Real:
    r"""What a split saves in whole servers when each queue must keep P(wait) by itself (Erlang C, no batching gain).

    One queue of offered `load` R against two of $\phi R / r$ and $(1 - \phi) R$; negative where the margins of two
    queues cost more than the faster pool saves.

    >>> float(multiplexed_savings(0.5, 1.0, 10.0))  # 16 servers become 18
    -0.125
    """
    load = jnp.asarray(load)
    together = servers_count(load, wait_probability)
    apart = servers_count(work_frac * load / rate_ratio, wait_probability) + servers_count(
        (1.0 - work_frac) * load, wait_probability
    )
    return 1.0 - safe_divide(apart, together, 1.0)


def multiplexing_break_even_load(work_frac: Real, rate_ratio: Real, beta: Real = 1.0) -> Real:
    r"""Offered load (in servers) above which a split wins although each pool needs a safety margin of its own.

    Square-root staffing R + beta sqrt(R) in each pool:
    $R^* = [\beta (\sqrt{\phi/r} + \sqrt{1-\phi} - 1) / (\phi (1 - 1/r))]^2$, asymptotic (rounding losses of one server
    persist up to about R* + 4/s). Infinite where the pools are equally fast.
    """
    margin = jnp.sqrt(work_frac / rate_ratio) + jnp.sqrt(1.0 - work_frac) - 1.0
    gain = work_frac * (1.0 - 1.0 / rate_ratio)
    return safe_divide(beta * jnp.maximum(margin, 0.0), gain) ** 2
