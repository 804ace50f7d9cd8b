r"""What a simulation knows, and how well: warm-up, intervals of means and quantiles, stopping, comparing.

Answers of successive requests are correlated, so their plain standard error is far too small. Intervals come from
independent replications, or from batches so long that their means are nearly independent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from scipy.special import stdtrit

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag

Name = TypeVar("Name", bound=Hashable)


class Estimate(NamedTuple):
    """A value with its confidence interval; `flags` (of `core.flags.Flag`) say why the interval may not hold."""

    value: float
    low: float
    high: float
    samples: int  # independent values (replications or batches) behind the interval
    flags: int = 0

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def holds(self, truth: float, slack: float = 0.0) -> bool:
        """Whether `truth` lies in the interval, widened by `slack` on both sides."""
        return self.low - slack <= truth <= self.high + slack


def warmup_count(values: Any, batch: int = 5) -> tuple[int, int]:
    r"""Leading observations to drop, by MSER-5 (White 1997), and a flag.

    With the series in batches of 5, d minimises $\sum_{j > d} (y_j - \bar y_d)^2 / (n - d)^2$: the squared standard
    error that is left. Searched up to half the series; a minimum at the end of that range means that the run is too
    short to tell (NOT_CONVERGED). NaN (metrics that a request does not have) are skipped inside batches.
    """
    x = np.asarray(values, np.float64)
    count = x.size // batch
    if count < 10:
        return 0, int(Flag.NOT_CONVERGED)
    rows = x[: count * batch].reshape(count, batch)
    if np.isnan(rows).any():
        present = ~np.isnan(rows)
        overall = np.nanmean(x)
        y = np.where(present.any(1), np.where(present, rows, 0.0).sum(1) / np.maximum(1, present.sum(1)), overall)
    else:
        y = rows.mean(1)
    y = y - y.mean()  # sums of squares keep their digits
    left = np.arange(count, 0, -1.0)
    mean = np.cumsum(y[::-1])[::-1] / left
    square = np.cumsum((y * y)[::-1])[::-1]
    score = (square - left * mean * mean) / (left * left)
    half = count // 2
    drop = int(np.argmin(score[: half + 1]))
    return drop * batch, int(Flag.NOT_CONVERGED) if drop == half else 0


def mean_of(replications: Any, confidence: float = 0.95) -> Estimate:
    """Mean of independent replications with Student's interval."""
    x = np.asarray(replications, np.float64)
    if x.size < 2:
        raise InputError(f"replications: {x.size}; accepted: at least two")
    value = float(x.mean())
    reach = float(_student(x.size - 1, confidence) * x.std(ddof=1) / np.sqrt(x.size))
    return Estimate(value, value - reach, value + reach, x.size, 0 if np.isfinite(value) else int(Flag.NONFINITE))


def batch_means(values: Any, batches: int = 20, confidence: float = 0.95) -> Estimate:
    """Mean of one long stationary series: Student's interval over the means of `batches` equal batches.

    If successive batch means are still correlated beyond chance (lag-1 above 1.96/sqrt(batches)) the batches are too
    short and the interval too narrow: NOT_CONVERGED.
    """
    means = np.nanmean(_batches(values, batches), axis=1)
    whole = mean_of(means, confidence)
    return whole._replace(flags=whole.flags | _correlated(means))


def batch_quantile(values: Any, q: float, batches: int = 20, confidence: float = 0.95) -> Estimate:
    """Quantile of one long stationary series by sectioning: the quantile of all values, with Student's interval over
    the quantiles of batches around it. Fewer than ten values beyond the quantile in a batch: EXTRAPOLATED."""
    rows = _batches(values, batches)
    each = np.nanquantile(rows, q, axis=1)
    value = float(np.nanquantile(rows, q))
    spread = np.sqrt(np.sum((each - value) ** 2) / (batches - 1) / batches)
    reach = _student(batches - 1, confidence) * float(spread)
    few = int(Flag.EXTRAPOLATED) if rows.shape[1] * min(q, 1 - q) < 10 else 0
    return Estimate(value, value - reach, value + reach, batches, few | _correlated(each))


def difference(a: Any, b: Any, confidence: float = 0.95) -> Estimate:
    """a - b of replications run with common random numbers: replication i of both used the same key, so the noise that
    both share cancels and the interval is that of the paired differences."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        raise InputError(f"a and b: shapes {a.shape} and {b.shape}; accepted: one value of each per key")
    return mean_of(a - b, confidence)


def replicate(
    run: Callable[[jax.Array], Mapping[Name, float]],
    key: jax.Array,
    target_frac: float = 0.05,
    at_least: int = 8,
    at_most: int = 256,
    confidence: float = 0.95,
) -> dict[Name, Estimate]:
    """Run independent replications until every metric's half-width is at most `target_frac` of its value.

    `run(key)` returns numbers by name. Looking after every replication would stop on lucky streaks, so intervals are
    looked at when the count has grown by half (8, 12, 18, 27, ...). A metric that is still too wide at `at_most`
    carries NOT_CONVERGED.
    """
    if not 2 <= at_least <= at_most:
        raise InputError(f"at_least = {at_least}, at_most = {at_most}; accepted: 2 <= at_least <= at_most")
    rows: list[Mapping[Name, float]] = []
    goal = at_least
    while True:
        rows += [run(jax.random.fold_in(key, i)) for i in range(len(rows), goal)]
        found = {name: mean_of([row[name] for row in rows], confidence) for name in rows[0]}
        wide = {name for name, e in found.items() if not e.half_width <= target_frac * abs(e.value)}
        if not wide or goal >= at_most:
            break
        goal = min(at_most, goal + goal // 2)
    return {
        name: e._replace(flags=e.flags | (int(Flag.NOT_CONVERGED) if name in wide else 0)) for name, e in found.items()
    }


def _batches(values: Any, batches: int) -> np.ndarray:
    x = np.asarray(values, np.float64)
    if batches < 2 or x.size < 2 * batches:
        raise InputError(f"{x.size} values in {batches} batches; accepted: at least two batches of two")
    return x[x.size % batches :].reshape(batches, -1)


def _correlated(means: np.ndarray) -> int:
    centred = means - means.mean()
    power = float(centred @ centred)
    lag = float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0
    return int(Flag.NOT_CONVERGED) if lag > 1.96 / np.sqrt(means.size) else 0


def _student(degrees: int, confidence: float) -> float:
    if not 0 < confidence < 1:
        raise InputError(f"confidence = {confidence}; accepted: between 0 and 1")
    return float(stdtrit(degrees, 0.5 + confidence / 2))
