"""The compiled loop of `cluster`: arrivals, prefills, decode steps, control epochs, in order of time."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import NONE, kernel

from .control import gather, observe, reassign
from .decoding import admit_waiting, end_step
from .prompts import arrive, end_prompt

#: What happens next: an arrival, the end of a prompt or of a decoder's step, a control epoch.
ARRIVAL, PROMPT, STEP, EPOCH = range(4)


@kernel
def run(f, machine, rules):
    """Until all requests are served; (epochs (k, 3): time, batch, stranded share, and queues (k, workers))."""
    m, tally = f.workers.size, f.tally[0]
    freed = [(np.inf, 0, 0.0)]  # (time, decoder, blocks) of sequences on their way to another decoder
    epochs, queues = [(0.0, 0.0, 0.0)], [np.zeros(m)]
    while tally.finished < f.requests.size:
        now, kind, w = next_event(f)
        admit = release(f, freed, now)
        if kind == ARRIVAL:
            arrive(f, rules.signal, now)
        elif kind == PROMPT:
            admit |= end_prompt(f, w, now)
        elif kind == STEP:
            admit |= end_step(f, w, now)
        else:
            tally.next_epoch = now + rules.epoch_s
            seen = observe(f, machine, rules.sees_waiting)
            epochs.append((now, seen.batch, seen.stranded_frac))
            queues.append(np.array([float(w.count) for w in f.workers]))
            if rules.theta_frag > 0:
                admit |= gather(f, machine, rules, freed, now)
            admit |= reassign(f, rules, seen, now)
        if admit:
            admit_waiting(f, machine)
        for d in f.workers:
            if d.batch > 0 and d.step_at == np.inf:
                d.joined = d.batch
                d.step_at = now + machine.base_s + machine.per_sequence_s * d.batch
    table = np.empty((len(queues), m))
    for k in range(len(queues)):
        table[k] = queues[k]
    return np.array(epochs), table


@kernel(forceinline=True)
def next_event(f):
    """(time, what happens, worker); of equals an epoch, then an arrival, then the worker of the lowest number."""
    tally = f.tally[0]
    now, kind, which = tally.next_epoch, EPOCH, NONE
    if tally.next < tally.horizon and f.requests[tally.next].arrival <= now:
        now, kind = f.requests[tally.next].arrival, ARRIVAL
    for w in range(f.workers.size):
        worker = f.workers[w]
        if worker.done_at < now:
            now, kind, which = worker.done_at, PROMPT, w
        if worker.step_at < now:
            now, kind, which = worker.step_at, STEP, w
    return now, kind, which


@kernel(forceinline=True)
def release(f, freed, now):
    """Free the blocks of sequences that have arrived elsewhere; whether there were any."""
    some, k = False, 1
    while k < len(freed):
        if freed[k][0] <= now:
            _, d, blocks = freed.pop(k)
            f.workers[d].used -= blocks
            some = True
        else:
            k += 1
    return some
