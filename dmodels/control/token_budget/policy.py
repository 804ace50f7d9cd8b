r"""Token-budget dispatch: learn bytes per token from what engines report, and send a request to a pool that holds it.

Eq. (3)-(5) and Algorithm 1 of arXiv:2604.09613, for any number of pools. One traffic category k has a bytes-per-token
ratio $\hat c_k$, an exponential moving average of |r| / usage.prompt_tokens. A request's total is
$L = \lceil |r| / c^* \rceil$ + max_output_tokens with a ratio $c^*$ that errs low, because a request that turns out
longer than its pool's context fails, while one that was sent to a longer pool only wastes room.

Three paddings make $c^*$, and can be joined; the least counts:

    gamma     times the EMA of |error|, the paper's $\hat\sigma$ (not a standard deviation: `bounds`)
    sigmas    times the exponentially weighted standard deviation
    miss      the tracked quantile that a share `miss_frac` of prompts falls below, whatever the stream (`settings`)

`init`, `update` and `route` are pure: scanned in a simulation, mapped over gains. `router` is the same in
plain Python for a live router.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import exp, inf, isfinite
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real

#: Bytes per token that any tokenizer of text can show, templates and byte fallback included; observations are clipped.
LOW, HIGH = 1.0 / 64.0, 64.0


class RatioSettings(NamedTuple):
    """Gains, by `settings`. Leaves may carry leading axes under vmap."""

    beta: Real  # decay of all averages
    gamma: Real  # of the EMA of |error|
    sigmas: Real  # of the standard deviation
    rise: Real  # factor on the quantile after a prompt above it
    fall: Real  # after a prompt below it
    cold_ratio: Real  # before any feedback
    cold_quantile: Real


class Ratios(NamedTuple):
    """What is known of each category, (k,) each."""

    ratio: Real  # EMA of bytes per token
    spread: Real  # EMA of |error|, Algorithm 1 line 24
    variance: Real  # exponentially weighted, before its correction
    square: Real  # sum of squared weights, for that correction
    quantile: Real
    count: Real  # responses seen


class ContextPools(NamedTuple):
    """Pools from the shortest context to the longest, (p,) each."""

    thresholds_tokens: Real  # B: totals up to it are sent here
    contexts_tokens: Real  # C_max: totals up to it can be served here
    spill_count: Real  # waiting requests above which the pool is overloaded


class PoolDecision(NamedTuple):
    """Where a request goes, the total it was given, and whether the pool's context holds that total."""

    pool: Real
    total_tokens: Real
    fits: Real


def settings(
    beta: float = 0.95,
    gamma: float = 1.0,
    sigmas: float = 0.0,
    miss_frac: float | None = None,
    step: float = 0.05,
    cold_ratio: float = 4.0,
) -> RatioSettings:
    r"""The paper's gains by default; `miss_frac` turns the quantile on.

    The quantile moves by $q \leftarrow q\,e^{s(\delta - 1[c < q])}$ with s = `step` and $\delta$ = `miss_frac`. Summed
    over T responses, $\#\{c < q\} - \delta T = \ln(q_1 / q_{T+1}) / s$, so the share of under-estimated prompts is
    within $(\ln(c_{max}/c_{min}) + 2s)/(sT)$ of $\delta$ for *every* stream of ratios in $[c_{min}, c_{max}]$, drifting
    or adversarial. A cold ratio of 1 is never wrong for byte-level tokenizers: a token holds a byte at least.
    """
    if not (0 <= beta < 1 and 0 <= gamma < inf and 0 <= sigmas < inf and LOW <= cold_ratio <= HIGH):
        raise InputError(
            f"beta {beta}, gamma {gamma}, sigmas {sigmas}, cold_ratio {cold_ratio}; accepted: 0 <= beta "
            f"< 1, gamma and sigmas from 0, cold_ratio from {LOW:g} to {HIGH:g}"
        )
    if miss_frac is None:
        return RatioSettings(beta, gamma, sigmas, 1.0, 1.0, cold_ratio, HIGH)
    if not (0 < miss_frac < 1 and step > 0 and isfinite(step)):
        raise InputError(f"miss_frac {miss_frac}, step {step}; accepted: 0 < miss_frac < 1, step above 0")
    rise, fall = exp(step * miss_frac), exp(step * (miss_frac - 1.0))
    return RatioSettings(beta, gamma, sigmas, rise, fall, cold_ratio, cold_ratio)


def pools(
    thresholds_tokens: Iterable[float], contexts_tokens: Iterable[float], spill_count: float | Iterable[float] = inf
) -> ContextPools:
    """Checked on the host: contexts increase, every threshold lies within its pool's context.

    The last pool's threshold is its context: what no threshold takes goes there, as in the paper.
    """
    limits, contexts = ([float(x) for x in xs] for xs in (thresholds_tokens, contexts_tokens))
    limits += contexts[len(limits) :] if len(limits) == len(contexts) - 1 else []
    every = spill_count if isinstance(spill_count, Iterable) else [spill_count] * len(contexts)
    spill = [float(x) for x in every]
    pairs = list(zip(limits, contexts, strict=False))
    if not (
        len(limits) == len(contexts) == len(spill) > 0
        and contexts == sorted(set(contexts))
        and limits == sorted(limits)
        and all(0 < b <= c for b, c in pairs)
        and min(spill) >= 0
    ):
        raise InputError(
            f"thresholds_tokens {limits}, contexts_tokens {contexts}, spill_count {spill}; accepted: "
            "increasing contexts, and a threshold within each (the last may be left out)"
        )
    return ContextPools(*(np.array(column, np.float64) for column in (limits, contexts, spill)))


