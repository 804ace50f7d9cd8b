"""Requests that came, from those that were completed and those in flight; and how their lengths go together.

A counter steps when a request ends. What came in an interval is what was completed in it and what the requests in
flight grew by; so a queue that builds up counts as demand, and the spread of arrivals is not that of completions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmodels.core.records import Floats

from .series import Series, steps

#: Standard deviation over traces of log cv^2 of their arrivals, and of the correlation of their prompts and answers:
#: how far few intervals may move what is assumed without them (Poisson arrivals, lengths that are independent).
CV_SPREAD, CORRELATION_SPREAD = 1.0, 0.3
#: Fewest intervals that say anything about either.
FEWEST = 8


def together(gauges: Sequence[Series], grid: Floats | None = None) -> Floats:
    """The sum over replicas, each at its last sample, at the times of `grid`, or at all times of a sample."""
    if not gauges:
        return np.empty(0)
    if grid is None:
        grid = np.unique(np.concatenate([one.time_s for one in gauges]))
    at = [np.clip(np.searchsorted(one.time_s, grid, side="right") - 1, 0, None) for one in gauges]
    there = [(grid >= one.time_s[0]) & (grid <= one.time_s[-1]) for one in gauges]
    return np.asarray(sum(np.where(on, one.value[i], 0.0) for one, i, on in zip(gauges, at, there, strict=True)))


def arrival_cv(came: Floats, gaps_s: Floats) -> float:
    r"""Coefficient of variation of the gaps between arrivals, from how many came in each of equal intervals.

    For a renewal process, cv^2 is the index of dispersion of counts over long intervals; by successive differences,
    $\overline{(N_{k+1} - N_k)^2} / (2 \bar N)$, a rate that drifts over the day does not count. Its logarithm is pulled
    to 0 (Poisson) by its own error, of variance $(3 + 1/\bar N)/K$, against `CV_SPREAD`; nan where too few tell.
    """
    equal = np.abs(gaps_s - np.median(gaps_s)) <= 0.1 * np.median(gaps_s) if len(gaps_s) else np.empty(0, bool)
    pairs = equal[1:] & equal[:-1]
    differences, mean = np.diff(came)[pairs], float(came[equal].mean()) if equal.any() else 0.0
    if len(differences) < FEWEST or not mean > 0 or not differences.any():
        return math.nan
    dispersion = float((differences**2).mean()) / (2.0 * mean)
    error = (3.0 + 1.0 / mean) / len(differences)
    return math.exp(0.5 * math.log(dispersion) / (1.0 + error / CV_SPREAD**2))


def length_correlation(counts: Sequence[Series], inputs: Sequence[Series], outputs: Sequence[Series]) -> float:
    r"""Correlation of a request's prompt and answer; nan where too few intervals tell.

    Of n independent requests that end in an interval, the sums of prompts and of answers have n times the covariance of
    one request's. So with residuals $u_k = X_k - n_k \bar x$ and $v_k$ of the answers, on each replica, the correlation
    is $\sum u v / n$ over the root of $\sum u^2/n \sum v^2/n$, pulled to 0 by its own error against
    `CORRELATION_SPREAD`.
    """
    tables = [{_identity(one): one for one in group} for group in (counts, inputs, outputs)]
    whole = [
        np.stack([steps(table[key]) for table in tables])
        for key in tables[0]
        if all(key in table and np.array_equal(table[key].time_s, tables[0][key].time_s) for table in tables)
    ]
    n, x, y = np.concatenate(whole, axis=1) if whole else np.empty((3, 0))
    n, x, y = n[n > 0], x[n > 0], y[n > 0]
    if len(n) < FEWEST:
        return math.nan
    u, v = ((sums - n * sums.sum() / n.sum()) / np.sqrt(n) for sums in (x, y))
    scale = math.sqrt(float(u @ u) * float(v @ v))
    if not scale > 0:
        return 0.0
    found = float(u @ v) / scale
    error = (1.0 - found**2) ** 2 / len(n)
    return found / (1.0 + error / CORRELATION_SPREAD**2)


def _identity(one: Series) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(one.labels.items()))


def joint(inputs: tuple[Floats, Floats], outputs: tuple[Floats, Floats], correlation: float) -> Floats:
    r"""(prompts, answers) weights with both margins (values, weights), and this correlation or the nearest they allow.

    $W_{ij} = a_i b_j e^{\theta s_i t_j}$ with the values' normal scores s, t: lengths vary by factors. a and b are
    found by scaling rows and columns in turn, theta by bisection.
    """
    (x, left), (y, right) = inputs, outputs
    spread = math.sqrt(_variance(x, left) * _variance(y, right))
    if not spread > 0 or not abs(correlation) > 0:
        return np.outer(left, right)
    scores = np.outer(_scores(x, left), _scores(y, right))
    means = float(left @ x) * float(right @ y)
    low, high = (0.0, 4.0) if correlation > 0 else (-4.0, 0.0)
    for _ in range(24):
        theta = 0.5 * (low + high)
        weights = _scaled(np.exp(theta * scores), left, right)
        below = (float(x @ weights @ y) - means) / spread < correlation
        low, high = (theta, high) if below else (low, theta)
    return weights


def _variance(values: Floats, weights: Floats) -> float:
    return float(weights @ (values - weights @ values) ** 2)


def _scores(values: Floats, weights: Floats) -> Floats:
    """Normal quantiles of the middles of each value's share."""
    from scipy.special import ndtri

    order = np.argsort(values, kind="stable")
    middles = np.empty(len(values))
    middles[order] = np.cumsum(weights[order]) - 0.5 * weights[order]
    return np.asarray(ndtri(middles))


def _scaled(kernel: Floats, left: Floats, right: Floats, steps_count: int = 200) -> Floats:
    """a_i K_ij b_j with the margins `left` and `right`."""
    b = right.copy()
    for _ in range(steps_count):
        a = left / (kernel @ b)
        b, before = right / (a @ kernel), b
        if np.abs(b / before - 1.0).max() < 1e-9:
            break
    weights = a[:, None] * kernel * b
    return np.asarray(weights / weights.sum())
