"""The placement game at the size of a fleet, and thousands of small games against enumeration.

200 workers x 20,000 blocks on two levels (nodes of eight on NVLink, InfiniBand between), on three levels, and on
networks that are no hierarchy (line, ring, ring one way, a given matrix that is not symmetric): an equilibrium by best
responses (approximate where play does not settle: `worth_frac`) and a certified lower bound on the cost of every
placement, with the memory used. The peer of the bound at a size that it can take is the linear relaxation by HiGHS.
`worst_gain` is what a worker could still save, as a share of what it pays.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels.games.placement import (
    PlacementGame,
    approximate_equilibrium,
    best_bound,
    best_response_dynamics,
    complete,
    fat_tree,
    hierarchical_equilibrium,
    isolated_s,
    line,
    price_bound,
    price_of_anarchy,
    ring,
    social_optimum,
    two_level,
)

NVLINK_S, INFINIBAND_S, PREFILL_S = 0.5e-3, 4e-3, 60e-3  # of one block of 512 tokens, Llama-3-70B, rounded


def demand(rng: np.random.Generator, workers: int, blocks: int, node: int = 8, skew: float = 0.9) -> np.ndarray:
    """Reads per second: Zipf popularity, half of it common, half each node's own taste, noise on every worker."""
    popular = np.arange(1, blocks + 1) ** -skew
    out = np.empty((workers, blocks))
    for first in range(0, workers, node):
        taste = (popular + popular[rng.permutation(blocks)]) / 2
        rows = out[first : first + node]
        rows[:] = taste * rng.gamma(2.0, 0.5, rows.shape)
    return 50.0 * out / out.sum(1, keepdims=True)


