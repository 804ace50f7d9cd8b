r"""One continuous-batching instance, exactly, in two events per request.

All requests in flight advance one iteration together. So in virtual time v, which counts iterations, a completion is
fixed at admission, $V = v_{adm} + \text{iterations}$; only the map from v to seconds has a slope t(n) that changes with
the n in flight. Between two events the clock is a straight line: no iteration is stepped through.

Prefill that shares one chunk per iteration is a Lindley recursion in virtual time. One prompt per chunk:
$P_i = \max(P_{i-1}, v) + c_i$; chunks packed with C tokens: $P_i = \max(P_{i-1}, C v) + L_i$, done at
$\lceil P_i/C \rceil$. Then $V = P_i + \text{output}$.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.compiled import UNCOUNTED, inline, kernel
from dmodels.sim.requests import Prefill

#: A request that arrives within a nanosecond of an iteration's end is in time for the next one.
TIE_S = 1e-9
#: Keys of the sorted vector hold (completion << ID_BITS) + request; so many requests fit in one call.
ID_BITS = 28


class Work(NamedTuple):
    """What requests (n,) bring, in order of arrival."""

    arrival_s: np.ndarray
    prefill_tokens: np.ndarray  # tokens of the prompt that are not cached, at least 1
    output_tokens: np.ndarray


class Instance(NamedTuple):
    """What serves them, in plain numbers."""

    times_s: np.ndarray  # t(0), ..., t(slots)
    mode: int  # a `Prefill`
    chunk_tokens: int
    late: int  # iterations from the last prefill chunk to the first token


class Times(NamedTuple):
    """When requests (n,) were admitted, answered and done, seconds; NaN: not yet."""

    admitted: np.ndarray
    first: np.ndarray
    end: np.ndarray

    @classmethod
    def unknown(cls, count: int) -> Times:
        """Of requests that are still to be served."""
        return cls(*(np.full(count, np.nan) for _ in range(3)))


class Clock(NamedTuple):
    """State between two calls: seconds, virtual time, prefill server, requests in flight (soonest last)."""

    tau_s: float
    v: int
    prefill_v: int  # virtual time (or tokens, where packed) up to which the shared prefill server is busy
    keys: np.ndarray  # (slots,) int64
    first_v: np.ndarray  # (slots,) virtual times of first tokens still to come
    first_id: np.ndarray
    in_flight: int
    pending: int  # entries used in first_v


def idle(slots: int) -> Clock:
    """An empty instance at time 0."""
    zeros = np.zeros(slots, np.int64)
    return Clock(0.0, 0, 0, zeros, zeros.copy(), zeros.copy(), 0, 0)


@inline
def prefill_end(mode, chunk, v, busy, tokens):
    """(virtual time at which a prompt admitted at v ends, until when the shared prefill server is then busy)."""
    if mode == Prefill.PACKED:
        busy = max(busy, chunk * v) + tokens
        return (busy + chunk - 1) // chunk, busy
    chunks = (tokens + chunk - 1) // chunk
    if mode == Prefill.SHARED:
        busy = max(busy, v) + chunks
        return busy, busy
    return v + chunks, busy


@kernel(**UNCOUNTED)
def run(work, instance, clock, start, final, served):
    """Serve `Work` from request `start` on, writing `Times` into `served`, and give the `Clock` afterwards, whose
    arrays are updated in place. Unless `final`, stop once the last arrival is admitted: the next is not known yet."""
    arrival, prefill, output = work
    times, mode, chunk, late = instance
    tau, v, prefill_v, keys, first_v, first_id, n, pending = clock
    admitted, first, end = served
    slots = keys.size
    total = arrival.size
    i = start
    while True:
        if n == 0:
            if i == total:
                break
            tau = max(tau, arrival[i])
            steps = 0
        else:
            soonest = keys[n - 1] >> ID_BITS
            steps = soonest - v
            admits = False
            if n < slots:
                if i < total:
                    gap = arrival[i] - TIE_S - tau
                    if gap <= steps * times[n]:
                        wanted = np.int64(np.ceil(gap / times[n])) if gap > 0.0 else 0
                        if wanted <= steps:
                            admits = True
                            steps = wanted
                elif not final:
                    break
            elif i == total and not final:
                break
            if steps > 0:
                target = v + steps
                k = 0
                while k < pending:
                    if first_v[k] <= target:
                        first[first_id[k]] = tau + (first_v[k] - v) * times[n]
                        pending -= 1
                        first_v[k] = first_v[pending]
                        first_id[k] = first_id[pending]
                    else:
                        k += 1
                tau += steps * times[n]
                v = target
            if not admits:
                n -= 1
                end[keys[n] & ((1 << ID_BITS) - 1)] = tau
                continue
        # admit request i at (tau, v)
        done, prefill_v = prefill_end(mode, chunk, v, prefill_v, prefill[i])
        admitted[i] = tau
        first_v[pending] = done + late
        first_id[pending] = i
        pending += 1
        key = ((done + output[i] + late - 1) << ID_BITS) + i
        low, high = 0, n  # keys[:n] falls; find where key belongs
        while low < high:
            middle = (low + high) >> 1
            if keys[middle] > key:
                low = middle + 1
            else:
                high = middle
        for k in range(n, low, -1):
            keys[k] = keys[k - 1]
        keys[low] = key
        n += 1
        i += 1
    return Clock(tau, v, prefill_v, keys, first_v, first_id, n, pending)
