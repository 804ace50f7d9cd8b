r"""Dynamo's router, Eq. (1) and (2) of "The Price of Anarchy in Disaggregated Inference": cost per worker, softmax
choice.

Two sign conventions exist. Dynamo *adds* omega per block that must be prefilled, Eq. (1); the paper's game *subtracts*
omega per cached share, Eq. (7). With B blocks in the request, omega_dynamo x (B - cached) = omega_dynamo B (1 - o):
the two choose alike exactly if Eq. (7) uses omega x B, so one omega for requests of 8 and of 64 blocks routes them
differently.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dmodels.core.records import Real


def block_costs(prefill_blocks: Real, active_blocks: Real, omega: Real = 1.0) -> Real:
    """Eq. (1), in blocks: omega x (blocks this request would have to prefill there) + blocks being decoded there.

    >>> block_costs(8.0, 100.0, 1.0)
    108.0
    """
    return omega * prefill_blocks + active_blocks


def paper_omega_s(omega: Real, request_blocks: Real, block_s: Real) -> Real:
    """The omega of Eq. (7), in seconds, under which it chooses as Eq. (1) does; a block of load costs `block_s`."""
    return omega * request_blocks * block_s


def choice_probabilities(costs: Real, tau: Real, normalized: bool = False) -> Real:
    r"""Eq. (2): $P(j) \propto e^{-c_j/\tau}$ over the last axis.

    tau = 0: all on the cheapest worker, the first of equals. tau = inf: uniform. tau has the unit of costs, so 0.7 is
    0.7 *blocks* and all but greedy as soon as costs differ by a few. With `normalized=True` the costs are first
    divided by their range max - min, as Dynamo's code does; tau is then a pure number, for which 0.3 to 1 is a range
    worth sweeping.

    >>> choice_probabilities(jnp.array([0.0, 1.0]), 0.0).tolist()
    [1.0, 0.0]
    """
    costs, tau = jnp.asarray(costs, float), jnp.asarray(tau, float)
    batch = jnp.broadcast_shapes(costs.shape[:-1], tau.shape)
    costs, tau = jnp.broadcast_to(costs, (*batch, costs.shape[-1])), jnp.broadcast_to(tau, batch)[..., None]
    above = costs - jnp.min(costs, axis=-1, keepdims=True)
    if normalized:
        spread = jnp.max(above, axis=-1, keepdims=True)
        above = above / jnp.where(spread > 0, spread, 1.0)
    warm = jnp.where(tau > 0, tau, 1.0)
    weight = jnp.exp(-above / warm)
    soft = weight / jnp.sum(weight, axis=-1, keepdims=True)
    first = jax.nn.one_hot(jnp.argmin(costs, axis=-1), costs.shape[-1], dtype=soft.dtype)
    return jnp.where(tau > 0, soft, first)


def choose(costs: Real, tau: Real, uniform: Real, normalized: bool = False) -> Real:
    """The worker drawn by Eq. (2), int32, from one uniform number in [0, 1) per request."""
    levels = jnp.cumsum(choice_probabilities(costs, tau, normalized), axis=-1)
    below = jnp.asarray(uniform)[..., None] >= levels / levels[..., -1:]
    return jnp.minimum(jnp.sum(below, axis=-1), costs.shape[-1] - 1).astype(jnp.int32)