def init(categories: int, params: RatioSettings | None = None) -> Ratios:
    """No feedback yet: the cold ratio for every category."""
    params = settings() if params is None else params
    full: Callable[[Real], Real] = lambda value: jnp.full((categories,), value, float)
    return Ratios(full(params.cold_ratio), full(0.0), full(0.0), full(1.0), full(params.cold_quantile), full(0.0))


def update(state: Ratios, category: Real, prompt_bytes: Real, prompt_tokens: Real, params: RatioSettings) -> Ratios:
    """OnResponse of Algorithm 1 for one response: Eq. (4), the spread, and the two other dispersions.

    `prompt_tokens` is usage.prompt_tokens. A response without a positive, finite count changes nothing.
    """
    ratio_seen = prompt_bytes / jnp.where(prompt_tokens > 0, prompt_tokens, 1.0)
    valid = (prompt_tokens > 0) & (prompt_tokens < inf) & (prompt_bytes > 0) & (prompt_bytes < inf)
    seen = jnp.where(valid, jnp.clip(ratio_seen, LOW, HIGH), 1.0)
    old = Ratios(*(leaf[category] for leaf in state))
    gain = 1.0 - params.beta
    error = seen - old.ratio
    ratio = old.ratio + gain * error  # written so that a constant stream leaves it exactly where it is
    new = Ratios(
        ratio,
        old.spread + gain * (jnp.abs(seen - ratio) - old.spread),  # line 24 comes after line 23
        params.beta * (old.variance + gain * error * error),
        params.beta**2 * old.square + gain**2,
        old.quantile * jnp.where(seen < old.quantile, params.fall, params.rise),
        old.count + 1.0,
    )
    return Ratios(*(leaf.at[category].set(jnp.where(valid, n, o)) for leaf, n, o in zip(state, new, old, strict=True)))


def deviation(state: Ratios) -> Real:
    r"""Standard deviation of bytes per token, corrected for the weights: $\sqrt{v / (1 - \sum w^2)}$.

    The cold ratio counts as one observation, so a wrong cold start widens it until it is forgotten.
    """
    room = 1.0 - state.square
    return jnp.sqrt(jnp.where(room > 0, state.variance, 0.0) / jnp.where(room > 0, room, 1.0))


def conservative_ratio(state: Ratios, params: RatioSettings) -> Real:
    """c* of every category, Eq. (5) with all paddings; never below the least ratio there is, so totals stay finite."""
    padded = state.ratio - params.gamma * state.spread - params.sigmas * deviation(state)
    return jnp.clip(jnp.minimum(padded, state.quantile), LOW, HIGH)


def total_tokens(prompt_bytes: Real, max_output_tokens: Real, ratio: Real) -> Real:
    """Eq. (3): ceil(bytes / ratio) + output cap. 32,000 B at 4 B/token and 100 tokens of output: 8,100.

    A billionth of a token is forgiven, so that rounding of the ratio does not cost one.

    >>> float(total_tokens(32000.0, 100.0, 4.0))
    8100.0
    """
    return jnp.ceil(prompt_bytes / ratio - 1e-9) + max_output_tokens


def route(
    state: Ratios,
    category: Real,
    prompt_bytes: Real,
    max_output_tokens: Real,
    queued_count: Real,
    where: ContextPools,
    params: RatioSettings,
) -> PoolDecision:
    """Algorithm 1 for one request; `queued_count` (p,) are the pools' waiting requests.

    Home is the first pool whose threshold and context hold the total, else the last. An overloaded home hands the
    request to the pool with the least waiting, relative to its own limit, among those that are not overloaded and whose
    context holds the *same* conservative total, so that no spill, in either direction, sends what does not fit.
    """
    ratio = conservative_ratio(state, params)[category]
    return dispatch(total_tokens(prompt_bytes, max_output_tokens, ratio), queued_count, where)


def dispatch(total: Real, queued_count: Real, where: ContextPools) -> PoolDecision:
    """Lines 6 to 18 of Algorithm 1, once the total is known."""
    last = where.contexts_tokens.shape[-1] - 1
    holds = jnp.asarray(total <= where.contexts_tokens)
    takes = holds & (total <= where.thresholds_tokens)
    home = jnp.where(jnp.any(takes), jnp.argmax(takes), last)
    full = jnp.asarray(queued_count > where.spill_count)
    depth = queued_count / jnp.maximum(where.spill_count, 1.0)
    depth = jnp.where(holds & ~full, depth, inf)
    other = jnp.argmin(depth)
    pool = jnp.where(full[home] & (depth[other] < inf), other, home).astype(jnp.int32)
    return PoolDecision(pool, total, holds[pool])
