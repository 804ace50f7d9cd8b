"""How accurate the latency model is on measured serving points that it did not see.

    python -m tools.make_calibration               # everything: calibration, four protocols, intervals, tables
    python -m tools.make_calibration --only pair   # one protocol (its predictions are kept in out/accuracy)
    python -m tools.make_calibration --report      # tables and intervals from the predictions in out/accuracy

Protocols may run beside each other, each with a core of its own (`taskset`) and OPENBLAS_NUM_THREADS=1: threads of BLAS
that wait for a core busily make a fold take five times as long.

The calibration (dmodels/fit/data/calibration.json) and the intervals (intervals.json) that ship are what this writes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.registry import record as write_down
from dmodels.fit import calibration, conformal
from dmodels.fit.deployed import deployed
from dmodels.fit.points import family, fp8_formats, nearest_model, to_points
from dmodels.fit.predict import Errors, disagreement, errors, noise_floor, outliers, repeats
from dmodels.fit.protocols import LEFT_OUT, PROTOCOLS, held_out
from dmodels.fit.rows import Row, measurement, read_rows
from dmodels.fit.silicon import fit

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT.parent / "shared" / "data" / "silicon_fit.csv"
KEPT = ROOT / "out" / "accuracy"
DATA = ROOT / "dmodels" / "fit" / "data"
#: Novelty of a row -> the protocol whose errors tell of it, and what is known of the row (`protocols.KNOWN`).
NOVELTY = {
    "release": ("random", 0),
    "deployment": ("random", 1),
    "known": ("random", 2),
    "pair": ("pair", 1),
    "model": ("architecture", 1),
}
#: Which of a fold's predictions are shown (`protocols.KNOWN`), and as what.
USES = {
    "plan": (1, "as a plan predicts: without the release of the engine"),
    "release": (0, "\nwith the release stated"),
}
P90_OF_MEDIAN = 2.5
STEPS_FULL, STEPS_FOLD = 150, 12


LINES: list[str] = []


def say(line: str = "") -> None:
    """Print a line and keep it for the report file."""
    print(line)
    LINES.append(line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("full", *PROTOCOLS))
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--note", default="", help="a line to put at the head of the report file")
    chosen = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    points, table = to_points(read_rows(ROWS))
    rows = table.rows
    if not chosen.report and chosen.only in (None, "full"):
        effects = deployed(points, rows, fit(points, rows, max_steps=STEPS_FULL))
        provenance = {
            "rows": f"{ROWS.name}: {len(rows)} measured points, {len(table.rejected)} rejected",
            "source": "ai-dynamo/aiconfigurator, InferenceX and internal runs, Apache-2.0",
            "made_by": "tools/make_calibration.py",
        }
        (DATA / "calibration.json").write_text(calibration.dump(effects, provenance, fp8_formats(rows)))
    for protocol in PROTOCOLS:
        if not chosen.report and chosen.only in (None, protocol):
            # no fold starts from the calibration of all rows: what a few steps leave of it would be a leak
            np.save(KEPT / f"{protocol}.npy", held_out(points, rows, protocol, max_steps=STEPS_FOLD))
    if chosen.report or chosen.only is None:
        report(rows, {p: np.load(KEPT / f"{p}.npy") for p in PROTOCOLS}, chosen.note)


def report(rows: list[Row], predicted: dict[str, np.ndarray], note: str = "") -> None:
    """Tables and intervals from held-out predictions."""
    measured = np.log([[row.ttft_s, row.tpot_s] for row in rows])
    write_intervals(rows, measured, predicted)
    records = []
    stated = np.flatnonzero([row.stated for row in rows])
    own = [rows[i] for i in stated]
    for use, (known, heading) in USES.items():
        say(heading)
        for protocol, logs in predicted.items():
            log = logs[known]
            records.append(shown(protocol, protocol, use, rows, measured, log))
            records.append(shown(f"{protocol}, layout stated", protocol, use, own, measured[stated], log[stated]))
    write_down("accuracy", records)
    for name, of in BY.items():
        say(f"\nby {name} (random folds, release stated)")
        for value in sorted({of(row) for row in rows}):
            show(f"  {value}", rows, measured, predicted["random"][0], np.array([of(row) == value for row in rows]))
    say("\nby architecture left out (as a plan predicts)")
    for value in sorted({family(row.model_path) for row in rows}):
        mask = np.array([family(row.model_path) == value for row in rows])
        show(f"  {value}", rows, measured, predicted["architecture"][1], mask)
    noise(rows, measured, predicted["random"][0])
    parameters(rows)
    head = "Errors in per cent on measured serving points that the calibration did not see: median, mean, P90."
    made = f"Made by tools/make_calibration.py from {ROWS.name}. {note}".rstrip()
    text = "\n".join([head, made, "", *LINES, ""])
    (ROOT / "benchmarks" / "results" / "accuracy.txt").write_text(text)


def shown(name: str, protocol: str, use: str, rows: list[Row], measured: np.ndarray, log: np.ndarray) -> dict[str, Any]:
    """A protocol's errors and coverage, as lines and as a record."""
    show(f"{name}: all", rows, measured, log)
    cover = coverage(rows, measured, log, protocol)
    say(
        f"    coverage of 80 % and 95 %: TTFT {cover[0, 0]:.3f} {cover[0, 1]:.3f}, "
        f"TPOT {cover[1, 0]:.3f} {cover[1, 1]:.3f}"
    )
    found = [errors(np.exp(log[:, j]), np.exp(measured[:, j])) for j in range(2)]
    record = {"protocol": name, "use": use, "rows": len(rows), "coverage": cover.tolist()}
    return record | {metric: e._asdict() for metric, e in zip(("ttft", "tpot"), found, strict=True)}


