r"""What the calibration of `policy` is worth, in closed form: bias, variance, time to converge, misses.

Observations $c_1, c_2, \dots$ are independent with mean c and standard deviation sigma; $\hat c_0$ is the cold start.
"""

from __future__ import annotations

from math import pi

import jax
import jax.numpy as jnp

from dmodels.core.numerics import safe_divide
from dmodels.core.records import Real


def bias(count: Real, cold_ratio: Real, true_ratio: Real, beta: Real = 0.95) -> Real:
    r"""$E[\hat c_n] - c = \beta^n (\hat c_0 - c)$, exact. CJK (c = 2.01) after 50 responses from 4: 0.153, 7.6 %.

    >>> round(float(bias(50.0, 4.0, 2.01) / 2.01), 4)
    0.0762
    """
    return beta**count * (cold_ratio - true_ratio)


def variance(count: Real, sigma: Real, beta: Real = 0.95) -> Real:
    r"""$\mathrm{Var}[\hat c_n] = \frac{1-\beta}{1+\beta}(1 - \beta^{2n})\,\sigma^2$, exact; 0.0256 sigma^2 for good."""
    return (1.0 - beta) / (1.0 + beta) * (1.0 - beta ** (2.0 * count)) * sigma**2


def responses_to(error_frac: Real, cold_ratio: Real, true_ratio: Real, beta: Real = 0.95) -> Real:
    r"""Responses until the expected error is at most `error_frac`: $\lceil\ln(\epsilon c/|\hat c_0-c|)/\ln\beta\rceil$.

    The paper says about 50 for 3.5 %; CJK needs 66.

    >>> float(responses_to(0.035, 4.0, 2.01))
    66.0
    """
    gap = jnp.abs(cold_ratio - true_ratio)
    share = jnp.where(gap > 0, error_frac * true_ratio / jnp.where(gap > 0, gap, 1.0), 1.0)
    return jnp.ceil(jnp.maximum(jnp.log(share) / jnp.log(beta), 0.0) - 1e-9)


def spread_mean(sigma: Real, beta: Real = 0.95) -> Real:
    r"""What the paper's $\hat\sigma$ tends to for normal observations: $\beta\sqrt{2/\pi}\sqrt{2/(1+\beta)}\,\sigma$.

    0.768 sigma: an average of |error|, taken after the update (the factor beta), around a moving mean (the last root).
    For heavy tails it is an arbitrarily small share of sigma.

    >>> round(float(spread_mean(1.0)), 3)
    0.768
    """
    return beta * jnp.sqrt(2.0 / pi * 2.0 / (1.0 + beta)) * sigma


def miss_bound(needed_ratio: Real, true_ratio: Real, sigma: Real) -> Real:
    r"""P(c_r < needed) $\le 1/(1 + k^2)$, $k = (c - needed)/\sigma$ (Cantelli); 1 from the mean on. Tight.

    A request of b bytes and output cap o fails in a pool of context C if its ratio lies below b/(C - o). At the
    boundary of the paper's rule k = 0.768: up to 63 %, and 22 % for normal ratios (`miss_normal`).

    >>> round(float(miss_bound(1.0 - 0.768, 1.0, 1.0)), 2)
    0.63
    """
    gap = true_ratio - needed_ratio
    below = gap > 0
    return jnp.where(below, sigma**2 / (sigma**2 + jnp.where(below, gap, 1.0) ** 2), 1.0)


def miss_normal(needed_ratio: Real, true_ratio: Real, sigma: Real) -> Real:
    """The same for normal ratios, exact."""
    return jax.scipy.special.ndtr((needed_ratio - true_ratio) / sigma)


def sigmas_for(miss_frac: Real, beta: Real = 0.95) -> Real:
    r"""Standard deviations of padding that keep misses at `miss_frac`: $\sqrt{(1-\delta)/\delta}\sqrt{2/(1+\beta)}$.

    Cantelli on $c_r - \hat c$, whose variance is $\sigma^2(1 + (1-\beta)/(1+\beta))$: holds for every distribution in
    steady state, if sigma itself is known. 10.1 for 1 %, where a normal ratio would need 2.4.
    """
    return jnp.sqrt((1.0 - miss_frac) / miss_frac * 2.0 / (1.0 + beta))


def threshold_frac(miss_frac: Real, true_ratio: Real, sigma: Real, used_ratio: Real) -> Real:
    r"""B/C that bounds the misses of boundary requests by `miss_frac`: $(c - k\sigma)/c^*$,
    $k = \sqrt{(1-\delta)/\delta}$.

    A margin B < C buys exactly $c_r \ge c^* B/C$: a prompt that uses the whole of B at ratio c* fits C if its ratio
    is at least that.
    """
    k = jnp.sqrt((1.0 - miss_frac) / miss_frac)
    return jnp.clip((true_ratio - k * sigma) / used_ratio, 0.0, 1.0)


def quantile_slack(count: Real, least_ratio: Real, most_ratio: Real, step: Real = 0.05) -> Real:
    r"""How far the share of misses can be from `miss_frac` after n responses: $(\ln(c_{max}/c_{min}) + 2s)/(s n)$.

    For every stream whose ratios, cold start included, lie in [least, most]; `token_budget.settings` has the argument.
    Ratios of 1 to 6: 0.0038 after 10,000 responses.
    """
    return (jnp.log(most_ratio / least_ratio) + 2.0 * step) / (step * count)


def jensen_frac(log_sigma: Real) -> Real:
    r"""How far an exact mean of bytes per token under-estimates tokens, for lognormal ratios: $1 - e^{-s^2}$.

    $E[b/c_r] = b\,E[1/c_r]$, and $E[c]E[1/c] = e^{s^2}$; an average of tokens per byte has no such bias.
    """
    return -jnp.expm1(-(log_sigma**2))


def least_sigma(
    shown: Real, count: Real, cold_ratio: Real, true_ratio: Real, beta: Real = 0.95, z: Real = 1.96
) -> Real:
    r"""The least sigma for which a value `shown` after n responses is within z deviations of what is expected.

    $|shown - c - \beta^n(\hat c_0 - c)| / (z \sqrt{\mathrm{Var}/\sigma^2})$; with it a printed table can be judged.
    """
    off = jnp.abs(shown - true_ratio - bias(count, cold_ratio, true_ratio, beta))
    return safe_divide(off, z * jnp.sqrt(variance(count, 1.0, beta)))
