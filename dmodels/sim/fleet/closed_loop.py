"""Closed loops: clients that think, ask, wait for the last token, and think again.

The number of clients bounds what is in flight, so a closed loop cannot be overloaded: beyond its knee only waits grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

import jax
import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.routing import RoutingPolicy
from dmodels.sim.requests import Served

from . import simulation as fleet
from . import state as fs
from .engine import route
from .records import Pool


def simulate(
    think_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    pools: Pool | Sequence[Pool],
    policy: RoutingPolicy = RoutingPolicy.SHORTEST_QUEUE,
    *,
    until_s: float = np.inf,
    key: jax.Array | None = None,
) -> Served:
    """Clients on a fleet. `think_s` (clients, rounds): before its r-th request client i thinks think_s[i, r] seconds
    after its last answer (or after time 0). Lengths broadcast to that shape. Times after `until_s` are NaN.

    The answers are (clients * rounds,), a client's rounds one after another; what was never asked has a NaN arrival.
    """
    think = _checked(think_s)
    lengths = [np.broadcast_to(np.asarray(x), think.shape).ravel() for x in (input_tokens, output_tokens)]
    run = fleet.start(np.zeros(think.size), *lengths, pools, policy, key=key)
    run.fleet.requests["arrival"] = np.nan
    _loop(run.fleet, think, run.router, float(until_s))
    return fleet.answers(run)


def _checked(think_s: Any) -> np.ndarray:
    think = np.ascontiguousarray(think_s, np.float64)
    if think.ndim != 2 or not (np.isfinite(think).all() and (think >= 0).all()):
        raise InputError(f"think_s: shape {think.shape}; accepted: (clients, rounds) finite seconds from 0")
    return think


@kernel
def _loop(f, think, router, until):
    clients, rounds = think.shape
    coming = [(think[0, 0], 0)]
    for c in range(1, clients):
        heappush(coming, (think[c, 0], c * rounds))
    while True:
        ask = coming[0][0] if len(coming) > 0 else np.inf
        if min(ask, f.tree[1]) > until or min(ask, f.tree[1]) == np.inf:
            return
        if f.tree[1] <= ask:
            k = 1
            while k < f.tree.size // 2:
                k = 2 * k if f.tree[2 * k] == f.tree[k] else 2 * k + 1
            j = k - f.tree.size // 2
            done = f.lines[j, 0, f.instances[j].in_flight - 1] & fs.ID_MASK
            fs.complete(f, j)
            fs.note_next(f, j)
            if (done + 1) % rounds:
                heappush(coming, (f.requests[done].end + think[done // rounds, done % rounds + 1], done + 1))
        else:
            ask, i = heappop(coming)
            f.requests[i].arrival = ask
            route(f, router, i, ask)


def serial(
    think_s: Any, service_s: Any, *, lifo: Any = False, until_s: float = np.inf
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clients at one server that serves one request at a time: (asked, begun, done), each (clients, rounds) seconds.

    `service_s` and `lifo` broadcast to `think_s`; when the server is free it takes the request that came last if that
    request's `lifo` holds, else the one that has waited longest. In a disaggregated system the server is the prefill
    worker, and thinking includes the decoding of the answer.
    """
    think = _checked(think_s)
    service = np.ascontiguousarray(np.broadcast_to(np.asarray(service_s, np.float64), think.shape))
    if not (np.isfinite(service).all() and (service > 0).all()):
        raise InputError("service_s: accepted are finite seconds above 0")
    last = np.ascontiguousarray(np.broadcast_to(np.asarray(lifo, bool), think.shape))
    asked, begun, done = (np.full(think.shape, np.nan) for _ in range(3))
    _serial(think, service, last, float(until_s), asked, begun, done)
    return asked, begun, done


@kernel
def _serial(think, service, lifo, until, asked, begun, done):
    clients, rounds = think.shape
    coming = [(think[0, 0], 0)]
    for c in range(1, clients):
        heappush(coming, (think[c, 0], c * rounds))
    line = np.empty(clients, np.int64)  # waiting requests, oldest first
    waiting = 0
    free_s = 0.0
    while len(coming) > 0 or waiting > 0:
        if waiting == 0:
            free_s = max(free_s, coming[0][0])
        if free_s > until:
            return
        while len(coming) > 0 and coming[0][0] <= free_s:
            ask, i = heappop(coming)
            asked[i // rounds, i % rounds] = ask
            line[waiting] = i
            waiting += 1
        newest = line[waiting - 1]
        i = newest if lifo[newest // rounds, newest % rounds] else line[0]
        if i == line[0]:
            line[: waiting - 1] = line[1:waiting].copy()
        waiting -= 1
        c, r = i // rounds, i % rounds
        begun[c, r] = free_s
        free_s += service[c, r]
        done[c, r] = free_s
        if r + 1 < rounds:
            heappush(coming, (free_s + think[c, r + 1], i + 1))
