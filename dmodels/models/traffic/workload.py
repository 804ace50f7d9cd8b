"""From a joint length distribution to what planners use: classes between thresholds, work, quantiles, small tables.

Everything here is exact on the support points; nothing is sampled. Work is counted in engine iterations,
ceil(prefill / chunk) + output (arXiv:2604.09613, Appendix A), because a slot is held for that many iterations.
Functions on the host take and give NumPy arrays and accept thresholds of any shape at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.lengths import TotalsCdf, partial_iterations, partial_moments
from dmodels.core.records import HOST, Real, Record, quantity
from dmodels.core.workload import Workload

from .bursts import burstiness
from .trace import Trace, prefix_hits, read_trace

__all__ = [
    "LengthClass",
    "Split",
    "TotalsCdf",
    "Trace",
    "Workload",
    "between",
    "burstiness",
    "compress",
    "condition",
    "iterations",
    "partial_iterations",
    "partial_moments",
    "prefix_hits",
    "quantile",
    "read_trace",
    "split",
    "whole",
]

#: Prefill tokens that one engine iteration takes in the token-budget paper (its Appendix A).
CHUNK_TOKENS = 512
#: Totals of compressed cells carry rounding; a total counts as within a threshold up to this factor.
_REACHED = 1 + 1e-12


class LengthClass(Record):
    """Requests of one class (a pool's share of the traffic). Batched over thresholds; an empty class is all zeros."""

    request_frac: Real = quantity()  # share of requests
    work_frac: Real = quantity()  # share of engine iterations
    # conditional means
    input_tokens: Real = quantity()
    prefill_tokens: Real = quantity()  # input less prefix hits
    output_tokens: Real = quantity()
    iterations_count: Real = quantity()  # ceil(prefill / chunk) + output
    held_tokens: Real = quantity()  # KV tokens of a running sequence, mean over its iterations (prompt held at once)
    # conditional second moments: E[x^2], and E[prefill * output]
    input_square: Real = quantity()
    prefill_square: Real = quantity()
    output_square: Real = quantity()
    prefill_output: Real = quantity()
    iterations_square: Real = quantity()
    max_total_tokens: Real = quantity()  # the longest sequence


class Split(NamedTuple):
    """The two classes that a threshold on total tokens makes: total <= threshold, and the rest."""

    short: LengthClass
    long: LengthClass


def iterations(prefill_tokens: Real, output_tokens: Real, chunk_tokens: Real = CHUNK_TOKENS) -> Real:
    r"""Engine iterations of a request, $\lceil L_{in}/C \rceil + L_{out}$ (arXiv:2604.09613, Appendix A).

    >>> float(iterations(1025.0, 100.0))
    103.0
    """
    xp = np if isinstance(prefill_tokens, HOST) else jnp
    return xp.ceil(prefill_tokens / chunk_tokens) + output_tokens


def whole(workload: Workload, chunk_tokens: float = CHUNK_TOKENS) -> LengthClass:
    """All requests as one class, leaves of shape ()."""
    return between(workload, -np.inf, np.inf, chunk_tokens)


def split(workload: Workload, threshold_tokens: Real, chunk_tokens: float = CHUNK_TOKENS) -> Split:
    """Short and long class for thresholds of any shape; a request is short where input + output <= threshold.

    >>> two = Workload([100.0, 9000.0], [100.0, 1000.0], [0.75, 0.25])
    >>> short, long = split(two, 8192.0)
    >>> float(short.request_frac), float(long.input_tokens), round(float(short.work_frac), 3)
    (0.75, 9000.0, 0.229)
    """
    return Split(
        between(workload, -np.inf, threshold_tokens, chunk_tokens),
        between(workload, threshold_tokens, np.inf, chunk_tokens),
    )


def between(workload: Workload, low_tokens: Real, high_tokens: Real, chunk_tokens: float = CHUNK_TOKENS) -> LengthClass:
    """The class low < input + output <= high, for bounds of any (broadcast) shape; k pools have k such classes."""
    w = _flat(workload)
    low, high = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (low_tokens, high_tokens)))
    if np.isnan(low).any() or np.isnan(high).any():
        raise InputError("threshold_tokens holds NaN; accepted are numbers of tokens")
    if not chunk_tokens > 0:
        raise InputError(f"chunk_tokens = {chunk_tokens}: accepted are positive numbers")
    prefill, output = np.broadcast_to(w.prefill_tokens, w.input_tokens.shape), w.output_tokens
    work = iterations(prefill, output, chunk_tokens)
    values = {
        "request_frac": np.ones_like(output),
        "input_tokens": w.input_tokens,
        "prefill_tokens": prefill,
        "output_tokens": output,
        "iterations_count": work,
        "input_square": w.input_tokens**2,
        "prefill_square": prefill**2,
        "output_square": output**2,
        "prefill_output": prefill * output,
        "iterations_square": work**2,
        "held_tokens": w.input_tokens * work + output**2 / 2,
    }
    order = np.argsort(w.total_tokens, kind="stable")
    total = w.total_tokens[order]
    low, high = low * _REACHED, high * _REACHED
    first, last = np.searchsorted(total, low, "right"), np.searchsorted(total, high, "right")
    last = np.maximum(first, last)
    summed = np.cumsum(np.stack(list(values.values()))[:, order] * w.weight_frac[order], axis=1)
    summed = np.concatenate([np.zeros((len(values), 1)), summed], axis=1) / summed[0, -1]  # mass of all: exactly 1
    found = dict(zip(values, np.maximum(summed[:, last] - summed[:, first], 0.0), strict=True))
    mass = found.pop("request_frac")
    mass = np.where(last > first, np.minimum(mass, 1.0), 0.0)
    means = {name: np.where(mass > 0, value / np.where(mass > 0, mass, 1.0), 0.0) for name, value in found.items()}
    work_mean = means["iterations_count"]
    means["held_tokens"] = means["held_tokens"] / np.where(work_mean > 0, work_mean, 1.0)
    everything = summed[list(values).index("iterations_count"), -1]
    work_frac = mass * means["iterations_count"] / everything if everything > 0 else mass
    positive = np.flatnonzero(w.weight_frac[order] > 0)
    top = np.searchsorted(positive, last, "left") - 1  # the last support point with weight before `last`
    longest = np.where(mass > 0, total[positive[np.maximum(top, 0)]], 0.0)
    return LengthClass(request_frac=mass, work_frac=np.minimum(work_frac, 1.0), max_total_tokens=longest, **means)


