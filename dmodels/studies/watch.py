"""A plan beside reality: what engines report, and what the model says of the same fleet under the same load."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError
from dmodels.core.hardware import SLO
from dmodels.fit.points import nearest_model
from dmodels.formats.deployments import read_deployment
from dmodels.formats.serving import PREFILL, Serving
from dmodels.formats.telemetry import Histogram, Telemetry, observe, workload

from .plan.existing import Existing, existing
from .plan.questions import question


@dataclass(frozen=True)
class Compared(Answer):
    """One quantity, measured and predicted. nan: not reported, or not predicted."""

    derived = ("ratio",)
    name: str  # with its unit
    measured: float
    predicted: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted > 0 else math.nan


@dataclass(frozen=True)
class Watched(Answer):
    """What was seen, and where model and measurement part; without a deployment there is nothing to compare."""

    telemetry: Telemetry
    fleet: Existing | None
    compared: tuple[Compared, ...]


def watch(
    files: Iterable[str | Path],
    deployment: Iterable[str | Path] = (),
    gpu: str = "",
    slo: SLO | None = None,
    rate_rps: float | None = None,
    hours: float = 6.0,
) -> Watched:
    """What `files` of telemetry say, beside the model of the fleet that the files of `deployment` start.

    `gpu` is the fleet's where its files name none; `rate_rps` is needed for a single scrape. A Prometheus
    server's address in place of a file is asked for the last `hours`.
    """
    seen, started = observe(files, hours), list(deployment)
    if not started:
        return Watched(seen, None, ())
    fleet = read_deployment(started)
    names = sorted({pool.gpu for pool in fleet.pools if pool.gpu} or {gpu} - {""})
    if not names:
        raise InputError("--from-deployment names no GPU; --gpu NAME adds it")
    asked = question(nearest_model(fleet.model), names, workload(seen, rate_rps), slo or SLO(2.0, 0.08))
    now = existing(asked, fleet)
    return Watched(seen, now, tuple(_compared(seen, now, fleet)))


def _compared(seen: Telemetry, now: Existing, fleet: Serving) -> Iterable[Compared]:
    """Means over requests; over a split's two stages, the sum of their first tokens' times."""
    share = np.array([1.0 if fleet.split else pool.share_frac for pool in now.pools])
    decodes = [i for i, pool in enumerate(now.pools) if not (fleet.split and pool.name == PREFILL)]

    def first(field: str) -> float:
        values = np.array([getattr(pool, field) for pool in now.pools])
        return float(share @ values)

    tpot = sum(share[i] * now.pools[i].tpot_mean_s for i in decodes)
    running = sum(now.pools[i].decode_count * now.pools[i].instances for i in decodes)
    yield Compared("TTFT, mean [s]", _mean(seen.ttft_s), first("ttft_mean_s"))
    if len(now.pools) == 1:
        yield Compared("TTFT, P99 [s]", _quantile(seen.ttft_s, 0.99), first("ttft_s"))
    yield Compared("time between tokens, mean [s]", _mean(seen.itl_s), float(tpot))
    yield Compared("requests in flight", seen.running_mean_count, float(running))


def _mean(histogram: Histogram | None) -> float:
    return histogram.mean if histogram else math.nan


def _quantile(histogram: Histogram | None, at: float) -> float:
    return histogram.quantile(at) if histogram and not histogram.beyond(at) else math.nan
