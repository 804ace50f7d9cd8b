"""A calibration from the user's own rows: the shipped one as the prior, errors before, after, and on held-out folds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError

from .calibration import calibration, dump, read, table
from .descent import Weighing
from .load_sweeps import LoadSweep, load_sweeps
from .measured import Machine, read_any
from .points import nearest_model, to_points
from .predict import Errors, Outlier, errors, outliers
from .protocols import held_out
from .rows import Rejected, Row
from .silicon import Effects, fit, merged, predict_log

#: How much a point of one's own counts: twelve times as much against the shipped calibration as the points behind it,
#: and its TTFT by the spread that one machine leaves (half of what machines leave among each other). Chosen on half of
#: the pairs of `python -m benchmarks ten_points`; the other half gains as much.
OWN = Weighing(12.0, (0.125, 0.10))
#: Measured over predicted, or the reverse, that a thousandfold mistake of units explains and no machine does: without a
#: pair of model and GPU, the calibration is within a factor of ten of each of its deployments.
OTHER_UNIT = 100.0


@dataclass(frozen=True)
class Refit(Answer):
    """What a fit found, and how much better it is. Its table is a row of efficiencies for each machine."""

    internal = ("effects", "rows")
    rows_in = "table"
    effects: Effects
    rows: list[Row]
    rejected: list[Rejected]
    before: dict[str, Errors]
    after: dict[str, Errors]
    held_out: dict[str, Errors]
    outliers: list[Outlier]
    table: list[dict[str, Any]]
    spread80: dict[str, tuple[float, float]]  # factors on a prediction for this machine that hold 80 % of new points
    sweeps: tuple[LoadSweep, ...]

    @property
    def own(self) -> OwnCalibration:
        """As a plan takes it."""
        pairs = frozenset((nearest_model(row.model_path), row.system, row.backend) for row in self.rows)
        return OwnCalibration(self.effects, self.spread80, pairs, len(self.rows))


def refit(paths: str | Path | Iterable[str | Path], max_steps: int = 15, machine: Machine | None = None) -> Refit:
    """Fit measured rows: of CSV tables, or of load generators' reports, for which `machine` says what they do not.

    Levels that the rows do not touch keep the shipped effects.
    """
    points, kept = to_points(read_any(paths, machine))
    rows, shipped = kept.rows, calibration()
    before = predict_log(points, rows, shipped)
    _check_units(before, rows)
    new = fit(points, rows, prior=shipped, max_steps=max_steps, weighing=OWN)
    blind = held_out(points, rows, "random", prior=shipped, max_steps=max_steps, weighing=OWN)[0]
    after = predict_log(points, rows, new)
    cells = list(dict.fromkeys((row.system, row.backend, row.precision or "bf16") for row in rows))
    return Refit(
        effects=merged(shipped, new),
        rows=rows,
        rejected=kept.rejected,
        before=_errors(before, rows),
        after=_errors(after, rows),
        held_out=_errors(blind, rows),
        outliers=outliers(rows, after),
        table=table(new, cells),
        spread80=_spread(blind, rows),
        sweeps=load_sweeps(rows),
    )


def _check_units(predicted_log: np.ndarray, rows: list[Row]) -> None:
    """The mistake of latencies that are, in the middle of all points, a hundred times what the model says, or less."""
    ratio = np.exp(np.median(np.log([[row.ttft_s, row.tpot_s] for row in rows]) - predicted_log, axis=0))
    for name, value in zip(("TTFT", "TPOT"), ratio.tolist(), strict=True):
        if not 1.0 / OTHER_UNIT < value < OTHER_UNIT:
            raise InputError(
                f"measured: {name} is {value:.3g} times what the model predicts (median of {len(rows)} points, "
                f"{rows[0].id} the first); is it in another unit?"
            )


def _spread(predicted_log: np.ndarray, rows: list[Row], level: float = 0.8) -> dict[str, tuple[float, float]]:
    """Factors by Student's t on the logarithm of measured over predicted, both of points held out.

    Of n points with mean m and deviation s, a new one lies in m +- t s sqrt(1 + 1/n); of fewer than three, nothing is
    said and the factors are those of a GPU that nobody measured.
    """
    error = np.log([[row.ttft_s, row.tpot_s] for row in rows]) - predicted_log
    found = {}
    for j, name in enumerate(("ttft", "tpot")):
        n = len(error)
        if n < 3:
            found[name] = {"ttft": (0.5, 2.5), "tpot": (0.6, 1.7)}[name]
            continue
        half = stats.t.ppf(0.5 + level / 2.0, n - 1) * error[:, j].std(ddof=1) * np.sqrt(1.0 + 1.0 / n)
        middle = error[:, j].mean()
        found[name] = float(np.exp(min(middle - half, 0.0))), float(np.exp(max(middle + half, 0.0)))
    return found


class OwnCalibration(NamedTuple):
    """What measurements of one's own say, for a plan: effects, how far off new points are, and what was measured."""

    effects: Effects
    spread80: dict[str, tuple[float, float]]
    pairs: frozenset[tuple[str, str, str]]  # (catalogue model, GPU, engine)
    points_count: int


def own_calibration(
    paths: str | Path | Iterable[str | Path], machine: Machine | None = None, max_steps: int = 15
) -> OwnCalibration:
    """`refit`, as a plan takes it."""
    return refit(paths, max_steps, machine).own


def written(own: OwnCalibration, rows: str) -> str:
    """The text of a calibration file; `rows` says what it was fitted to."""
    measured = {"spread80": own.spread80, "pairs": sorted(own.pairs), "points_count": own.points_count}
    return dump(own.effects, {"rows": rows, "count": own.points_count, "measured": measured})


def read_own(path: str | Path) -> OwnCalibration:
    """The calibration in a file that `dmodels fit --out` wrote, as a plan takes it."""
    effects = read(path)
    measured = json.loads(Path(path).read_text(encoding="utf-8")).get("provenance", {}).get("measured")
    if measured is None:
        raise InputError(f"{path}: does not say what was measured; accepted is a file that `dmodels fit --out` wrote")
    spread = {name: (float(low), float(high)) for name, (low, high) in measured["spread80"].items()}
    pairs = frozenset((str(model), str(gpu), str(engine)) for model, gpu, engine in measured["pairs"])
    return OwnCalibration(effects, spread, pairs, int(measured["points_count"]))


def _errors(predicted_log: np.ndarray, rows: list[Row]) -> dict[str, Errors]:
    measured = np.array([[row.ttft_s, row.tpot_s] for row in rows])
    return {name: errors(np.exp(predicted_log[:, j]), measured[:, j]) for j, name in enumerate(("ttft", "tpot"))}
