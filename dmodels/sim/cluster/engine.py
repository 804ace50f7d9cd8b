"""The compiled loop of `cluster`: arrivals, prefills, decode steps, control epochs, in order of time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import kernel

from .records import Flow, Role, Signal

WORKER = np.dtype(
    [
        ("done_at", "f8"),  # when its prompt, or its step, ends
        ("step_at", "f8"),
        ("batch", "i8"),  # as a decoder: sequences, those that take part in the step that runs, blocks in use
        ("joined", "i8"),
        ("used", "f8"),
        ("role", "i8"),
        ("next_role", "i8"),  # where it is draining
        ("draining", "i8"),
        ("locked", "f8"),  # a promoted worker keeps its role until then; 0: it never came from standby
        # as a prefill worker: prompts there, their believed seconds and tokens, and the one in service
        ("count", "i8"),
        ("work", "f8"),
        ("tokens", "f8"),
        ("serving", "f8"),
        ("head", "i8"),
        ("tail", "i8"),
        ("begun", "f8"),
    ]
)

REQUEST = np.dtype(
    [
        ("arrival", "f8"),
        ("prompt", "i8"),
        ("left", "i8"),  # output tokens to come
        ("seconds", "f8"),  # of its prefill
        ("believed", "f8"),  # what the router believes that it takes
        ("blocks", "f8"),
        ("after", "i8"),  # the next prompt at the same worker
        ("worker", "i8"),
        ("first", "f8"),
        ("end", "f8"),
    ]
)

TALLY = np.dtype(
    [
        ("next", "i8"),  # request to arrive
        ("horizon", "i8"),  # requests that may arrive so far
        ("closed", "i8"),  # whether an answer brings the next request
        ("finished", "i8"),
        ("turn", "i8"),
        ("waiting_from", "i8"),  # requests without a decoder: queue[waiting_from:waiting_to]
        ("waiting_to", "i8"),
        ("waiting_blocks", "f8"),
        ("mean_blocks", "f8"),
        ("next_epoch", "f8"),
        ("quiet_until", "f8"),  # the controller changes no role until then
        ("changes", "i8"),
        ("moved", "f8"),
    ]
)


class Floor(NamedTuple):
    """All there is to know between two events."""

    workers: np.ndarray  # WORKER records
    requests: np.ndarray  # REQUEST records
    lines: np.ndarray  # (workers, slots) sequences of each decoder
    queue: np.ndarray  # (requests,) in the order in which prefills ended
    tally: np.ndarray  # (1,) TALLY


class Machine(NamedTuple):
    """`Workers` in plain numbers."""

    base_s: float
    per_sequence_s: float
    slots: int
    kv_blocks: float
    block_transfer_s: float
    ttft_slo_s: float


class ControlRules(NamedTuple):
    """`Control` in plain numbers."""

    signal: int
    flow: int
    theta_flow: float
    theta_frag: float
    epoch_s: float
    cool_s: float
    queue_limit: float
    sees_waiting: float


class Seen(NamedTuple):
    """What the controller sees: workers of each role, mean freeness of both, and what it writes down."""

    prefill: int
    decode: int
    prefill_freeness: float
    decode_freeness: float
    queue: float  # prompts a prefill worker
    batch: float  # sequences a decoder
    stranded_frac: float


PREFILL, DECODE, STANDBY = (int(role) for role in Role)
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
            seen = observe(f, machine, rules)
            epochs.append((now, seen.batch, seen.stranded_frac))
            queues.append(np.array([float(w.count) for w in f.workers]))
            if rules.theta_frag > 0:
                gather(f, machine, rules, freed, now)
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
    now, kind, which = tally.next_epoch, EPOCH, -1
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


@kernel
def score_of(signal, mine, worker):
    """What the router looks at on a prefill worker; the least is chosen. `mine`: it is this worker's turn."""
    if signal == Signal.TURN:
        return 0.0 if mine else 1.0
    if signal == Signal.REQUESTS:
        return float(worker.count)
    if signal == Signal.WORK:
        return worker.work
    if signal == Signal.TOKENS:
        return worker.tokens
    return worker.serving


@kernel
def arrive(f, signal, now):
    """The next request goes to the prefill worker of least score."""
    tally, m = f.tally[0], f.workers.size
    i = tally.next
    tally.next += 1
    while f.workers[tally.turn % m].role != PREFILL or f.workers[tally.turn % m].draining:
        tally.turn += 1
    best, least = -1, np.inf
    for w in range(m):
        worker = f.workers[w]
        if worker.role == PREFILL and not worker.draining:
            score = score_of(signal, w == tally.turn % m, worker)
            if signal == Signal.WORK and worker.head >= 0:  # progress of the prompt in service counts
                served = f.requests[worker.head]
                score -= served.believed * min(1.0, (now - worker.begun) / served.seconds)
            if score < least:
                best, least = w, score
    tally.turn += 1
    worker, request = f.workers[best], f.requests[i]
    request.worker = best
    worker.count += 1
    worker.work += request.believed
    worker.tokens += request.prompt
    if worker.head < 0:
        worker.head = worker.tail = i
        begin_prompt(f, worker, now)
    else:
        f.requests[worker.tail].after = i
        worker.tail = i


@kernel
def begin_prompt(f, worker, now):
    """The prompt at the head of a worker's line."""
    request = f.requests[worker.head]
    worker.begun, worker.done_at, worker.serving = now, now + request.seconds, request.prompt


