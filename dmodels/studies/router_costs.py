"""Requests in prefix groups on workers: the price of selfish routing, and what simple policies cost."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.games.anarchy import price_of_anarchy
from dmodels.games.routing import POLICIES, RoutingGame, policy_flows, sums
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
    if requests < 1 or prefixes < 1:
        raise InputError(f"requests = {requests}, prefixes = {prefixes}: accepted are whole numbers from 1")
    workers = len(np.atleast_1d(curve.a_s))
    counts = np.bincount(np.arange(requests) % prefixes, minlength=prefixes)
    return RoutingGame(curve, np.eye(workers)[np.arange(prefixes) % workers], miss_s, counts)


def router_costs(game: RoutingGame, runs: int = 200, seed: int = 0, tau: float = 0.0) -> RouterCosts:
    """The game's price of anarchy and of stability, and `runs` draws of every policy; `tau` is Dynamo's temperature."""
    price = price_of_anarchy(game)
    arrays, rng = game.arrays(), np.random.default_rng(seed)
    requests, least = float(np.sum(game.counts)), float(price.optimum_s)
    found: dict[str, PolicyCost] = {}
    for name in POLICIES:
        cost = np.asarray(sums(arrays, policy_flows(game, name, rng, runs, tau=tau))[0])
        ratio = cost / least if np.isfinite(least) else cost * np.nan
        found[name] = PolicyCost(cost.mean() / requests, cost.max() / requests, ratio.mean(), ratio.max())
    return RouterCosts(price, found)
