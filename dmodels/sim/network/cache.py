"""Prefix caches of decode instances: blocks in memory, pinned while a request uses them, else evicted oldest first.

Memory of instance j in tokens: `reserved[j]` belongs to requests alone, `used[j]` blocks are shared through the cache,
of which `idle[j]` are pinned by nobody and count as free. Blocks of a finished request go idle deepest first, so that
the end of a prefix is evicted before its beginning.
"""

from __future__ import annotations

from dmodels.core.compiled import kernel


@kernel
def hit_blocks(j, blocks, slot_of):
    """Length in blocks of the longest prefix of `blocks` that instance j holds."""
    n = 0
    while n < blocks.shape[0] and slot_of[j, blocks[n]] >= 0:
        n += 1
    return n


@kernel
def _unlink(j, slot, before, after, ends, idle):
    """Take an idle slot out of the eviction order."""
    a, b = before[j, slot], after[j, slot]
    if a >= 0:
        after[j, a] = b
    else:
        ends[j, 0] = b
    if b >= 0:
        before[j, b] = a
    else:
        ends[j, 1] = a
    idle[j] -= 1


@kernel
def _append(j, slot, before, after, ends, idle):
    """Put a slot at the young end of the eviction order."""
    last = ends[j, 1]
    before[j, slot], after[j, slot] = last, -1
    if last >= 0:
        after[j, last] = slot
    else:
        ends[j, 0] = slot
    ends[j, 1] = slot
    idle[j] += 1


@kernel
def pin(j, block, slot_of, refs, before, after, ends, idle):
    """One more request uses a block that is there."""
    slot = slot_of[j, block]
    if refs[j, slot] == 0:
        _unlink(j, slot, before, after, ends, idle)
    refs[j, slot] += 1


@kernel
def unpin(j, block, slot_of, refs, before, after, ends, idle):
    """One request fewer uses a block; the last one leaves it idle."""
    slot = slot_of[j, block]
    refs[j, slot] -= 1
    if refs[j, slot] == 0:
        _append(j, slot, before, after, ends, idle)


@kernel
def make_room(j, capacity, block_tokens, slot_of, block_at, before, after, ends, idle, used, reserved, spare):
    """Evict the oldest idle blocks until instance j keeps within its memory; False if that is not enough."""
    while reserved[j] + used[j] * block_tokens > capacity + 1e-6:
        slot = ends[j, 0]
        if slot < 0:
            return False
        _unlink(j, slot, before, after, ends, idle)
        slot_of[j, block_at[j, slot]] = -1
        used[j] -= 1
        spare[j, spare.shape[1] - 1 - used[j]] = slot
    return True


@kernel
def insert(j, block, slot_of, block_at, refs, used, spare):
    """A new block, pinned once, in a free slot. The caller has made room."""
    slot = spare[j, spare.shape[1] - 1 - used[j]]
    used[j] += 1
    slot_of[j, block], block_at[j, slot], refs[j, slot] = slot, block, 1
