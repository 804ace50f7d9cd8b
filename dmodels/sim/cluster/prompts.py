"""Prompts: the router chooses a prefill worker, which serves them in the order of arrival."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import NONE, UNCOUNTED, kernel

from .records import Signal
from .state import PREFILL, finish, leave, line_up


@kernel(**UNCOUNTED)
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


@kernel(**UNCOUNTED)
def arrive(f, signal, now):
    """The next request goes to the prefill worker of least score."""
    tally, m = f.tally[0], f.workers.size
    i = tally.next
    tally.next += 1
    while f.workers[tally.turn % m].role != PREFILL or f.workers[tally.turn % m].draining:
        tally.turn += 1
    best, least = NONE, np.inf
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
    if line_up(f, best, i):
        begin_prompt(f, f.workers[best], now)


@kernel(**UNCOUNTED)
def begin_prompt(f, worker, now):
    """The prompt at the head of a worker's line."""
    request = f.requests[worker.head]
    worker.begun, worker.done_at, worker.serving = now, now + request.seconds, request.prompt


@kernel(**UNCOUNTED)
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
