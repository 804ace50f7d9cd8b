"""Predictions of serving rows with their intervals, errors against measurements, and rows that look wrong."""

from __future__ import annotations

import csv
import io
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.errors import InputWarning
from dmodels.core.units import counted
from dmodels.formats.measurements import measured_files

from . import hierarchy
from .calibration import calibration, quantiles
from .measured import BACKENDS, Machine, read_any
from .points import family, to_points
from .rows import Rejected, Row, Table, measurement, read_rows
from .silicon import Effects, predict_log
from .tuned import tuned as tuned_factor

COLUMNS = (
    "id",
    "ttft_ms",
    "tpot_ms",
    "ttft_lo80_ms",
    "ttft_hi80_ms",
    "ttft_lo95_ms",
    "ttft_hi95_ms",
    "tpot_lo80_ms",
    "tpot_hi80_ms",
    "tpot_lo95_ms",
    "tpot_hi95_ms",
)


@dataclass(frozen=True)
class Predictions(Answer):
    """One record of `COLUMNS` per usable row, the rows themselves, and the rejected ones."""

    internal = ("rows",)
    rows_in = "values"
    values: list[dict[str, float | str]]
    rows: list[Row]
    rejected: list[Rejected]
    notes: tuple[str, ...] = ()  # what the predictions rest on beside the calibration


class Errors(NamedTuple):
    """Absolute percentage errors (as fractions) over rows."""

    count: int  # type: ignore[assignment]  # hides `tuple.count`, which means nothing here
    median: float
    mean: float
    p90: float


class Outlier(NamedTuple):
    """A row that disagrees with its repetitions or with any plausible model."""

    id: str
    metric: str
    measured_ms: float
    other_ms: float
    reason: str


def predict_file(
    path: str | Path, effects: Effects | None = None, machine: Machine | None = None, *, tuned: bool = False
) -> Predictions:
    """Predictions of the rows of a CSV, or of a load generator's points, for which `machine` says what ran.

    What was measured is not needed, and used of a point alone: for the requests that were in flight. `tuned`: as
    MLPerf's servers (`fit.tuned`).
    """
    of_rows = Path(path).suffix == ".csv" and not measured_files(path)
    found = predict(read_rows(path, measured=False) if of_rows else read_any(path, machine), effects)
    return _tuned(found) if tuned else found


def _tuned(found: Predictions) -> Predictions:
    """The same of servers that are tuned as MLPerf's: every time by their GPU's factor, with the factor's interval."""
    values, notes = [], {}
    for record, row in zip(found.values, found.rows, strict=True):
        own = tuned_factor(row.system)
        low, high = own.latency
        wide = {"80": (low, high), "95": (low ** (1.96 / 1.2816), high ** (1.96 / 1.2816))}
        new: dict[str, float | str] = {"id": record["id"]}
        for metric in ("ttft", "tpot"):
            new[f"{metric}_ms"] = centre = float(record[f"{metric}_ms"]) / own.factor
            for level, (least, most) in wide.items():
                new[f"{metric}_lo{level}_ms"], new[f"{metric}_hi{level}_ms"] = centre * least, centre * most
        values.append(new)
        notes[row.system] = f"{row.system}: {own.provenance}"
    return Predictions(values, found.rows, found.rejected, tuple(notes.values()))


def predict(table: Table, effects: Effects | None = None) -> Predictions:
    """Predictions of rows, each with the interval of its kind."""
    points, kept = to_points(table)
    _warn_of(kept.rows)
    effects = effects or calibration()
    levels = set(effects.levels)
    centre = np.exp(predict_log(points, kept.rows, effects)) * 1e3
    values = []
    for row, (ttft, tpot) in zip(kept.rows, centre.tolist(), strict=True):
        record: dict[str, float | str] = {"id": row.id, "ttft_ms": ttft, "tpot_ms": tpot}
        known = f"release+family={row.backend}+{row.release}+{family(row.model_path)}" in levels
        deployment = hierarchy.row_levels(row)[-1] in levels
        novelty = quantiles().novelty(row.system, row.model_path, deployment=deployment, release=known)
        spread = quantiles().multipliers(novelty, row.system, row.backend, row.mode, row.stated)
        for metric, value in (("ttft", ttft), ("tpot", tpot)):
            for level, (low, high) in spread[metric].items():
                record[f"{metric}_lo{level}_ms"] = value * low
                record[f"{metric}_hi{level}_ms"] = value * high
        values.append(record)
    return Predictions(values, kept.rows, kept.rejected)


