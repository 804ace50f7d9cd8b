"""Token-budget dispatch for one request at a time, in plain Python: what a live gateway calls.

The arithmetic is that of `policy`, operation by operation, so decisions are the same; a dispatch is a division,
a few comparisons and two look-ups. Not for several threads at once: a gateway's event loop is one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil, inf, sqrt
from typing import NamedTuple

from dmodels.core.errors import InputError

from .policy import HIGH, LOW, ContextPools, RatioSettings, settings
from .threshold import ThresholdSettings, adapt_one


class Sent(NamedTuple):
    """Where a request goes, the total it was given, and whether the pool's context holds that total."""

    pool: int
    total_tokens: float
    fits: bool


class Category:
    """What is known of one category; `cap` is its conservative ratio, which every response sets anew."""

    __slots__ = ("cap", "count", "quantile", "ratio", "spread", "square", "variance")
    cap: float

    def __init__(self, ratio: float, quantile: float):
        self.ratio, self.spread, self.variance, self.square = ratio, 0.0, 0.0, 1.0
        self.quantile, self.count = quantile, 0


class TokenBudgetRouter:
    """Categories appear when they are first met; `queued` holds the waiting requests of each pool.

    With `adaptive` (settings of each pool but the last, from the shortest), thresholds find themselves: the gateway
    reports each answer's outcome by `on_outcome`, and failures lower the pool's threshold (`threshold`).

    >>> from dmodels.control.token_budget import pools
    >>> router = TokenBudgetRouter(pools([8192], [8192, 65536], spill_count=64))
    >>> router.route("prose", 8000, 100).pool, router.route("prose", 40000, 100).pool
    (0, 1)
    >>> router.on_response("prose", 8000, 4000); round(router.categories["prose"].ratio, 3)
    3.9
    """

    def __init__(
        self,
        where: ContextPools,
        params: RatioSettings | None = None,
        adaptive: Sequence[ThresholdSettings] = (),
    ):
        params = settings() if params is None else params
        self.params = RatioSettings(*(float(x) for x in params))
        columns = ([float(x) for x in column] for column in where)
        self.thresholds, self.contexts, self.spill = columns
        self.queued = [0] * len(self.contexts)
        self.categories: dict[Hashable, Category] = {}
        self.adaptive = tuple(ThresholdSettings(*(float(x) for x in one)) for one in adaptive)
        if self.adaptive:
            self._check_adaptive()

    def route(
        self, category: Hashable, prompt_bytes: float, max_output_tokens: float, queued: Sequence[float] | None = None
    ) -> Sent:
        """Algorithm 1, Route: nothing is changed; `queued` stands for the router's own counts."""
        known = self.categories.get(category)
        ratio = known.cap if known is not None else self._cold()
        quotient = prompt_bytes / ratio - 1e-9
        total = (ceil(quotient) if -inf < quotient < inf else quotient) + max_output_tokens
        contexts = self.contexts
        home = len(contexts) - 1
        for p, limit in enumerate(self.thresholds):
            if total <= limit and total <= contexts[p]:
                home = p
                break
        waiting = self.queued if queued is None else queued
        if waiting[home] > self.spill[home]:
            home = self._spill(home, total, waiting)
        return Sent(home, total, total <= contexts[home])

    def on_response(self, category: Hashable, prompt_bytes: float, prompt_tokens: float) -> None:
        """Algorithm 1, OnResponse: `prompt_tokens` is usage.prompt_tokens; a count that is no count is ignored."""
        if not (0 < prompt_tokens < inf and 0 < prompt_bytes < inf):
            return
        p = self.params
        c = self.categories.get(category)
        if c is None:
            c = self.categories[category] = Category(p.cold_ratio, p.cold_quantile)
        seen = min(max(prompt_bytes / prompt_tokens, LOW), HIGH)
        gain = 1.0 - p.beta
        error = seen - c.ratio
        c.ratio += gain * error
        c.spread += gain * (abs(seen - c.ratio) - c.spread)
        c.variance = p.beta * (c.variance + gain * error * error)
        c.square = p.beta**2 * c.square + gain**2
        c.quantile *= p.fall if seen < c.quantile else p.rise
        c.count += 1
        room = 1.0 - c.square
        padded = c.ratio - p.gamma * c.spread - p.sigmas * (sqrt(c.variance / room) if room > 0 else 0.0)
        c.cap = min(max(min(padded, c.quantile), LOW), HIGH)

    def on_outcome(self, pool: int, failed: bool) -> None:
        """An answer of a pool, `failed` if it was preempted, rejected or out of memory: moves an adaptive threshold."""
        if 0 <= pool < len(self.adaptive):
            self.thresholds[pool] = adapt_one(self.thresholds[pool], bool(failed), self.adaptive[pool])

    def _check_adaptive(self) -> None:
        """Every threshold but the last starts within its limits, which its pool's context holds."""
        limits = [(one.low_tokens, one.high_tokens) for one in self.adaptive]
        known = zip(limits, self.thresholds, self.contexts, strict=False)
        if len(limits) != len(self.contexts) - 1 or not all(low <= b <= high <= c for (low, high), b, c in known):
            raise InputError(
                f"adaptive: limits {limits} of thresholds {self.thresholds}; accepted: settings of every pool but the "
                "last, limits around its threshold and within its context"
            )

    def _cold(self) -> float:
        least: float = min(self.params.cold_ratio, self.params.cold_quantile)
        return min(max(least, LOW), HIGH)

    def _spill(self, home: int, total: float, waiting: Sequence[float]) -> int:
        """The least loaded pool that is not overloaded and holds the total, or home."""
        best, least = home, inf
        for p, context in enumerate(self.contexts):
            limit = self.spill[p]
            share = waiting[p] / max(limit, 1.0)
            if total <= context and waiting[p] <= limit and share < least:
                best, least = p, share
        return best