BY: dict[str, Callable[[Row], str]] = {
    "mode and layout": lambda r: f"{r.mode}, layout {'stated' if r.stated else 'assumed'}",
    "model": lambda r: r.model_path,
    "GPU": lambda r: r.system,
    "backend": lambda r: r.backend,
    "precision": lambda r: r.precision or "bf16",
}


def show(name: str, rows, measured, log, mask=None) -> None:
    """One line: count, and median, mean and P90 of both errors."""
    mask = np.ones(len(rows), bool) if mask is None else mask
    parts = []
    for j in range(2):
        e = errors(np.exp(log[mask, j]), np.exp(measured[mask, j]))
        parts.append(f"{100 * e.median:6.1f} {100 * e.mean:7.1f} {100 * e.p90:7.1f}")
    say(f"{name:<44}{mask.sum():6d}   TTFT {parts[0]}   TPOT {parts[1]}")


def novelties(rows: list[Row], protocol: str) -> list[str]:
    """How new each row is to the calibration that did not see its fold, as `Quantiles.novelty` will see new rows.

    Two models of one architecture (a model and its quantised copy) tell of each other, whatever their names are.
    """
    if protocol == "random":
        return [""] * len(rows)
    folds: dict[str, set[str]] = {}  # of each architecture
    for row in rows:
        folds.setdefault(family(row.model_path), set()).add(LEFT_OUT[protocol](row))
    return ["pair" if len(folds[family(row.model_path)]) > 1 else "model" for row in rows]


def kinds(row: Row, novelty: str) -> list[str]:
    return conformal.group_names(novelty, row.system, row.backend, row.mode, row.stated)


def write_intervals(rows, measured, predicted) -> None:
    """Quantiles of the held-out errors, by how new a row is."""
    e, groups, machines = [], [], []
    for wanted, (protocol, known) in NOVELTY.items():
        log = predicted[protocol][known]
        for row, novelty, error in zip(rows, novelties(rows, protocol), measured - log, strict=True):
            if novelty in ("", wanted):
                e.append(error)
                groups.append(kinds(row, wanted))
                machines.append(LEFT_OUT[protocol](row))
    pairs = {(nearest_model(row.model_path), row.system) for row in rows}
    made = f"held-out errors of {ROWS.name}: random folds, pairs and architectures left out"
    found = conformal.calibrate(np.array(e), groups, pairs, made, machines)
    (DATA / "intervals.json").write_text(found.to_json())


