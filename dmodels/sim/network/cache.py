"""Prefix caches of decode instances: blocks in memory, pinned while a request uses them, else evicted oldest first.

Memory of instance j in tokens: `reserved[j]` belongs to requests alone, `used[j]` blocks are shared through the cache,
of which `idle[j]` are pinned by nobody and count as free. Blocks of a finished request go idle deepest first, so that
the end of a prefix is evicted before its beginning.

Without pins this is `models.cache`'s LRU, block for block (a test compares them). That one sees a whole trace at
once and answers for every size; here blocks come and go at times that depend on the answers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import NONE, kernel


class Caches(NamedTuple):
    """Blocks in the memories of D instances, with the order in which idle ones are evicted."""

    on: bool  # False: hits are given, nothing is kept
    capacity_tokens: float
    block_tokens: float
    slot_of: np.ndarray  # (D, blocks) slot of a block; -1: not there
    block_at: np.ndarray  # (D, slots)
    pins: np.ndarray  # (D, slots) requests that use the block
    before: np.ndarray  # (D, slots) neighbours in the order of eviction
    after: np.ndarray
    ends: np.ndarray  # (D, 2) the oldest and the youngest idle slot; -1: none
    spare: np.ndarray  # (D, slots) free slots: those from `used[j]` on, counted from the end
    used: np.ndarray  # (D,) blocks held
    idle: np.ndarray  # (D,) of which nobody uses
    reserved: np.ndarray  # (D,) tokens that belong to requests alone


@kernel
def caches_of(on, instances, blocks, capacity_tokens, block_tokens):
    """Room for `blocks` different blocks on each instance, none of them held."""
    slots = min(max(int(capacity_tokens / block_tokens), 1), blocks) if on else 1
    table = (instances, slots)
    spare = np.zeros(table, np.int32)
    for slot in range(slots):
        spare[:, slot] = slot
    return Caches(
        on,
        capacity_tokens,
        block_tokens,
        np.full((instances, blocks), NONE, np.int32),
        np.zeros(table, np.int32),
        np.zeros(table, np.int32),
        np.zeros(table, np.int32),
        np.zeros(table, np.int32),
        np.full((instances, 2), NONE, np.int32),
        spare,
        np.zeros(instances, np.int64),
        np.zeros(instances, np.int64),
        np.zeros(instances),
    )


@kernel(forceinline=True)
def hit_blocks(slot_of, j, blocks):
    """Length in blocks of the longest prefix of `blocks` that instance j holds."""
    n = 0
    while n < blocks.shape[0] and slot_of[j, blocks[n]] >= 0:
        n += 1
    return n


@kernel(forceinline=True)
def _unlink(c, j, slot):
    """Take an idle slot out of the eviction order."""
    a, b = c.before[j, slot], c.after[j, slot]
    if a >= 0:
        c.after[j, a] = b
    else:
        c.ends[j, 0] = b
    if b >= 0:
        c.before[j, b] = a
    else:
        c.ends[j, 1] = a
    c.idle[j] -= 1


@kernel(forceinline=True)
def _append(c, j, slot):
    """Put a slot at the young end of the eviction order."""
    last = c.ends[j, 1]
    c.before[j, slot], c.after[j, slot] = last, NONE
    if last >= 0:
        c.after[j, last] = slot
    else:
        c.ends[j, 0] = slot
    c.ends[j, 1] = slot
    c.idle[j] += 1


@kernel(forceinline=True)
def pin(c, j, block):
    """One more request uses a block that is there."""
    slot = c.slot_of[j, block]
    if c.pins[j, slot] == 0:
        _unlink(c, j, slot)
    c.pins[j, slot] += 1


@kernel(forceinline=True)
def unpin(c, j, block):
    """One request fewer uses a block; the last one leaves it idle."""
    slot = c.slot_of[j, block]
    c.pins[j, slot] -= 1
    if c.pins[j, slot] == 0:
        _append(c, j, slot)


@kernel(forceinline=True)
def make_room(c, j):
    """Evict the oldest idle blocks until instance j keeps within its memory; False if that is not enough."""
    while c.reserved[j] + c.used[j] * c.block_tokens > c.capacity_tokens + 1e-6:
        slot = c.ends[j, 0]
        if slot < 0:
            return False
        _unlink(c, j, slot)
        c.slot_of[j, c.block_at[j, slot]] = NONE
        c.used[j] -= 1
        c.spare[j, c.spare.shape[1] - 1 - c.used[j]] = slot
    return True


@kernel(forceinline=True)
def insert(c, j, block):
    """A new block, pinned once, in a free slot; False if there is none. The caller has made room."""
    if c.used[j] >= c.spare.shape[1]:
        return False
    slot = c.spare[j, c.spare.shape[1] - 1 - c.used[j]]
    c.used[j] += 1
    c.slot_of[j, block], c.block_at[j, slot], c.pins[j, slot] = slot, block, 1
    return True
