"""The most that one instance can serve, and at how many concurrent requests."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Real
from dmodels.models.memory import residents_of_length

from .serving import Serving, serve
from .steps import Efficiency

#: Concurrencies that are tried between one request and as many as memory holds.
TRIED = 65


class Throughput(NamedTuple):
    """An instance at its maximum."""

    tokens_per_s: Real  # output tokens
    concurrency: Real  # requests in flight at which it is reached
    at: Serving  # what these requests see


def maximum_throughput(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    isl: Real,
    osl: Real,
    efficiency: Efficiency | None = None,
    decode_batch: Real = float("inf"),
    utilization: Real = 0.9,
) -> Throughput:
    """The largest output throughput of a closed loop over all concurrencies, for scalars; 0 where no request fits.

    Beyond what memory holds, requests wait and nothing is gained, so `TRIED` concurrencies up to that are compared.
    """
    held = residents_of_length(model, gpu, parallel, isl, osl, utilization)
    slots = jnp.maximum(jnp.minimum(held, decode_batch * parallel.dp), 1.0)
    tried = slots ** jnp.linspace(0.0, 1.0, TRIED)
    found = jax.vmap(
        lambda n: serve(
            model,
            gpu,
            parallel,
            isl,
            osl,
            concurrency=n,
            efficiency=efficiency,
            decode_batch=decode_batch,
            utilization=utilization,
        )
    )(tried)
    best = jnp.argmax(found.tokens_per_s)
    at = jax.tree.map(lambda leaf: leaf[best], found)
    return Throughput(at.tokens_per_s, tried[best], at)
