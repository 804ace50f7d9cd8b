r"""Static counterfactuals of section 9.2: the same requests assigned by simple policies, against the optimum.

All under one cost model, $f_j(n_j) + \omega(1 - o_{ij})$ at the final loads. Requests arrive in order and stay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.routing import RoutingPolicy
from dmodels.core.threads import share

from .game import RoutingGame, sums
from .optima import optimum_flows

#: What is compared.
POLICIES = (
    RoutingPolicy.ROUND_ROBIN,
    RoutingPolicy.RANDOM,
    RoutingPolicy.POWER_OF_TWO,
    RoutingPolicy.SHORTEST_QUEUE,
    RoutingPolicy.CACHE,
    RoutingPolicy.DYNAMO,
    RoutingPolicy.MARGINAL_COST,
)
SHORTEST_QUEUE, CACHE, DYNAMO = (policy.number for policy in POLICIES[3:6])

#: Seconds of one request on one core of 2024: of power of two, with its draws; of a policy that looks at every worker,
#: and for each of them.
TWO_S, REQUEST_S, PLACE_S = 30e-9, 80e-9, 12e-9
#: Numbers of runs that take power of two at a time: few enough for a first call to be interpreted.
_AT_ONCE = 8192


class _Router(NamedTuple):
    """A policy in plain numbers."""

    policy: int
    weight: float
    tau: float
    normalized: bool


@kernel
def _draw(cost: np.ndarray, tau: float, u: float, spread: float) -> int:
    """Index drawn by a softmax of -cost / tau; the first of the cheapest at tau = 0."""
    low, high, pick = cost[0], cost[0], 0
    for j in range(cost.size):
        if cost[j] < low:
            low, pick = cost[j], j
        high = max(high, cost[j])
    if tau == 0.0:
        return pick
    scale = high - low if spread and high > low else 1.0
    total = 0.0
    for j in range(cost.size):
        total += np.exp(-(cost[j] - low) / (tau * scale))
    level = u * total
    for j in range(cost.size):
        level -= np.exp(-(cost[j] - low) / (tau * scale))
        if level < 0.0:
            return j
    return cost.size - 1


@kernel(tiered=True)
def _assign(f, miss, omega, group, router, uniform, x):  # type: ignore[no-untyped-def]
    """Replay a game with random numbers (runs, n): x[b] becomes the flow of run b. `miss` (G, m) is 1 - overlap."""
    m, policy = f.shape[0], router.policy
    cost = np.empty(m)
    for b in range(len(x)):
        n = np.zeros(m, np.int64)
        for i in range(len(group)):
            g = group[i]
            for j in range(m):
                if policy == SHORTEST_QUEUE:
                    cost[j] = n[j]
                elif policy == CACHE:  # most of the prefix first, then the shorter queue
                    cost[j] = miss[g, j] + 1e-9 * n[j]
                elif policy == DYNAMO:
                    cost[j] = f[j, n[j]] + router.weight * miss[g, j]
                else:
                    before = n[j] * f[j, n[j] - 1] if n[j] > 0 else 0.0
                    cost[j] = (n[j] + 1) * f[j, n[j]] - before + omega * miss[g, j]
            pick = _draw(cost, router.tau if policy == DYNAMO else 0.0, uniform[b, i], router.normalized)
            n[pick] += 1
            x[b, g, pick] += 1


@kernel(tiered=True)
def _less_loaded(group: Any, first: Any, second: Any, x: Any) -> None:
    """x[b] becomes the flow of run b, whose requests take the less loaded of two workers (runs, n), or the first."""
    for b in range(len(x)):
        n = np.zeros(x.shape[2], np.int64)
        for i in range(len(group)):
            pick = second[b, i] if n[second[b, i]] < n[first[b, i]] else first[b, i]
            n[pick] += 1
            x[b, group[i], pick] += 1


def _two_choices(group: np.ndarray, shape: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """Flows of runs in which each request, by its group, takes the less loaded of two different workers at random."""
    x, workers = np.zeros(shape, np.int64), shape[2]
    at_once = max(1, _AT_ONCE // (2 * len(group) + x[0].size))
    for start in range(0, len(x), at_once):
        part = x[start : start + at_once]
        first, step = (rng.integers(most, size=(len(part), len(group))) for most in (workers, max(workers - 1, 1)))
        _less_loaded(group, first, (first + 1 + step) % workers, part)
    return x


def policy_flows(
    game: RoutingGame,
    policy: RoutingPolicy,
    rng: np.random.Generator,
    runs: int = 1,
    router_omega: float | None = None,
    tau: float = 0.0,
    normalized: bool = True,
) -> np.ndarray:
    """Flows (runs, G, m) of one game under a policy, in `POLICIES`, with groups in an order that is drawn once.

    Runs differ in what a policy leaves to chance: nothing but for random, power of two, and "dynamo" with tau > 0.
    "dynamo" minimises f_j(n_j + 1) + router_omega (1 - o) at temperature tau (divided by the range of the costs with
    `normalized`, as Dynamo does); its omega may differ from what a miss really costs, the game's.
    """
    if policy not in POLICIES:
        raise InputError(f"policy {policy!r}; accepted are {', '.join(POLICIES)}")
    a = game.arrays()
    if a.size != 1:
        raise InputError(f"{a.size} games; accepted is one")
    miss, omega = 1.0 - np.asarray(game.overlap).reshape(game.groups_count, -1), float(np.asarray(game.omega).item())
    counts, workers = a.counts[0], game.workers_count
    group = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    if policy == RoutingPolicy.RANDOM:
        return rng.multinomial(counts, np.full(workers, 1.0 / workers), (runs, len(counts)))
    if policy == RoutingPolicy.POWER_OF_TWO:
        return _two_choices(group, (runs, len(counts), workers), rng)
    drawn = runs if policy == RoutingPolicy.DYNAMO and tau > 0 else 1  # all others do the same in every run
    x = np.zeros((drawn, len(counts), workers), np.int64)
    if policy == RoutingPolicy.ROUND_ROBIN:
        np.add.at(x[0], (group, np.arange(len(group)) % workers), 1)
    else:
        uniform = rng.uniform(size=(drawn, len(group)))
        weight = omega if router_omega is None else float(router_omega)
        router = _Router(RoutingPolicy(policy).number, weight, float(tau), bool(normalized))
        loop = lambda i, j: _assign(a.f[0], miss, omega, group, router, uniform[i:j], x[i:j])
        share(loop, drawn, drawn * len(group) * (REQUEST_S + PLACE_S * workers))
    return np.repeat(x, runs // drawn, axis=0)


def counterfactuals(game: RoutingGame, rng: np.random.Generator, runs: int = 200) -> dict[str, np.ndarray]:
    """Social cost of every policy over the certified optimum, (runs,) each. 1 is optimal."""
    a = game.arrays()
    flows, _ = optimum_flows(a)
    least = float(sums(a, flows[0])[0])
    return {name: sums(a, policy_flows(game, name, rng, runs))[0] / least for name in POLICIES}
