r"""A threshold that finds itself: every failure of the short pool lowers it, every request that went well raises it.

The token-budget paper's section 7 asks for "A feedback loop that tightens $B_{short}$ when errors rise and relaxes it
when errors stay low". After a batch of n responses of the short pool, e of them failures (preempted, rejected, out of
memory),

$$B \leftarrow \min\big(B_{high},\, \max(B_{low},\, B\, e^{s(\delta n - e)})\big),$$

s = `step`, $\delta$ = `target_frac`. Summed over T responses this gives
$\sum e \le \delta T + \ln(B_1 / B_{T+1}) / s$ for *every* stream of failures during which $B_{low}$ does not bind, so
the share of failures is at most $\ln(B_1 / B_{low}) / (s T)$ above the target, whatever the traffic does. It protects
against failures, not against waiting.
"""

from __future__ import annotations

from math import exp
from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.errors import InputError
from dmodels.core.records import Real


class ThresholdSettings(NamedTuple):
    """Gains and limits, by `threshold_settings`."""

    target_frac: Real  # of the short pool's responses that may be failures
    step: Real  # a failure lowers the threshold by this share of itself
    low_tokens: Real
    high_tokens: Real  # the short pool's context


def threshold_settings(
    low_tokens: float, high_tokens: float, target_frac: float = 0.01, step: float = 0.05
) -> ThresholdSettings:
    """Checked on the host."""
    if not (0 < low_tokens <= high_tokens and 0 < target_frac < 1 and 0 < step < 1):
        raise InputError(
            f"low_tokens {low_tokens}, high_tokens {high_tokens}, target_frac {target_frac}, step {step}; accepted: "
            "0 < low <= high, target_frac and step between 0 and 1"
        )
    return ThresholdSettings(target_frac, step, low_tokens, high_tokens)


def adapt(threshold_tokens: Real, responses: Real, failures: Real, params: ThresholdSettings) -> Real:
    """The threshold after so many responses of the short pool and failures among them.

    >>> given = threshold_settings(1024.0, 8192.0, target_frac=0.01, step=0.05)
    >>> round(float(adapt(4096.0, 1.0, 1.0, given)))  # one failure: about 5 % less
    3898
    """
    moved = threshold_tokens * jnp.exp(params.step * (params.target_frac * responses - failures))
    return jnp.clip(moved, params.low_tokens, params.high_tokens)


def adapt_one(threshold_tokens: float, failed: bool, params: ThresholdSettings) -> float:
    """`adapt` for one response in plain Python: what a live router calls.

    >>> round(adapt_one(4096.0, True, threshold_settings(1024.0, 8192.0, target_frac=0.01, step=0.05)))
    3898
    """
    target, step, low, high = (float(x) for x in params)
    return min(max(threshold_tokens * exp(step * (target - failed)), low), high)


def failure_bound(responses: Real, start_tokens: Real, params: ThresholdSettings) -> Real:
    r"""$\delta + \ln(B_1/B_{low})/(s T)$: the largest share of failures after T responses if $B_{low}$ never binds."""
    return params.target_frac + jnp.log(start_tokens / params.low_tokens) / (params.step * responses)
