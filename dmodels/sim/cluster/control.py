"""The controller's epoch: what it sees, the sequences that it moves together, the workers that change roles."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import NONE, UNCOUNTED, kernel

from .decoding import join
from .records import Flow
from .state import DECODE, PREFILL, STANDBY, Seen, leave


@kernel(**UNCOUNTED)
def observe(f, machine, sees_waiting):
    """What the controller sees at an epoch."""
    capacity, mean = machine.kv_blocks, f.tally[0].mean_blocks
    prefill = decode = 0
    idle = free_decode = queue = batch = free_all = stranded_all = 0.0
    for w in f.workers:
        if w.draining:
            continue
        if w.role == PREFILL:
            prefill += 1
            idle += 1.0 - w.work / machine.ttft_slo_s
            queue += w.count
        elif w.role == DECODE:
            decode += 1
            free = capacity - w.used
            stranded = free - mean * np.floor(free / mean)
            free_decode += 1.0 - (w.used + stranded) / capacity
            batch += w.batch
            free_all += free
            stranded_all += stranded
    free_decode -= sees_waiting * f.tally[0].waiting_blocks / capacity
    stranded_frac = stranded_all / free_all if free_all > 0 else 0.0
    return Seen(prefill, decode, idle / prefill, free_decode / decode, queue / prefill, batch / decode, stranded_frac)


@kernel
def gather(f, machine, rules, freed, now):
    """Up to four moves that make room for the next request in line, or for one of mean size; whether there were any."""
    tally, moved = f.tally[0], False
    waits = tally.waiting_from < tally.waiting_to
    need = f.requests[f.queue[tally.waiting_from]].blocks if waits else tally.mean_blocks
    for _ in range(4):
        a, place, b = best_move(f, machine, need, rules.theta_frag)
        if a < 0:
            break
        move(f, machine, (a, place, b), freed, now)
        moved = True
    return moved  # a slot is free at once, the blocks later


@kernel
def move(f, machine, way, freed, now):
    """The sequence at a place of one worker joins another, `way` = (from, place, to); its blocks are freed later."""
    a, place, b = way
    source, line = f.workers[a], f.lines[a]
    i = line[place]
    for k in range(place, source.batch - 1):
        line[k] = line[k + 1]
    source.batch -= 1
    source.joined -= 1 if place < source.joined else 0
    if source.batch == 0 and source.head < 0:
        source.step_at = np.inf
    join(f, i, b)
    blocks = f.requests[i].blocks
    f.tally[0].moved += blocks
    freed.append((now + blocks * machine.block_transfer_s, a, blocks))


@kernel(**UNCOUNTED)
def best_move(f, machine, k, theta):
    """The move that lets most more requests of k blocks fit, away from a decoder below theta: (from, place, to)."""
    capacity = machine.kv_blocks
    best, source, place, target = 0.0, NONE, NONE, NONE
    for a in range(f.workers.size):
        one = f.workers[a]
        if one.role != DECODE or one.draining:
            continue
        free = capacity - one.used
        stranded = free - k * np.floor(free / k)
        if not (1.0 - (one.used + stranded) / capacity < theta and stranded > 0):
            continue
        for s in range(one.batch):
            size = f.requests[f.lines[a, s]].blocks
            for b in range(f.workers.size):
                other = f.workers[b]
                there = capacity - other.used
                taken = other.role != DECODE or other.draining or other.batch >= machine.slots or there < size
                if b == a or taken:
                    continue
                gain = np.floor((free + size) / k) + np.floor((there - size) / k)
                gain -= np.floor(free / k) + np.floor(there / k)
                worth = gain - 1e-6 * size
                if worth > best:
                    best, source, place, target = worth, a, s, b
    return source, place, target


@kernel(**UNCOUNTED)
def reassign(f, rules, seen, now):
    """Give a standby worker to a role in need or take one back, as `Flow` says; whether a worker came."""
    tally = f.tally[0]
    free_p, free_d = seen.prefill_freeness, seen.decode_freeness
    waiting = tally.waiting_to - tally.waiting_from
    to = back = NONE
    spare = False
    for w in f.workers:
        spare = spare or w.role == STANDBY
    if rules.flow == Flow.FREENESS and now >= tally.quiet_until:
        if spare and free_p < rules.theta_flow * free_d:
            to = PREFILL
        elif spare and free_d < rules.theta_flow * free_p:
            to = DECODE
        elif seen.prefill > 1 and 1.0 - (1.0 - free_p) * seen.prefill / (seen.prefill - 1) >= max(free_d, 0.0):
            back = PREFILL
        elif seen.decode > 1 and 1.0 - (1.0 - free_d) * seen.decode / (seen.decode - 1) >= max(free_p, 0.0):
            back = DECODE
    elif rules.flow == Flow.REACTIVE:
        if seen.queue > rules.queue_limit:
            to = PREFILL
        elif waiting > rules.queue_limit:
            to = DECODE
        elif seen.queue <= 1.0 and seen.prefill > 1:
            back = PREFILL
        elif seen.decode > 1:
            back = DECODE
    changes = tally.changes
    if to >= 0:
        promote(f, to, now + rules.cool_s)
    elif back >= 0:
        recall(f, back, now)
    if tally.changes > changes:
        tally.quiet_until = now + rules.cool_s
    return to >= 0 and tally.changes > changes


@kernel(**UNCOUNTED)
def promote(f, role, until):
    """The first standby worker takes a role."""
    for w in f.workers:
        if w.role == STANDBY:
            w.role, w.locked = role, until
            f.tally[0].changes += 1
            return


@kernel(**UNCOUNTED)
def recall(f, role, now):
    """The last worker that came from standby and is not locked goes back, once it has nothing left to do."""
    for w in f.workers[::-1]:
        if w.role == role and not w.draining and w.locked > 0 and now >= w.locked:
            f.tally[0].changes += 1
            w.locked, w.draining = 0.0, True
            if (role == PREFILL and w.count == 0) or (role == DECODE and w.batch == 0):
                leave(w)
            return
