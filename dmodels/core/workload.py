"""What arrives: how many requests a second, how long, and how bursty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .errors import InputError, TraceError
from .lengths import TotalsCdf, support
from .records import HOST, Real, Record, quantity


class Workload(Record):
    """A joint distribution of (input, output) tokens as support points with weights, and an arrival rate.

    The last axis of the three leading leaves is the support; axes before it are batch axes. `input_tokens` is the
    whole prompt; `cached_tokens` of it are found in a prefix cache and need no prefill (but KV memory).

    >>> chat = Workload.fixed(input_tokens=1000, output_tokens=200, rate_rps=5.0)
    >>> float(chat.mean_input_tokens), float(chat.mean_total_tokens)
    (1000.0, 1200.0)
    """

    input_tokens: Real = quantity()  # (..., k)
    output_tokens: Real = quantity()  # (..., k)
    weight_frac: Real = quantity()  # (..., k), sums to 1 over k
    cached_tokens: Real = quantity(0.0)  # (..., k) part of the input that needs no prefill; one number stands for all
    rate_rps: Real = quantity(1.0)  # (...)
    arrival_cv: Real = quantity(1.0)  # (...) coefficient of variation of the gaps between arrivals; Poisson: 1

    def __post_init__(self) -> None:
        if np.ndim(self.cached_tokens) == 0:  # spread over the support, so that batches stack, index and map
            inputs = self.input_tokens
            inputs = inputs if hasattr(inputs, "dtype") else np.asarray(inputs, np.float64)
            self.cached_tokens = self.cached_tokens + 0.0 * inputs

    def __check_init__(self) -> None:
        leaves = (self.input_tokens, self.output_tokens, self.weight_frac, self.cached_tokens)
        if not all(isinstance(leaf, HOST) for leaf in leaves):
            return  # traced: checked by whoever built it
        if not self.input_tokens.shape == self.output_tokens.shape == self.weight_frac.shape or (
            self.input_tokens.ndim == 0 or self.input_tokens.shape[-1] == 0
        ):
            shapes = [leaf.shape for leaf in leaves[:3]]
            raise InputError(f"input_tokens, output_tokens, weight_frac: shapes {shapes}; accepted: one shape (..., k)")
        for name, low in (("input_tokens", 0.0), ("output_tokens", 0.0), ("weight_frac", 0.0), ("cached_tokens", 0.0)):
            _check(name, getattr(self, name), low)
        if not np.allclose(self.weight_frac.sum(-1), 1.0, rtol=0, atol=1e-9):
            raise InputError(f"weight_frac sums to {self.weight_frac.sum(-1)}; accepted: 1")
        if (self.cached_tokens > self.input_tokens).any():
            raise InputError("cached_tokens exceed input_tokens; accepted: at most the input")
        for name in ("rate_rps", "arrival_cv"):
            if isinstance(value := getattr(self, name), HOST):
                _check(name, value, 0.0)

    @property
    def total_tokens(self) -> Real:
        """Input plus output of each support point: what a sequence holds when it ends."""
        return self.input_tokens + self.output_tokens

    @property
    def prefill_tokens(self) -> Real:
        """Input tokens of each support point that must be computed."""
        return self.input_tokens - self.cached_tokens

    def mean(self, values: Real) -> Real:
        """Expectation of `values` given at the support points."""
        xp = np if isinstance(values, HOST) and isinstance(self.weight_frac, HOST) else jnp
        return xp.sum(self.weight_frac * values, axis=-1)

    @property
    def mean_input_tokens(self) -> Real:
        """E[input]."""
        return self.mean(self.input_tokens)

    @property
    def mean_output_tokens(self) -> Real:
        """E[output]."""
        return self.mean(self.output_tokens)

    @property
    def mean_total_tokens(self) -> Real:
        """E[input + output]."""
        return self.mean(self.total_tokens)

    @property
    def prefix_hit_frac(self) -> Real:
        """Share of all input tokens that need no prefill."""
        return self.mean(self.cached_tokens) / self.mean_input_tokens

    def at_rate(self, rate_rps: Real) -> Workload:
        """The same requests arriving `rate_rps` times a second (rescaled in time, so burstiness is kept)."""
        rate = np.asarray(rate_rps, np.float64) if isinstance(rate_rps, int | float) else rate_rps
        if isinstance(rate, HOST):
            _check("rate_rps", rate, 0.0)
        return self.replace(rate_rps=rate)

    @classmethod
    def fixed(
        cls, input_tokens: float, output_tokens: float, rate_rps: float = 1.0, cached_tokens: float = 0.0
    ) -> Workload:
        """Every request has the same lengths (ISL/OSL); `cached_tokens` of the input are in a prefix cache."""
        return cls([input_tokens], [output_tokens], [1.0], [cached_tokens], rate_rps=rate_rps)

    @classmethod
    def from_trace(cls, trace: Any, rate_rps: float | None = None, cached_tokens: Any = None) -> Workload:
        """The empirical distribution of a `Trace`, all rows, at the trace's own rate unless another is given.

        `cached_tokens` (one number per request, from `models.trace.prefix_hits`) overrides what the trace says.
        """
        if isinstance(trace, str) or not hasattr(trace, "input_tokens"):
            raise InputError(f"trace {trace!r}: accepted is a Trace, as read_trace(path) gives")
        gaps = np.diff(trace.time_s)
        span = float(gaps.sum())
        if rate_rps is None:
            if span <= 0:
                raise TraceError(f"{trace.name}: all requests arrive at one instant, so there is no rate; give one")
            rate_rps = len(gaps) / span
        cv = float(gaps.std() / gaps.mean()) if span > 0 else 1.0
        cached = trace.cached_tokens if cached_tokens is None else cached_tokens
        n = len(trace.input_tokens)
        return cls(trace.input_tokens, trace.output_tokens, np.full(n, 1.0 / n), cached, rate_rps, cv)

    @classmethod
    def from_cdf(
        cls,
        upper_tokens: TotalsCdf | Sequence[float],
        cumulative_frac: Sequence[float] | None = None,
        share_mean_frac: float = 0.5,
        share_std_frac: float = 0.0,
        rate_rps: float = 1.0,
        cells_count: int = 24,
        shares_count: int = 12,
    ) -> Workload:
        """From a CDF of total tokens by buckets and the share of the total that is output (see `core.lengths`)."""
        if isinstance(upper_tokens, TotalsCdf):
            cdf = upper_tokens
        else:
            if cumulative_frac is None:
                raise InputError("cumulative_frac is missing; accepted: one CDF value per bucket edge")
            cdf = TotalsCdf(list(upper_tokens), list(cumulative_frac), share_mean_frac, share_std_frac)
        inputs, outputs, weights = support(cdf, cells_count, shares_count)
        return cls(inputs, outputs, weights, rate_rps=rate_rps)


def _check(name: str, value: np.ndarray | np.generic, low: float) -> None:
    values = np.asarray(value)
    bad = ~(np.isfinite(values) & (values >= low))
    if bad.any():
        raise InputError(f"{name} = {values[bad].flat[0]:g}: accepted are finite numbers from {low:g}")
