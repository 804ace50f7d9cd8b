"""A fleet as a few arrays of records, and the few moves that change it; all compiled. `fleet` is the way in.

Between two routing decisions every instance runs by itself, in virtual time (see `virtual_time`). A tournament tree
over the instances' next completions tells which of them have news before the next arrival. Records, not one array per
field: every array handed to a compiled function costs time, and what belongs together then shares a cache line.

An instance's clock (`next_end`, `move_on`, `to_boundary`) is the one thing that an iteration law changes. It is chosen
by the type of the fleet when kernels are compiled, so that fleets of t(n) carry nothing of those of t(n, tokens).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from dmodels.core.compiled import NONE, UNCOUNTED, kernel
from dmodels.core.routing import CLOSED
from dmodels.sim.batching.virtual_time import ID_BITS, TIE_S, prefill_end

from . import tokens as fleet_tokens
from .tokens import TokenFleet, follow

ID_MASK = (1 << ID_BITS) - 1

POOL = np.dtype(
    [
        ("start", "i8"),
        ("size", "i8"),  # its instances
        ("slots", "i8"),
        ("chunk", "i8"),
        ("mode", "i8"),  # mode: a `Prefill`
        ("late", "i8"),  # iterations from the last prefill chunk to the first token
        ("limit", "f8"),  # most tokens of a request
        ("decodes", "i8"),  # of its `TokenLaw`
        ("turn", "i8"),  # where the next scan starts
        ("backlog", "i8"),  # waiting requests
    ]
)

INSTANCE = np.dtype(
    [
        ("tau", "f8"),
        ("v", "i8"),
        ("prefill_v", "i8"),  # seconds and virtual time of the last event
        ("in_flight", "i8"),
        ("waiting", "i8"),
        ("prompts", "i8"),  # prompt tokens to compute of all requests there
        ("pending", "i8"),  # pending: first tokens to come
        ("head", "i8"),
        ("tail", "i8"),  # first and last waiting request
        ("pool", "i8"),
        ("slow", "f8"),  # slow: factor on iteration times
        ("up", "i8"),  # serves
    ]
)

REQUEST = np.dtype(
    [
        ("arrival", "f8"),
        ("prompt", "i8"),
        ("output", "i8"),
        ("cached", "i8"),
        ("route_tokens", "f8"),  # the total, as the router estimates it
        ("prefix", "i8"),
        ("prefix_tokens", "i8"),  # id of the shared prefix, or -1
        ("draw", "f8"),
        ("draw2", "f8"),  # uniform numbers for policies that gamble
        ("hits", "i8"),
        ("after", "i8"),  # prompt tokens found in the cache; next in line
        ("admitted", "f8"),
        ("first", "f8"),
        ("end", "f8"),
        ("instance", "i8"),
        ("retries", "i8"),
    ]
)


class Fleet(NamedTuple):
    """All there is to know between two moments."""

    pools: np.ndarray  # POOL records
    times: np.ndarray  # (pools, most slots + 1) seconds of an iteration
    instances: np.ndarray  # INSTANCE records
    lines: np.ndarray  # (instances, 3, slots): keys of completions, soonest last; virtual times and ids of first tokens
    tree: np.ndarray  # (2 * leaves,) next completions, tree[1] the soonest
    requests: np.ndarray  # REQUEST records
    kept: np.ndarray  # (instances, prefixes remembered, 2): prefix, and the request that used it last
    loads: np.ndarray  # (instances,) requests there, waiting and in flight; CLOSED more where no new ones are taken
    place: np.ndarray  # (4,): next request, next event, first and last request that no instance would take


class Router(NamedTuple):
    """How instances are chosen, in plain numbers."""

    policy: int  # `RoutingPolicy.number`
    cache_weight: float
    spill_queue: float


class Simulation(NamedTuple):
    """A fleet that can be advanced in steps; between steps its state may be read."""

    fleet: Fleet | TokenFleet
    events: np.ndarray  # EVENT records in the order of time
    router: Router
    alone: bool  # routing looks at no load and the law at no tokens: instances may be served one after another


@kernel(**UNCOUNTED)
def slope(f, j):
    """Seconds of instance j's next iteration."""
    here = f.instances[j]
    return f.times[here.pool, here.in_flight] * here.slow


def next_end(f, j):
    """When instance j completes a request next, if nobody enters; inf if it is empty."""


@overload(next_end, jit_options=UNCOUNTED)
def _choose_next_end(f, j):
    return fleet_tokens.next_end.py_func if f.instance_class is TokenFleet else _next_end


def _next_end(f, j):
    here = f.instances[j]
    if here.in_flight == 0:
        return np.inf
    return here.tau + ((f.lines[j, 0, here.in_flight - 1] >> ID_BITS) - here.v) * slope(f, j)


@kernel(**UNCOUNTED)
def note_next(f, j):
    """Put instance j's next completion into the tournament."""
    tree = f.tree
    k = tree.size // 2 + j
    tree[k] = next_end(f, j)
    k >>= 1
    while k >= 1:
        soonest = min(tree[2 * k], tree[2 * k + 1])
        if tree[k] == soonest:
            break
        tree[k] = soonest
        k >>= 1


