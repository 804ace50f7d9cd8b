"""What becomes of a plan's SLOs in a replay."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmodels.core.answers import Answer


@dataclass(frozen=True)
class Promise(Answer):
    """One SLO of one pool (of the whole, where every request passes all pools), as it was kept in a replay."""

    derived = ("error_frac", "sure")
    pool: str
    metric: str  # TTFT, TPOT or E2E
    bound_s: float
    measured_s: float  # at the SLO's percentile
    low_s: float  # 95 % interval of it, from batches; nan: too few requests
    high_s: float
    mean_s: float
    kept_frac: float  # of the requests
    predicted_s: float  # at the SLO's percentile: by recursion over the trace, without one by the closed form
    worst_s: float  # the percentile in the worst window
    worst_start_s: float  # when that began
    holds: bool

    @property
    def error_frac(self) -> float:
        """How far off that is."""
        return self.predicted_s / self.measured_s - 1.0 if self.measured_s > 0 else math.nan

    @property
    def sure(self) -> bool:
        """Whether the whole interval lies on the same side of the bound."""
        return self.high_s <= self.bound_s if self.holds else self.low_s > self.bound_s


@dataclass(frozen=True)
class Replayed(Answer):
    """What became of a deployment."""

    derived = ("holds", "gpus")
    name: str
    instances: tuple[int, ...]
    gpus_each: tuple[int, ...]
    source: str  # of the requests, in words
    policy: str
    requests_count: int
    period_s: float
    window_s: float  # that the worst one is looked for in
    percentile: float
    promises: tuple[Promise, ...]
    overloaded: bool  # a pool has fewer instances than keep up
    held_count: int = 0  # other days (halves and resamples of the recording) on which it also holds
    days_count: int = 0  # that were tried

    @property
    def holds(self) -> bool:
        """Whether every SLO holds in every pool."""
        return all(promise.holds for promise in self.promises)

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        return sum(n * each for n, each in zip(self.instances, self.gpus_each, strict=True))

    def at(self, metric: str) -> float:
        """The percentile of a metric: the worst pool's; nan where there is none."""
        return max((p.measured_s for p in self.promises if p.metric == metric), default=math.nan)


@dataclass(frozen=True)
class Verified(Answer):
    """Replays of a plan's alternatives, and what the recommended pools would take."""

    derived = ("holds",)
    replays: tuple[Replayed, ...]  # of the best of each kind, the recommended one first
    smallest: tuple[int, ...] | None  # instances of the recommended pools: the fewest that hold; None: no number does
    smallest_gpus: int | None

    @property
    def holds(self) -> bool:
        """Whether the recommended fleet keeps every SLO."""
        return self.replays[0].holds


@dataclass(frozen=True)
class Ensured(Answer):
    """How replays chose the number of instances of the recommended plan."""

    formula_gpus: int  # the plan by the closed forms alone, whatever its pools are
    same_formula_gpus: int  # the recommended pools by the closed forms
    smallest_gpus: int  # the fewest, of the recommended pools, that keep every SLO in the replay
    gpus: int  # with the margin for traffic that was not seen
    next_gpus: int  # that are to keep them on 19 of 20 other stretches of such traffic, as long and at the same rate
