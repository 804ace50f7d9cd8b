"""Exact price of anarchy of routing games, certified intervals, and PoA-hat against the Hungarian on copied columns."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.registry import Row, benchmark, interleaved
from dmodels.games.anarchy import poa_index, price_of_anarchy
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import LatencyCurve, affine


def game(rng: np.random.Generator, kind: str, n: int, m: int, groups: int, batch: tuple[int, ...] = ()) -> RoutingGame:
    """A random game: workers that differ up to 4x, poles 1.1 to 2 times above the mean load, omega over two decades."""
    scale = rng.uniform(0.5, 2.0, (*batch, m))
    if kind == "affine":
        curve, unit = affine(scale, rng.uniform(0, n / 10, (*batch, m))), n / m / 10
    else:
        n_sat = np.ceil(n / m * rng.uniform(1.1, 2.0, (*batch, m)))
        ones = np.ones((*batch, m))
        curve, unit = LatencyCurve(0.005 * scale, 0.02 * ones, 0.01 * ones, n_sat, 2.0 * ones), 0.005 * n / m / 10
    omega = unit * 10.0 ** rng.uniform(-1, 1, batch)
    counts = np.bincount(rng.integers(0, groups, n), minlength=groups) if groups < n else np.ones(n)
    return RoutingGame(curve, rng.uniform(size=(*batch, groups, m)), omega, np.broadcast_to(counts, (*batch, groups)))


def exact_cases(rng: np.random.Generator, games: int = 200) -> list[dict]:
    """Milliseconds per game where the interval is exact, one game a call, one after another."""
    rows = []
    for kind in ("affine", "singular"):
        for n, m, groups in ((512, 5, 4), (512, 8, 4), (512, 8, 8), (64, 5, 64), (1000, 32, 4)):
            cases = [game(rng, kind, n, m, groups) for _ in range(games if n * groups < 4000 else games // 4)]
            price_of_anarchy(cases[0])
            took, exact = [], 0
            for case in cases:
                start = time.perf_counter()
                exact += bool(price_of_anarchy(case).exact)
                took.append(1e3 * (time.perf_counter() - start))
            rows.append(
                {
                    "case": "exact",
                    "kind": kind,
                    "n": n,
                    "m": m,
                    "groups": groups,
                    "games": len(cases),
                    "exact_frac": exact / len(cases),
                    "median_ms": float(np.median(took)),
                    "p99_ms": float(np.quantile(took, 0.99)),
                    "max_ms": max(took),
                }
            )
    return rows


def batch_cases(rng: np.random.Generator, games: int = 4000) -> list[dict]:
    """Games per second in one call, n = 64, m = 5: without cache terms (exact) and certified intervals with them."""
    rows = []
    for name, groups, zero, boxes in (
        ("omega = 0, exact", 1, True, 200_000),
        ("5 groups, exact", 5, False, 200_000),
        ("5 groups, interval", 5, False, 1),
        ("64 overlap rows, interval", 64, False, 1),
    ):
        batch = game(rng, "singular", 64, 5, groups, (games,))
        batch = batch.replace(omega=np.zeros(games)) if zero else batch
        best = interleaved({"poa": lambda batch=batch, boxes=boxes: price_of_anarchy(batch, boxes)}, 3)["poa"]
        start = time.process_time()
        p = price_of_anarchy(batch, boxes)
        cpu_s = time.process_time() - start  # what other work on the machine cannot slow down
        width = p.upper / p.lower - 1
        rows.append(
            {
                "case": "batch",
                "name": name,
                "games_per_s": games / best,
                "games_per_cpu_s": games / cpu_s,
                "certified_frac": p.certified.mean(),
                "exact_frac": p.exact.mean(),
                "median_width": np.median(width),
                "p99_width": np.quantile(width, 0.99),
            }
        )
    return rows


def cut_cases(rng: np.random.Generator, games: int = 5) -> list[dict]:
    """Games too large to enumerate within 1,000 boxes: widths of the certified intervals, and seconds a game."""
    rows = []
    for kind in ("affine", "singular"):
        for n, m, groups in ((300, 12, 6), (400, 16, 8), (1000, 32, 8)):
            cases = [game(rng, kind, n, m, groups) for _ in range(games)]
            for boxes in (1, 1000):
                start = time.perf_counter()
                found = [price_of_anarchy(case, boxes) for case in cases]
                took = (time.perf_counter() - start) / games
                width = [float(p.upper / p.lower - 1) for p in found]
                rows.append(
                    {
                        "case": "cut",
                        "kind": kind,
                        "n": n,
                        "m": m,
                        "groups": groups,
                        "max_boxes": boxes,
                        "certified_frac": float(np.mean([p.certified for p in found])),
                        "seconds": took,
                        "median_width": float(np.median(width)),
                        "max_width": max(width),
                    }
                )
    return rows


def hungarian(latency, worker, overlap, capacity: int = 64) -> float:
    """Section 6.4 of the paper, one window."""
    loads = np.bincount(worker, minlength=overlap.shape[1])
    cost = 0.005 * loads + 0.02 + 0.01 / (capacity - loads) ** 2.0 - 0.015 * overlap
    matrix = np.repeat(cost, capacity, axis=1)
    return latency.sum() / matrix[linear_sum_assignment(matrix)].sum()


def index_cases(rng: np.random.Generator, count: int = 1000, peer: int = 20) -> list[dict]:
    """Seconds for 1,000 windows of 512 requests on 10 workers; the peer runs `peer` of them in each round."""
    rows = []
    for name, prefixes in (("5 prefixes", 5), ("every overlap its own", None)):
        n, m = 512, 10
        rank = rng.uniform(size=(count, n)).argsort(1)
        worker = rank % m
        if prefixes:
            overlap = rng.uniform(size=(prefixes, m))[rng.integers(0, prefixes, (count, n))]
        else:
            overlap = rng.uniform(size=(count, n, m))
        latency = rng.exponential(2.0, (count, n))
        ours = lambda v=(latency, worker, overlap): poa_index(*v)
        theirs = lambda v=(latency, worker, overlap): [hungarian(*(a[i] for a in v)) for i in range(peer)]
        best = interleaved({"dmodels": ours, "scipy": theirs}, 4)
        scipy_s = best["scipy"] * count / peer
        difference = np.abs(ours().poa_hat[:peer] / theirs() - 1).max()
        rows.append(
            {
                "case": "PoA-hat",
                "name": name,
                "windows": count,
                "requests": n,
                "workers": m,
                "dmodels_s": best["dmodels"],
                "scipy_s": scipy_s,
                "times_faster": scipy_s / best["dmodels"],
                "largest_relative_difference": difference,
            }
        )
    return rows


@benchmark("scipy")
def poa(quick: bool) -> Iterator[Row]:
    """Exact price of anarchy of routing games, certified intervals, and PoA-hat beside the Hungarian."""
    rng = np.random.default_rng(0)
    yield from batch_cases(rng, 40 if quick else 4000)
    yield from index_cases(rng, 20 if quick else 1000)
    if not quick:
        yield from exact_cases(rng)
        yield from cut_cases(rng)
