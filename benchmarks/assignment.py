"""`assign` beside SciPy, lap, lapx and optax: matrices per second against n and batch size.

    python -m benchmarks.assignment

Uniform costs, and costs whose columns are 2 to 5 distinct ones repeated (requests to workers with capacities). Every
solver solves every cell in one run, interleaved, and must find the same optima. Single matrices, one per call, are
measured beside the peers' bare calls, which neither sum the costs nor prove anything. Rows go to
results/assignment.jsonl, the figure to figures/assignment.png.
"""

from __future__ import annotations

import numpy as np

from dmodels.solvers import assign

from .assignment_peers import assignment_peers, single_peers
from .registry import FIGURES, interleaved, record

CELLS = [(1000, 8), (1000, 32), (200, 64), (50, 128), (10, 256), (4, 512)]
BATCHES = [(b, 32) for b in (1, 10, 100, 1000)]
SINGLES = (4, 8, 16, 32, 64, 128, 256)
KINDS = ("uniform", "2 distinct columns", "5 distinct columns")

#: optax under vmap needs minutes beyond this n.
OPTAX_UP_TO = 64


def batch(kind: str, count: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    if kind == "uniform":
        return rng.random((count, n, n))
    distinct = int(kind[0])
    return np.take(rng.random((count, n, distinct)), np.arange(n) * distinct // n, axis=2)


def cell(kind: str, count: int, n: int, peers: dict, repeats: int) -> dict[str, float]:
    """Matrices per second of every solver on one batch; all must find the same optima."""
    costs = batch(kind, count, n)
    cases = {"dmodels": lambda: assign(costs).value.cost}
    for name, solve in peers.items():
        if name != "optax vmapped" or n <= OPTAX_UP_TO:
            cases[name] = lambda solve=solve: solve(costs)
    best = cases["dmodels"]()
    for name, case in cases.items():
        np.testing.assert_allclose(case(), best, rtol=1e-9, err_msg=name)
    calls = max(1, 100 // count) if n <= 32 else 1  # alone, a call of microseconds would measure cold caches
    several = {name: lambda case=case: [case() for _ in range(calls)] for name, case in cases.items()}
    return {name: calls * count / seconds for name, seconds in interleaved(several, repeats).items()}


def measure(repeats: int = 5) -> list[dict]:
    """Every cell; prints our rate and how it compares with the fastest peer of the cell."""
    peers = assignment_peers()
    rows = []
    for kind in KINDS:
        for count, n in CELLS + (BATCHES if kind == "uniform" else []):
            rates = cell(kind, count, n, peers, repeats)
            rows += [
                {"kind": kind, "batch": count, "n": n, "solver": name, "matrices_per_second": rate}
                for name, rate in rates.items()
            ]
            ours = rates.pop("dmodels")
            rival = max(rates, key=rates.get)
            versus = f"{ours / rates[rival]:5.2f} x the best peer ({rival})"
            print(f"{kind:20s} {count:5d} x {n:3d}: {ours:12,.0f} /s, {versus}", flush=True)
    return rows


def singles(repeats: int = 50) -> list[dict]:
    """One uniform matrix per call."""
    rows = []
    for n in SINGLES:
        cost = batch("uniform", 1, n)[0]
        calls = max(1, 2_000 // n)
        cases = {"dmodels": assign, **single_peers()}
        several = {
            name: lambda solve=solve, cost=cost, calls=calls: [solve(cost) for _ in range(calls)]
            for name, solve in cases.items()
        }
        took = {name: seconds / calls for name, seconds in interleaved(several, repeats).items()}
        rows += [
            {"kind": "single", "batch": 1, "n": n, "solver": name, "matrices_per_second": 1 / seconds}
            for name, seconds in took.items()
        ]
        print(f"one {n:3d} x {n:3d}: " + ", ".join(f"{name} {1e6 * t:.1f} us" for name, t in took.items()), flush=True)
    return rows


def figure(rows: list[dict]) -> None:
    from dmodels.report import naming, style

    picture, (panels,) = style.panels(1, 4, 20, 4.4)
    solvers = list(dict.fromkeys(r["solver"] for r in rows if r["kind"] != "single"))
    views = [("uniform", "n", CELLS), ("5 distinct columns", "n", CELLS), ("uniform", "batch", BATCHES)]
    for axes, (kind, along, cells) in zip(panels[:3], views, strict=True):
        ends = []
        for k, solver in enumerate(solvers):
            line = [r for r in rows if r["kind"] == kind and r["solver"] == solver and (r["batch"], r["n"]) in cells]
            line = {(r["batch"], r["n"]): r["matrices_per_second"] for r in line}  # a cell may be in both lists
            at = [cell for cell in dict.fromkeys(cells) if cell in line]
            kind_of_line = "o-" if solver == "dmodels" else "s--"
            axes.plot(
                [cell[along == "n"] for cell in at],
                [line[cell] for cell in at],
                kind_of_line,
                color=style.colour(k),
                markersize=4,
            )
            if at[-1] == cells[-1]:
                ends.append((line[at[-1]], solver, k))
            else:  # given up before the largest problems: named where it ends
                axes.annotate(
                    solver,
                    (at[-1][along == "n"], line[at[-1]]),
                    (0, -6),
                    textcoords="offset points",
                    ha="center",
                    va="top",
                    fontsize=style.SMALL,
                    color=style.writing(k),
                )
        title = f"{kind}, by n (batches as listed)" if along == "n" else f"{kind}, n = {BATCHES[0][1]}, by batch"
        axes.set(
            xscale="log",
            yscale="log",
            title=title,
            ylabel="speed [matrices/s]",
            xlabel="n [rows]" if along == "n" else "problems in the batch [1]",
        )
        ticks = sorted({cell[along == "n"] for cell in cells})
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.minorticks_off()
        naming.name_lines(axes, ends)
    alike = {"dmodels": "dmodels", "SciPy": "SciPy loop", "lapx": "lapx loop"}
    ends = []
    for solver, colour_of in alike.items():
        line = {r["n"]: r["matrices_per_second"] for r in rows if r["kind"] == "single" and r["solver"] == solver}
        place = solvers.index(colour_of)
        panels[3].plot(
            list(line),
            list(line.values()),
            "o-" if solver == "dmodels" else "s--",
            markersize=4,
            color=style.colour(place),
        )
        ends.append((line[SINGLES[-1]], solver, place))
    panels[3].set(
        xscale="log", yscale="log", title="uniform, one matrix per call", ylabel="speed [matrices/s]", xlabel="n [rows]"
    )
    panels[3].set_xticks(SINGLES, [str(n) for n in SINGLES])
    panels[3].minorticks_off()
    naming.name_lines(panels[3], ends)
    style.save(picture, FIGURES / "assignment.png", dpi=120)


if __name__ == "__main__":
    everything = measure() + singles()
    record("assignment", everything, "lapx", "optax")
    figure(everything)
