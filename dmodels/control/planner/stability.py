r"""Does the planner's loop oscillate? Linearisation, exact stability limit, and the limit cycle of the +-1 planner.

Near a split at which both pools are loaded, let x be the prefill workers too many and s the signal (prefill's wait less
decode's). A worker too many lowers the signal by kappa per interval, and a share `leak` of the signal is left after an
interval (1: saturated queues, which only integrate; 0: queues that settle within the interval):

$$ s_{t+1} = a\, s_t - \kappa\, x_t, \qquad x_{t+1} = x_t + K s_{t-\tau}. $$

Its characteristic equation is $(z - a)(z - 1) z^\tau + K\kappa = 0$. Without delay it is stable iff
$0 < K\kappa < 1 - a$: **at saturation (a = 1) no gain is stable**, which is the oscillation that section 5.2 of
"The Price of Anarchy in Disaggregated Inference" describes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .planners import INTERVAL_S


class Limit(NamedTuple):
    """Where the loop loses stability."""

    gain: float  # K kappa at the limit; 0: unstable for every gain
    period_s: float  # of the oscillation that starts there


class Cycle(NamedTuple):
    """A sustained oscillation: period, and amplitudes of the split and of the signal."""

    period_s: float
    split_instances: float
    signal_s: float


def radius(gain: float, leak: float, delay: int = 0) -> float:
    """Largest magnitude of the closed loop's modes: below 1 it settles. `gain` is K kappa.

    >>> round(radius(0.5, 0.5), 9)
    1.0
    """
    polynomial = np.zeros(delay + 3)
    polynomial[:3] = 1.0, -(1.0 + leak), leak
    polynomial[-1] += gain
    return float(np.abs(np.roots(polynomial)).max())


def limit(leak: float, delay: int = 0, interval_s: float = INTERVAL_S) -> Limit:
    r"""The largest stable K kappa, exactly. At it z = e^{i w}, where the phase condition
    $\arg(e^{iw} - a) + (\tau + 1/2) w = \pi/2$ has one root; without delay K kappa = 1 - a and cos w = (1 + a)/2.

    >>> limit(0.5).gain
    0.5
    """

    def phase(w):
        return np.angle(np.exp(1j * w) - leak) + (delay + 0.5) * w - 0.5 * np.pi

    if leak >= 1.0:
        return Limit(0.0, np.inf)
    low, high = 0.0, np.pi
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if phase(middle) < 0 else (low, middle)
    z = np.exp(0.5j * (low + high))
    gain = abs((z - leak) * (z - 1.0))
    return Limit(round(float(gain), 15), float(2.0 * np.pi / (0.5 * (low + high)) * interval_s))


def relay_cycle(kappa: float, leak: float, delay: int = 0, interval_s: float = INTERVAL_S) -> Cycle:
    r"""The oscillation of the planner that moves one worker an interval whatever the size of the signal.

    Describing function of the sign, 4/(pi A): the loop oscillates where 4 kappa/(pi A) equals the linear limit, hence
    A = 4 kappa/(pi gain); the split climbs and falls by one an interval, a triangle of height period/4. First harmonic
    only: within 30 % of the simulation, and one worker. At saturation there is no finite cycle: it grows.
    """
    edge = limit(leak, delay, interval_s)
    if edge.gain == 0.0:
        return Cycle(np.inf, np.inf, np.inf)
    signal = 4.0 * kappa / (np.pi * edge.gain)
    return Cycle(edge.period_s, edge.period_s / interval_s / 4.0, float(signal))


def simulate(gain: float | None, kappa: float, leak: float, delay: int = 0, steps: int = 4000, start: float = 1.0):
    """(x, s) of the loop above, (steps,) each, from a split that is `start` workers off. gain None: the +-1 planner."""
    x, s = np.zeros(steps), np.zeros(steps)
    x[0] = start
    for t in range(steps - 1):
        seen = s[t - delay] if t >= delay else 0.0
        s[t + 1] = leak * s[t] - kappa * x[t]
        x[t + 1] = x[t] + (np.sign(seen) if gain is None else gain * seen)
    return x, s


def measured_cycle(x: np.ndarray, s: np.ndarray, interval_s: float = INTERVAL_S) -> Cycle:
    """Period and amplitudes of the second half of a course: upward crossings of the mean, half of the range."""
    x, s = x[len(x) // 2 :], s[len(s) // 2 :]
    side = x > x.mean()
    ups = np.flatnonzero(side[1:] & ~side[:-1])
    period = np.diff(ups).mean() * interval_s if len(ups) > 1 else np.inf
    return Cycle(float(period), float(np.ptp(x) / 2), float(np.ptp(s) / 2))