def condition(workload: Workload, low_tokens: Real, high_tokens: Real) -> Workload:
    """The sub-workload with low < input + output <= high: same support, weights and rate of that class alone.

    Bounds of shape s give a batch of workloads, leaves (*s, k). A class without requests keeps weights that sum to 1
    (the whole workload's) at rate 0.
    """
    w = _flat(workload)
    low, high = (np.asarray(x, np.float64)[..., None] * _REACHED for x in (low_tokens, high_tokens))
    weight = w.weight_frac * ((w.total_tokens > low) & (w.total_tokens <= high))
    mass = weight.sum(-1, keepdims=True)
    weight = np.where(mass > 0, weight / np.where(mass > 0, mass, 1.0), w.weight_frac)
    same = [np.broadcast_to(x, weight.shape) for x in (w.input_tokens, w.output_tokens, w.cached_tokens)]
    rate = w.rate_rps * mass[..., 0]
    return Workload(
        same[0],
        same[1],
        weight / weight.sum(-1, keepdims=True),
        same[2],
        rate,
        np.broadcast_to(w.arrival_cv, rate.shape),
    )


def quantile(values: Real, weight_frac: Real, p: Real) -> np.ndarray:
    """The smallest value x with P(value <= x) >= p, for p of any shape.

    >>> quantile(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.3, 0.2]), [0.5, 0.9]).tolist()
    [1.0, 3.0]
    """
    order = np.argsort(values, kind="stable")
    order = order[np.asarray(weight_frac)[order] > 0]
    reached = np.cumsum(np.asarray(weight_frac)[order])
    index = np.searchsorted(reached, np.asarray(p) * reached[-1] * (1 - 1e-12), "left")
    found: np.ndarray = np.asarray(values)[order][np.minimum(index, len(order) - 1)]
    return found


def compress(workload: Workload, totals_count: int = 64, outputs_count: int = 12) -> Workload:
    """A small table with the same means: cells of equal weight by total, each cut by output, at conditional means.

    Means are exact. Second moments lose the variance inside cells (whoever writes a table states how much). Cells get
    finer towards both tails, by total down to the longest request alone, so the maximum is exact and thresholds near
    it stay sharp.
    """
    w = _flat(workload)
    cached = np.broadcast_to(w.cached_tokens, w.input_tokens.shape)
    by_total = _cells(w.total_tokens, w.weight_frac, _cuts(totals_count, 40))
    cell = np.zeros(len(by_total), int)
    for c in range(by_total.max() + 1):
        rows = np.flatnonzero(by_total == c)
        inner = _cells(w.output_tokens[rows], w.weight_frac[rows], _cuts(outputs_count, 3))
        cell[rows] = c * (outputs_count + 3) + inner
    weight = w.weight_frac / w.weight_frac.max()  # 1 for the rows of a trace, so that sums of whole numbers are exact
    mass = np.bincount(cell, weight)
    kept = mass > 0
    means = [np.bincount(cell, weight * x)[kept] / mass[kept] for x in (w.input_tokens, w.output_tokens, cached)]
    return Workload(
        means[0], means[1], mass[kept] / mass.sum(), np.minimum(means[2], means[0]), w.rate_rps, w.arrival_cv
    )


def _cuts(count: int, halvings: int) -> np.ndarray:
    """Quantile levels of `count` equal cells, the last of them halved again and again."""
    tail = 1.0 - 0.5 ** np.arange(1, halvings + 1) / count
    return np.concatenate([np.linspace(0, 1, count + 1)[1:-1], tail])


def _cells(values: np.ndarray, weight: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Which of the cells between the quantiles `cuts` each value lies in; equal values share a cell."""
    edges = np.unique(quantile(values, weight, cuts)) if len(values) > 1 else np.array([])
    return np.searchsorted(edges, values, "left")


def _flat(workload: Workload) -> Workload:
    if np.ndim(workload.weight_frac) != 1:
        raise InputError(f"workload has shape {np.shape(workload.weight_frac)}; accepted is one workload, shape (k,)")
    return workload
