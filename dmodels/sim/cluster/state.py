"""What the loop of `engine` knows between two events, and the two changes that all its parts make."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import UNCOUNTED, kernel

from .records import Role


class Worker:
    """A worker, whatever its role."""

    done_at: float  # when its prompt, or its step, ends
    step_at: float
    batch: int  # as a decoder: sequences, those that take part in the step that runs, blocks in use
    joined: int
    used: float
    role: int
    draining: int  # on its way back to standby
    locked: float  # a promoted worker keeps its role until then; 0: it never came from standby
    # as a prefill worker: prompts there, their believed seconds and tokens, and the one in service
    count: int
    work: float
    tokens: float
    serving: float
    head: int
    tail: int
    begun: float


class Request:
    """A request from its arrival to its last token."""

    arrival: float
    prompt: int
    left: int  # output tokens to come
    seconds: float  # of its prefill
    believed: float  # what the router believes that it takes
    blocks: float
    after: int  # the next prompt at the same worker
    worker: int
    first: float
    end: float


class Tally:
    """What is counted over all of them."""

    next: int  # request to arrive
    horizon: int  # requests that may arrive so far
    closed: int  # whether an answer brings the next request
    finished: int
    turn: int
    waiting_from: int  # requests without a decoder: queue[waiting_from:waiting_to]
    waiting_to: int
    waiting_blocks: float
    mean_blocks: float
    next_epoch: float
    quiet_until: float  # by freeness no role changes until then
    changes: int
    moved: float


def _record(fields: type) -> np.dtype:
    """Arrays of such records, as compiled loops take them."""
    return np.dtype([*fields.__annotations__.items()])


WORKER, REQUEST, TALLY = _record(Worker), _record(Request), _record(Tally)


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


class HybridRules(NamedTuple):
    """`Hybrid` in plain numbers."""

    chunk: float
    decode_chunk: float
    watermark: float  # blocks of a decoder
    flows: bool
    late_s: float  # an answer's seconds per token from which on it flows back
    epoch_s: float


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


@kernel(forceinline=True)
def finish(f, i, now):
    """Request i is answered; in a closed loop its client asks again."""
    tally = f.tally[0]
    f.requests[i].end = now
    tally.finished += 1
    if tally.closed and tally.horizon < f.requests.size:
        f.requests[tally.horizon].arrival = now
        tally.horizon += 1


@kernel(**UNCOUNTED)
def line_up(f, w, i):
    """Prompt i goes to the end of worker w's line; whether nobody was before it."""
    worker, request = f.workers[w], f.requests[i]
    request.worker = w
    worker.count += 1
    worker.work += request.believed
    worker.tokens += request.prompt
    if worker.head < 0:
        worker.head = worker.tail = i
        return True
    f.requests[worker.tail].after = i
    worker.tail = i
    return False


@kernel(**UNCOUNTED)
def leave(worker):
    """A draining worker with nothing left is on standby again."""
    if worker.draining:
        worker.role, worker.draining = STANDBY, False
