r"""Many instances at once, exactly, as one JAX scan over events: for seeds, designs and accelerators.

The recursion of `virtual_time` with arrays in place of branches. A step is one event in every lane: completion or
admission, whichever comes first. The completions to come, w, stay sorted without a sort: inserting e gives
$\min(\max(e, w_{k-1}), w_k)$ and removing the first is a shift. Lanes are the last axis, so that each operation is one
contiguous vector. On a CPU core the compiled loop of `batching` is several times faster
(benchmarks/speed/simulators.py); this form is for what it cannot do: run inside `jit` and on accelerators (compiled for
some, not run on one yet), over batches of designs and seeds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import float64
from dmodels.sim.requests import Prefill, Served
from dmodels.solvers.roofline import DeviceWork

from . import step_times as laws
from .virtual_time import TIE_S


def scan_work(requests: int, slots: int) -> DeviceWork:
    """Of one lane: two events for each request, one after another for all lanes; an event reads and writes the sorted
    completions and some twenty numbers, and is some 8 launches."""
    events = 2.0 * requests
    return DeviceWork(
        events * 8 * (3.0 * slots + 40), flop64=events * (6.0 * slots + 40), launches=8 * events, registers=40
    )


@float64
def simulate(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    law: Any,
    slots: Any,
    *,
    chunk_tokens: int = 512,
    prefill: Prefill = Prefill.OWN,
    cached_tokens: Any = 0,
    emits: bool = False,
) -> Served:
    """Serve B streams of n requests, (B, n) each, on B instances; answers as of `batching.simulate`, (B, n) each.

    `slots` is a number or (B,); `law` is as there, or an array (B, most slots + 1) of iteration times t(0), t(1), ...
    """
    arrival = np.asarray(arrival_s, np.float64)
    if arrival.ndim != 2 or not np.isfinite(arrival).all() or (np.diff(arrival, axis=1) < 0).any():
        raise InputError(f"arrival_s: shape {arrival.shape}; accepted: (instances, requests), finite and in order")
    lanes, _ = arrival.shape
    slots = np.broadcast_to(np.asarray(slots), (lanes,)).astype(np.int64)
    most = int(slots.max())
    if slots.min() < 1 or chunk_tokens < 1:
        raise InputError(f"slots = {slots.min()}, chunk_tokens = {chunk_tokens}; accepted: whole numbers from 1")
    times = np.asarray(law, np.float64) if isinstance(law, np.ndarray | jax.Array) and np.ndim(law) == 2 else None
    if times is None:
        times = np.broadcast_to(laws.table(law, most), (lanes, most + 1))
    if times.shape != (lanes, most + 1) or not (np.isfinite(times[:, 1:]).all() and (times[:, 1:] > 0).all()):
        raise InputError(f"law: {times.shape} times; accepted: positive times ({lanes}, {most + 1})")
    prompt, output, cached = (
        np.broadcast_to(np.asarray(x, np.float64), arrival.shape) for x in (input_tokens, output_tokens, cached_tokens)
    )
    if (prompt < 1).any() or (output < 1).any() or (cached < 0).any() or (cached > prompt).any():
        raise InputError("input_tokens, output_tokens: accepted are numbers from 1, cached_tokens within the input")
    todo = np.maximum(1.0, prompt - cached)
    if prefill != Prefill.PACKED:
        todo = np.ceil(todo / chunk_tokens)
    late = 0.0 if emits else 1.0
    found = _serve(
        arrival.T, todo.T, output.T, times.T, slots.astype(np.float64), late, float(chunk_tokens), most, int(prefill)
    )
    admitted, first, end = (np.asarray(x).T for x in found)
    return Served(arrival, admitted, first, end, output)


@partial(jax.jit, static_argnums=(7, 8))
def _serve(arrival, todo, output, times, slots, late, chunk, most, mode):
    """(admitted, first token, end), (requests, lanes) each."""
    total, lanes = arrival.shape
    zero = jnp.zeros(lanes, float)

    def step(state, _):
        tau, v, prefill_v, w, n, i = state
        seconds = jnp.take_along_axis(times, n.astype(jnp.int32)[None], 0)[0]
        row = jnp.minimum(i, total - 1)[None]
        a, c, o = (jnp.take_along_axis(x, row, 0)[0] for x in (arrival, todo, output))
        idle = n == 0.0
        wait = jnp.where(idle, 0.0, jnp.maximum(0.0, jnp.ceil((a - TIE_S - tau) / seconds)))
        left = i < total
        enters = left & (n < slots) & (v + wait <= w[0])
        leaves = ~enters & ~idle
        steps = jnp.where(enters, wait, jnp.where(leaves, w[0] - v, 0.0))
        tau = jnp.where(enters & idle, jnp.maximum(tau, a), tau + jnp.where(steps > 0, steps * seconds, 0.0))
        v = v + steps
        if mode == Prefill.OWN:
            done, busy = v + c, prefill_v
        elif mode == Prefill.SHARED:
            done = busy = jnp.maximum(prefill_v, v) + c
        else:
            busy = jnp.maximum(prefill_v, chunk * v) + c
            done = jnp.ceil(busy / chunk)
        prefill_v = jnp.where(enters, busy, prefill_v)
        e = done + o + late - 1.0
        before = jnp.concatenate([jnp.full((1, lanes), -jnp.inf), w[:-1]])
        after = jnp.concatenate([w[1:], jnp.full((1, lanes), jnp.inf)])
        w = jnp.where(enters[None], jnp.minimum(jnp.maximum(e[None], before), w), jnp.where(leaves[None], after, w))
        n = n + jnp.where(enters, 1.0, jnp.where(leaves, -1.0, 0.0))
        i = i + enters.astype(jnp.int32)
        slope = jnp.take_along_axis(times, n.astype(jnp.int32)[None], 0)[0]
        return (tau, v, prefill_v, w, n, i), (tau, v, slope, i, done)

    start = (zero, zero, zero, jnp.full((most, lanes), jnp.inf), zero, jnp.zeros(lanes, jnp.int32))
    _, (tau, v, slope, count, done) = jax.lax.scan(step, start, None, length=2 * total)

    def read(tau, v, slope, count, done, output):
        """Per-request times of one lane, out of its events."""
        entered = jnp.searchsorted(count, jnp.arange(1, total + 1, dtype=count.dtype))
        answered = done[entered] + late
        at_end = jnp.searchsorted(v, answered + output - 1.0)  # the first event there: a later one may follow idle time
        at_first = jnp.searchsorted(v, answered)
        last = at_first - 1
        on_the_way = tau[last] + (answered - v[last]) * slope[last]
        return tau[entered], jnp.where(v[at_first] == answered, tau[at_first], on_the_way), tau[at_end]

    return jax.vmap(read, in_axes=1, out_axes=1)(tau, v, slope, count, done, output)
