"""A router's log, window by window: the paper's index, the regime, and what drives it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.control import regime
from dmodels.core.answers import Answer
from dmodels.core.records import float64
from dmodels.games.anarchy import IndexCost, RequestLog, Windows, calibrated_cost, driver, read_log, windows


@dataclass(frozen=True)
class Analysis(Answer):
    """A log, its windows, and per window the regime (0, 1, 2) and the driver's name."""

    log: RequestLog
    cost: IndexCost
    windows: Windows
    regime: np.ndarray
    driver: list[str]
    baseline_s: float


@float64
def analyse(
    path: str | Path,
    window: int = 512,
    step: int | None = None,
    workers: list[str] | None = None,
    limit: int = 20,
    capacity: float = 64.0,
    calibrate: bool = False,
    load_aware: bool = False,
    baseline_s: float | None = None,
    backend: str = "auto",
) -> Analysis:
    """PoA-hat over sliding windows of a log, with the detector of Eq. (10) and (11) run over the windows' TTFT P99.

    `baseline_s` is TTFT P99 of the idle system; the least over the windows unless given. `calibrate` fits a, b and the
    cache weight to the log, `load_aware` lets the optimum move the loads (see `games.anarchy.index`).
    `backend` as in `games.anarchy.windows`.
    """
    log = read_log(path, workers, limit)
    cost = IndexCost(capacity=capacity)
    if calibrate:
        size = min(window, len(log))
        at = np.arange(len(log) // size * size).reshape(-1, size)  # windows side by side
        cost = calibrated_cost(log.latency_s[at], log.worker[at], log.overlap[at], capacity)
    w = windows(log, window, step, cost, load_aware, backend=backend)
    floor = float(np.min(w.ttft_p99_s)) if baseline_s is None else baseline_s
    params = regime.detector(max(floor, 1e-9), samples=1)
    _, now = jax.lax.scan(lambda s, x: regime.update(s, x, params), regime.init(), jnp.asarray(w.ttft_p99_s))
    return Analysis(log, cost, w, np.asarray(now), driver(w), floor)