def move_on(f, j, steps):
    """Run `steps` iterations of instance j, in which nobody enters or leaves."""


@overload(move_on, jit_options=UNCOUNTED)
def _choose_move_on(f, j, steps):
    return fleet_tokens.move_on.py_func if f.instance_class is TokenFleet else _move_on


def _move_on(f, j, steps):
    if steps > 0:
        follow(f, j, f.instances[j].v + steps, slope(f, j))


@kernel(**UNCOUNTED)
def prompt_work(request):
    """Prompt tokens that must be computed."""
    return max(1, request.prompt - max(request.cached, request.hits))


@kernel(**UNCOUNTED)
def admit(f, j, i):
    """Request i enters instance j at its present boundary."""
    here, request = f.instances[j], f.requests[i]
    pool = f.pools[here.pool]
    done, here.prefill_v = prefill_end(pool.mode, pool.chunk, here.v, here.prefill_v, prompt_work(request))
    request.admitted = here.tau
    request.instance = j
    f.lines[j, 1, here.pending] = done + pool.late
    f.lines[j, 2, here.pending] = i
    here.pending += 1
    key = ((done + request.output + pool.late - 1) << ID_BITS) + i
    low, high = 0, here.in_flight
    while low < high:
        middle = (low + high) >> 1
        if f.lines[j, 0, middle] > key:
            low = middle + 1
        else:
            high = middle
    for k in range(here.in_flight, low, -1):
        f.lines[j, 0, k] = f.lines[j, 0, k - 1]
    f.lines[j, 0, low] = key
    here.in_flight += 1


@kernel(**UNCOUNTED)
def complete(f, j):
    """Instance j runs to its next completion; the freed slot is filled from its queue."""
    here = f.instances[j]
    last = f.lines[j, 0, here.in_flight - 1]
    move_on(f, j, (last >> ID_BITS) - here.v)
    here.in_flight -= 1
    f.loads[j] -= 1
    f.requests[last & ID_MASK].end = here.tau
    here.prompts -= prompt_work(f.requests[last & ID_MASK])
    if here.waiting > 0:
        i = here.head
        here.head = f.requests[i].after
        here.waiting -= 1
        f.pools[here.pool].backlog -= 1
        admit(f, j, i)


@kernel(**UNCOUNTED)
def run_until(f, limit_s):
    """All completions up to `limit_s`, and the admissions they make possible."""
    tree = f.tree
    leaves = tree.size // 2
    while tree[1] <= limit_s and tree[1] < np.inf:
        k = 1
        while k < leaves:
            k = 2 * k if tree[2 * k] == tree[k] else 2 * k + 1
        j = k - leaves
        while next_end(f, j) <= limit_s and f.instances[j].in_flight > 0:
            complete(f, j)
        note_next(f, j)


def to_boundary(f, j, now):
    """Bring instance j to the end of the iteration in progress at `now`."""


@overload(to_boundary, jit_options=UNCOUNTED)
def _choose_to_boundary(f, j, now):
    return fleet_tokens.to_boundary.py_func if f.instance_class is TokenFleet else _to_boundary


def _to_boundary(f, j, now):
    here = f.instances[j]
    if here.in_flight == 0:
        here.tau = max(here.tau, now)
        return
    gap = now - TIE_S - here.tau
    if gap > 0:
        soonest = (f.lines[j, 0, here.in_flight - 1] >> ID_BITS) - here.v
        move_on(f, j, min(np.int64(np.ceil(gap / slope(f, j))), soonest))


@kernel(**UNCOUNTED)
def enter(f, j, i, now):
    """Request i joins instance j at `now` (everything up to `now` has been run)."""
    here = f.instances[j]
    pool = f.pools[here.pool]
    f.loads[j] += 1
    here.prompts += prompt_work(f.requests[i])
    if here.waiting == 0 and here.in_flight < pool.slots:
        to_boundary(f, j, now)
        admit(f, j, i)
        note_next(f, j)
        return
    if here.waiting == 0:
        here.head = i
    else:
        f.requests[here.tail].after = i
    here.tail = i
    f.requests[i].after = NONE
    here.waiting += 1
    pool.backlog += 1
    f.requests[i].instance = j


@kernel(**UNCOUNTED)
def set_open(f, j, is_open):
    """Whether instance j takes new requests; one that is down never does."""
    if is_open and f.instances[j].up:
        f.loads[j] &= CLOSED - 1
    else:
        f.loads[j] |= CLOSED


@kernel(**UNCOUNTED)
def recall(f, j, prefix):
    """Where instance j remembers this prefix, or -1."""
    if prefix >= 0:
        for k in range(f.kept.shape[1]):
            if f.kept[j, k, 0] == prefix:
                return k
    return NONE


@kernel(**UNCOUNTED)
def remember(f, j, i):
    """Look request i's prefix up in instance j's cache, count the hit, and keep the prefix, dropping the oldest."""
    request = f.requests[i]
    if request.prefix < 0:
        return
    k = recall(f, j, request.prefix)
    request.hits = request.prefix_tokens if k >= 0 else 0
    if k < 0:
        k = np.argmin(f.kept[j, :, 1])
        f.kept[j, k, 0] = request.prefix
    f.kept[j, k, 1] = i
