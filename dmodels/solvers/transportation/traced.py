"""Transportation inside `jit`, `vmap` and `grad`, and the derivative of the cost.

On a CPU a batch is one callback to the host's loops; on an accelerator rows of one unit are placed there, in the
precision of the costs, and only rows with a supply ask the host.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.devices import accelerators
from dmodels.solvers.callback import call_host
from dmodels.solvers.solution import Solution

from .device import answered_congestion, answered_transport
from .host import congestion_host, transport_host
from .records import Placement, Shipment


@jax.custom_jvp
def _priced(inputs, slopes, total):
    """`total`, whose derivative by each of `inputs` is the array of the same shape in `slopes`."""
    return total


@_priced.defjvp
def _priced_jvp(primals, tangents):
    _, slopes, total = primals
    batch = total.ndim
    parts = [
        jnp.sum(slope * change, axis=tuple(range(batch, slope.ndim)))
        for slope, change in zip(slopes, tangents[0], strict=True)
    ]
    return total, sum(parts[1:], parts[0])


def _call(solve, program, arrays, core, results, n: int, m: int) -> tuple:
    """Broadcast the batch axes, and solve: on a CPU by the host's `solve`, elsewhere by `program` of one problem where
    there is one. `core`: axes of one problem in each array."""
    dtype = jnp.result_type(*arrays, float) if any(a.dtype.itemsize == 8 for a in arrays) else jnp.float32
    arrays = [jnp.asarray(a).astype(dtype) for a in arrays]
    batch = np.broadcast_shapes(*(a.shape[: a.ndim - k] for a, k in zip(arrays, core, strict=True)))
    arrays = [jnp.broadcast_to(a, batch + a.shape[a.ndim - k :]) for a, k in zip(arrays, core, strict=True)]
    shapes = {"columns": (n,), "flow": (n, m), "row_duals": (n,), "column_duals": (m,), "loads": (m,)}
    dtypes = {"columns": np.int32, "flags": np.int32, "steps": np.int32}

    def host(*values):
        s = solve(*values)
        found = {**s.value._asdict(), **s.certificate, "flags": s.flags, "steps": s.steps}
        return tuple(found[name] for name in results)

    kinds = [(batch + shapes.get(r, ()), dtypes.get(r, dtype)) for r in results]

    def on_host(*arrays):
        return call_host(host, *zip(*kinds, strict=True), *arrays)

    def on_device(*arrays):
        flat = [a.reshape((-1, *a.shape[a.ndim - k :])) for a, k in zip(arrays, core, strict=True)]
        found = jax.vmap(program)(*flat)
        return tuple(a.reshape(shape).astype(dtype) for a, (shape, dtype) in zip(found, kinds, strict=True))

    if program is None or not accelerators() or 0 in (n, m):
        found = on_host(*arrays)
    else:
        fixed = [jax.lax.stop_gradient(a) for a in arrays]
        found = jax.lax.platform_dependent(*fixed, cpu=on_host, default=on_device)
    return arrays, dict(zip(results, found, strict=True))


_CERTIFICATE = ("row_duals", "column_duals", "gap", "reduced")


def _solution(found, inputs, slopes) -> Solution:
    answered = found["flags"] == 0
    slopes = [jnp.where(answered.reshape(answered.shape + (1,) * (s.ndim - answered.ndim)), s, 0) for s in slopes]
    total = _priced(tuple(inputs), tuple(slopes), found["cost"])
    chosen = (
        Shipment(found["flow"], found["loads"], total)
        if "flow" in found
        else Placement(found["columns"], found["loads"], total)
    )
    return Solution(chosen, {name: found[name] for name in _CERTIFICATE}, found["flags"], found["steps"])


def transport_traced(cost, capacity, supply=None) -> Solution:
    """`transport` of traced arrays."""
    arrays = (cost, capacity) if supply is None else (cost, capacity, supply)
    what = "columns" if supply is None else "flow"
    results = (what, "loads", "cost", *_CERTIFICATE, "flags", "steps")
    program = answered_transport if supply is None else None
    arrays, found = _call(transport_host, program, arrays, (2, 1, 1)[: len(arrays)], results, *cost.shape[-2:])
    m = cost.shape[-1]
    flow = found["flow"] if supply is not None else jax.nn.one_hot(found["columns"], m, dtype=arrays[0].dtype)
    slopes = (flow, found["column_duals"], found["row_duals"])[: len(arrays)]
    return _solution(found, arrays, slopes)


def congestion_traced(cost, marginal) -> Solution:
    """`congestion_transport` of traced arrays."""
    results = ("columns", "loads", "cost", *_CERTIFICATE, "flags", "steps")
    arrays, found = _call(congestion_host, answered_congestion, (cost, marginal), (2, 2), results, *cost.shape[-2:])
    flow = jax.nn.one_hot(found["columns"], cost.shape[-1], dtype=arrays[0].dtype)
    slot = jnp.arange(marginal.shape[-1], dtype=arrays[0].dtype)
    slot = slot.reshape((1,) * found["loads"].ndim + slot.shape)
    return _solution(found, arrays, (flow, (slot < found["loads"][..., None]).astype(arrays[0].dtype)))
