"""Requests in prefix groups on workers: the price of selfish routing, and what simple policies cost."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from dmodels.core.errors import MOST_S, InputError, check_work
from dmodels.games.anarchy import price_of_anarchy
from dmodels.games.routing import POLICIES, RoutingGame, policy_flows, sums
from dmodels.games.routing.policies import PLACE_S, REQUEST_S, TWO_S
from dmodels.models.latency import LatencyCurve


class PolicyCost(NamedTuple):
    """Cost per request over random draws of a policy, and its ratio to the optimum."""

    mean_s: float
    worst_s: float
    ratio: float
    worst_ratio: float


class RouterCosts(NamedTuple):
    """The price of anarchy (see `price_of_anarchy`), and each policy's cost by its name."""

    price: Any
    policies: dict[str, PolicyCost]


def grouped_game(requests: int, prefixes: int, curve: LatencyCurve, miss_s: float) -> RoutingGame:
    """`requests` in `prefixes` groups of equal size, prefix g cached on worker g mod m; a miss costs `miss_s`."""
    if not (1 <= requests <= _MOST_REQUESTS and 1 <= prefixes <= _MOST_WORKERS):
        most = f"whole numbers from 1, up to {_MOST_REQUESTS:,} and {_MOST_WORKERS:,}"
        raise InputError(f"requests = {requests}, prefixes = {prefixes}: accepted are {most}")
    workers = len(np.atleast_1d(curve.a_s))
    group = np.arange(prefixes)
    counts = requests // prefixes + (group < requests % prefixes)
    overlap = np.zeros((prefixes, workers))
    overlap[group, group % workers] = 1.0
    return RoutingGame(curve, overlap, miss_s, counts)


#: Seconds of a box of the certificate's search, by prefixes and workers squared, on one core of 2024.
_BOX_S = 3.5e-9
#: Seconds for the search, which then ends with an interval; boxes that it looks at where they are cheap.
_SEARCH_S, _MOST_BOXES = 10.0, 200_000
#: Random numbers and flows that are in memory at a time.
_MOST_NUMBERS = 2**25
#: The search holds numbers for each pair of workers in use, policies one for a prefix and a worker.
_MOST_IN_USE, _MOST_WORKERS, _MOST_REQUESTS = 4_000, 10_000, 10**9


def _in_use(game: RoutingGame) -> RoutingGame:
    """The game without workers that stay idle: of those that are alike, beyond one more than there are requests."""
    workers, requests = game.workers_count, int(np.sum(game.counts))
    if workers > _MOST_WORKERS:
        raise InputError(f"workers = {workers:,}: would take too much memory; accepted are up to {_MOST_WORKERS:,}")
    if workers <= requests + 1:
        return game
    every = game.arrays()
    each = np.concatenate([every.f[0].T, every.cost[0]])
    _, kind = np.unique(each, axis=1, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    rank = np.empty(workers, np.int64)
    rank[order] = np.arange(workers) - np.searchsorted(kind[order], kind[order])
    kept = rank <= requests
    own = lambda leaf: leaf[kept] if np.shape(leaf)[:1] == (workers,) else leaf
    return RoutingGame(jax.tree.map(own, game.curve), np.asarray(game.overlap)[:, kept], game.omega, game.counts)


def _affordable_boxes(game: RoutingGame, in_use: RoutingGame, runs: int, tau: float) -> int:
    """How many boxes the search for equilibria may look at; refuses a game that nobody would wait for."""
    prefixes, workers = np.shape(game.overlap)
    if in_use.workers_count > _MOST_IN_USE:
        told = f"{in_use.workers_count:,} of them may be in use, which takes too much memory"
        raise InputError(f"workers = {workers:,}: {told}; accepted are up to {_MOST_IN_USE:,}")
    requests = int(np.sum(game.counts))
    policy_s = requests * (REQUEST_S + PLACE_S * workers)
    once_s, one_s = (len(POLICIES) - 1) * policy_s, requests * TWO_S + (policy_s if tau > 0 else 0.0)
    box_s = _BOX_S * prefixes * in_use.workers_count**2
    asked = f"requests = {requests:,}, workers = {workers:,}, prefixes = {prefixes:,}, runs = {runs:,}"
    left = int((MOST_S - box_s - once_s) / one_s)
    fits = f"runs = {left:,}" if left > 0 else "a tenth of the workers and of the requests"
    check_work(asked, runs * one_s + once_s + box_s, fits)
    return int(np.clip(_SEARCH_S / box_s, 1, _MOST_BOXES))


def router_costs(game: RoutingGame, runs: int = 200, seed: int = 0, tau: float = 0.0) -> RouterCosts:
    """The game's price of anarchy and of stability, and `runs` draws of every policy; `tau` is Dynamo's temperature."""
    if runs < 1:
        raise InputError(f"runs = {runs}: accepted are whole numbers from 1")
    in_use = _in_use(game)
    price = price_of_anarchy(in_use, _affordable_boxes(game, in_use, runs, tau))
    arrays, rng = game.arrays(), np.random.default_rng(seed)
    requests, least = float(np.sum(game.counts)), float(price.optimum_s)
    runs = runs if np.isfinite(least) else 1  # what no placement serves no policy serves
    at_once = max(1, int(_MOST_NUMBERS / ((requests if tau > 0 else 0.0) + np.size(game.overlap))))
    found: dict[str, PolicyCost] = {}
    for name in POLICIES:
        parts = [
            np.asarray(sums(arrays, policy_flows(game, name, rng, min(at_once, runs - first), tau=tau))[0])
            for first in range(0, runs, at_once)
        ]
        cost = np.concatenate(parts)
        ratio = cost / least if np.isfinite(least) else cost * np.nan
        found[name] = PolicyCost(cost.mean() / requests, cost.max() / requests, ratio.mean(), ratio.max())
    return RouterCosts(price, found)
