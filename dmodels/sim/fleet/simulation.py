"""A fleet of continuous-batching instances behind a router: pools, policies, spillover, failures, drains.

Exact, request by request. Policies that look at loads couple all instances at every arrival, which no array operation
expresses; so this is one compiled loop over arrivals, completions and fleet events.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from dmodels.core.compiled import NONE
from dmodels.core.errors import InputError
from dmodels.core.records import float64
from dmodels.core.routing import RoutingPolicy
from dmodels.sim.batching import check_instance, virtual_time
from dmodels.sim.batching import step_times as laws
from dmodels.sim.requests import Requests, Served

from . import engine, independent
from . import state as fs
from .records import Event, Pool, Prefixes, in_order
from .routing import BLIND, GAMBLING, router_of
from .tokens import TokenFleet

#: A run that may be given up is looked at after each such share of its requests.
_LOOK_FRAC = 0.125


def simulate(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    pools: Pool | Sequence[Pool],
    *router: Any,
    give_up: Callable[[Served], bool] | None = None,
    **options: Any,
) -> Served:
    """Serve requests (n,) on a fleet; `Served.instance` says where, counted over all pools. Arguments as of `start`.

    `give_up` sees now and then what has been served so far; the run ends there, with NaN for the rest, if it says so.
    """
    run = start(arrival_s, input_tokens, output_tokens, pools, *router, **options)
    if run.alone:
        return independent.serve(run)
    if give_up is not None:
        for until_s in np.quantile(run.fleet.requests["arrival"], np.arange(_LOOK_FRAC, 1.0, _LOOK_FRAC)):
            advance(run, float(until_s))
            if give_up(answers(run)):
                return answers(run)
    advance(run, np.inf)
    return answers(run)


def start(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    pools: Pool | Sequence[Pool],
    policy: RoutingPolicy = RoutingPolicy.SHORTEST_QUEUE,
    *,
    key: jax.Array | None = None,
    cached_tokens: Any = 0,
    route_tokens: Any = None,
    spill_queue: float = np.inf,
    events: Sequence[Event] = (),
    prefixes: Prefixes | None = None,
    cache_weight: float = 1.0,
) -> fs.Simulation:
    """The fleet before the first arrival.

    Pools are tried in order: a request goes to the first whose `max_tokens` holds its `route_tokens` (what the router
    believes the total is; the true total unless given), or spills to a later one while more than `spill_queue`
    requests an instance wait there. Requests that no pool holds, or that turn out longer than the pool they were sent
    to, are refused: their times are NaN and their instance is -1. RANDOM and POWER_OF_TWO need a `key`.
    """
    pools = (pools,) if isinstance(pools, Pool) else tuple(pools)
    requests = Requests.checked(arrival_s, input_tokens, output_tokens, cached_tokens)
    n = requests.arrival_s.size
    if n >= 1 << virtual_time.ID_BITS:
        raise InputError(f"arrival_s: {n} requests in one call; accepted: fewer than 2**28")
    rows = np.zeros(n, fs.REQUEST)
    rows["arrival"], rows["prompt"], rows["output"], rows["cached"] = requests
    rows["route_tokens"] = rows["prompt"] + rows["output"] if route_tokens is None else route_tokens
    rows["prefix"] = rows["after"] = rows["instance"] = NONE
    rows["admitted"] = rows["first"] = rows["end"] = np.nan
    if prefixes is not None:
        rows["prefix"], rows["prefix_tokens"] = prefixes.ids, prefixes.tokens
        if prefixes.remembered < 1 or (rows["prefix_tokens"] > rows["prompt"]).any():
            raise InputError("prefixes: accepted are tokens within the input, and at least one remembered prefix")
    router = router_of(policy, cache_weight, spill_queue)
    if policy in GAMBLING:
        if key is None:
            raise InputError(f"key: missing; accepted: a jax.random.key, for policy {policy!r}")
        rows["draw"], rows["draw2"] = _draws(key, n)
    records = _records(pools)
    times, tokens = laws.token_tables([pool.law for pool in pools], [int(pool.slots) for pool in pools])
    fleet = _fresh(records, times, tokens, rows, 1 if prefixes is None else int(prefixes.remembered))
    alone = policy in BLIND and tokens.shape[1] == 1 and len(pools) == 1 and not events and prefixes is None
    return fs.Simulation(fleet, in_order(events, len(fleet.instances)), router, alone)


def advance(run: fs.Simulation, until_s: float) -> None:
    """Run everything that happens up to `until_s`, in place."""
    engine.run(run.fleet, run.events, run.router, until_s)


def answers(run: fs.Simulation) -> Served:
    """What is known so far; NaN for what has not happened yet."""
    names = ("arrival", "admitted", "first", "end", "output", "retries", "instance")
    return Served(*(run.fleet.requests[name].copy() for name in names))


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
    records["size"] = [pool.instances for pool in pools]
    records["start"] = np.cumsum(records["size"]) - records["size"]
    for name, field in {"slots": "slots", "chunk": "chunk_tokens", "mode": "prefill", "limit": "max_tokens"}.items():
        records[name] = [getattr(pool, field) for pool in pools]
    records["late"] = [0 if pool.emits else 1 for pool in pools]
    records["decodes"] = [isinstance(pool.law, laws.TokenLaw) and pool.law.decodes for pool in pools]
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
    kept, loads = np.full((m, remembered, 2), NONE), np.zeros(m, np.int64)
    state = (instances, lines, tree, rows, kept, loads, np.array([0, 0, NONE, NONE]))
    if tokens.shape[1] == 1:
        return fs.Fleet(pools, times[:, :, 0].copy(), *state)
    return TokenFleet(pools, times, *state, tokens)


@float64
def _draws(key: jax.Array, n: int) -> np.ndarray:
    return np.asarray(jax.random.uniform(key, (2, n), float))
