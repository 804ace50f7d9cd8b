"""How much ten measured points of one's own say about a machine that the calibration has never seen.

A deployment is an architecture on a GPU with an engine, a precision, a layout, and prompts and answers together or
apart: what one load generator measures. The calibration is fitted without any point of the architecture on that GPU, in
whatever engine; ten points, drawn at random, refit it as `dmodels fit` does; the errors before and after are those of
the deployment's other points, over several draws. Reads ../shared/data/silicon_fit.csv.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels.fit import rows as measured
from dmodels.fit.calibration import calibration
from dmodels.fit.points import Points, family, to_points
from dmodels.fit.refit import OWN
from dmodels.fit.silicon import Effects, fit, predict_log

FILE = Path(__file__).parents[3] / "shared" / "data" / "silicon_fit.csv"
TEN, DRAWS = 10, 3
#: Rows of a deployment and others that do not count, as many in all for each: one shape, compiled once.
ROWS = 96
#: Errors over a deployment's other points, by what is said. Beyond `LIGHT` requests in flight, first tokens wait
#: for the engine's scheduler and its limits, which efficiencies do not know.
LIGHT = 50.0
KINDS = ("mean", "median", f"mean up to {LIGHT:g} in flight")
#: Fewest measurements of a deployment: ten to learn from, as many or more to be judged by.
FEWEST = 2 * TEN


def pair(row: measured.Row) -> str:
    """What is left out of the calibration: an architecture on a GPU."""
    return f"{family(row.model_path)} on {row.system}"


def deployment(row: measured.Row) -> str:
    """What one load generator measures."""
    layout = " ".join(f"{name}{value:g}" for name, value in row.decode._replace(batch=0.0)._asdict().items() if value)
    return (
        f"{pair(row)}, {row.backend} {row.precision or 'bf16'} {row.mode} {layout}{' drafts' * (row.draft_tokens > 0)}"
    )


@benchmark()
def ten_points(quick: bool) -> Iterator[Row]:
    """Errors on a pair of model and GPU left out of the calibration, before and after ten measured points of it."""
    points, table = to_points(measured.read_rows(FILE))
    rows = table.rows
    place = {key: i for i, key in enumerate(dict.fromkeys(map(measured.measurement, rows)))}  # of copies, one
    keys = np.array([place[measured.measurement(row)] for row in rows])
    names, pairs = (np.array([name_of(row) for row in rows]) for name_of in (deployment, pair))
    runs: dict[str, set[int]] = defaultdict(set)
    for name, key in zip(names.tolist(), keys.tolist(), strict=True):
        runs[name].add(key)
    blind: dict[str, Effects] = {}
    found = []
    for name in [name for name in sorted(runs) if len(runs[name]) >= FEWEST][: 1 if quick else None]:
        mine, left_out = names == name, str(pairs[names == name][0])
        if left_out not in blind:
            seen = ~np.isin(keys, keys[pairs == left_out])
            blind[left_out] = fit(points, rows, keep=seen, start=calibration(), max_steps=8)
        here = np.flatnonzero(mine)
        others = np.flatnonzero(~mine & (np.asarray(points.separate) == np.asarray(points.separate)[here[0]]))
        padded = np.concatenate([here, others])[: max(len(here), ROWS)]
        draws = []
        for draw in range(1 if quick else DRAWS):
            chosen = np.isin(keys[here], np.random.default_rng(draw).choice(sorted(runs[name]), TEN, replace=False))
            draws.append(_errors(points[padded], [rows[i] for i in padded], blind[left_out], chosen))
        found.append(np.exp(np.log(draws).mean(axis=0)))
        yield {"deployment": name, "points": len(here) - TEN} | _told(found[-1])
    yield {"deployment": f"mean of {len(found)}", "points": 0} | _told(np.nanmean(found, axis=0))
    share = np.exp(np.nanmean([np.log(one[:, 1] / one[:, 0]) for one in found], axis=0))
    yield {"deployment": "after over before"} | {
        f"{metric} {kind}": share[i, j] for j, metric in enumerate(("ttft", "tpot")) for i, kind in enumerate(KINDS)
    }


def _errors(points: Points, rows: list[measured.Row], prior: Effects, known: np.ndarray) -> np.ndarray:
    """(`KINDS`, before or after, TTFT or TPOT): absolute errors where `known` is false; rows beyond it are not
    looked at."""
    logs = np.log([[row.ttft_s, row.tpot_s] for row in rows])
    counted = np.zeros(len(rows), bool)
    counted[: len(known)] = known
    own = fit(points, rows, keep=counted, prior=prior, start=prior, max_steps=15, weighing=OWN)
    asked = np.flatnonzero(~known)
    errors = np.array([np.abs(np.expm1(predict_log(points, rows, e) - logs))[asked] for e in (prior, own)])
    light = errors[:, [rows[i].concurrency <= LIGHT for i in asked]]
    few = light.mean(axis=1) if light.size else np.full((2, 2), np.nan)
    return np.stack([errors.mean(axis=1), np.median(errors, axis=1), few])


def _told(errors: np.ndarray) -> Row:
    told: dict[str, object] = {}
    for j, metric in enumerate(("ttft", "tpot")):
        for i, kind in enumerate(KINDS):
            told |= {
                f"{metric} {kind} before": float(errors[i, 0, j]),
                f"{metric} {kind} after": float(errors[i, 1, j]),
            }
    return told