def coverage(rows, measured, log, protocol: str) -> np.ndarray:
    """(metric, level) share of rows inside intervals that come from the errors of other rows: in ten folds, or, where
    machines were left out, from the other machines."""
    e = measured - log
    machine = np.array([LEFT_OUT[protocol](row) for row in rows])
    part = machine
    if protocol == "random":
        keys = [measurement(row) for row in rows]
        place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        part = np.random.default_rng(1).permutation(len(place))[[place[key] for key in keys]] % 10
    groups = [kinds(row, novelty or "deployment") for row, novelty in zip(rows, novelties(rows, protocol), strict=True)]
    inside = np.zeros((len(rows), 2, 2))
    for k in sorted(set(part)):
        train = np.flatnonzero(part != k)
        found = conformal.calibrate(e[train], [groups[i] for i in train], [], machines=machine[train]).groups
        for i in np.flatnonzero(part == k):
            bounds = conformal.narrowest(found, groups[i])
            for j, metric in enumerate(conformal.METRICS):
                for m, level in enumerate(conformal.LEVELS):
                    low, high = bounds[metric][level]
                    inside[i, j, m] = low <= e[i, j] <= high
    return inside.mean(axis=0)


def noise(rows, measured, log) -> None:
    """What repetitions of one configuration say about the best any model can do, and the rows that stand out."""
    again = repeats(rows)
    members = sum(len(group) for group in again)
    say(
        f"\n{len(again)} configurations with repeated, distinct measurements ({members} rows); "
        "error of their own geometric mean:"
    )
    for metric, e in noise_floor(rows).items():
        say(f"    {metric.upper()} {_spread(e)}")
    say("one measurement of such a configuration predicted by another, by what they have in common:")
    for kind, floor in disagreement(rows).items():
        for metric, e in floor.items():
            say(f"    {kind:<28}{e.count // 2:4d} pairs   {metric.upper()} {_spread(e)}")
    for j, metric in enumerate(("ttft", "tpot")):
        most = P90_OF_MEDIAN * errors(np.exp(log[:, j]), np.exp(measured[:, j])).median
        beyond = [kind for kind, floor in disagreement(rows).items() if floor[metric].p90 > most]
        say(
            f"{metric.upper()}: {P90_OF_MEDIAN} medians of random folds are {100 * most:.1f} %; "
            f"repetitions have a higher P90 with: {'; '.join(beyond) or 'none'}"
        )
    odd = outliers(rows, log)
    say(f"{len(odd)} outliers (TTFT {sum(o.metric == 'ttft' for o in odd)}); the first of each reason:")
    for reason in dict.fromkeys(o.reason for o in odd):
        for o in [o for o in odd if o.reason == reason][:6]:
            say(f"    {o.id}: {o.metric} {o.measured_ms:.4g} ms against {o.other_ms:.4g} ms, {reason}")


def _spread(e: Errors) -> str:
    ratio = e.p90 / e.median if e.median else float("nan")
    return f"median {100 * e.median:.1f} %, mean {100 * e.mean:.1f} %, P90 {100 * e.p90:.1f} %, P90/median {ratio:.1f}"


def parameters(rows) -> None:
    """Every efficiency of every measured cell; fractions of a peak, microseconds, milliseconds, counts by the name."""
    cells = list(dict.fromkeys((row.system, row.backend, row.precision or "bf16") for row in rows))
    table = calibration.table(calibration.read(DATA / "calibration.json"), sorted(cells))
    names = [name for name in table[0] if name not in ("gpu", "backend", "precision")]
    say("\nefficiencies by GPU, backend and precision, architectures' own effects left out")
    say(" " * 28 + " ".join(f"{name.replace('attention', 'att'):>13.13}" for name in names))
    for cell in table:
        label = f"{cell['gpu']} {cell['backend']} {cell['precision']}"
        say(f"{label:<28}" + " ".join(f"{cell[name]:13.3g}" for name in names))


if __name__ == "__main__":
    main()
