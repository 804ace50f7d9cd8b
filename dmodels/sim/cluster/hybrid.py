"""The compiled loop of `Hybrid`: workers that read prompts in chunks beside the sequences that they decode (TaiChi).

A step of a worker takes up to `chunk` tokens of the prompts in its line and a token of every sequence, and reads the
weights once: max(W, seconds of the chunk) + H n, or the chunk's seconds alone where nothing decodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import NONE, UNCOUNTED, kernel

from .control import move, observe
from .decoding import best_home, end_step, join
from .engine import ARRIVAL, STEP, next_event, release
from .state import DECODE, PREFILL, Floor, finish, line_up


class Prompts(NamedTuple):
    """How far prompts are, and what each worker's step takes of them."""

    rest: np.ndarray  # (requests,) prompt tokens to come
    output: np.ndarray  # (requests,) output tokens in all
    taken: np.ndarray  # (workers,) prompt tokens of the step that runs, and their seconds
    seconds: np.ndarray


def prompts(f: Floor) -> Prompts:
    """Before the first arrival."""
    workers = np.zeros((2, f.workers.size))
    return Prompts(f.requests["prompt"].astype(float), f.requests["left"].copy(), *workers)


@kernel
def run(f, machine, rules, p):
    """Until all requests are served; (epochs (k, 3): time, batch, stranded share, and queues (k, workers))."""
    m, tally = f.workers.size, f.tally[0]
    freed = [(np.inf, 0, 0.0)]  # (time, worker, blocks) of sequences on their way to another worker
    epochs, queues = [(0.0, 0.0, 0.0)], [np.zeros(m)]
    while tally.finished < f.requests.size:
        now, kind, w = next_event(f)
        release(f, freed, now)
        if kind == ARRIVAL:
            arrive(f, machine, rules, p, now)
        elif kind == STEP:
            end_step(f, w, now)
            end_chunk(f, w, p, now)
        else:
            tally.next_epoch = now + rules.epoch_s
            seen = observe(f, machine, 1.0)
            epochs.append((now, seen.batch, seen.stranded_frac))
            queues.append(np.array([float(w.count) for w in f.workers]))
            if rules.flows:
                flow(f, machine, rules, p.output, freed, now)
        settle(f, machine, rules.flows)
        for w in range(m):
            begin_step(f, w, machine, rules, p, now)
    table = np.empty((len(queues), m))
    for k in range(len(queues)):
        table[k] = queues[k]
    return np.array(epochs), table


@kernel(**UNCOUNTED)
def chunk_of(worker, rules):
    """Prompt tokens that a step of the worker takes at most."""
    return rules.chunk if worker.role == PREFILL else rules.decode_chunk


@kernel(**UNCOUNTED)
def begin_step(f, w, machine, rules, p, now):
    """The next step of an idle worker that has something to do."""
    worker = f.workers[w]
    if worker.step_at < np.inf or (worker.batch == 0 and worker.head < 0):
        return
    room, seconds, i = chunk_of(worker, rules), 0.0, worker.head
    while i >= 0 and room > 0:
        use = min(room, p.rest[i])
        seconds += use * f.requests[i].seconds / f.requests[i].prompt
        room -= use
        i = f.requests[i].after
    p.taken[w], p.seconds[w] = chunk_of(worker, rules) - room, seconds
    worker.joined = worker.batch
    decoding = worker.batch > 0
    step = max(machine.base_s, seconds) + machine.per_sequence_s * worker.batch if decoding else seconds
    worker.step_at = now + step


