r"""Static counterfactuals of section 9.2: the same requests assigned by simple policies, against the optimum.

All under one cost model, $f_j(n_j) + \omega(1 - o_{ij})$ at the final loads. Requests arrive in order and stay.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.routing import RoutingPolicy, at_random, power_of_two
from dmodels.core.threads import share

from .game import RoutingGame, sums
from .optima import optimum_flows

#: The policies that a game can be replayed with.
POLICIES = (
    RoutingPolicy.ROUND_ROBIN,
    RoutingPolicy.RANDOM,
    RoutingPolicy.POWER_OF_TWO,
    RoutingPolicy.SHORTEST_QUEUE,
    RoutingPolicy.CACHE,
    RoutingPolicy.DYNAMO,
    RoutingPolicy.MARGINAL_COST,
)
ROUND_ROBIN, RANDOM, POWER_OF_TWO, SHORTEST_QUEUE, CACHE, DYNAMO, MARGINAL_COST = (p.number for p in POLICIES)


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


@kernel
def _assign(
    f: np.ndarray,
    overlap: np.ndarray,
    omega: np.ndarray,
    group: np.ndarray,
    policy: int,
    weight: float,
    tau: float,
    spread: float,
    uniform: np.ndarray,
    first: int,
    last: int,
    x: np.ndarray,
) -> None:
    """Replay games first..last: x[b] becomes the flow of the policy."""
    m = f.shape[1]
    cost = np.empty(m)
    for b in range(first, last):
        fb, ob = f[b % len(f)], overlap[b % len(overlap)]
        miss = omega[b % len(omega)]
        n = np.zeros(m, np.int64)
        for i in range(len(group)):
            g, u, v = group[i], uniform[b, i, 0], uniform[b, i, 1]
            if policy == ROUND_ROBIN:
                pick = i % m
            elif policy == RANDOM:
                pick = at_random(n, 0, m, u)
            elif policy == POWER_OF_TWO:
                pick = power_of_two(n, 0, m, u, v)
            else:
                for j in range(m):
                    if policy == SHORTEST_QUEUE:
                        cost[j] = n[j]
                    elif policy == CACHE:  # most of the prefix first, then the shorter queue
                        cost[j] = -ob[g, j] + 1e-9 * n[j]
                    elif policy == DYNAMO:
                        cost[j] = fb[j, n[j]] + weight * (1.0 - ob[g, j])
                    else:
                        before = n[j] * fb[j, n[j] - 1] if n[j] > 0 else 0.0
                        cost[j] = (n[j] + 1) * fb[j, n[j]] - before + miss * (1.0 - ob[g, j])
                pick = _draw(cost, tau if policy == DYNAMO else 0.0, u, spread)
            n[pick] += 1
            x[b, g, pick] += 1


def policy_flows(
    game: RoutingGame,
    policy: RoutingPolicy,
    rng: np.random.Generator,
    runs: int = 1,
    router_omega: float | None = None,
    tau: float = 0.0,
    normalized: bool = True,
) -> np.ndarray:
    """Flows (runs, G, m) of one game under a policy, in `POLICIES`; randomness and, between groups, the order vary.

    "dynamo" minimises f_j(n_j + 1) + router_omega (1 - o) at temperature tau (divided by the range of the costs with
    `normalized`, as Dynamo does); its omega may differ from what a miss really costs, the game's.
    """
    if policy not in POLICIES:
        raise InputError(f"policy {policy!r}; accepted are {', '.join(POLICIES)}")
    a = game.arrays()
    if a.size != 1:
        raise InputError(f"{a.size} games; accepted is one")
    overlap, omega = np.asarray(game.overlap).reshape(1, game.groups_count, -1), np.asarray(game.omega).reshape(1)
    group = rng.permutation(np.repeat(np.arange(game.groups_count), a.counts[0]))
    uniform = rng.uniform(size=(runs, len(group), 2))
    x = np.zeros((runs, game.groups_count, game.workers_count), np.int64)
    weight = float(omega[0] if router_omega is None else router_omega)
    share(
        lambda i, j: _assign(
            a.f,
            np.ascontiguousarray(overlap),
            omega,
            group,
            RoutingPolicy(policy).number,
            weight,
            float(tau),
            normalized,
            uniform,
            i,
            j,
            x,
        ),
        runs,
        runs * 1e-5,
    )
    return x


def counterfactuals(game: RoutingGame, rng: np.random.Generator, runs: int = 200) -> dict[str, np.ndarray]:
    """Social cost of every policy over the certified optimum, (runs,) each. 1 is optimal."""
    a = game.arrays()
    flows, _ = optimum_flows(a)
    least = float(sums(a, flows[0])[0])
    return {name: sums(a, policy_flows(game, name, rng, runs))[0] / least for name in POLICIES}
