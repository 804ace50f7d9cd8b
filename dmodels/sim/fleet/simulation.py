"""A fleet of continuous-batching instances behind a router: pools, policies, spillover, failures, drains.

Exact, request by request. Policies that look at loads couple all instances at every arrival, which no array operation
expresses; so this is one compiled loop over arrivals, completions and fleet events.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import float64
from dmodels.sim.batching import check_instance, virtual_time
from dmodels.sim.batching import step_times as laws
from dmodels.sim.requests import Prefill, Requests, Served

from . import engine as fleet_engine
from . import independent
from . import state as fs
from .routing import Policy
from .tokens import TokenFleet

__all__ = ["Change", "Event", "Policy", "Pool", "Prefixes", "Run", "advance", "answers", "by_pool", "simulate", "start"]


class Pool(NamedTuple):
    """Instances of one kind, with an iteration law t(n) or t(n, tokens) as `dmodels.sim.laws` reads it. A request whose
    tokens exceed `max_tokens` is not routed here."""

    instances: int
    slots: int
    law: Any
    max_tokens: float = np.inf
    chunk_tokens: int = 512
    prefill: Prefill = Prefill.OWN
    emits: bool = False


class Change(IntEnum):
    """What can happen to an instance. DOWN loses all work: its requests are routed anew and start over. DRAIN lets it
    finish what it has, and takes nothing new. SLOW multiplies its iteration times by the event's value."""

    DOWN = 0
    UP = 1
    SLOW = 2
    DRAIN = 3
    OPEN = 4


class Event(NamedTuple):
    """At `time_s`, `change` happens to `instance` (counted over all pools)."""

    time_s: float
    change: Change
    instance: int
    value: float = 1.0


class Prefixes(NamedTuple):
    """Shared prefixes: the id of each request's (-1: none), its tokens, and how many an instance remembers (LRU)."""

    ids: Any
    tokens: Any
    remembered: int


def simulate(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    pools: Pool | Sequence[Pool],
    policy: Policy = Policy.JSQ,
    *,
    key: jax.Array | None = None,
    cached_tokens: Any = 0,
    route_tokens: Any = None,
    spill_queue: float = np.inf,
    events: Sequence[Event] = (),
    prefixes: Prefixes | None = None,
    cache_weight: float = 1.0,
) -> Served:
    """Serve requests (n,) on a fleet; `Served.instance` says where, counted over all pools in order.

    Pools are tried in order: a request goes to the first whose `max_tokens` holds its `route_tokens` (what the router
    believes the total is; the true total unless given), or spills to a later one while more than `spill_queue`
    requests an instance wait there. Requests that no pool holds, or that turn out longer than the pool they were sent
    to, are refused: their times are NaN and their instance is -1. RANDOM and POWER_OF_TWO need a `key`.
    """
    run = start(
        arrival_s,
        input_tokens,
        output_tokens,
        pools,
        policy,
        key=key,
        cached_tokens=cached_tokens,
        route_tokens=route_tokens,
        spill_queue=spill_queue,
        events=events,
        prefixes=prefixes,
        cache_weight=cache_weight,
    )
    if run.alone:
        return independent.serve(run)
    advance(run, np.inf)
    return answers(run)


class Run(NamedTuple):
    """A simulation that can be advanced in steps; between steps the fleet's state may be read."""

    fleet: fs.Fleet | TokenFleet
    events: tuple[np.ndarray, ...]
    policy: int
    cache_weight: float
    spill_queue: float
    alone: bool  # routing looks at no load and the law at no tokens: instances may be served one after another


def start(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    pools: Pool | Sequence[Pool],
    policy: Policy = Policy.JSQ,
    *,
    key: jax.Array | None = None,
    cached_tokens: Any = 0,
    route_tokens: Any = None,
    spill_queue: float = np.inf,
    events: Sequence[Event] = (),
    prefixes: Prefixes | None = None,
    cache_weight: float = 1.0,
) -> Run:
    """The fleet before the first arrival; arguments as in `simulate`."""
    pools = (pools,) if isinstance(pools, Pool) else tuple(pools)
    requests = Requests.checked(arrival_s, input_tokens, output_tokens, cached_tokens)
    n = requests.arrival_s.size
    if n >= 1 << virtual_time.ID_BITS:
        raise InputError(f"arrival_s: {n} requests in one call; accepted: fewer than 2**28")
    rows = np.zeros(n, fs.REQUEST)
    rows["arrival"], rows["prompt"], rows["output"], rows["cached"] = requests
    rows["route_tokens"] = rows["prompt"] + rows["output"] if route_tokens is None else route_tokens
    rows["prefix"] = rows["after"] = rows["instance"] = -1
    rows["admitted"] = rows["first"] = rows["end"] = np.nan
    if prefixes is not None:
        rows["prefix"], rows["prefix_tokens"] = prefixes.ids, prefixes.tokens
        if prefixes.remembered < 1 or (rows["prefix_tokens"] > rows["prompt"]).any():
            raise InputError("prefixes: accepted are tokens within the input, and at least one remembered prefix")
    if policy in (Policy.RANDOM, Policy.POWER_OF_TWO):
        if key is None:
            raise InputError(f"key: missing; accepted: a jax.random.key, for policy {Policy(policy).name}")
        rows["draw"], rows["draw2"] = _draws(key, n)
    records = _records(pools)
    times, tokens = laws.token_tables([pool.law for pool in pools], [int(pool.slots) for pool in pools])
    fleet = _fresh(records, times, tokens, rows, 1 if prefixes is None else int(prefixes.remembered))
    blind = policy in (Policy.ROUND_ROBIN, Policy.RANDOM) and tokens.shape[1] == 1
    alone = blind and len(pools) == 1 and not events and prefixes is None
    happening = _events(events, len(fleet.instances))
    return Run(fleet, happening, int(policy), float(cache_weight), float(spill_queue), alone)


