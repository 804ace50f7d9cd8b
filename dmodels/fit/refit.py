"""A calibration from the user's own rows: the shipped one as the prior, errors before, after, and on held-out folds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .calibration import calibration, table
from .points import to_points
from .predict import Errors, Outlier, errors, outliers
from .protocols import held_out
from .rows import Rejected, Row, read_rows
from .silicon import Effects, fit, predict_log


@dataclass(frozen=True)
class Refit:
    """What a fit found, and how much better it is."""

    effects: Effects
    rows: list[Row]
    rejected: list[Rejected]
    before: dict[str, Errors]
    after: dict[str, Errors]
    held_out: dict[str, Errors]
    outliers: list[Outlier]
    table: list[dict[str, Any]]


def refit(path: str | Path, max_steps: int = 15) -> Refit:
    """Fit the rows of a CSV. Levels that the rows do not touch keep the shipped effects."""
    points, kept = to_points(read_rows(path))
    rows, shipped = kept.rows, calibration()
    new = fit(points, rows, prior=shipped, max_steps=max_steps)
    blind = held_out(points, rows, "random", prior=shipped, max_steps=max_steps)
    before, after = predict_log(points, rows, shipped), predict_log(points, rows, new)
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
    )


def merged(old: Effects, new: Effects) -> Effects:
    """The effects of `new`, and those of `old` for levels that `new` does not have."""
    both = dict(zip(old.levels, old.beta, strict=True)) | dict(zip(new.levels, new.beta, strict=True))
    return Effects(tuple(both), np.stack(list(both.values())))


def _errors(predicted_log: np.ndarray, rows: list[Row]) -> dict[str, Errors]:
    measured = np.array([[row.ttft_s, row.tpot_s] for row in rows])
    return {name: errors(np.exp(predicted_log[:, j]), measured[:, j]) for j, name in enumerate(("ttft", "tpot"))}
