"""`transport` and `congestion_transport` beside Hungarians on the replicated matrix and network-flow codes.

Windows of n rows and m columns with room for about n rows in all; `spread` costs are uniform, `skewed` ones make
every row prefer the same columns, so that capacities bind. Every solver must find the same optimum. Times are
CPU-seconds per window, so that our second thread brings us nothing here. Peers take one window per call; we are
measured so too ("one by one") and with all windows in one call ("batch"). The Hungarians get the matrix with a column
per slot: square where capacities add up to n; where they exceed it, it stays rectangular, which is faster for them than
padding it. Then single problems of growing n show the n log n. Last a grid of shapes, cost structures and supplies: CPU
time of one problem as a ratio to the fastest peer's (below 1 we are faster).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from benchmarks.speed._assignment_peers import shipment_peers, transport_peers, warm
from dmodels.solvers import congestion_transport, transport

#: Rows, columns, capacity of each column (of all, where one number stands for them).
WINDOWS = [
    (64, 2, 64),
    (126, 2, 64),
    (200, 5, 64),
    (512, 5, (64, 96, 112, 112, 128)),
    (512, 5, 103),
    (512, 5, 115),
    (512, 5, 128),
    (508, 4, 128),
    (500, 8, 64),
    (512, 16, 40),
]
SIZES = [(n, m) for m in (4, 16, 64) for n in (100, 1_000, 10_000, 100_000)]
WINDOWS_AT_ONCE = 100

#: Rows and columns of the grid; what its costs and its supplies are.
GRID = [(8, 8), (32, 32), (128, 128), (512, 512), (512, 4), (508, 4), (512, 16), (512, 64), (64, 512), (4, 512)]
STRUCTURES = ("uniform", "integers", "ties", "products", "equal rows", "distances")
SUPPLIES = ("units", "whole", "real", "spare room")

#: A problem of the grid is solved over and over until the fastest takes so long: a single call of some microseconds
#: measures what the caches held.
LEAST_SECONDS = 1e-3

#: How many of the windows the peers are given; the Hungarians fewer.
PEER_WINDOWS, HUNGARIAN_WINDOWS = 20, 5
HUNGARIANS = ("SciPy Hungarian, replicated", "lapx, replicated")


def costs(rng, batch: int, n: int, m: int, skewed: bool) -> np.ndarray:
    return rng.random((batch, n, m)) + (np.linspace(0, 1, m) if skewed else 0)


def window(n: int, m: int, room, skewed: bool, peers: dict, repeats: int) -> list[dict]:
    """CPU-seconds per window of every solver, one window after the other and, for ours, as a batch too."""
    cost = costs(np.random.default_rng(n + m), WINDOWS_AT_ONCE, n, m, skewed)
    capacity = np.broadcast_to(room, m)
    slot = np.arange(1, capacity.max() + 1)
    marginal = np.where(slot <= capacity[:, None], slot * 2.0 / n, np.inf)
    cases = {
        "dmodels, batch": lambda: transport(cost, capacity).value.cost,
        "dmodels, one by one": lambda: np.array([transport(c, capacity).value.cost for c in cost]),
        "dmodels, congestion, batch": lambda: congestion_transport(cost, marginal).value.cost,
    }
    few = {name: HUNGARIAN_WINDOWS if name in HUNGARIANS else PEER_WINDOWS for name in peers}
    for name, solve in peers.items():
        cases[name] = lambda solve=solve, k=few[name]: np.array([solve(c, capacity) for c in cost[:k]])
    best = cases["dmodels, batch"]()
    for name, case in cases.items():
        if "congestion" not in name:
            found = case()
            np.testing.assert_allclose(found, best[: len(found)], rtol=1e-6, err_msg=name)
    return [
        {
            "what": "windows",
            "n": n,
            "m": m,
            "capacity": str(room),
            "skewed": skewed,
            "solver": name,
            "cpu_seconds_per_window": seconds / few.get(name, WINDOWS_AT_ONCE),
        }
        for name, seconds in interleaved(cases, repeats, time.process_time).items()
    ]


def scaling(n: int, m: int, skewed: bool) -> Row:
    """CPU seconds of one problem on one core."""
    cost = costs(np.random.default_rng(n + m), 1, n, m, skewed)[0]
    capacity = np.full(m, -(-n // m))
    solution = transport(cost, capacity)
    assert solution.flags == 0
    seconds = interleaved({"transport": lambda: transport(cost, capacity)}, 3, time.process_time)["transport"]
    gap = float(solution.certificate["gap"] / solution.value.cost)
    row = {"what": "scaling", "n": n, "m": m, "skewed": skewed, "cpu_seconds": seconds, "gap_relative": gap}
    return row | {"ns_per_n_log2_n": 1e9 * seconds / (n * np.log2(n))}


def structured(kind: str, rng, n: int, m: int) -> np.ndarray:
    """Costs (n, m) of one of `STRUCTURES`."""
    if kind in ("integers", "ties"):
        return rng.integers(0, 100 if kind == "integers" else 4, (n, m)) * 1.0
    if kind == "products":
        return np.outer(rng.random(n), rng.random(m))
    if kind == "equal rows":
        groups = max(1, n // 32)
        return np.take(rng.random((groups, m)), rng.integers(0, groups, n), axis=0)
    if kind == "distances":
        return ((rng.random((n, 1, 2)) - rng.random((1, m, 2))) ** 2).sum(-1)
    return rng.random((n, m))


def amounts(kind: str, rng, n: int, m: int) -> tuple[np.ndarray | None, np.ndarray]:
    """Supply (None: units) and capacities of one of `SUPPLIES`."""
    if kind == "units":
        return None, np.full(m, float(-(-n // m)))
    if kind == "whole":
        supply = rng.integers(1, 20, n) * 1.0
        return supply, rng.multinomial(int(supply.sum()), np.full(m, 1 / m)) * 1.0
    supply, capacity = rng.random(n) + 0.1, rng.random(m) + 0.1
    room = 1.3 if kind == "spare room" else 1 + 1e-9
    return supply, capacity * (room * supply.sum() / capacity.sum())


def grid_cell(n: int, m: int, structure: str, kind: str, repeats: int) -> Row:
    """CPU-seconds of one problem, ours and the fastest peer's."""
    rng = np.random.default_rng([n, m, STRUCTURES.index(structure), SUPPLIES.index(kind)])
    cost = structured(structure, rng, n, m)
    supply, capacity = amounts(kind, rng, n, m)
    solution = transport(cost, capacity, supply)
    assert solution.flags == 0
    cases = {"dmodels": lambda: transport(cost, capacity, supply).value.cost}
    for name, solve in shipment_peers().items():
        cases[name] = lambda solve=solve: solve(cost, capacity, supply)
    if supply is None and n * capacity.sum() <= 512 * 512:
        hungarian = transport_peers()[HUNGARIANS[0]]
        cases[HUNGARIANS[0]] = lambda: hungarian(cost, capacity.astype(int))
    for name, case in cases.items():
        np.testing.assert_allclose(case(), solution.value.cost, rtol=1e-6, atol=1e-9, err_msg=name)
    times = 1 + int(LEAST_SECONDS / min(interleaved(cases, 1, time.process_time).values()))
    seconds = {name: t / times for name, t in interleaved(_repeated(cases, times), repeats, time.process_time).items()}
    peer = min((name for name in seconds if name != "dmodels"), key=seconds.__getitem__)
    row = {"what": "grid", "n": n, "m": m, "costs": structure, "supply": kind, "cpu_seconds": seconds["dmodels"]}
    return row | {"best_peer": peer, "peer_cpu_seconds": seconds[peer], "ratio": seconds["dmodels"] / seconds[peer]}


def _repeated(cases: dict, times: int) -> dict:
    """Every case so many times over."""
    return {name: lambda case=case: [case() for _ in range(times)] for name, case in cases.items()}


@benchmark("lapx", "POT", "ortools", "scipy", name="transport")
def transport_windows(quick: bool) -> Iterator[Row]:
    """Transportation with capacities: windows beside every solver, problems of growing n, and a grid of shapes."""
    eye, ones = np.eye(4), np.ones(4)
    warm(lambda: transport(eye, ones), lambda: transport(eye, ones, ones))
    peers = transport_peers()
    for n, m, room in WINDOWS[:1] if quick else WINDOWS:
        for skewed in (False, True):
            yield from window(n, m, room, skewed, peers, 1 if quick else 3)
    for n, m in SIZES[:1] if quick else SIZES:
        for skewed in (False, True):
            yield scaling(n, m, skewed)
    if shipment_peers():
        for n, m in GRID[:1] if quick else GRID:
            for kind in SUPPLIES:
                for structure in STRUCTURES:
                    if kind != "units" or n >= m:
                        yield grid_cell(n, m, structure, kind, 3 if quick else 7)
