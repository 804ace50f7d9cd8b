"""The compiled loop of a fleet: arrivals and events in the order of time, each request sent to an instance."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmodels.core.compiled import NONE, kernel

from . import state as fs
from .records import Change
from .routing import choose, choose_pool


@kernel
def run(f: Any, events: np.ndarray, router: fs.Router, until: float) -> None:
    """Everything up to `until`, in the order of time; an event before an arrival at the same instant."""
    n = f.requests.size
    while True:
        i, e = f.place[0], f.place[1]
        next_arrival = f.requests[i].arrival if i < n else np.inf
        next_event = events[e].time if e < events.size else np.inf
        now = min(next_arrival, next_event)
        if now > until or now == np.inf:
            fs.run_until(f, until)
            return
        fs.run_until(f, now)
        if next_event <= next_arrival:
            f.place[1] += 1
            happen(f, router, events[e])
        else:
            f.place[0] += 1
            route(f, router, i, now)


@kernel
def route(f: Any, router: fs.Router, i: int, now: float) -> None:
    """Send request i to an instance; where none is up it waits for one."""
    p = choose_pool(f, router, i)
    if p < 0:
        return
    j = choose(f, router, p, i)
    while j < 0 and p + 1 < f.pools.size:  # nobody is there: a later pool's context is at least as long
        p += 1
        j = choose(f, router, p, i)
    request = f.requests[i]
    if j < 0:
        if f.place[2] < 0:
            f.place[2] = i
        else:
            f.requests[f.place[3]].after = i
        f.place[3] = i
        request.after = NONE
    elif request.prompt + request.output <= f.pools[p].limit:  # else refused: longer than the router believed
        fs.remember(f, j, i)
        fs.enter(f, j, i, now)


@kernel
def happen(f: Any, router: fs.Router, event: Any) -> None:
    """One of the EVENT records."""
    now, change, j = event.time, event.change, event.instance
    here = f.instances[j]
    if change == Change.DOWN and here.up:
        lost = np.empty(here.in_flight + here.waiting, np.int64)
        for k in range(here.in_flight):
            lost[k] = f.lines[j, 0, k] & fs.ID_MASK
        i = here.head
        for k in range(here.in_flight, lost.size):
            lost[k] = i
            i = f.requests[i].after
        f.pools[here.pool].backlog -= here.waiting
        here.in_flight = here.waiting = here.pending = here.prompts = here.up = here.prefill_v = 0
        here.tau = now  # the iteration in progress, which may end later, is lost with its requests
        f.loads[j] = fs.CLOSED
        f.kept[j] = NONE
        fs.note_next(f, j)
        lost.sort()
        for i in lost:
            request = f.requests[i]
            request.admitted = request.first = np.nan
            request.instance = NONE
            request.retries += 1
            request.hits = 0
            route(f, router, i, now)
    elif change == Change.SLOW:
        fs.to_boundary(f, j, now)
        here.slow = event.value
        fs.note_next(f, j)
    elif change == Change.DRAIN:
        fs.set_open(f, j, False)
    elif change == Change.UP or (change == Change.OPEN and here.up):
        here.up = 1
        fs.set_open(f, j, True)
        i = f.place[2]
        f.place[2:] = NONE
        while i >= 0:
            following = f.requests[i].after
            route(f, router, i, now)
            i = following
