"""The most that one instance can serve, and at how many concurrent requests."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Real, jit
from dmodels.models.memory import VLLM, EngineMemory, residents_of_length

from .serving import Serving, serve
from .steps import Efficiency

#: Concurrencies that are tried, from one request to `BEYOND` times as many as memory holds: then all slots are full.
TRIED, BEYOND = 97, 8.0
#: Of the maximum, what the concurrency that is stated reaches.
NEARLY = 0.99


class Throughput(NamedTuple):
    """An instance at its maximum."""

    tokens_per_s: Real  # output tokens
    concurrency: Real  # the fewest requests in flight that reach 99 % of it
    at: Serving  # what these see


@jit
def maximum_throughput(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    isl: Real,
    osl: Real,
    efficiency: Efficiency | None = None,
    decode_batch: Real = float("inf"),
    utilization: Real | None = None,
    engine: EngineMemory = VLLM,
) -> Throughput:
    """The largest output throughput of a closed loop over all concurrencies, for scalars; 0 where no request fits.

    More requests than memory holds wait, so that every slot that falls free is taken at once.
    """
    held = residents_of_length(model, gpu, parallel, isl, osl, utilization=utilization, engine=engine)
    slots = jnp.maximum(jnp.minimum(held, decode_batch * parallel.dp), 1.0)
    tried = (BEYOND * slots) ** jnp.linspace(0.0, 1.0, TRIED)
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
            engine=engine,
        )
    )(tried)
    most = jnp.max(found.tokens_per_s)
    first = jnp.argmax(found.tokens_per_s >= NEARLY * most)
    return Throughput(most, tried[first], jax.tree.map(lambda leaf: leaf[first], found))
