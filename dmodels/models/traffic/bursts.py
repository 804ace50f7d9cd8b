"""How far arrivals are from Poisson."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError


class Burstiness(NamedTuple):
    """For Poisson arrivals the first two are 1."""

    interarrival_cv: float  # standard deviation of the gaps over their mean
    dispersion_count: np.ndarray  # variance over mean of the number of arrivals in a window, one per window length
    peak_to_mean_frac: np.ndarray  # busiest window over the mean window
    window_s: np.ndarray


def burstiness(time_s: np.ndarray, window_s: Sequence[float] | float = (1.0, 10.0, 60.0)) -> Burstiness:
    """Index of dispersion of counts and peak-to-mean over whole windows, and the CV of inter-arrival gaps.

    A window longer than half the trace has no variance and gives nan.

    >>> burstiness(np.arange(100.0), 10.0).dispersion_count.tolist()  # clockwork
    [0.0]
    """
    time = np.asarray(time_s, np.float64)
    windows = np.atleast_1d(np.asarray(window_s, np.float64))
    if not (windows > 0).all():
        raise InputError(f"window_s = {windows.tolist()}: accepted are positive lengths")
    gaps = np.diff(time)
    mean = gaps.mean() if gaps.size else 0.0
    dispersion, peak = np.full(windows.shape, np.nan), np.full(windows.shape, np.nan)
    for k, window in enumerate(windows):
        whole = int((time[-1] - time[0]) // window) if time.size else 0
        if whole >= 2:
            index = np.floor((time - time[0]) / window).astype(np.int64)
            counts = np.bincount(index[index < whole], minlength=whole)
            dispersion[k], peak[k] = counts.var() / counts.mean(), counts.max() / counts.mean()
    return Burstiness(float(gaps.std() / mean) if mean > 0 else float("nan"), dispersion, peak, windows)
