"""The wait for a slot."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dmodels.core.numerics import clip, log, maximum, safe_divide
from dmodels.core.records import Real

from ..queueing import inverse_erlang_b, service_factor
from ..traffic import Requests
from .batch import Batch
from .prompts import Joint, Prompts

#: Gauss-Legendre rule on [0, 1].
_INSIDE, _WEIGHTS = 0.5 * np.polynomial.legendre.leggauss(5)[0] + 0.5, 0.5 * np.polynomial.legendre.leggauss(5)[1]


class SlotQueue(NamedTuple):
    """The wait for a slot."""

    wait: Real
    wait_square: Real
    overload: Real


def slot_queue(requests: Requests, batch: Batch, prompts: Prompts, joint: Joint, x: Real, slots: Real) -> SlotQueue:
    """Who waits for a slot finds all of them taken, and steps as slow as that makes them. The chain's chance of it is
    Erlang C with slots and load scaled so that all slots are as far up in potential as they are in the chain."""
    decodes, outputs = requests.output_tokens > 0, requests.decode_steps
    slot_load = x * (outputs * batch.mean_step + batch.alone + prompts.one + joint.wait)
    full_alone = jnp.where(decodes, batch.full[0], batch.alone)
    full_busy = jnp.where(decodes, x * batch.full[1], batch.busy)
    full_service = outputs * safe_divide(full_alone, 1.0 - full_busy, 1e300) + full_alone + prompts.one
    spare = slots - x * full_service
    # ln of departures over arrivals, from what is there to all slots: the chain's, over that of Erlang's
    share = np.expand_dims(_INSIDE, tuple(range(np.ndim(slot_load))))
    load = maximum(slot_load, 1e-9)[..., None]
    at, asked = (load + share * (maximum(end, 1e-9)[..., None] - load) for end in (slots, x * full_service))
    chain, erlang = maximum(log(at / asked), 0.0) @ _WEIGHTS, log(at / load) @ _WEIGHTS
    noise = jnp.where(decodes, batch.noise, 1.0)
    stiff = clip(safe_divide(chain, erlang, 1.0), 1e-3, 1.0)
    # While all slots are taken only who leaves makes room for a prompt: an empty slot more is filled, and stalls all.
    calm = jnp.where(decodes, 1.0 - full_busy, 1.0) * spare
    # prompts vary as well, for as much of the time as they take
    varied = service_factor(stiff * slots, stiff * x * full_service, requests.output_scv)
    varied += jnp.where(decodes, 0.5 * full_busy**2 * (prompts.square - 1.0), 0.0)
    queued = safe_divide(varied * full_service, calm)
    below = inverse_erlang_b(stiff / noise * slots, stiff / noise * slot_load) - 1.0
    full = 1.0 / (1.0 + below * safe_divide(calm, stiff * slots, 0.0))
    wait = jnp.where(jnp.isfinite(queued), full * queued, jnp.inf)
    return SlotQueue(wait, 2.0 * wait * queued, spare <= 0.0)
