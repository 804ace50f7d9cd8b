r"""When requests arrive: keys in, times out.

Every function returns nondecreasing float64 seconds on the host. The same key gives the same times. A bursty process
at another rate is the same process in another unit of time, so rescaling keeps burstiness; thinning would not.
Closed loops, where a client's next request waits for its last answer, are in `closed_loop`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Floats, float64

from .draws import sample


@float64
def poisson(key: jax.Array, rate_rps: float, count: int) -> np.ndarray:
    """(count,) arrival times of a Poisson process: independent exponential gaps."""
    _positive("rate_rps", rate_rps)
    return _summed(sample(jax.random.exponential, key, count)) / rate_rps


@float64
def gamma(key: jax.Array, rate_rps: float, cv: float, count: int) -> np.ndarray:
    """Independent gamma gaps with coefficient of variation `cv`: 1 is Poisson, 3 is bursty, 0 is a metronome."""
    _positive("rate_rps", rate_rps)
    if not (np.isfinite(cv) and cv >= 0):
        raise InputError(f"cv = {cv}; accepted: finite numbers from 0")
    if cv == 0:
        return deterministic(rate_rps, count)
    shape = 1.0 / cv**2
    return _summed(sample(jax.random.gamma, key, count, shape) / shape) / rate_rps


def deterministic(rate_rps: float, count: int) -> np.ndarray:
    """One arrival every 1/rate seconds, the first after one gap."""
    _positive("rate_rps", rate_rps)
    return np.arange(1, count + 1) / rate_rps


@float64
def markov_modulated(key: jax.Array, rates_rps: Any, mean_stay_s: Any, count: int) -> np.ndarray:
    r"""A Poisson process whose rate follows a Markov chain: states in turn, exponential stays of mean `mean_stay_s`.

    The first state is drawn in proportion to the time spent in each. Long-run rate: $\sum r_k s_k / \sum s_k$.
    """
    rates, stay = np.asarray(rates_rps, np.float64), np.asarray(mean_stay_s, np.float64)
    fits = rates.ndim == 1 and rates.shape == stay.shape and (rates >= 0).all() and rates.any() and (stay > 0).all()
    if not fits:
        raise InputError(
            f"rates_rps {rates.tolist()}, mean_stay_s {stay.tolist()}; accepted: one positive stay per "
            "rate, rates from 0 and not all 0"
        )
    key_arrivals, key_state, key_stays = jax.random.split(key, 3)
    unit = poisson(key_arrivals, 1.0, count)
    first = int(jax.random.choice(key_state, rates.size, p=jnp.asarray(stay / stay.sum())))
    states = np.roll(np.arange(rates.size), -first)
    stays, work, block = [], 0.0, 0
    while work <= (unit[-1] if count else 0.0):
        cycles = np.asarray(jax.random.exponential(jax.random.fold_in(key_stays, block), (256, rates.size), float))
        stays.append((cycles * stay[states]).ravel())
        work += float(stays[-1] @ np.tile(rates[states], 256))
        block += 1
    lengths = np.concatenate(stays)
    starts = np.concatenate([[0.0], np.cumsum(lengths)])
    return in_profile(unit, starts, np.append(np.tile(rates[states], 256 * block), 1.0))


def in_profile(unit_times: Any, starts_s: Any, rates_rps: Any) -> np.ndarray:
    r"""Arrivals of a rate-1 process, in a time that runs at `rates_rps` from each of `starts_s` on.

    $a = \Lambda^{-1}(u)$ with $\Lambda(t) = \int_0^t r$: a Poisson stream becomes a Poisson stream with that rate, a
    bursty stream stays as bursty. `starts_s` begins at 0 and increases; the last rate lasts for ever.

    >>> in_profile([1.0, 2.0, 3.0, 4.0], [0.0, 10.0], [0.2, 2.0]).tolist()
    [5.0, 10.0, 10.5, 11.0]
    """
    unit, starts, rates = (np.asarray(x, np.float64) for x in (unit_times, starts_s, rates_rps))
    if starts.shape != rates.shape or starts.ndim != 1 or starts[0] != 0 or (np.diff(starts) <= 0).any():
        raise InputError("starts_s: accepted are increasing times that begin at 0, one for each rate")
    if (rates < 0).any() or not rates[-1] > 0:
        raise InputError(f"rates_rps: {rates.min():g}; accepted: numbers from 0, and the last one above 0")
    work = np.concatenate([[0.0], np.cumsum(np.diff(starts) * rates[:-1])])
    piece = np.searchsorted(work, unit, side="left") - 1  # the piece in which work reaches u; a rate of 0 reaches none
    piece = np.maximum(piece, 0)
    return starts[piece] + (unit - work[piece]) / np.where(rates[piece] > 0, rates[piece], 1.0)


def replay(times_s: Any, rate_rps: float | None = None, count: int | None = None) -> np.ndarray:
    """A trace's arrivals from 0 on, at its own rate or rescaled in time to `rate_rps`, `count` of them.

    Rescaling multiplies every gap by one factor, so gaps keep their distribution, order and correlation. A longer
    `count` plays the trace again, one mean gap after its last arrival.
    """
    times = np.asarray(times_s, np.float64)
    if times.ndim != 1 or times.size < 2 or (np.diff(times) < 0).any() or not times[-1] > times[0]:
        raise InputError("times_s: accepted are at least two times in order, not all the same")
    times = times - times[0]
    period = times[-1] * times.size / (times.size - 1)
    if rate_rps is not None:
        _positive("rate_rps", rate_rps)
        factor = times.size / (period * rate_rps)
        times, period = times * factor, period * factor
    if count is None:
        return times
    place = np.arange(count)
    return times[place % times.size] + period * (place // times.size)


def _summed(gaps: Floats) -> np.ndarray:
    """Running sums in order, on the host: XLA's parallel sums round so that a time can come before its predecessor."""
    return np.cumsum(gaps)


def _positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} = {value}; accepted: finite numbers above 0")
