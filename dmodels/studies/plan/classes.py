"""Classes of requests, each with its own SLOs: a fleet for each of them, or one fleet for all.

One fleet for all keeps every request to the tightest bound that a class has (`tightest`), since its engines do not tell
the classes apart. Fleets apart cost what each class costs, and say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError
from dmodels.core.hardware import SLO
from dmodels.core.workload import Workload
from dmodels.models.traffic import Trace

from .limits import Limits
from .parts import PartPlan
from .questions import Question, check
from .solve import plan


@dataclass(frozen=True)
class RequestClass(Answer):
    """Requests whose input and output tokens together are in (low, high], and what they are promised.

    With a `label` only those of a trace that carry it; `read_trace(path, class_column="tenant")` keeps a column's text.
    With `besides` only those that none of these classes has.
    """

    internal = ("besides",)
    name: str
    slo: SLO
    low_tokens: float = 0.0
    high_tokens: float = np.inf
    label: str = ""
    priority: int = 0  # the lowest is served first, where one fleet serves several
    besides: tuple[RequestClass, ...] = ()

    def has(self, total_tokens: np.ndarray, labels: np.ndarray | None) -> np.ndarray:
        """Which requests are of it."""
        within = (total_tokens > self.low_tokens) & (total_tokens <= self.high_tokens)
        for other in self.besides:
            within &= ~other.has(total_tokens, labels)
        if not self.label:
            return within
        if labels is None:
            raise InputError(f"class {self.name} of {self.label!r}: accepted with a trace whose requests carry labels")
        its = np.asarray(labels == self.label)
        return np.asarray(within & its)


@dataclass(frozen=True)
class Share(PartPlan):
    """One class, and its own fleet."""

    requests: RequestClass


@dataclass(frozen=True)
class Apart(Answer):
    """A fleet for each class."""

    derived = ("usd_per_hour", "gpus", "fits")
    internal = ("limits",)
    shares: tuple[Share, ...]
    limits: Limits

    @property
    def usd_per_hour(self) -> float:
        """Of all fleets."""
        return sum(share.usd_per_hour for share in self.shares)

    @property
    def gpus(self) -> int | None:
        """Of all fleets; None: a class has none."""
        fleets = [share.best for share in self.shares]
        return None if None in fleets else sum(fleet.bought_gpus for fleet in fleets if fleet)

    @property
    def fits(self) -> bool:
        """Whether every class has a fleet, and all of them can be bought together."""
        parts = [part for share in self.shares if share.best for part in share.best.parts]
        return self.gpus is not None and self.limits.allow(parts, self.usd_per_hour)


def with_others(classes: Sequence[RequestClass], traffic: Workload | Trace, slo: SLO) -> list[RequestClass]:
    """The classes and, where a request is of none of them, the class of the others, which are promised `slo`."""
    labels = traffic.labels if isinstance(traffic, Trace) else None
    counts = True if isinstance(traffic, Trace) else np.asarray(traffic.weight_frac) > 0
    total = np.asarray(traffic.input_tokens) + np.asarray(traffic.output_tokens)
    has_one = np.any([kind.has(total, labels) for kind in classes], axis=0)
    others = [] if np.all(has_one | ~np.asarray(counts)) else [RequestClass("others", slo, besides=tuple(classes))]
    which([*classes, *others], total, labels, counts)
    return [*classes, *others]


def tightest(classes: Sequence[RequestClass]) -> SLO:
    """What one fleet for all classes has to keep."""
    ttft, tpot, e2e = (min(float(getattr(x.slo, name)) for x in classes) for name in ("ttft_s", "tpot_s", "e2e_s"))
    return SLO(ttft, tpot, e2e, max(float(x.slo.percentile) for x in classes))


def plan_apart(asked: Question, classes: Sequence[RequestClass], ensure: bool | None = None) -> Apart:
    """A fleet for each class. Every request must be of one class; the SLO of `asked` is not used."""
    total, weight = (np.asarray(x) for x in (asked.workload.total_tokens, asked.workload.weight_frac))
    place = which(classes, total, _labels(asked), weight > 0)
    shares = []
    for k, kind in enumerate(classes):
        own = place == k
        share = float(weight[own].sum())
        check(asked.workload, kind.slo)
        shares.append(Share(share, plan(_only(asked, kind, own, share), ensure), kind))
    return Apart(tuple(shares), asked.limits)


def which(
    classes: Sequence[RequestClass],
    total_tokens: np.ndarray,
    labels: np.ndarray | None,
    counts: np.ndarray | bool = True,
) -> np.ndarray:
    """The place of each request's class; -1: none, which is accepted only where a request does not count."""
    inside = np.array([kind.has(total_tokens, labels) for kind in classes])
    odd = (inside.sum(0) != 1) & counts
    if odd.any():
        first = int(np.argmax(odd))
        called = "" if labels is None else f" of {str(labels[first])!r}"
        raise InputError(
            f"classes: a request of {total_tokens[first]:,.0f} tokens{called} is of {int(inside[:, first].sum())} "
            "classes; accepted are classes of which each request has one"
        )
    for kind, own in zip(classes, inside, strict=True):
        if not (own & counts).any():
            raise InputError(f"class {kind.name}: no request is of it; accepted are classes with requests")
    return np.where(inside.any(0), inside.argmax(0), -1)


def _labels(asked: Question) -> np.ndarray | None:
    """The labels of the workload's support, which lies in the order of the trace that it was read from."""
    labels = None if asked.trace is None else asked.trace.labels
    return labels if labels is not None and labels.shape == np.shape(asked.workload.weight_frac) else None


def _only(asked: Question, kind: RequestClass, own: np.ndarray, share_frac: float) -> Question:
    """The question about the requests of one class, at their share of the rate."""
    w = asked.workload
    weight = np.asarray(w.weight_frac)[own]
    inputs, outputs, cached = (
        np.broadcast_to(x, own.shape)[own] for x in (w.input_tokens, w.output_tokens, w.cached_tokens)
    )
    lengths = Workload(inputs, outputs, weight / weight.sum(), cached, share_frac * asked.rate_rps, w.arrival_cv)
    trace = None if asked.trace is None else _rows(asked.trace, kind)
    name = f"{asked.workload_name} ({kind.name})"
    return replace(asked, workload=lengths, workload_name=name, slo=kind.slo, trace=trace, thresholds_tokens=None)


def _rows(trace: Trace, kind: RequestClass) -> Trace:
    """The requests of a class, at their own times."""
    own = kind.has(trace.input_tokens + trace.output_tokens, trace.labels)
    cached = np.broadcast_to(trace.cached_tokens, own.shape)[own]
    return Trace(trace.name, trace.time_s[own], trace.input_tokens[own], trace.output_tokens[own], cached)
