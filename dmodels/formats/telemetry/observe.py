"""From engines' metrics to what a planner needs: the rate over time, the lengths, the hits, and the latencies seen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError

from ..measurements.point import E2E_S, TPOT_S, TTFT_S
from .flow import arrival_cv, joint, length_correlation, together
from .names import COUNTERS, GAUGES, HISTOGRAMS, REPLICA, reporter
from .series import MOST, Series, increase, read_series, steps

if TYPE_CHECKING:
    from dmodels.core.workload import Workload

#: What is summed up over a request's lengths: histogram, and which of its sums.
OF_LENGTHS = (("input_tokens", "count"), ("input_tokens", "sum"), ("output_tokens", "sum"))
#: A mean that is this much outside what the buckets allow is no lost sample.
OFF = 2.0
#: Places within a bucket at which its requests are put.
_PLACES = (np.arange(4) + 0.5) / 4


@dataclass(frozen=True)
class Histogram(Answer):
    """Requests by value: `counts[i]` lie in (bounds[i - 1], bounds[i]], those of the last beyond every bound."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    mean: float

    def records(self) -> list[dict[str, Any]]:
        """A row a bucket; None: beyond every bound."""
        bounds = [*self.bounds, None]
        return [{"bound": bound, "count": count} for bound, count in zip(bounds, self.counts, strict=True)]

    @property
    def count(self) -> float:
        """Requests."""
        return float(sum(self.counts))

    def quantile(self, share: float) -> float:
        """The value that a share of requests keeps, linear within a bucket; beyond the last bound, that bound."""
        below = np.concatenate([[0.0], np.cumsum(self.counts)])
        edges = np.array([0.0, *self.bounds, self.bounds[-1]])
        return float(np.interp(share * below[-1], below, edges))

    def beyond(self, share: float) -> bool:
        """Whether that value is beyond the last bound, so that the buckets say only that it is more."""
        return share * self.count > sum(self.counts[:-1])

    def atoms(self) -> tuple[np.ndarray, np.ndarray]:
        """(values, weights) whose mean is the histogram's: within each bucket at the same shares of its width."""
        low = np.array([0.0, *self.bounds])
        high = np.array([*self.bounds, 2.0 * self.bounds[-1]])
        kept = np.array(self.counts) > 0
        low, width, counts = low[kept], (high - low)[kept], np.array(self.counts)[kept] / self.count
        below, wide = float(counts @ low), float(counts @ width)
        left, right = 0.02, 50.0  # the mean falls as the power grows
        for _ in range(60):
            middle = math.sqrt(left * right)
            above = below + wide * float((_PLACES**middle).mean()) > self.mean
            left, right = (middle, right) if above else (left, middle)
        values = low[:, None] + width[:, None] * _PLACES ** math.sqrt(left * right)
        at = np.maximum(np.round(values), 1.0)
        return at.ravel(), np.repeat(counts / len(_PLACES), len(_PLACES))


@dataclass(frozen=True)
class Telemetry(Answer):
    """What the engines reported. nan, None and empty: they did not."""

    derived = ("rate_rps", "peak_rps")
    reporter: str  # how the names of its metrics begin: "vllm", "sglang", "dynamo_frontend"
    start_s: float
    end_s: float
    replicas_count: int
    time_s: tuple[float, ...]  # ends of the intervals between samples
    rates_rps: tuple[float, ...]  # requests that came in each: completed, and what those in flight grew by
    arrival_cv: float
    requests_count: float  # completed
    in_flight_grown_count: float  # requests in flight at the end beyond those at the start
    length_correlation: float  # of a request's prompt and answer
    input_tokens: Histogram | None
    output_tokens: Histogram | None
    prefix_hit_frac: float
    running_mean_count: float
    running_peak_count: float
    waiting_mean_count: float
    kv_peak_frac: float  # of the fullest replica
    ttft_s: Histogram | None
    itl_s: Histogram | None
    e2e_s: Histogram | None
    notices: tuple[str, ...]

    @property
    def rate_rps(self) -> float:
        """Requests that came a second, over the whole time; nan for a single scrape.

        Where the engines do not report those in flight, the completed ones.
        """
        span = self.end_s - self.start_s
        grown = 0.0 if math.isnan(self.in_flight_grown_count) else self.in_flight_grown_count
        return max(self.requests_count + grown, 0.0) / span if span > 0 else math.nan

    @property
    def peak_rps(self) -> float:
        """The busiest interval's."""
        return max(self.rates_rps, default=math.nan)


