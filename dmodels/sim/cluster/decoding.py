"""Decoders: sequences wait for blocks, join a batch, and get a token a step."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import NONE, UNCOUNTED, kernel

from .state import DECODE, finish, leave


@kernel(**UNCOUNTED)
def best_home(f, machine, need, role):
    """The worker of a role with the most free blocks that takes a sequence of `need` blocks, or -1."""
    best, room = NONE, -1.0
    for w in range(f.workers.size):
        d = f.workers[w]
        if d.role == role and not d.draining and d.batch < machine.slots:
            free = machine.kv_blocks - d.used
            if free >= need and free > room:
                best, room = w, free
    return best


@kernel(**UNCOUNTED)
def admit_waiting(f, machine):
    """First come, first served: a large sequence holds up those behind it."""
    tally = f.tally[0]
    while tally.waiting_from < tally.waiting_to:
        i = f.queue[tally.waiting_from]
        d = best_home(f, machine, f.requests[i].blocks, DECODE)
        if d < 0:
            return
        tally.waiting_from += 1
        tally.waiting_blocks -= f.requests[i].blocks
        join(f, i, d)


@kernel(**UNCOUNTED)
def join(f, i, d):
    """Sequence i takes its place and its blocks on decoder d."""
    decoder = f.workers[d]
    f.lines[d, decoder.batch] = i
    decoder.batch += 1
    decoder.used += f.requests[i].blocks


@kernel(forceinline=True)
def end_step(f, w, now):
    """A token for every sequence that took part in decoder w's step; whether one of them ended."""
    decoder, line = f.workers[w], f.lines[w]
    kept = 0
    for place in range(decoder.batch):
        i = line[place]
        request = f.requests[i]
        if place < decoder.joined:
            request.left -= 1
        if request.left <= 0:
            finish(f, i, now)
            decoder.used -= request.blocks
        else:
            line[kept] = i
            kept += 1
    ended = kept < decoder.batch
    decoder.batch = kept
    decoder.step_at = np.inf  # the next step begins with whoever is admitted now
    if kept == 0:
        leave(decoder)
    return ended