def _warn_of(rows: Sequence[Row]) -> None:
    """What is predicted though it means little."""
    if odd := sorted({row.backend for row in rows} - set(BACKENDS)):
        told = f"backend {', '.join(odd)} is none of {', '.join(BACKENDS)}; predicted as an engine without measurements"
        warnings.warn(told, InputWarning, stacklevel=3)
    if short := [row.id for row in rows if row.osl < 2]:
        told = f"osl is 1 in {counted(len(short), 'row')}, {short[0]} the first: an answer of one token has no TPOT"
        warnings.warn(told, InputWarning, stacklevel=3)


def to_csv(predictions: Predictions) -> str:
    """CSV with `COLUMNS`, six significant digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in predictions.values:
        writer.writerow(v if isinstance(v := record[c], str) else f"{v:.6g}" for c in COLUMNS)
    return out.getvalue()


def errors(predicted: np.ndarray, measured: np.ndarray | float) -> Errors:
    """Errors of predictions in the units of the measurements."""
    ape = np.abs(np.asarray(predicted) / np.asarray(measured) - 1.0)
    if ape.size == 0:
        return Errors(0, np.nan, np.nan, np.nan)
    return Errors(ape.size, float(np.median(ape)), float(np.mean(ape)), float(np.percentile(ape, 90)))


def configuration(row: Row) -> tuple[Any, ...]:
    """What a row says it ran: rows that agree in all of this should agree in their latencies."""
    return (
        row.model_path,
        row.system,
        row.backend,
        row.precision,
        row.mode,
        row.isl,
        row.osl,
        row.concurrency,
        row.decode,
        row.prefill,
        row.draft_tokens,
        row.stream_interval,
        row.poll_steps,
    )


def repeats(rows: Sequence[Row]) -> list[list[int]]:
    """Indices of rows of one configuration with distinct measurements (copies of one measurement count once)."""
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], int]] = defaultdict(dict)
    for i, row in enumerate(rows):
        groups[configuration(row)].setdefault(measurement(row), i)
    return [list(g.values()) for g in groups.values() if len(g) > 1]


def disagreement(rows: Sequence[Row]) -> dict[str, dict[str, Errors]]:
    """Errors of predicting one measurement of a configuration by another, either by either, by how they are related:
    by release and day, of which one that is not stated counts as another.

    A model that predicts a run that it has not seen predicts across this difference. One that knew the mean of all
    possible runs would still err by 1/sqrt(2) of it, in logarithms.
    """
    log = np.log([[row.ttft_s, row.tpot_s] for row in rows])
    found: dict[str, list[np.ndarray]] = {}
    for group in repeats(rows):
        for i, j in combinations(group, 2):
            released, when = rows[i].release == rows[j].release, rows[i].day == rows[j].day
            kind = ("same release, same day" if when else "same release, other day") if released else "other release"
            found.setdefault(kind, []).extend((log[i] - log[j], log[j] - log[i]))
    return {
        kind: {m: errors(np.exp(np.array(d)[:, j]), 1.0) for j, m in enumerate(("ttft", "tpot"))}
        for kind, d in sorted(found.items())
    }


def noise_floor(rows: Sequence[Row]) -> dict[str, Errors]:
    """Errors of predicting each repeated measurement by the geometric mean of its repetitions: no model that sees the
    same columns can do better on those rows by more than the difference between mean and best constant."""
    log = np.log([[row.ttft_s, row.tpot_s] for row in rows])
    found = {}
    for j, metric in enumerate(("ttft", "tpot")):
        predicted, measured = [], []
        for group in repeats(rows):
            predicted += [float(np.exp(log[group, j].mean()))] * len(group)
            measured += np.exp(log[group, j]).tolist()
        found[metric] = errors(np.array(predicted), np.array(measured))
    return found


def outliers(rows: Sequence[Row], predicted_log: np.ndarray, factor: float = 3.0) -> list[Outlier]:
    """Rows off by more than `factor` from the median of their repetitions, or from the prediction."""
    log = np.log([[row.ttft_s, row.tpot_s] for row in rows])
    found, limit = [], np.log(factor)
    for j, metric in enumerate(("ttft", "tpot")):
        said = set()
        for group in repeats(rows):
            middle = np.median(log[group, j])
            for i in group:
                if abs(log[i, j] - middle) > limit / 2:
                    said.add(i)
                    found.append(_outlier(rows[i], metric, log[i, j], middle, "disagrees with its repetitions"))
        for i in np.flatnonzero(np.abs(log[:, j] - predicted_log[:, j]) > limit).tolist():
            if i not in said:
                found.append(_outlier(rows[i], metric, log[i, j], predicted_log[i, j], "far from any calibrated value"))
    return found


def _outlier(row: Row, metric: str, measured: float, other: float, reason: str) -> Outlier:
    return Outlier(row.id, metric, float(np.exp(measured)) * 1e3, float(np.exp(other)) * 1e3, reason)
