r"""The threshold that finds itself: B_short follows the failures of the short pool (arXiv:2604.09613, future work).

After each window, $\ln B \leftarrow \ln B + s\,(\epsilon - e)$, e the share of the window's short-pool requests that
failed (preempted, out of memory, refused as too long), within $[B_{min}, C_{max}]$.

What holds. (1) For any failures whatever, as long as B is inside its range, the mean of e over T windows is within
$\ln(B_{max}/B_{min})/(sT)$ of epsilon (the steps telescope). (2) If failures rise with B, by p' per unit of ln B,
and reports are d windows late, the fixed point is stable iff $s p' < 2\sin\frac{\pi}{2(2d+1)}$: `largest_gain`.
(3) If the signal falls with B, as refusals by the *long* pool do, the fixed point repels and B runs to an end of its
range: count the short pool's failures only.
"""

from __future__ import annotations

from math import inf, isfinite, pi
from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.errors import InputError
from dmodels.core.records import Real


class Settings(NamedTuple):
    """Parameters, by `settings`."""

    target_frac: Real  # epsilon
    step: Real  # s
    low_tokens: Real
    high_tokens: Real


class State(NamedTuple):
    """The threshold in use, and what has been seen."""

    threshold_tokens: Real
    windows: Real


def settings(low_tokens: float, high_tokens: float, target_frac: float = 0.01, step: float = 0.5) -> Settings:
    """1 % failures: the rate at which the paper would raise an alert."""
    good = 0 < low_tokens < high_tokens < inf and 0 < target_frac < 1 and 0 < step and isfinite(step)
    if not good:
        raise InputError(
            f"low_tokens {low_tokens}, high_tokens {high_tokens}, target_frac {target_frac}, step {step}; "
            "accepted: 0 < low < high, target between 0 and 1, step above 0"
        )
    return Settings(target_frac, step, low_tokens, high_tokens)


def init(threshold_tokens: Real) -> State:
    """Start at a threshold, say 8192."""
    start = jnp.asarray(threshold_tokens, float)
    return State(start, jnp.zeros_like(start))


def update(state: State, failed_count: Real, served_count: Real, params: Settings) -> State:
    """One window; a window in which the short pool answered nothing changes nothing."""
    seen = served_count > 0
    error = jnp.clip(failed_count / jnp.where(seen, served_count, 1.0), 0.0, 1.0)
    moved = state.threshold_tokens * jnp.exp(params.step * (params.target_frac - error))
    moved = jnp.clip(moved, params.low_tokens, params.high_tokens)
    valid = seen & jnp.isfinite(moved)
    return State(jnp.where(valid, moved, state.threshold_tokens), state.windows + jnp.where(valid, 1.0, 0.0))


def largest_gain(delay_windows: Real = 0.0) -> Real:
    r"""The bound on s p' for stability when reports are d windows late: $2\sin\frac{\pi}{2(2d+1)}$.

    $x_{t+1} = x_t - g x_{t-d}$: the characteristic roots $z^{d+1} - z^d + g$ meet the unit circle first at this g. 2
    without delay, 1 after one window, 0.618 after two.

    >>> [round(float(largest_gain(d)), 3) for d in (0.0, 1.0, 2.0)]
    [2.0, 1.0, 0.618]
    """
    return 2.0 * jnp.sin(pi / (2.0 * (2.0 * jnp.asarray(delay_windows, float) + 1.0)))


def rate_slack(windows: Real, params: Settings) -> Real:
    """How far the mean failure share can be from the target after so many windows inside the range."""
    return jnp.log(params.high_tokens / params.low_tokens) / (params.step * windows)
