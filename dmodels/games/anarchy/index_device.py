r"""PoA-hat of many windows on a device: one transfer in, one out, the optimum proved in float64 as everywhere.

Windows of a log are cut on the device, so that each request is sent once: 10^6 windows of 512 x 8 that overlap by half
are 20 GB of log in place of 39 GB; a step of one request makes them 76 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dmodels.core.records import Floats, Real
from dmodels.solvers.device import Program, batched, in_chunks
from dmodels.solvers.roofline import DeviceWork
from dmodels.solvers.transportation.device import placement_work, proved_placement, rising_steps, unit_steps


class WindowSums(NamedTuple):
    """What the index of a window is made of, (B,) but for loads (B, m); `proved`: the rest may be relied on."""

    loads: np.ndarray
    observed_s: np.ndarray
    model_s: np.ndarray
    optimum_s: np.ndarray
    proved: np.ndarray


def window_work(n: int, m: int, paths: float) -> DeviceWork:
    """Of one window of n requests on m workers: a placement, its costs written once, and the sums read once more."""
    placed = placement_work(n, m, paths)
    return placed._replace(device_bytes=placed.device_bytes + 4 * 8.0 * n * m + 12.0 * n, registers=72)


def _window(
    latency: Array, worker: Array, overlap: Array, curve: Array, cache_s: Array, load_aware: bool
) -> tuple[Array, ...]:
    """`WindowSums` of one window; `curve` (5, m) holds a, b, d, beta and capacity of each worker."""
    n, m = overlap.shape
    a, b, d, beta, capacity = curve
    on = worker[:, None] == jnp.arange(m, dtype=worker.dtype)[None, :]
    loads = jnp.sum(on, axis=0).astype(latency.dtype)
    room = capacity - loads
    base = a * loads + b + jnp.where(d == 0, 0.0, d / room**beta)
    hits = jnp.sum(jnp.where(on, overlap, 0.0))
    model = jnp.sum(jnp.where(loads > 0, loads * base, 0.0)) - cache_s * hits
    if load_aware:
        k = jnp.arange(n + 1, dtype=jnp.int32).astype(latency.dtype)[None, :]
        left = capacity[:, None] - k
        g = k * (a[:, None] * k + b[:, None] + d[:, None] / jnp.where(left > 0, left, 1.0) ** beta[:, None])
        steps, sound = rising_steps(jnp.where(left[:, 1:] > 0, jnp.diff(g, axis=1), jnp.inf))
        cost = -cache_s * overlap
    else:
        steps, sound = unit_steps(capacity, n), jnp.all(jnp.isfinite(base))
        cost = base[None, :] - cache_s * overlap
    _, _, least, *_, proved = proved_placement(cost, steps)
    return loads, jnp.sum(latency), model, least, proved & sound


def _log_window(
    start: Array,
    latency: Array,
    worker: Array,
    overlap: Array,
    curve: Array,
    cache_s: Array,
    size: int,
    load_aware: bool,
) -> tuple[Array, ...]:
    """`_window` of the `size` requests of a log from `start` on."""
    cut: Callable[[Array], Array] = lambda column: jax.lax.dynamic_slice_in_dim(column, start, size)
    return _window(cut(latency), cut(worker), cut(overlap), curve, cache_s, load_aware)


def window_program(load_aware: bool) -> Program:
    """`_window` of a batch: latency (B, n), worker (B, n), overlap (B, n, m), and shared curve and cache_s."""
    return batched(_window, shared=2, load_aware=load_aware)


def window_sums(
    latency: Floats, worker: np.ndarray, overlap: Floats, curve: Floats, cache_s: Real, load_aware: bool
) -> WindowSums:
    """Of windows that lie apart: latency and worker (B, n), overlap (B, n, m)."""
    arrays: list[np.ndarray] = [latency, worker.astype(np.int32), overlap]
    return WindowSums(
        *in_chunks(window_program(load_aware), arrays, _bytes(*overlap.shape[1:]), (curve, _number(cache_s)))
    )


def log_window_sums(
    starts: np.ndarray, log: tuple[Floats, np.ndarray, Floats], size: int, curve: Floats, cache_s: Real, aware: bool
) -> WindowSums:
    """Of windows of `size` requests of a log: latency and worker (N,), overlap (N, m), sent once."""
    latency, worker, overlap = log
    program = batched(_log_window, shared=5, size=size, load_aware=aware)
    shared = (latency, worker.astype(np.int32), overlap, curve, _number(cache_s))
    return WindowSums(*in_chunks(program, [starts.astype(np.int32)], _bytes(size, overlap.shape[1]), shared))


def proved_again(sums: WindowSums, on_host: Callable[[np.ndarray], WindowSums]) -> WindowSums:
    """The sums with those that are not proved replaced by `on_host` of their numbers."""
    out = WindowSums(*(np.array(a) for a in sums))
    rest = np.flatnonzero(~out.proved)
    if rest.size:
        for mine, other in zip(out, on_host(rest), strict=True):
            mine[rest] = other
    return out


def _number(value: Real) -> np.ndarray:
    return np.asarray(value, np.float64)


def _bytes(n: int, m: int) -> float:
    """What one window takes on a device."""
    return 8.0 * m * (8 * n + 4 * m) + 64.0 * n