@kernel
def end_prompt(f, w, now):
    """The first token of the request in service at w, which then waits for a decoder; whether it does."""
    worker, tally = f.workers[w], f.tally[0]
    i = worker.head
    request = f.requests[i]
    request.first = now
    worker.count -= 1
    worker.tokens -= request.prompt
    worker.work = worker.work - request.believed if worker.count > 0 else 0.0
    worker.head = request.after
    if worker.head >= 0:
        begin_prompt(f, worker, now)
    else:
        worker.done_at, worker.serving = np.inf, 0.0
        leave(worker)
    request.left -= 1
    if request.left <= 0:
        finish(f, i, now)
        return False
    f.queue[tally.waiting_to] = i
    tally.waiting_to += 1
    tally.waiting_blocks += request.blocks
    return True


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


@kernel(forceinline=True)
def finish(f, i, now):
    """Request i is answered; in a closed loop its client asks again."""
    tally = f.tally[0]
    f.requests[i].end = now
    tally.finished += 1
    if tally.closed and tally.horizon < f.requests.size:
        f.requests[tally.horizon].arrival = now
        tally.horizon += 1


@kernel
def leave(worker):
    """A draining worker with nothing left takes its next role."""
    if worker.draining:
        worker.role, worker.draining = worker.next_role, False


@kernel
def best_home(f, machine, need):
    """The decoder with the most free blocks that takes a sequence of `need` blocks, or -1."""
    best, room = -1, -1.0
    for w in range(f.workers.size):
        d = f.workers[w]
        if d.role == DECODE and not d.draining and d.batch < machine.slots:
            free = machine.kv_blocks - d.used
            if free >= need and free > room:
                best, room = w, free
    return best


@kernel
def admit_waiting(f, machine):
    """First come, first served: a large sequence holds up those behind it."""
    tally = f.tally[0]
    while tally.waiting_from < tally.waiting_to:
        i = f.queue[tally.waiting_from]
        d = best_home(f, machine, f.requests[i].blocks)
        if d < 0:
            return
        tally.waiting_from += 1
        tally.waiting_blocks -= f.requests[i].blocks
        join(f, i, d)


@kernel
def join(f, i, d):
    """Sequence i takes its place and its blocks on decoder d."""
    decoder = f.workers[d]
    f.lines[d, decoder.batch] = i
    decoder.batch += 1
    decoder.used += f.requests[i].blocks


@kernel
def observe(f, machine, rules):
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
    free_decode -= rules.sees_waiting * f.tally[0].waiting_blocks / capacity
    stranded_frac = stranded_all / free_all if free_all > 0 else 0.0
    return Seen(prefill, decode, idle / prefill, free_decode / decode, queue / prefill, batch / decode, stranded_frac)


@kernel
def gather(f, machine, rules, freed, now):
    """Up to four moves that make room for the next request in line, or for one of mean size."""
    tally = f.tally[0]
    waits = tally.waiting_from < tally.waiting_to
    need = f.requests[f.queue[tally.waiting_from]].blocks if waits else tally.mean_blocks
    for _ in range(4):
        a, place, b = best_move(f, machine, need, rules.theta_frag)
        if a < 0:
            return
        source, line = f.workers[a], f.lines[a]
        i = line[place]
        for k in range(place, source.batch - 1):
            line[k] = line[k + 1]
        source.batch -= 1
        source.joined -= 1 if place < source.joined else 0
        if source.batch == 0:
            source.step_at = np.inf
        join(f, i, b)
        blocks = f.requests[i].blocks
        tally.moved += blocks
        freed.append((now + blocks * machine.block_transfer_s, a, blocks))


@kernel
def best_move(f, machine, k, theta):
    """The move that lets most more requests of k blocks fit, away from a decoder below theta: (from, place, to)."""
    capacity = machine.kv_blocks
    best, source, place, target = 0.0, -1, -1, -1
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
                if gain > 0 and worth > best:
                    best, source, place, target = worth, a, s, b
    return source, place, target


@kernel
def reassign(f, rules, seen, now):
    """Give a standby worker to a role in need or take one back, as `Flow` says; whether a worker came."""
    tally = f.tally[0]
    free_p, free_d = seen.prefill_freeness, seen.decode_freeness
    waiting = tally.waiting_to - tally.waiting_from
    to = back = -1
    if rules.flow == Flow.FREENESS and now >= tally.quiet_until:
        if free_p < rules.theta_flow * free_d:
            to = PREFILL
        elif free_d < rules.theta_flow * free_p:
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
        tally.quiet_until = now + rules.cool_s if rules.flow == Flow.FREENESS else 0.0
    return to >= 0 and tally.changes > changes


@kernel
def promote(f, role, until):
    """The first standby worker takes a role."""
    for w in f.workers:
        if w.role == STANDBY:
            w.role, w.locked = role, until
            f.tally[0].changes += 1
            return


@kernel
def recall(f, role, now):
    """The last worker that came from standby and is not locked goes back, once it has nothing left to do."""
    for w in f.workers[::-1]:
        if w.role == role and not w.draining and w.locked > 0 and now >= w.locked:
            f.tally[0].changes += 1
            w.next_role, w.locked, w.draining = STANDBY, 0.0, True
            if (role == PREFILL and w.count == 0) or (role == DECODE and w.batch == 0):
                leave(w)
            return
