"""A controller in the loop: a fleet runs for an interval, the controller looks, acts, and the fleet runs on.

A controller is a state and a pure function, as everywhere in dmodels: `update(state, observation)` gives
(state, action). `observe` makes the observation out of what happened in the interval, and `act` carries the action out;
so the router's policy, its cache weight, the spill limit, and which instances take requests are all within reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.sim import fleet
from dmodels.sim.fleet import Simulation as Run
from dmodels.sim.fleet import state as fs
from dmodels.sim.requests import Served


class Window(NamedTuple):
    """What can be seen of a fleet at the end of an interval."""

    from_s: float
    to_s: float
    arrivals: int
    ttft_p99_s: float  # of first tokens in the interval; NaN if there were none
    tpot_mean_s: float  # of requests that ended in the interval; NaN if there were none
    in_flight: np.ndarray  # (instances,)
    waiting: np.ndarray  # (instances,)
    open: np.ndarray  # (instances,) bool: takes new requests


class Tick(NamedTuple):
    """One turn of the loop: what was seen, and what was done."""

    seen: Any
    action: Any


def window(run: Run, from_s: float, to_s: float) -> Window:
    """The default observation."""
    known = run.fleet.requests[: run.fleet.place[0]]
    born = (known["first"] > from_s) & (known["first"] <= to_s)
    ended = (known["end"] > from_s) & (known["end"] <= to_s) & (known["output"] > 1)
    ttft = known["first"][born] - known["arrival"][born]
    tpot = (known["end"] - known["first"])[ended] / (known["output"][ended] - 1)
    instances = run.fleet.instances
    return Window(
        from_s,
        to_s,
        int(np.sum((known["arrival"] > from_s) & (known["arrival"] <= to_s))),
        float(np.quantile(ttft, 0.99)) if ttft.size else np.nan,
        float(tpot.mean()) if tpot.size else np.nan,
        instances["in_flight"].copy(),
        instances["waiting"].copy(),
        run.fleet.loads < fs.CLOSED,
    )


def take(run: Run, action: Any) -> Run:
    """The default act: an action's fields `policy`, `cache_weight` (or `omega`) and `spill_queue` where it has them,
    and `open_instances`, of which the first so many take requests and the others drain."""
    names = {"policy": "policy", "cache_weight": "cache_weight", "omega": "cache_weight", "spill_queue": "spill_queue"}
    changes = {of_router: getattr(action, name) for name, of_router in names.items() if hasattr(action, name)}
    if hasattr(action, "open_instances"):
        instances = run.fleet.instances
        wanted = int(action.open_instances)
        if not 1 <= wanted <= len(instances):
            raise InputError(f"open_instances = {wanted}; accepted: 1 to {len(instances)}")
        for j in range(len(instances)):
            fs.set_open(run.fleet, j, j < wanted)
    if "policy" in changes:
        changes["policy"] = changes["policy"].number
    return run._replace(alone=False, router=run.router._replace(**changes))


def simulate(
    run: Run,
    update: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    interval_s: float,
    until_s: float,
    *,
    observe: Callable[[Run, float, float], Any] = window,
    act: Callable[[Run, Any], Run] = take,
) -> tuple[Served, list[Tick]]:
    """Run a fleet (from `fleet.start`) under a controller that looks every `interval_s`, up to `until_s`; then let it
    finish without further control. Gives the answers and the history of the loop."""
    if not (interval_s > 0 and np.isfinite(until_s)):
        raise InputError(f"interval_s = {interval_s}, until_s = {until_s}; accepted: above 0, and finite")
    history = []
    for k in range(int(np.ceil(until_s / interval_s))):
        begin, end = k * interval_s, min((k + 1) * interval_s, until_s)
        fleet.advance(run, end)
        seen = observe(run, begin, end)
        state, action = update(state, seen)
        run = act(run, action)
        history.append(Tick(seen, action))
    fleet.advance(run, np.inf)
    return fleet.answers(run), history
