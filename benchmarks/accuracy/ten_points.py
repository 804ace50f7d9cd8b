"""How much ten measured points of one's own say about a machine that the calibration has never seen.

A machine is an architecture on a GPU, with an engine, a precision, and prompts and answers together or apart. The
calibration is fitted without any point of the architecture on that GPU, in whatever engine; ten points of the machine,
drawn at random, refit it as `dmodels fit` does; the errors before and after are those of the machine's other points.
Reads ../shared/data/silicon_fit.csv.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels.fit import rows as measured
from dmodels.fit.calibration import calibration
from dmodels.fit.points import family, to_points
from dmodels.fit.silicon import Effects, fit, predict_log

FILE = Path(__file__).parents[3] / "shared" / "data" / "silicon_fit.csv"
TEN = 10
#: Fewest measurements of a machine: ten to learn from, twice as many to be judged by.
FEWEST = 3 * TEN


@benchmark()
def ten_points(quick: bool) -> Iterator[Row]:
    """Errors on a pair of model and GPU left out of the calibration, before and after ten measured points of it."""
    points, table = to_points(measured.read_rows(FILE))
    rows = table.rows
    logs = np.log([[row.ttft_s, row.tpot_s] for row in rows])
    place = {key: i for i, key in enumerate(dict.fromkeys(map(measured.measurement, rows)))}  # of copies, one
    keys = np.array([place[measured.measurement(row)] for row in rows])
    pairs = [f"{family(row.model_path)} on {row.system}" for row in rows]
    machines = [
        f"{pair}, {row.backend} {row.precision or 'bf16'} {row.mode}" for pair, row in zip(pairs, rows, strict=True)
    ]
    runs: dict[str, set[int]] = defaultdict(set)
    for name, key in zip(machines, keys, strict=True):
        runs[name].add(int(key))
    blind: dict[str, Effects] = {}
    found: list[np.ndarray] = []
    for name in [name for name in sorted(runs) if len(runs[name]) >= FEWEST][: 1 if quick else None]:
        mine = np.array([one == name for one in machines])
        pair = name.partition(",")[0]
        if pair not in blind:
            hidden = keys[[one == pair for one in pairs]]
            blind[pair] = fit(points, rows, keep=~np.isin(keys, hidden), start=calibration(), max_steps=8)
        chosen = np.random.default_rng(0).choice(sorted(runs[name]), TEN, replace=False)
        known = np.isin(keys, chosen)
        own = fit(points, rows, keep=mine & known, prior=blind[pair], start=blind[pair], max_steps=15)
        asked = mine & ~known
        errors = np.array([np.abs(np.expm1(predict_log(points, rows, e) - logs))[asked] for e in (blind[pair], own)])
        found.append(np.stack([errors.mean(axis=1), np.median(errors, axis=1)]))
        yield {"machine": name, "points": int(asked.sum())} | _told(found[-1])
    yield {"machine": f"mean of {len(found)}", "points": 0} | _told(np.mean(found, axis=0))


def _told(errors: np.ndarray) -> Row:
    """Mean and median absolute errors, (mean or median, before or after, TTFT or TPOT)."""
    told: dict[str, object] = {}
    for j, metric in enumerate(("ttft", "tpot")):
        for i, kind in enumerate(("mean", "median")):
            told |= {
                f"{metric} {kind} before": float(errors[i, 0, j]),
                f"{metric} {kind} after": float(errors[i, 1, j]),
            }
    return told
