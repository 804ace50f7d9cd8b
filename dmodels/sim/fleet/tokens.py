"""The clock of a fleet's instance whose iterations look at tokens; compiled. `state` has the one for t(n).

Completions stay fixed in virtual time, as they are for t(n); only the map to seconds bends more often. The tokens of an
iteration change where a prompt begins its last chunk and where it ends, and nowhere else while nobody enters or leaves.
So the clock is a chain of straight lines between these points, and no iteration is stepped through.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import UNCOUNTED, inline, kernel
from dmodels.sim.batching import seconds
from dmodels.sim.batching.virtual_time import ID_BITS, TIE_S
from dmodels.sim.requests import Prefill


class TokenFleet(NamedTuple):
    """`fleet_state.Fleet`, field by field, with times that depend on tokens."""

    pools: np.ndarray
    times: np.ndarray  # (pools, most slots + 1, k) seconds of an iteration
    instances: np.ndarray
    lines: np.ndarray
    tree: np.ndarray
    requests: np.ndarray
    kept: np.ndarray
    loads: np.ndarray
    place: np.ndarray
    tokens: np.ndarray  # (pools, k) processed in the iterations of the columns of `times`


@kernel(**UNCOUNTED)
def pace(f, j, v):
    """(seconds of an iteration of instance j from virtual time v on, iterations that take as long) if nobody enters."""
    here = f.instances[j]
    pool = f.pools[here.pool]
    decoding = here.in_flight
    same = np.int64(1) << 60
    whole, last = 0, 0  # prompts that fill a chunk; tokens of last chunks
    for k in range(here.pending):
        ahead = f.lines[j, 1, k] - pool.late - v
        if ahead > 0:
            decoding -= 1
            same = min(same, max(1, ahead - 1))
            if ahead == 1:
                request = f.requests[f.lines[j, 2, k]]
                todo = max(1, request.prompt - max(request.cached, request.hits))
                last += (todo - 1) % pool.chunk + 1
            else:
                whole += 1
    prompts = whole * pool.chunk + last
    if pool.mode == Prefill.SHARED:  # one prompt at a time
        prompts = last if last > 0 else min(whole, 1) * pool.chunk
    elif pool.mode == Prefill.PACKED and whole + last > 0:
        left = here.prefill_v - pool.chunk * v
        prompts = min(left, pool.chunk)
        same = min(same, max(1, left // pool.chunk))
    one = seconds(f.times[here.pool], f.tokens[here.pool], pool.decodes, here.in_flight, decoding, prompts)
    return one * here.slow, same


@kernel(**UNCOUNTED)
def next_end(f, j):
    """`fleet_state.next_end`."""
    here = f.instances[j]
    if here.in_flight == 0:
        return np.inf
    tau, v = here.tau, here.v
    end = f.lines[j, 0, here.in_flight - 1] >> ID_BITS
    while v < end:
        one, same = pace(f, j, v)
        steps = min(same, end - v)
        tau += steps * one
        v += steps
    return tau


@inline
def follow(f, j, target, slope):
    """Instance j at virtual time `target`, `slope` seconds an iteration; first tokens until then are written down."""
    here = f.instances[j]
    k = 0
    while k < here.pending:
        due = f.lines[j, 1, k]
        if due <= target:
            f.requests[f.lines[j, 2, k]].first = here.tau + (due - here.v) * slope
            here.pending -= 1
            f.lines[j, 1, k] = f.lines[j, 1, here.pending]
            f.lines[j, 2, k] = f.lines[j, 2, here.pending]
        else:
            k += 1
    here.tau += (target - here.v) * slope
    here.v = target


@kernel(**UNCOUNTED)
def move_on(f, j, steps):
    """`fleet_state.move_on`."""
    here = f.instances[j]
    end = here.v + steps
    while here.v < end:
        one, same = pace(f, j, here.v)
        target = min(end, here.v + same)
        follow(f, j, target, one)


@kernel(**UNCOUNTED)
def to_boundary(f, j, now):
    """`fleet_state.to_boundary`."""
    here = f.instances[j]
    if here.in_flight == 0:
        here.tau = max(here.tau, now)
        return
    soonest = f.lines[j, 0, here.in_flight - 1] >> ID_BITS
    while here.tau < now - TIE_S and here.v < soonest:
        one, same = pace(f, j, here.v)
        move_on(f, j, min(same, soonest - here.v, np.int64(np.ceil((now - TIE_S - here.tau) / one))))
