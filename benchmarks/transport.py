"""`transport` and `congestion_transport` beside Hungarians on the replicated matrix and network-flow codes.

    python -m benchmarks.transport

Windows of n rows and m columns with room for about n rows in all; `spread` costs are uniform, `skewed` ones make
every row prefer the same columns, so that capacities bind. Every solver must find the same optimum. Times are
CPU-seconds, so that our second thread brings us nothing here. Then single problems of growing n show the n log n.
Rows go to results/transport.jsonl, the figure to results/transport.png.
"""

from __future__ import annotations

import time

import numpy as np

from dmodels.solvers import congestion_transport, transport

from .assignment_peers import transport_peers
from .registry import RESULTS, interleaved, record

#: Rows, columns, capacity of each column.
WINDOWS = [(64, 2, 64), (126, 2, 64), (200, 5, 64), (512, 5, 103), (512, 5, 128), (508, 4, 128), (500, 8, 64),
           (512, 16, 40)]  # fmt: skip
SIZES = [(n, m) for m in (4, 16, 64) for n in (100, 1_000, 10_000, 100_000)]
WINDOWS_AT_ONCE = 20

#: Solvers of which three windows are enough.
SLOW = ("SciPy Hungarian, replicated", "lapx, replicated")


def costs(rng, batch: int, n: int, m: int, skewed: bool) -> np.ndarray:
    return rng.random((batch, n, m)) + (np.linspace(0, 1, m) if skewed else 0)


def window(n: int, m: int, room: int, skewed: bool, peers: dict, repeats: int) -> list[dict]:
    """CPU-seconds per window of every solver, one window after the other and, for ours, as a batch too."""
    cost = costs(np.random.default_rng(n + m), WINDOWS_AT_ONCE, n, m, skewed)
    capacity = np.full(m, room)
    marginal = np.arange(1, room + 1) * 2.0 / n * np.ones((m, 1))
    cases = {
        "dmodels, batch": lambda: transport(cost, capacity).value.cost,
        "dmodels, one by one": lambda: np.array([transport(c, capacity).value.cost for c in cost]),
        "dmodels, congestion, batch": lambda: congestion_transport(cost, marginal).value.cost,
    }
    few = {name: 3 if name in SLOW else WINDOWS_AT_ONCE for name in peers}
    for name, solve in peers.items():
        cases[name] = lambda solve=solve, k=few[name]: np.array([solve(c, capacity) for c in cost[:k]])
    best = cases["dmodels, batch"]()
    for name, case in cases.items():
        if "congestion" not in name:
            found = case()
            np.testing.assert_allclose(found, best[: len(found)], rtol=1e-6, err_msg=name)
    return [{"what": "windows", "n": n, "m": m, "capacity": room, "skewed": skewed, "solver": name,
             "cpu_seconds_per_window": seconds / few.get(name, WINDOWS_AT_ONCE)}
            for name, seconds in interleaved(cases, repeats, time.process_time).items()]  # fmt: skip


def windows(repeats: int = 3) -> list[dict]:
    """All windows, spread and skewed."""
    peers = transport_peers()
    rows = []
    for n, m, room in WINDOWS:
        for skewed in (False, True):
            rows += (found := window(n, m, room, skewed, peers, repeats))
            show(found)
    return rows


def show(rows: list[dict]) -> None:
    ours = next(r["cpu_seconds_per_window"] for r in rows if r["solver"] == "dmodels, batch")
    first = rows[0]
    print(f"n={first['n']} m={first['m']} C={first['capacity']} {'skewed' if first['skewed'] else 'spread'}")
    for r in rows:
        seconds = r["cpu_seconds_per_window"]
        print(f"  {r['solver']:32s} {1e6 * seconds:12.1f} us {seconds / ours:9.2f} x")


def scaling() -> list[dict]:
    """CPU seconds of one problem (one core) as n grows, m fixed."""
    rng = np.random.default_rng(1)
    rows = []
    for n, m in SIZES:
        for skewed in (False, True):
            cost, capacity = costs(rng, 1, n, m, skewed)[0], np.full(m, -(-n // m))
            best, gap = np.inf, 0.0
            for _ in range(3):
                start = time.process_time()
                solution = transport(cost, capacity)
                best = min(best, time.process_time() - start)
            assert solution.flags == 0
            gap = float(solution.certificate["gap"] / solution.value.cost)
            rows.append({"what": "scaling", "n": n, "m": m, "skewed": skewed, "cpu_seconds": best, "gap_relative": gap,
                         "ns_per_n_log2_n": 1e9 * best / (n * np.log2(n))})  # fmt: skip
            print(f"n={n:7d} m={m:3d} {'skewed' if skewed else 'spread'} {1e3 * best:10.2f} ms "
                  f"{rows[-1]['ns_per_n_log2_n']:8.2f} ns/(n log2 n), gap {gap:.1e}")  # fmt: skip
    return rows


def figure(rows: list[dict]) -> None:
    from matplotlib.figure import Figure

    picture = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = picture.subplots(1, 2)
    found = [r for r in rows if r["what"] == "windows" and r["skewed"]]
    names = list(dict.fromkeys(r["solver"] for r in found))
    cells = list(dict.fromkeys((r["n"], r["m"], r["capacity"]) for r in found))
    for name in names:
        rate = [1 / r["cpu_seconds_per_window"] for r in found if r["solver"] == name]
        left.plot(range(len(cells)), rate, "o-" if name.startswith("dmodels") else "s--", label=name, markersize=4)
    left.set(yscale="log", ylabel="windows per CPU-second", title="Skewed costs, capacities bind")
    left.set_xticks(range(len(cells)), [f"{n} x {m} of {room}" for n, m, room in cells], rotation=30)
    left.set_xlabel("rows x columns of capacity")
    left.set_ylim(top=2e6)
    left.legend(fontsize=7, ncols=2, loc="upper right")
    for m in sorted({m for _, m in SIZES}):
        for skewed, style in ((False, "o-"), (True, "s--")):
            line = [r for r in rows if r["what"] == "scaling" and r["m"] == m and r["skewed"] == skewed]
            label = f"m = {m}, {'skewed' if skewed else 'spread'}"
            right.plot([r["n"] for r in line], [r["cpu_seconds"] for r in line], style, label=label, markersize=4)
    n = np.array([1e3, 1e5])
    right.plot(n, 3e-8 * n * np.log2(n), "k:", label="n log n")
    right.set(xscale="log", yscale="log", xlabel="rows n", ylabel="CPU seconds", title="One problem, one core")
    right.legend(fontsize=7)
    picture.savefig(RESULTS / "transport.png", dpi=120)


if __name__ == "__main__":
    everything = windows() + scaling()
    record("transport", everything, "lapx", "POT", "ortools")
    figure(everything)