def observe(paths: Iterable[str | Path], hours: float = 6.0) -> Telemetry:
    """What files of telemetry say, of all replicas and label sets together; of a server, over the last `hours`."""
    return summarised(read_series(paths, hours))


def summarised(series: Sequence[Series]) -> Telemetry:
    """The same of series."""
    by_name: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        if one.value.size:
            by_name[one.name].append(one)
    found = {what: _histogram(by_name, names) for what, names in HISTOGRAMS.items()}
    for what, (low, high) in (("ttft", TTFT_S), ("itl", TPOT_S), ("e2e", E2E_S)):
        if (of := found[what]) and not low <= of.mean <= high:
            raise InputError(
                f"telemetry: {what} of {of.mean:.3g} s on average; accepted are {low:g} to {high:g} s: is it in "
                "another unit?"
            )
    counts = _counted(by_name)
    gauges = {what: _first(by_name, names) for what, names in GAUGES.items()}
    sums = [_first(by_name, [f"{name}_count" for name in names]) for names in HISTOGRAMS.values()]
    known = [one for group in (*gauges.values(), counts, *sums) for one in group]
    if not known:
        raise InputError(
            f"telemetry: none of {len(by_name)} metrics is known (like {', '.join(sorted(by_name)[:3])}); accepted are "
            "those of vllm, sglang and dynamo_frontend"
        )
    times, completed, notices = _completed(counts)
    running, waiting = (together(gauges[what]) for what in ("running", "waiting"))
    in_flight = together([*gauges["running"], *gauges["waiting"]], times)
    came = np.maximum(completed + np.diff(in_flight), 0.0) if in_flight.size else completed
    gaps_s = np.diff(times)
    sums = [_first(by_name, [f"{name}_{part}" for name in HISTOGRAMS[what]]) for what, part in OF_LENGTHS]
    kv = [float(one.value.max()) for one in gauges["kv_frac"]]
    queries, hits = (
        sum(map(increase, _first(by_name, COUNTERS[f"prefix_{what}"], "_total"))) for what in ("queries", "hits")
    )
    replicas = {tuple((key, one.labels.get(key)) for key in REPLICA if key in one.labels) for one in known}
    return Telemetry(
        reporter=reporter(known[0].name),
        start_s=min(float(one.time_s[0]) for one in known),
        end_s=max(float(one.time_s[-1]) for one in known),
        replicas_count=len(replicas),
        time_s=tuple(times[1:].tolist()),
        rates_rps=tuple((came / gaps_s).tolist()),
        arrival_cv=arrival_cv(came, gaps_s) if in_flight.size else math.nan,
        requests_count=float(sum(map(increase, counts))),
        in_flight_grown_count=float(in_flight[-1] - in_flight[0]) if in_flight.size else math.nan,
        length_correlation=length_correlation(*sums),
        input_tokens=found["input_tokens"],
        output_tokens=found["output_tokens"],
        prefix_hit_frac=hits / queries if queries > 0 else math.nan,
        running_mean_count=float(np.mean(running)) if running.size else math.nan,
        running_peak_count=float(np.max(running)) if running.size else math.nan,
        waiting_mean_count=float(np.mean(waiting)) if waiting.size else math.nan,
        kv_peak_frac=max(kv) if kv else math.nan,
        ttft_s=found["ttft"],
        itl_s=found["itl"],
        e2e_s=found["e2e"],
        notices=tuple(notices),
    )


