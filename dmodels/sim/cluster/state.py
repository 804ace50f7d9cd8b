"""What the loop of `engine` knows between two events, and the two changes that all its parts make."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import UNCOUNTED, kernel

from .records import Role

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


@kernel(inner=True, **UNCOUNTED)
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


@kernel(inner=True, **UNCOUNTED)
def leave(worker):
    """A draining worker with nothing left takes its next role."""
    if worker.draining:
        worker.role, worker.draining = worker.next_role, False
