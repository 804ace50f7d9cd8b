r"""Which regime is the system in? EWMA of TTFT P99 with thresholds and hysteresis, and the signal that it replaced.

Eq. (10) and (11) of "The Price of Anarchy in Disaggregated Inference": $\bar L \leftarrow \alpha L + (1-\alpha)\bar L$
every 5 s; Below under theta1, Transition from theta1, Saturated from theta2; a boundary is crossed upward after k
samples in a row above it and downward after k in a row below it by a margin. `init` and `update` are pure, so that the
detector can be scanned in a simulation, mapped over gains, and called from a live router.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.errors import InputError
from dmodels.core.records import Real


class Regime(IntEnum):
    """Eq. (11)."""

    BELOW = 0
    TRANSITION = 1
    SATURATED = 2


class Detector(NamedTuple):
    """Parameters. thresholds_s and margins_s have a last axis of two: Below|Transition, Transition|Saturated."""

    thresholds_s: Real
    margins_s: Real
    alpha: Real
    samples: Real  # k


class DetectorState(NamedTuple):
    """What the detector remembers. The counters have a last axis of two, one for each boundary."""

    ewma_s: Real
    regime: Real  # int32
    above: Real  # samples in a row above each threshold
    below: Real  # samples in a row below each threshold by its margin
    seen: Real  # samples so far


def detector(
    baseline_s: Real,
    theta1: float = 5.0,
    theta2: float = 36.0,
    margin_frac: float = 0.2,
    alpha: float = 0.3,
    samples: int = 3,
) -> Detector:
    """Thresholds as multiples of the baseline TTFT P99 of the idle system.

    The paper advises 3 to 5 for theta1, but its own settings are 300 ms / 55 ms = 5.5 and 1 s / 0.175 s = 5.7; its
    theta2 are 36 and 57. The defaults give 0.28 s and 2 s for its 70B model.
    """
    if not (0 < theta1 < theta2 and 0 < alpha <= 1 and 0 <= margin_frac < 1 and samples >= 1):
        raise InputError(
            f"theta1 {theta1}, theta2 {theta2}, alpha {alpha}, margin {margin_frac}, samples {samples}; "
            "accepted: 0 < theta1 < theta2, 0 < alpha <= 1, 0 <= margin < 1, samples >= 1"
        )
    thresholds = jnp.asarray(baseline_s, float)[..., None] * jnp.array([theta1, theta2], float)
    return Detector(thresholds, margin_frac * thresholds, jnp.asarray(alpha, float), jnp.asarray(samples, float))


def init(shape: tuple[int, ...] = ()) -> DetectorState:
    """Below, with nothing seen."""
    zero, none = jnp.zeros(shape, float), jnp.zeros((*shape, 2), float)
    return DetectorState(zero, jnp.zeros(shape, jnp.int32), none, none, zero)


def update(state: DetectorState, ttft_p99_s: Real, params: Detector) -> tuple[DetectorState, Real]:
    """One sample in, (state, regime) out. The first sample starts the EWMA; NaN (nothing completed) changes nothing."""
    sample = jnp.asarray(ttft_p99_s, float)
    valid = jnp.isfinite(sample)
    sample = jnp.where(valid, sample, 0.0)
    ewma = jnp.where(state.seen > 0, params.alpha * sample + (1.0 - params.alpha) * state.ewma_s, sample)
    level = ewma[..., None]
    thresholds, margins = (jnp.broadcast_to(p, state.above.shape) for p in (params.thresholds_s, params.margins_s))
    above = jnp.where(level > thresholds, state.above + 1.0, 0.0)
    below = jnp.where(level < thresholds - margins, state.below + 1.0, 0.0)
    rises, falls = above >= params.samples, below >= params.samples
    up = jnp.where(rises[..., 1], 2, jnp.where(rises[..., 0], 1, 0)).astype(jnp.int32)
    risen = jnp.maximum(state.regime, up)
    regime = jnp.where(falls[..., 0], 0, jnp.where(falls[..., 1], jnp.minimum(risen, 1), risen))
    new = DetectorState(ewma, regime, above, below, state.seen + 1.0)
    keep: Callable[[Real, Real], Real] = lambda fresh, old: jnp.where(
        valid[..., None] if fresh.ndim > valid.ndim else valid, fresh, old
    )
    new = DetectorState(*(keep(fresh, old) for fresh, old in zip(new, state, strict=True)))
    return new, new.regime


def detection_samples(before_s: Real, after_s: Real, threshold_s: Real, alpha: Real = 0.3, samples: Real = 1.0) -> Real:
    r"""Samples until a step from L0 to L1 is seen: $\lceil\ln\frac{L_1-L_0}{L_1-\theta}/{-\ln(1-\alpha)}\rceil + k -
    1$.

    inf where L1 does not exceed the threshold. The 340B run, 0.29 s to 28.3 s with theta1 = 1 s: 1 sample, 3 with k =
    3, so 15 s; the 55 s that were measured are not the filter's lag.

    >>> float(detection_samples(0.0, 1.0, 0.5, 0.3))  # 0.3, 0.51
    2.0
    """
    reach = after_s > threshold_s
    gap = jnp.where(reach, after_s - threshold_s, 1.0)
    ratio = jnp.maximum((after_s - before_s) / gap, 1.0)
    # strictly above the threshold is asked for: a sample that lands on it does not count
    steps = jnp.maximum(jnp.floor(jnp.log(ratio) / -jnp.log1p(-alpha) + 1e-12) + 1.0, 1.0)
    return jnp.where(reach, steps + samples - 1.0, jnp.inf)


def least_dwell_samples(margin_s: Real, range_s: Real, alpha: Real = 0.3, samples: Real = 1.0) -> Real:
    r"""Two opposite switches at one boundary are at least $\max(k, \lceil\epsilon/(\alpha R)\rceil)$ samples apart.

    R is the range of the signal: one sample moves the EWMA by at most alpha R.
    """
    return jnp.maximum(samples, jnp.ceil(margin_s / (alpha * range_s) - 1e-12))


def curvature(load: Real, latency_s: Real) -> Real:
    """Second derivative of latency by load from three neighbouring points of a sweep (last axis: 3), uneven spacing."""
    x0, x1, x2 = (load[..., i] for i in range(3))
    y0, y1, y2 = (latency_s[..., i] for i in range(3))
    return 2.0 * ((y2 - y1) / (x2 - x1) - (y1 - y0) / (x1 - x0)) / (x2 - x0)


def curvature_noise(load: Real, noise_s: Real) -> Real:
    r"""Standard deviation of `curvature` under independent noise of each latency: $\sqrt6\,\sigma/h^2$ at spacing h."""
    a, b = load[..., 1] - load[..., 0], load[..., 2] - load[..., 1]
    w0, w2 = 2.0 / (a * (a + b)), 2.0 / (b * (a + b))
    return noise_s * jnp.sqrt(w0**2 + (w0 + w2) ** 2 + w2**2)


def curvature_samples(theta: Real, step: Real, noise_s: Real, z: Real = 3.0) -> Real:
    r"""Readings to average at each of three loads until curvature theta stands z sigma out of the noise.

    $n = 6\,(z\sigma/(\theta h^2))^2$. The paper gave this signal up at 5 s polling as "dominated by sampling noise": a
    P99 of TTFT with sigma = 50 ms and steps of h = 1 request sees theta = 10 ms per request^2 after 1,350 readings, 2
    hours.

    >>> round(float(curvature_samples(0.01, 1.0, 0.05)))
    1350
    """
    return 6.0 * (z * noise_s / (theta * step**2)) ** 2


def alarm_slack(theta: Real, d_sum: Real, beta: Real) -> Real:
    r"""Free capacity at which the curvature of m workers with poles reaches theta:
    $(\beta(\beta+1)D^\beta/\theta)^{1/(\beta+2)}$.

    $D = \sum_j d_j^{1/\beta}$, all workers used, a = b = 0. The signal rises for identical workers too, whose price of
    anarchy stays 1: it detects latency, not anarchy.
    """
    return (beta * (beta + 1.0) * d_sum**beta / theta) ** (1.0 / (beta + 2.0))
