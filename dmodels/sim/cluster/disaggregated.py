"""Prefill and decode on separate instances: prefill workers, a transfer of the KV cache, and a fleet of decoders.

Prefill workers serve one prompt at a time, first come, first served; a router places each prompt by a signal of the
workers' load. Nothing flows back from decode to prefill, so the stages are simulated one after the other, exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from dmodels.core.compiled import NONE, kernel
from dmodels.core.errors import InputError
from dmodels.sim import fleet
from dmodels.sim.fleet import Pool, RoutingPolicy
from dmodels.sim.requests import Requests, Served

from .records import Signal


class Stages(NamedTuple):
    """When each request passed each stage; (n,) seconds in the order of arrival."""

    arrival_s: np.ndarray
    worker: np.ndarray  # prefill worker
    prefill_start_s: np.ndarray
    prefill_end_s: np.ndarray
    ready_s: np.ndarray  # KV cache at the decoder
    first_token_s: np.ndarray
    end_s: np.ndarray
    output_tokens: np.ndarray
    decoder: np.ndarray  # decode instance; -1 where one token is all there is

    ttft_s = Served.ttft_s
    tpot_s = Served.tpot_s
    e2e_s = Served.e2e_s


def prefill(
    arrival_s: Any, input_tokens: Any, prefill_s: Any, workers: int, signal: Signal = Signal.REQUESTS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(worker, start, end) of each prompt; `prefill_s` (n,) seconds on a worker by itself."""
    requests = Requests.checked(arrival_s, input_tokens, 1)
    seconds = np.ascontiguousarray(np.broadcast_to(np.asarray(prefill_s, np.float64), requests.arrival_s.shape))
    if workers < 1 or workers != int(workers):
        raise InputError(f"workers = {workers}; accepted: whole numbers from 1")
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise InputError("prefill_s: accepted are finite seconds above 0")
    return _prefill(requests.arrival_s, requests.input_tokens, seconds, int(workers), int(signal))


def simulate(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    prefill_s: Any,
    workers: int,
    decoders: Pool,
    *,
    signal: Signal = Signal.REQUESTS,
    transfer_s: Any = 0.0,
    policy: RoutingPolicy = RoutingPolicy.SHORTEST_QUEUE,
    prefill_emits: bool = True,
    key: jax.Array | None = None,
) -> Stages:
    """A prefill stage of `workers`, `transfer_s` to move each KV cache, and a fleet of `decoders`.

    `prefill_emits`: the prefill worker sends the first token to the client; otherwise the decoder makes it, and the
    time to first token includes transfer and admission there.
    """
    requests = Requests.checked(arrival_s, input_tokens, output_tokens)
    worker, start, end = prefill(arrival_s, input_tokens, prefill_s, workers, signal)
    ready = end + np.asarray(transfer_s, np.float64)
    if not (np.isfinite(ready).all() and (ready >= end).all()):
        raise InputError("transfer_s: accepted are finite seconds from 0")
    left = requests.output_tokens - (1 if prefill_emits else 0)
    decoded = np.flatnonzero(left > 0)
    order = decoded[np.argsort(ready[decoded], kind="stable")]
    inputs = requests.input_tokens[order]
    served = fleet.simulate(
        ready[order], inputs, left[order], decoders._replace(emits=True), policy, key=key, cached_tokens=inputs
    )
    first = end.copy()
    last, decoder = end.copy(), np.full(end.size, NONE)
    last[order], decoder[order] = served.end_s, served.instance
    if not prefill_emits:
        first[order] = served.first_token_s
    return Stages(requests.arrival_s, worker, start, end, ready, first, last, requests.output_tokens, decoder)


@kernel
def _prefill(arrival, tokens, seconds, workers, signal):
    n = arrival.size
    worker, start, end = np.empty(n, np.int64), np.empty(n), np.empty(n)
    after = np.empty(n, np.int64)  # next request at the same worker
    head, tail = np.full(workers, NONE), np.empty(workers, np.int64)  # oldest unfinished, newest
    free = np.zeros(workers)
    there, held = np.zeros(workers), np.zeros(workers)  # requests and tokens, waiting and in service
    for i in range(n):
        now = arrival[i]
        best, least = 0, np.inf
        for w in range(workers):
            while head[w] >= 0 and end[head[w]] <= now:
                done = head[w]
                there[w] -= 1
                held[w] -= tokens[done]
                head[w] = after[done]
            if signal == Signal.TURN:
                score = 0.0 if w == i % workers else 1.0
            elif signal == Signal.REQUESTS:
                score = there[w]
            elif signal == Signal.WORK:
                score = max(0.0, free[w] - now)
            elif signal == Signal.TOKENS:
                score = held[w]
            else:
                score = float(tokens[head[w]]) if head[w] >= 0 else 0.0
            if score < least:
                best, least = w, score
        worker[i] = best
        start[i] = max(now, free[best])
        end[i] = free[best] = start[i] + seconds[i]
        there[best] += 1
        held[best] += tokens[i]
        after[i] = NONE
        if head[best] < 0:
            head[best] = i
        else:
            after[tail[best]] = i
        tail[best] = i
    return worker, start, end