@kernel(**UNCOUNTED)
def end_chunk(f, w, p, now):
    """The prompt tokens of a step are read; a prompt that ends gives its first token and waits for a place."""
    worker, tally = f.workers[w], f.tally[0]
    left = p.taken[w]
    while left > 0:
        i = worker.head
        request = f.requests[i]
        use = min(left, p.rest[i])
        left -= use
        p.rest[i] -= use
        worker.tokens -= use
        worker.work -= use * request.believed / request.prompt
        if p.rest[i] > 0:
            break
        request.first = now
        worker.count -= 1
        worker.head = request.after
        if worker.count == 0:
            worker.work = 0.0
        request.left -= 1
        if request.left <= 0:
            finish(f, i, now)
        else:
            f.queue[tally.waiting_to] = i
            tally.waiting_to += 1
            tally.waiting_blocks += request.blocks


@kernel(**UNCOUNTED)
def first_token_s(f, w, i, machine, rules, p, now):
    """Seconds until request i's first token if its prompt went to worker w, with the sequences that are there now."""
    worker, chunk = f.workers[w], chunk_of(f.workers[w], rules)
    if chunk <= 0:
        return np.inf
    begins, ahead, tokens = 0.0, worker.work + f.requests[i].believed, worker.tokens + f.requests[i].prompt
    if worker.step_at < np.inf:  # the step that runs ends first, with what it takes of the prompts
        begins, ahead, tokens = worker.step_at - now, ahead - p.seconds[w], tokens - p.taken[w]
    if worker.batch == 0:
        return begins + ahead
    steps = np.ceil(tokens / chunk)
    return begins + max(ahead, steps * machine.base_s) + steps * machine.per_sequence_s * worker.batch


@kernel(**UNCOUNTED)
def arrive(f, machine, rules, p, now):
    """The next prompt goes to the soonest decoder that is in time, else the soonest prefill worker that is, else to
    the soonest worker."""
    tally = f.tally[0]
    i = tally.next
    tally.next += 1
    best, least, best_kind = NONE, np.inf, 3
    for w in range(f.workers.size):
        takes = first_token_s(f, w, i, machine, rules, p, now)
        late = takes > machine.ttft_slo_s
        kind = 2 if late else (0 if f.workers[w].role == DECODE else 1)
        if takes < np.inf and (kind < best_kind or (kind == best_kind and takes < least)):
            best, least, best_kind = w, takes, kind
    line_up(f, best, i)


@kernel(**UNCOUNTED)
def settle(f, machine, flows):
    """First come, first served: a sequence starts on a decoder, or where none has room and answers flow, elsewhere."""
    tally = f.tally[0]
    while tally.waiting_from < tally.waiting_to:
        i = f.queue[tally.waiting_from]
        need = f.requests[i].blocks
        home = best_home(f, machine, need, DECODE)
        if home < 0 and flows:
            home = best_home(f, machine, need, PREFILL)
        if home < 0:
            return
        tally.waiting_from += 1
        tally.waiting_blocks -= need
        join(f, i, home)


@kernel
def flow(f, machine, rules, output, freed, now):
    """Longest answers leave decoders above the watermark; those that are late on prefill workers come back."""
    for w in range(f.workers.size):
        worker = f.workers[w]
        leaving = 0.0  # blocks on their way are freed later, but are gone
        if worker.role == DECODE:
            while worker.used - leaving > rules.watermark and worker.batch > 0:
                longest = 0
                for place in range(1, worker.batch):
                    i, best = f.lines[w, place], f.lines[w, longest]
                    if output[i] - f.requests[i].left > output[best] - f.requests[best].left:
                        longest = place
                blocks = f.requests[f.lines[w, longest]].blocks
                home = best_home(f, machine, blocks, PREFILL)
                if home < 0:
                    break
                move(f, machine, (w, longest, home), freed, now)
                leaving += blocks
        else:
            for place in range(worker.batch - 1, -1, -1):
                request = f.requests[f.lines[w, place]]
                made = output[f.lines[w, place]] - request.left - 1
                home = best_home(f, machine, request.blocks, DECODE)
                late = now - request.first > rules.late_s * max(made, 1)
                if late and home >= 0 and f.workers[home].used + request.blocks <= rules.watermark:
                    move(f, machine, (w, place, home), freed, now)
