r"""Latency of a worker as a function of the requests on it: affine, singular, measured table, linear iteration time.

Every curve is a record whose leaves end in a worker axis (m,), or are scalars where all workers are alike, and becomes
a table f(1..K) through `latency_table`. Past a pole, and past the end of a table, the latency is infinite: the bare
singular formula is finite, positive and wrong there for even beta (0.37 s for 70 requests on a 64-slot worker).
"""

from __future__ import annotations

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real, Record, quantity, stack

from .laws import LatencyCurve, StepLaw, singular_latency_s

__all__ = ["LatencyCurve", "TableCurve", "affine", "iteration_time", "latency_table", "singular_latency_s"]


class TableCurve(Record):
    """f(1), f(2), ..., f(K) as measured, along the last axis; infinite past K. Shape (..., m, K)."""

    values_s: Real = quantity()


def affine(a_s: Real, b_s: Real) -> LatencyCurve:
    """f(n) = a n + b: a curve without a pole (Eq. (8) of the price-of-anarchy paper).

    >>> latency_table(affine(0.5, 1.0), 3)
    array([1.5, 2. , 2.5])
    """
    line = LatencyCurve(a_s, b_s, 0.0, np.inf)
    zero = 0.0 * (line.a_s + line.b_s)  # all leaves get the common shape, so that a batch can be indexed
    return LatencyCurve(line.a_s + zero, line.b_s + zero, zero, zero + np.inf, zero + 1.0)


def iteration_time(law: StepLaw, iterations: Real = 1.0) -> LatencyCurve:
    """Latency of a request of `iterations` decode steps, each of which takes `law`.

    W = 8 ms, H = 0.65 ms, 100 iterations, 16 in flight: 1.84 s.
    """
    return affine(law.per_sequence_s * np.asarray(iterations), law.base_s * np.asarray(iterations))


def latency_table(curve: LatencyCurve | TableCurve, n_max: int) -> np.ndarray:
    """f(1), ..., f(n_max) on the host in float64, shape (..., n_max)."""
    if isinstance(curve, TableCurve):
        values = np.asarray(curve.values_s, np.float64)[..., :n_max]
        pad = [(0, 0)] * (values.ndim - 1) + [(0, n_max - values.shape[-1])]
        return np.pad(values, pad, constant_values=np.inf)
    leaves = (curve.a_s, curve.b_s, curve.d_s, curve.n_sat, curve.beta)
    a, b, d, n_sat, beta = (np.asarray(leaf, np.float64)[..., None] for leaf in leaves)
    n = np.arange(1.0, n_max + 1.0)
    room = n_sat - n
    with np.errstate(over="ignore"):  # n_sat = inf without a singular term gives d / inf = 0, as it should
        value = a * n + b
        if np.any(d):
            value = value + d / np.where(room > 0, room, 1.0) ** beta
    return np.where(room > 0, value, np.inf)


def as_curve(curve: Real | list[LatencyCurve]) -> LatencyCurve | TableCurve:
    """A curve record as it is, a list of them (one per worker) stacked, an array (..., m, K) as a `TableCurve`."""
    if isinstance(curve, LatencyCurve | TableCurve):
        return curve
    if isinstance(curve, list | tuple) and curve and all(isinstance(c, LatencyCurve) for c in curve):
        stacked: LatencyCurve = stack(*curve)
        return stacked
    table = np.asarray(curve, np.float64)
    if table.ndim < 2 or table.shape[-1] == 0:
        raise InputError(f"curve of shape {table.shape}: accepted are a LatencyCurve, a TableCurve, or a table (m, K)")
    return TableCurve(table)