def timed(run):
    """(result, seconds, CPU-seconds)."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def warm_up(rng: np.random.Generator) -> None:
    """Compile every loop."""
    nodes = two_level(16, 8, NVLINK_S, INFINIBAND_S)
    small = PlacementGame(demand(rng, 16, 50), [1e-4, 2e-3], [2.0, 5.0], nodes, PREFILL_S)
    tier = best_response_dynamics(small).value.tier
    best_response_dynamics(small, coordinated=True)
    best_bound(small, iterations=2, tier=tier)
    hierarchical_equilibrium(small.replace(capacity_bytes=np.array([5.0, np.inf])))
    best_bound(small.replace(distance_s=line(16, 1e-3)), iterations=2)


def fleet(rng: np.random.Generator, name: str, distance: np.ndarray, access, capacity, iterations: int) -> dict:
    """One game of 200 workers and 20,000 blocks."""
    game = PlacementGame(demand(rng, 200, 20_000), access, capacity, distance, PREFILL_S)
    nash, nash_wall, nash_cpu = timed(lambda: approximate_equilibrium(game))
    bound, bound_wall, bound_cpu = timed(lambda: best_bound(game, nash.value.social_s, iterations, nash.value.tier))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = {
        "case": "fleet",
        "network": name,
        "workers": 200,
        "blocks": 20_000,
        "access_s": list(access),
        "capacity_blocks": list(capacity),
        "equilibrium_s": nash_wall,
        "equilibrium_cpu_s": nash_cpu,
        "moves": int(nash.steps),
        "worth_frac": nash.certificate["worth_frac"],
        "bound_s": bound_wall,
        "bound_cpu_s": bound_cpu,
        "together_s": nash_wall + bound_wall,
        "peak_gib": peak,
        "cost": nash.value.social_s,
        "isolated_cost": float(isolated_s(game).sum()),
        "bound": float(bound.value),
        "worst_gain": float((nash.certificate["gain_s"] / nash.value.cost_s).max()),
        "bound_again": price_bound(game, bound.certificate["prices"]),
    }
    best, row["coordinated_s"], _ = timed(
        lambda: best_response_dynamics(game, nash.value.tier, coordinated=True, max_rounds=2)
    )
    row |= {"coordinated_cost": best.value.social_s, "equilibrium_over_bound": nash.value.social_s / float(bound.value)}
    if np.isinf(capacity[-1]) and name.startswith("two levels"):
        floors, row["floors_s"], _ = timed(lambda: hierarchical_equilibrium(game))
        row |= {"floors_cost": floors.value.social_s, "floors_moves": int(floors.steps)}
    return row


def fleets(rng: np.random.Generator) -> Iterator[dict]:
    """The game on every kind of network."""
    nodes, two = two_level(200, 8, NVLINK_S, INFINIBAND_S), ((1e-4, 2e-3), (200.0, 800.0))
    one = ((1e-4, 20e-3), (500.0, np.inf))
    yield fleet(rng, "two levels, two limited tiers", nodes, *two, 20)
    yield fleet(rng, "two levels, HBM limited", nodes, *one, 20)
    yield fleet(rng, "fat tree of three levels", fat_tree(200, (8, 40), (0.5e-3, 2e-3, 4e-3)), *two, 20)
    yield fleet(rng, "line", line(200, 1e-3), *two, 10)
    yield fleet(rng, "ring", ring(200, 1e-3), *two, 10)
    yield fleet(rng, "ring one way", ring(200, 0.5e-3, directed=True), *two, 10)
    yield fleet(rng, "given, not symmetric", rng.uniform(0.2e-3, 8e-3, (200, 200)), *two, 10)


def bounds_beside_highs(rng: np.random.Generator) -> Iterator[dict]:
    """The bound from prices beside the programme's relaxation and the optimum."""
    nodes = lambda n: two_level(n, 8, NVLINK_S, INFINIBAND_S)
    for name, network, n, m in (
        ("two levels", nodes, 8, 40),
        ("two levels", nodes, 16, 100),
        ("two levels", nodes, 24, 200),
        ("line", lambda n: line(n, 1e-3), 8, 40),
        ("line", lambda n: line(n, 1e-3), 16, 60),
        ("ring one way", lambda n: ring(n, 2e-3, directed=True), 12, 40),
    ):
        game = PlacementGame(demand(rng, n, m), [1e-4, 2e-3], [m // 20, m // 10], network(n), PREFILL_S)
        exact, highs_s, _ = timed(lambda game=game: social_optimum(game, time_limit_s=10.0, rel_gap=1e-4))
        nash = approximate_equilibrium(game)
        ours, ours_s, _ = timed(lambda g=game, s=nash: best_bound(g, s.value.social_s, 150, s.value.tier))
        yield {
            "case": "bound",
            "network": name,
            "workers": n,
            "blocks": m,
            "highs_s": highs_s,
            "prices_s": ours_s,
            "optimum_found": exact.value.social_s,
            "highs_bound": exact.certificate["bound_s"],
            "lp_bound": exact.certificate["lp_bound_s"],
            "prices_bound": float(ours.value),
            "equilibrium": nash.value.social_s,
        }


def small_games(rng: np.random.Generator, count: int = 1000) -> Iterator[dict]:
    """How often there is an equilibrium, and what it costs: random games of three workers and three blocks."""
    networks = {"complete": complete(3, 1.0), "line": line(3, 1.0), "one-way ring": ring(3, 1.0, directed=True)}
    for name, distance in networks.items():
        for tiers in (1, 2):
            prices, none, start = [], 0, time.perf_counter()
            for _ in range(count):
                game = PlacementGame(
                    rng.zipf(1.8, (3, 3)).clip(max=50),
                    [1.0, 2.0][:tiers],
                    [1.0, 1.0][:tiers],
                    distance,
                    float(rng.integers(3, 12)),
                )
                p = price_of_anarchy(game)
                none += p.exists == 0
                prices += [p.upper] if p.exists == 1 else []
            yield {
                "case": "small",
                "network": name,
                "tiers": tiers,
                "games": count,
                "without_equilibrium": none,
                "price_mean": np.mean(prices),
                "price_p99": np.quantile(prices, 0.99),
                "price_max": max(prices),
                "games_per_s": count / (time.perf_counter() - start),
            }


@benchmark()
def placement(quick: bool) -> Iterator[Row]:
    """The placement game at the size of a fleet, its bound beside HiGHS, and thousands of small games enumerated."""
    rng = np.random.default_rng(0)
    warm_up(rng)
    if not quick:
        yield from fleets(rng)
        yield from bounds_beside_highs(rng)
    yield from small_games(rng, 20 if quick else 1000)
