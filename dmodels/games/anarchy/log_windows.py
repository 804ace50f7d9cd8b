"""PoA-hat over sliding windows of a request log, and what drives it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.solvers.device import takes_device

from .index import IndexCost, PoaIndex, curve_of, host_sums, index_of_sums, poa_index
from .index_device import log_window_sums, proved_again
from .log import RequestLog

#: Windows that are laid out in memory at once.
_CHUNK = 512


class Windows(NamedTuple):
    """The index of each window of completed requests, oldest first, and its three factors.

    start_s, end_s    completion of the first and the last request
    index             `PoaIndex`
    ttft_p99_s        99th percentile of TTFT (of latency where the log has no TTFT)
    routing           factor of a different assignment under the cost model
    constant          base latency / cost model: what the model's constants miss even without load
    queueing          mean latency / base latency: what load adds, the prefill queue first of all
    """

    start_s: np.ndarray
    end_s: np.ndarray
    index: PoaIndex  # type: ignore[assignment]  # hides `tuple.index`, which means nothing here
    ttft_p99_s: np.ndarray
    routing: np.ndarray
    constant: np.ndarray
    queueing: np.ndarray


def windows(
    log: RequestLog,
    size: int = 512,
    step: int | None = None,
    cost: IndexCost | None = None,
    load_aware: bool = False,
    base_s: float | None = None,
    *,
    backend: str = "auto",
) -> Windows:
    r"""PoA-hat of every window of `size` completions, `step` apart (half a window unless given).

    poa_hat = routing x constant x queueing exactly, with `base_s` the latency of a request in an idle system (the 5th
    percentile of the log unless given). In the paper's plateau (C = 16..96) routing is 1 to 1.1 and the rest is mean
    latency over 0.33 s, the value of its cost model: the index does not see routing there. `backend` as in `poa_index`;
    a device is sent the log once and cuts the windows itself.
    """
    n = len(log)
    size = min(size, n)
    step = max(1, size // 2) if step is None else step
    if size < 1 or step < 1:
        raise InputError(f"window {size}, step {step}; accepted are whole numbers from 1")
    starts = np.arange(0, n - size + 1, step)
    index = _index(log, starts, size, IndexCost() if cost is None else cost, load_aware, backend)
    base = float(np.quantile(log.latency_s, 0.05)) if base_s is None else base_s
    mean, model = index.observed_s / size, index.model_s / size
    signal = log.ttft_s if np.isfinite(log.ttft_s).all() else log.latency_s
    p99 = np.quantile(np.lib.stride_tricks.sliding_window_view(signal, size)[starts], 0.99, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        constant, queueing = np.where(np.isfinite(model), base / model, np.nan), mean / base
    return Windows(
        log.completion_s[starts], log.completion_s[starts + size - 1], index, p99, index.routing, constant, queueing
    )


def _index(log: RequestLog, starts: np.ndarray, size: int, cost: IndexCost, load_aware: bool, backend: str) -> PoaIndex:
    """The index of the windows of `size` requests from `starts` on."""

    def rows(some: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at = some[:, None] + np.arange(size)
        return log.latency_s[at], log.worker[at].astype(np.int64), log.overlap[at]

    curve = curve_of(cost, log.overlap.shape[1])
    if takes_device(backend, starts.shape) and curve is not None:
        columns = log.latency_s, log.worker, log.overlap
        sums = log_window_sums(starts, columns, size, curve, cost.cache_s, load_aware)
        sums = proved_again(sums, lambda rest: host_sums(*rows(starts[rest]), cost, load_aware))
        finite = np.lib.stride_tricks.sliding_window_view(np.isfinite(log.latency_s), size)[starts].all(-1)
        return index_of_sums(sums, finite, cost, size)
    cut = (starts[first : first + _CHUNK] for first in range(0, len(starts), _CHUNK))
    parts = [poa_index(*rows(some), cost, load_aware, backend="cpu") for some in cut]
    return PoaIndex(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def driver(w: Windows, plateau: float = 1.25) -> list[str]:
    """What each window's index says: "constant" while load and routing add less than `plateau`, else the larger one."""
    rise = np.stack([np.nan_to_num(w.routing, nan=1.0), np.nan_to_num(w.queueing, nan=1.0)], -1)
    flat = rise.prod(-1) < plateau
    return ["constant" if f else ("routing", "queue")[k] for f, k in zip(flat, rise.argmax(-1), strict=True)]
