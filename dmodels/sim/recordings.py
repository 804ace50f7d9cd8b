"""Requests with their times, at a rate that was asked for: what a deployment is replayed on.

A trace keeps its own times, all gaps multiplied by one factor, and its own order of lengths. Without a trace requests
are drawn. What is not recorded, other days of the same traffic, is resampled from it in blocks of time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from dmodels.core.records import float64
from dmodels.core.workload import Workload
from dmodels.models.traffic import Trace

from . import arrivals, lengths
from .requests import Requests

#: A recording shorter than so many lives of a request is played before it counts, so that the fleet is as full as on
#: any other day when it does.
_LIVES = 5.0
#: No more than so many times its length is played before it counts.
_MOST_WARM = 3.0
#: Requests within less than this, in mean gaps, came at one instant.
_INSTANT = 1e-9
#: A sample of a long recording is taken from so many places.
_STRETCHES = 50


class Recording(NamedTuple):
    """(n,) requests in order of arrival within `period_s`, after which they come again."""

    time_s: np.ndarray  # from 0
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    cached_tokens: np.ndarray
    period_s: float
    source: str  # in words
    warm_s: float = 0.0  # the last so many seconds are played before all of it counts

    @property
    def size(self) -> int:
        """Requests that count."""
        return int(self.time_s.size)

    def warm(self, life_s: float) -> Recording:
        """Its end is played before it counts, for as long as requests of `life_s` take to fill the fleet."""
        short = self.period_s < _LIVES * life_s
        return self._replace(warm_s=min(life_s, _MOST_WARM * self.period_s) if short else 0.0)

    def requests(self) -> Requests:
        """All of them as a fleet meets them; the last `size` count, which arrive from `warm_s` on."""
        passes = math.ceil(self.warm_s / self.period_s)
        begin = np.append(self.warm_s - self.period_s * np.arange(passes, 0.0, -1.0), self.warm_s)[:, None]
        when = np.maximum.accumulate((self.time_s + begin).ravel())
        taken = np.arange(when.size) >= np.searchsorted(when, 0.0)
        again = lambda column: np.tile(column, passes + 1)[taken]
        return Requests.checked(when[taken], *map(again, (self.input_tokens, self.output_tokens, self.cached_tokens)))

    def faster(self, factor: float) -> Recording:
        """The same at `factor` times the rate."""
        return self._replace(time_s=self.time_s / factor, period_s=self.period_s / factor)

    def part(self, first_frac: float, last_frac: float) -> Recording:
        """What lies between two shares of the requests, at the same mean rate as the whole."""
        begin, end = (round(share * self.size) for share in (first_frac, last_frac))
        begin = min(begin, self.size - 1)
        end = max(end, begin + 1)
        kept = slice(begin, end)
        span = (self.time_s[end] if end < self.size else self.period_s) - self.time_s[begin]
        return self._taken(self.time_s[kept] - self.time_s[begin], np.arange(self.size)[kept], span)

    def sampled(self, most: int) -> Recording:
        """About `most` requests at most: the beginnings of `_STRETCHES` equal lengths of time, end to end."""
        if self.size <= most:
            return self
        length = self.period_s / _STRETCHES
        kept_s = length * most / self.size
        place, inside = np.divmod(self.time_s, length)
        rows = np.flatnonzero(inside < kept_s)
        return self._taken(place[rows] * kept_s + inside[rows], rows, _STRETCHES * kept_s) if rows.size else self

    def resampled(self, seed: int, blocks: int) -> Recording:
        """Another day of such traffic: `blocks` stretches of the recording that begin at random times, end to end.

        Bursts, silences and the order of lengths inside a stretch stay (the circular block bootstrap of Politis and
        Romano, 1992, for a marked point process).
        """
        rng, stretch = np.random.default_rng(seed), self.period_s / blocks
        times, rows = [], []
        for k in range(blocks):
            begin = rng.uniform(0.0, self.period_s)
            first, last = np.searchsorted(self.time_s, [begin, begin + stretch])
            wrapped = np.arange(np.searchsorted(self.time_s, begin + stretch - self.period_s))
            inside = np.concatenate([np.arange(first, last), wrapped])
            times.append((self.time_s[inside] - begin) % self.period_s + k * stretch)
            rows.append(inside)
        found = np.concatenate(rows)
        return self._taken(np.concatenate(times), found, self.period_s) if found.size else self

    def _taken(self, time_s: np.ndarray, rows: np.ndarray, span_s: float) -> Recording:
        """Some of the requests, at new times in `span_s`, brought to the rate of the whole."""
        mean_gap = self.period_s / self.size
        factor = mean_gap * rows.size / span_s if span_s > _INSTANT * mean_gap else 1.0
        return Recording(
            np.maximum.accumulate(time_s * factor),
            self.input_tokens[rows],
            self.output_tokens[rows],
            self.cached_tokens[rows],
            rows.size * mean_gap,
            self.source,
        )


def takes(trace: Trace, limit_tokens: float = 0.0) -> np.ndarray:
    """(n,) which requests leave room for an answer in a context of `limit_tokens` (0: any)."""
    return np.asarray(trace.input_tokens <= (limit_tokens or np.inf) - 1.0)


def recorded(trace: Trace, rate_rps: float | None, limit_tokens: float = 0.0, seed: int = 0) -> Recording:
    """The requests of a trace that an engine with a context of `limit_tokens` (0: any) takes, at `rate_rps` of all.

    None: at the trace's own rate; raises `TraceError` where it has none. Where all came at one instant there is no time
    to scale; then they come in their order as a Poisson stream.
    """
    size, rate_rps = len(trace), rate_rps or float(Workload.from_trace(trace).rate_rps)
    if trace.duration_s * rate_rps > _INSTANT:
        when, source = arrivals.replay(trace.time_s, rate_rps), f"{trace.name} with its own arrival times"
    else:
        when = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, size))
        source = f"{trace.name} as Poisson arrivals, since all its requests have the same time"
    limit, taken = limit_tokens or np.inf, np.flatnonzero(takes(trace, limit_tokens))
    inputs = np.maximum(1.0, trace.input_tokens[taken])
    outputs = np.maximum(1.0, np.minimum(trace.output_tokens[taken], limit - inputs))
    cached = np.minimum(np.broadcast_to(trace.cached_tokens, size)[taken], inputs)
    return Recording(when[taken], inputs, outputs, cached, max(size / rate_rps, float(when[-1])), source)


@float64
def drawn(workload: Workload, seed: int, count: int) -> Recording:
    """`count` independent requests of a workload at its rate: Poisson arrivals, or gamma gaps of its CV."""
    key_when, key_what = jax.random.split(jax.random.key(seed))
    rate, cv = float(workload.rate_rps), float(workload.arrival_cv)
    when = arrivals.poisson(key_when, rate, count) if cv == 1 else arrivals.gamma(key_when, rate, cv, count)
    long = lengths.draw(key_what, workload, count)
    source = "Poisson arrivals" if cv == 1 else f"independent arrivals with gaps of CV {cv:.3g}"
    period, tokens = max(count / rate, float(when[-1])), [column.astype(np.float64) for column in long]
    return Recording(when, tokens[0], tokens[1], tokens[2], period, f"{source} (there is no trace)")
