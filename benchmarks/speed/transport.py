"""`transport` and `congestion_transport` beside Hungarians on the replicated matrix and network-flow codes.

Windows of n rows and m columns with room for about n rows in all; `spread` costs are uniform, `skewed` ones make
every row prefer the same columns, so that capacities bind. Every solver must find the same optimum. Times are
CPU-seconds per window, so that our second thread brings us nothing here. Peers take one window per call; we are
measured so too ("one by one") and with all windows in one call ("batch"). The Hungarians get the matrix with a column
per slot: square where capacities add up to n; where they exceed it, it stays rectangular, which is faster for them than
padding it. Then single problems of growing n show the n log n.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.registry import Row, benchmark, interleaved
from benchmarks.speed._assignment_peers import transport_peers
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


@benchmark("lapx", "POT", "ortools", "scipy", name="transport")
def transport_windows(quick: bool) -> Iterator[Row]:
    """Transportation with capacities: CPU-seconds per window of every solver, and single problems of growing n."""
    peers = transport_peers()
    for n, m, room in WINDOWS[:1] if quick else WINDOWS:
        for skewed in (False, True):
            yield from window(n, m, room, skewed, peers, 1 if quick else 3)
    for n, m in SIZES[:1] if quick else SIZES:
        for skewed in (False, True):
            yield scaling(n, m, skewed)
