"""Host solvers inside traced code: one callback per batch, whatever `vmap` has stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np


def call_host(solve: Callable, shapes: Sequence[tuple[int, ...]], dtypes: Sequence, *arrays) -> tuple:
    """`solve(*arrays)` on the host; `shapes` are its results' shapes without the batch axes that `vmap` adds.

    The arrays are constants under differentiation: rules are attached to what is priced afterwards.
    """
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def host(*values):
        found = solve(*(np.asarray(value) for value in values))
        return tuple(np.asarray(a).astype(r.dtype, copy=False) for a, r in zip(found, results, strict=True))

    arrays = [jax.lax.stop_gradient(jnp.asarray(a)) for a in arrays]
    return jax.pure_callback(host, tuple(results), *arrays, vmap_method="broadcast_all")
