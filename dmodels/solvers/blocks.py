"""Large batches in blocks that fit the cache of a core, or fill an accelerator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dmodels.core.devices import accelerators

#: Blocks on an accelerator are so much larger: a step of a loop is some launches, however few entries wait for it.
WIDER = 256


def in_blocks(function: Callable[..., Any], inputs: Any, size: int) -> Any:
    """`vmap(function)` over the leading axis of `inputs`, `size` entries at a time; traceable.

    In a vmapped loop every entry waits for the slowest; in a block it waits for the slowest of the block, and the block
    stays in cache. On an accelerator it is `WIDER` times as large. The last block is filled up with copies of the last
    entry.
    """
    count = jax.tree.leaves(inputs)[0].shape[0]
    size = max(1, min(int(size) * (WIDER if accelerators() else 1), count))
    blocks = -(-count // size)

    def fold(leaf: Any) -> Any:
        tail = jnp.broadcast_to(leaf[-1:], (blocks * size - count, *leaf.shape[1:]))
        return jnp.reshape(jnp.concatenate([leaf, tail]), (blocks, size, *leaf.shape[1:]))

    out = jax.lax.map(jax.vmap(function), jax.tree.map(fold, inputs))
    return jax.tree.map(lambda leaf: jnp.reshape(leaf, (blocks * size, *leaf.shape[2:]))[:count], out)
