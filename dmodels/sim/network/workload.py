"""Requests for the flow simulator: windows of a trace compressed to a rate, or draws from a distribution of lengths.

NetKV's three profiles, with the numbers that its text leaves open chosen so that its printed transfer times come out
(within 8 % over Table II): bounds on the prompt, prefill time, and who holds which prefix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.models.traffic import Trace

from .simulation import Arrivals


class Profile(NamedTuple):
    """One of the paper's workloads. `capacity_rps` is what it calls 100 % (6.09 for RAG follows from its goodputs)."""

    low_tokens: float
    high_tokens: float
    ttft_slo_s: float
    capacity_rps: float
    share_frac: float = 0.24  # of requests whose prefix one decode instance holds: 2 % of all pairs with 12 instances
    hit_low_frac: float = 0.2
    hit_high_frac: float = 0.8
    prefill_base_s: float = 0.05
    prefill_s_per_token: float = 68e-6


#: Capacities of chatbot and long context: as many prompt tokens per second as RAG, for want of a printed number.
CHATBOT = Profile(1.0, 8192.0, 2.0, 23.3)
RAG = Profile(1024.0, 131072.0, 5.0, 6.09)
LONG_CONTEXT = Profile(16385.0, np.inf, 10.0, 2.18)

#: Timestamps of the Mooncake traces are rounded to this many seconds.
TRACE_TICK_S = 3.0


def window(
    trace: Trace,
    profile: Profile,
    rate_rps: float,
    duration_s: float,
    pool: int,
    *,
    position_frac: float = 0.0,
    seed: int = 0,
    input_tokens: float | None = None,
    own_blocks: bool = False,
    tick_s: float = TRACE_TICK_S,
) -> Arrivals:
    """`duration_s` seconds of a trace at `rate_rps`: the profile's requests from `position_frac` on, time compressed.

    Burstiness stays; requests that share a rounded timestamp are spread over its `tick_s`. `input_tokens` overrides
    every prompt (Experiment 2). Prefix hits are drawn as the profile says, or with `own_blocks` come from the trace's
    block hashes and the caches of the simulator.
    """
    fits = np.flatnonzero((trace.input_tokens >= profile.low_tokens) & (trace.input_tokens <= profile.high_tokens))
    count = int(rate_rps * duration_s)
    if not 0 < count <= len(fits):
        raise InputError(f"rate_rps, duration_s: {count} requests; accepted: 1 to {len(fits)}, what the trace has")
    first = int(position_frac * (len(fits) - count))
    mine = fits[first : first + count]
    rng = np.random.default_rng(seed)
    since_s = trace.time_s[mine] - trace.time_s[mine[0]]
    long_s = since_s[-1] + tick_s
    if not (long_s > 0 and tick_s >= 0):
        raise InputError(f"tick_s {tick_s:g}: accepted is 0 or more, and above 0 for requests that come at one time")
    at = np.sort(since_s + rng.uniform(0.0, tick_s, count)) * (count - 1) / rate_rps / long_s
    tokens = trace.input_tokens[mine].astype(float) if input_tokens is None else np.full(count, float(input_tokens))
    output = np.maximum(trace.output_tokens[mine].astype(float), 1.0)
    if not own_blocks:
        return _arrivals(at, tokens, output, profile, pool, rng)
    if trace.block_ids is None:
        raise InputError("own_blocks: the trace has no block hashes; accepted: a trace in the Mooncake layout")
    pieces = [trace.block_ids[trace.block_starts[i] : trace.block_starts[i + 1]] for i in mine]
    starts = np.concatenate([[0], np.cumsum([len(p) for p in pieces])])
    prefill = profile.prefill_base_s + profile.prefill_s_per_token * tokens
    return Arrivals(at, prefill, tokens, output, block_ids=np.concatenate(pieces), block_starts=starts)


def poisson(
    input_tokens: np.ndarray,
    output_tokens: np.ndarray,
    weight_frac: np.ndarray,
    profile: Profile,
    rate_rps: float,
    duration_s: float,
    pool: int,
    *,
    seed: int = 0,
) -> Arrivals:
    """Poisson arrivals with lengths drawn from a discrete joint distribution, restricted to the profile's prompts."""
    inputs, outputs, weight = (np.asarray(x, np.float64) for x in (input_tokens, output_tokens, weight_frac))
    weight = weight * ((inputs >= profile.low_tokens) & (inputs <= profile.high_tokens))
    if not weight.sum() > 0:
        raise InputError(
            f"min_tokens, max_tokens: {profile.low_tokens:g} to {profile.high_tokens:g}; accepted: bounds that some "
            f"prompt of the workload ({inputs.min():g} to {inputs.max():g}) meets"
        )
    rng = np.random.default_rng(seed)
    count = max(int(rng.poisson(rate_rps * duration_s)), 1)
    pick = rng.choice(len(inputs), count, p=weight / weight.sum())
    at = np.sort(rng.uniform(0.0, duration_s, count))
    return _arrivals(at, np.maximum(inputs[pick], 1.0), np.maximum(outputs[pick], 1.0), profile, pool, rng)


def _arrivals(at, tokens, output, profile: Profile, pool: int, rng) -> Arrivals:
    """Each request finds its prefix, with the profile's probability, on one instance drawn at random."""
    count = len(at)
    hit = np.zeros((count, pool))
    shares = rng.random(count) < profile.share_frac
    frac = rng.uniform(profile.hit_low_frac, profile.hit_high_frac, count)
    hit[np.arange(count), rng.integers(0, pool, count)] = np.where(shares, frac, 0.0)
    return Arrivals(at, profile.prefill_base_s + profile.prefill_s_per_token * tokens, tokens, output, hit)