def workload(seen: Telemetry, rate_rps: float | None = None) -> Workload:
    """The requests that were seen, at their mean rate unless another is given.

    Histograms say nothing about how prompts and answers go together, but their sums over time do: the lengths have the
    correlation that was seen, and are independent where it was not. The share of prompt tokens that hit the prefix
    cache is taken off every prompt alike.
    """
    from dmodels.core.workload import Workload

    if seen.input_tokens is None or seen.output_tokens is None:
        raise InputError("telemetry: no histogram of prompt and generation tokens; accepted are files with both")
    rate = seen.rate_rps if rate_rps is None else rate_rps
    if not rate > 0:
        raise InputError("telemetry: one scrape has no rate; --rate adds it, or files over some time")
    prompts, answers = seen.input_tokens.atoms(), seen.output_tokens.atoms()
    inputs, outputs = prompts[0], answers[0]
    correlation = 0.0 if math.isnan(seen.length_correlation) else seen.length_correlation
    hit = 0.0 if math.isnan(seen.prefix_hit_frac) else min(max(seen.prefix_hit_frac, 0.0), 1.0)
    prompt = np.repeat(inputs, len(outputs))
    return Workload(
        prompt,
        np.tile(outputs, len(inputs)),
        joint(prompts, answers, correlation).ravel(),
        rate_rps=rate,
        arrival_cv=1.0 if math.isnan(seen.arrival_cv) else seen.arrival_cv,
        cached_tokens=np.floor(hit * prompt),
    )


def read_workload(path: str | Path, rate_rps: float | None = None) -> Workload:
    """The workload in a file of telemetry, or in the files of a folder."""
    files = sorted(Path(path).iterdir()) if Path(path).is_dir() else [path]
    return workload(observe(files), rate_rps)


def _first(by_name: dict[str, list[Series]], names: Sequence[str], suffix: str = "") -> list[Series]:
    for name in names:
        for full in (f"{name}{suffix}", name):
            if by_name.get(full):
                return by_name[full]
    return []


def _counted(by_name: dict[str, list[Series]]) -> list[Series]:
    """Counters of completed requests: their own, or those of a histogram over requests."""
    found = _first(by_name, COUNTERS["requests"], "_total")
    names = [*HISTOGRAMS["e2e"], *HISTOGRAMS["input_tokens"], *HISTOGRAMS["ttft"]]
    return found or _first(by_name, [f"{name}_count" for name in names])


def _histogram(by_name: dict[str, list[Series]], names: Sequence[str]) -> Histogram | None:
    name = next((name for name in names if by_name.get(f"{name}_bucket")), None)
    if name is None:
        return None
    below: dict[float, float] = defaultdict(float)
    for one in by_name[f"{name}_bucket"]:
        try:
            bound = float(one.labels.get("le", "nan"))
        except ValueError:
            bound = math.nan
        if not (bound < MOST or bound == math.inf):
            raise InputError(f"telemetry: {name}_bucket with le={one.labels.get('le')!r}; accepted is a number or +Inf")
        below[bound] += increase(one)
    bounds = sorted(bound for bound in below if math.isfinite(bound))
    cumulative = np.maximum.accumulate([below[bound] for bound in bounds] + [below.get(math.inf, 0.0)])
    counts = np.diff(cumulative, prepend=0.0)
    if not bounds or not cumulative[-1] > 0:
        return None
    total = sum(map(increase, by_name.get(f"{name}_sum", [])))
    edges = np.array([0.0, *bounds, 2.0 * bounds[-1]])
    least, most = (float(counts @ at / cumulative[-1]) for at in (edges[:-1], edges[1:]))
    mean = float(total / cumulative[-1]) if total > 0 else 0.5 * (least + most)
    if mean < least / OFF or (mean > OFF * most and not counts[-1]):
        raise InputError(
            f"telemetry: {name} has a mean of {mean:.4g} by its sum, but of {least:.4g} to {most:.4g} by its buckets; "
            "is one of them in another unit?"
        )
    return Histogram(tuple(bounds), tuple(counts.tolist()), mean)


def _completed(counts: Sequence[Series]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(times at which any counter was sampled, requests completed between them) of all counters together."""
    sampled = [one for one in counts if len(one.value) > 1]
    if not sampled:
        return np.empty(0), np.empty(0), []
    grid = np.unique(np.concatenate([one.time_s for one in sampled]))
    total = np.zeros(len(grid))
    notices, resets = [], 0
    for one in sampled:
        grown = np.concatenate([[0.0], np.cumsum(steps(one))])
        total += np.interp(grid, one.time_s, grown)
        resets += int((np.diff(one.value) < 0).sum())
    gaps = np.diff(grid)
    wide = int((gaps > 5.0 * np.median(gaps)).sum())
    if resets:
        notices.append(f"{resets} counter reset{'s' * (resets > 1)} (restarts), counted from zero")
    if wide:
        notices.append(f"{wide} gap{'s' * (wide > 1)} without samples; what was served in them is spread evenly")
    return grid, np.diff(total), notices
