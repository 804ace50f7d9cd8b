"""A trace played through a fleet as it is, or rescaled in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from dmodels.models.traffic import Trace

from . import arrivals, fleet, verify
from .estimate import Estimate
from .recordings import recorded


class Replay(NamedTuple):
    """What a fleet made of a trace, by pool."""

    rate_rps: float
    requests_count: int
    cut_count: int  # requests left out as warm-up or as the end of the run
    pools: list[dict[str, Estimate]]


def replay_trace(
    trace: Trace,
    pools: Sequence[fleet.Pool],
    key: jax.Array,
    policy: fleet.RoutingPolicy,
    *,
    rate_rps: float | None = None,
    count: int | None = None,
    spill_queue: float = np.inf,
    percentile: float = 0.99,
    stationary: bool = False,
) -> Replay:
    """Metrics of `verify.trace_metrics` over the requests of a trace, at its own rate or at `rate_rps`.

    Every request counts, bursts included; with `stationary` warm-up and end are cut, as if the load were steady.
    """
    given = recorded(trace, rate_rps)
    when = given.time_s if count is None else arrivals.replay(given.time_s, count=count)
    again = np.arange(when.size) % given.size
    inputs, outputs, cached = (x[again] for x in (given.input_tokens, given.output_tokens, given.cached_tokens))
    served = fleet.simulate(
        when, inputs, outputs, pools, policy, key=key, cached_tokens=cached, spill_queue=spill_queue
    )
    parts = fleet.by_pool(served, pools)
    found = [verify.trace_metrics(part, percentile, stationary=stationary) for part in parts]
    kept = sum(int(part["requests_count"].value) for part in found)
    return Replay((when.size - 1) / float(when[-1] - when[0]), when.size, when.size - kept, found)
