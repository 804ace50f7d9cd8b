"""The closed loops as one program each: what a test does not state is handed over as well, with its default."""

from __future__ import annotations

import jax
import numpy as np

from dmodels import Parallel
from dmodels.core.programs import at_once
from dmodels.models.latency import Efficiency, serve, serve_disaggregated
from dmodels.models.memory import VLLM

_together, _apart = at_once(serve), at_once(serve_disaggregated)
_SET = {"draft_tokens": 0.0, "decode_batch": np.inf, "engine": VLLM}
_SCHEDULED = {"poll_steps": 0.0, "equal_lengths": 0.0, "prompts_first": 0.0}


def numbers(tree):
    """The same with float64 arrays: one program for all kinds of numbers."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, float), tree)


def pair(model, gpu, parallel, isl, osl, concurrencies, efficiency=None, **more):
    """`serve` of two instances alike but for their tensor parallelism (or whole layout) and clients."""
    layout = parallel if isinstance(parallel, Parallel) else Parallel(np.asarray(parallel, float))
    lengths_clients = isl, osl, np.broadcast_to(concurrencies, 2)
    place = model, gpu, layout.replace(tp=np.broadcast_to(layout.tp, 2))
    given = *place, *lengths_clients, efficiency or Efficiency()
    return jax.tree.map(np.asarray, _together(*numbers(given), **numbers(_SET | _SCHEDULED | more)))


def serve_one(model, gpu, parallel, *lengths_clients, **more):
    return jax.tree.map(lambda leaf: leaf[0], pair(model, gpu, parallel, *lengths_clients, **more))


def serve_apart(*given, efficiency=None, prefill_efficiency=None, **more):
    """`serve_disaggregated`."""
    e = efficiency or Efficiency()
    more = _SET | {"efficiency": e, "prefill_efficiency": prefill_efficiency or e} | more
    return jax.tree.map(np.asarray, _apart(*numbers(given), **numbers(more)))