def advance(run: Run, until_s: float) -> None:
    """Run everything that happens up to `until_s`, in place."""
    fleet_engine.run(run.fleet, *run.events, run.policy, run.cache_weight, run.spill_queue, until_s)


def answers(run: Run) -> Served:
    """What is known so far; NaN for what has not happened yet."""
    rows = run.fleet.requests
    column: Callable[[str], np.ndarray] = lambda name: rows[name].copy()
    return Served(
        column("arrival"),
        column("admitted"),
        column("first"),
        column("end"),
        column("output"),
        column("retries"),
        column("instance"),
    )


def by_pool(served: Served, pools: Sequence[Pool]) -> list[Served]:
    """What each pool served. Refused requests are in none."""
    where, edges = np.asarray(served.instance), np.cumsum([0, *(pool.instances for pool in pools)])
    return [served.at((where >= low) & (where < high)) for low, high in itertools.pairwise(edges)]


def _records(pools: Sequence[Pool]) -> np.ndarray:
    """POOL records."""
    if not pools:
        raise InputError("pools: none; accepted: at least one Pool")
    for pool in pools:
        check_instance(pool.slots, pool.chunk_tokens)
        if pool.instances != int(pool.instances) or pool.instances < 1:
            raise InputError(f"instances = {pool.instances}; accepted: whole numbers from 1")
    contexts = [float(pool.max_tokens) for pool in pools]
    if not contexts[0] > 0 or contexts != sorted(contexts):
        raise InputError(f"max_tokens {contexts}: accepted are positive contexts that do not fall from pool to pool")
    records = np.zeros(len(pools), fs.POOL)
    for k, pool in enumerate(pools):
        begin = records[k - 1]["start"] + records[k - 1]["size"] if k else 0
        records[k] = (
            begin,
            pool.instances,
            pool.slots,
            pool.chunk_tokens,
            int(pool.prefill),
            0 if pool.emits else 1,
            pool.max_tokens,
            0,
            0,
        )
    return records


def _fresh(
    pools: np.ndarray, times: np.ndarray, tokens: np.ndarray, rows: np.ndarray, remembered: int
) -> fs.Fleet | TokenFleet:
    """An empty fleet, everything up."""
    m, most = int(pools["size"].sum()), times.shape[1] - 1
    instances = np.zeros(m, fs.INSTANCE)
    instances["pool"] = np.repeat(np.arange(pools.size), pools["size"])
    instances["slow"] = instances["up"] = 1
    leaves = 1 << max(1, (m - 1).bit_length())
    lines, tree = np.zeros((m, 3, most), np.int64), np.full(2 * leaves, np.inf)
    kept, loads = np.full((m, remembered, 2), -1), np.zeros(m, np.int64)
    state = (instances, lines, tree, rows, kept, loads, np.array([0, 0, -1, -1]))
    if tokens.shape[1] == 1:
        return fs.Fleet(pools, times[:, :, 0].copy(), *state)
    return TokenFleet(pools, times, *state, tokens)


def _events(events: Sequence[Event], instances: int) -> tuple[np.ndarray, ...]:
    for event in events:
        if not 0 <= event.instance < instances or not np.isfinite(event.time_s):
            raise InputError(f"events: {event}; accepted: instances 0..{instances - 1} at finite times")
        if event.change == Change.SLOW and not (np.isfinite(event.value) and event.value > 0):
            raise InputError(f"events: {event}; accepted: a positive factor on iteration times")
    ordered = sorted(events, key=lambda event: event.time_s)
    return (
        np.array([e.time_s for e in ordered], np.float64),
        np.array([int(e.change) for e in ordered], np.int64),
        np.array([e.instance for e in ordered], np.int64),
        np.array([e.value for e in ordered], np.float64),
    )


@float64
def _draws(key: jax.Array, n: int) -> np.ndarray:
    return np.asarray(jax.random.uniform(key, (2, n), float))
