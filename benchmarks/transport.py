"""`transport` and `congestion_transport` beside Hungarians on the replicated matrix and network-flow codes.

    python -m benchmarks.transport

Windows of n rows and m columns with room for about n rows in all; `spread` costs are uniform, `skewed` ones make
every row prefer the same columns, so that capacities bind. Every solver must find the same optimum. Times are
CPU-seconds per window, so that our second thread brings us nothing here. Peers take one window per call; we are
measured so too ("one by one") and with all windows in one call ("batch"). The Hungarians get the matrix with a column
per slot: square where capacities add up to n; where they exceed it, it stays rectangular, which is faster for them than
padding it. Then single problems of growing n show the n log n. Rows go to results/transport.jsonl, the figure to
figures/transport.png.
"""

from __future__ import annotations

import time

import numpy as np

from dmodels.solvers import congestion_transport, transport

from .assignment_peers import transport_peers
from .registry import FIGURES, interleaved, record

#: Rows, columns, capacity of each column (of all, where one number stands for them).
WINDOWS = [(64, 2, 64), (126, 2, 64), (200, 5, 64), (512, 5, (64, 96, 112, 112, 128)), (512, 5, 103), (512, 5, 115),
           (512, 5, 128), (508, 4, 128), (500, 8, 64), (512, 16, 40)]  # fmt: skip
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
    seconds = {r["solver"]: r["cpu_seconds_per_window"] for r in rows}
    first = rows[0]
    print(f"n={first['n']} m={first['m']} C={first['capacity']} {'skewed' if first['skewed'] else 'spread'}")
    batch, single = seconds["dmodels, batch"], seconds["dmodels, one by one"]
    for name, took in seconds.items():
        print(f"  {name:32s} {1e6 * took:12.1f} us {took / batch:9.2f} x batch {took / single:9.2f} x one by one")


def summary(rows: list[dict]) -> None:
    """How many times faster we are where it is least: than the Hungarian, and than the best network-flow code."""
    cells: dict[tuple, dict] = {}
    for r in rows:
        if r["what"] == "windows":
            cell = cells.setdefault((r["n"], r["m"], r["capacity"], r["skewed"]), {})
            cell[r["solver"]] = r["cpu_seconds_per_window"]
    for ours in ("dmodels, batch", "dmodels, one by one"):
        hungarian = min(c[HUNGARIANS[0]] / c[ours] for k, c in cells.items() if k[:2] == (512, 5))
        flow = min(
            min(v for name, v in c.items() if name in ("POT emd", "OR-Tools min-cost flow")) / c[ours]
            for c in cells.values()
        )
        print(f"{ours}: at least {hungarian:.0f} x SciPy's Hungarian (n = 512, m = 5), {flow:.1f} x the best flow code")


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
            rows.append(
                {
                    "what": "scaling",
                    "n": n,
                    "m": m,
                    "skewed": skewed,
                    "cpu_seconds": best,
                    "gap_relative": gap,
                    "ns_per_n_log2_n": 1e9 * best / (n * np.log2(n)),
                }
            )
            print(
                f"n={n:7d} m={m:3d} {'skewed' if skewed else 'spread'} {1e3 * best:10.2f} ms "
                f"{rows[-1]['ns_per_n_log2_n']:8.2f} ns/(n log2 n), gap {gap:.1e}"
            )
    return rows


def figure(rows: list[dict]) -> None:
    from dmodels.report import naming, style

    picture, ((*panels, right),) = style.panels(1, 3, 19, 4.8)
    for axes, skewed in zip(panels, (False, True), strict=True):
        found = [r for r in rows if r["what"] == "windows" and r["skewed"] == skewed]
        cells, ends = list(dict.fromkeys((r["n"], r["m"], r["capacity"]) for r in found)), []
        for name in dict.fromkeys(r["solver"] for r in found):
            rate = [1 / r["cpu_seconds_per_window"] for r in found if r["solver"] == name]
            axes.plot(range(len(cells)), rate, "o-" if name.startswith("dmodels") else "s--", markersize=4)
            ends.append((rate[-1], name, len(ends)))
        axes.set(
            yscale="log",
            title="Skewed costs, capacities bind" if skewed else "Spread costs",
            ylim=(10, 1e6),
            ylabel="speed [windows per CPU-second]",
            xlabel="rows x columns of capacity [1]",
        )
        axes.set_xticks(
            range(len(cells)),
            [f"{n} x {m} of {room if len(room) < 4 else '64 to 128'}" for n, m, room in cells],
            rotation=35,
            ha="right",
            fontsize=8,
        )
        naming.name_lines(axes, ends)
    ends = []
    for m in sorted({m for _, m in SIZES}):
        for skewed, kind in ((False, "o-"), (True, "s--")):
            line = [r for r in rows if r["what"] == "scaling" and r["m"] == m and r["skewed"] == skewed]
            right.plot([r["n"] for r in line], [r["cpu_seconds"] for r in line], kind, markersize=4)
            ends.append((line[-1]["cpu_seconds"], f"m = {m}, {'skewed' if skewed else 'spread'}", len(ends)))
    n = np.array([1e3, 1e5])
    right.plot(n, 1e-9 * n * np.log2(n), ":", color=style.INK)
    right.annotate(
        "n log n",
        (n[0], 1e-9 * n[0] * np.log2(n[0])),
        (-5, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=style.SMALL,
        color=style.INK,
    )
    right.set(xscale="log", yscale="log", xlabel="n [rows]", ylabel="CPU time [s]", title="One problem, one core")
    naming.name_lines(right, ends)
    style.save(picture, FIGURES / "transport.png", dpi=120)


if __name__ == "__main__":
    everything = windows() + scaling()
    summary(everything)
    record("transport", everything, "lapx", "POT", "ortools")
    figure(everything)
