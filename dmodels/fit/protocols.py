"""How well a calibration predicts rows that it did not see: random folds, and pairs, models or GPUs left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .points import Points
from .rows import Row, measurement
from .silicon import Effects, fit, predict_log

FOLDS = 5
PROTOCOLS = ("random", "pair", "model", "gpu")


def folds(rows: Sequence[Row], protocol: str, seed: int = 0) -> Iterator[np.ndarray]:
    """Masks of the rows held out, one per fold. Copies of one measurement are always held out together."""
    if protocol == "random":
        keys = [measurement(row) for row in rows]
        place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        fold_of = np.random.default_rng(seed).permutation(len(place)) % FOLDS
        part = np.array([fold_of[place[key]] for key in keys])
        yield from (part == k for k in range(FOLDS))
        return
    of = {"pair": lambda r: (r.model_path, r.system), "model": lambda r: r.model_path, "gpu": lambda r: r.system}
    key = of[protocol]
    for value in dict.fromkeys(key(row) for row in rows):
        yield np.array([key(row) == value for row in rows])


def held_out(
    points: Points,
    rows: Sequence[Row],
    protocol: str,
    start: Effects | None = None,
    prior: Effects | None = None,
    max_steps: int = 6,
    seed: int = 0,
) -> np.ndarray:
    """(n, 2): log predictions of every row from the calibration of the fold that did not see it.

    Where copies of held-out measurements remain among the other rows (the same run under another model's name), they
    are masked out too.
    """
    predicted = np.full((len(rows), 2), np.nan)
    keys = [measurement(row) for row in rows]
    for out in folds(rows, protocol, seed):
        hidden = {key for key, held in zip(keys, out, strict=True) if held}
        keep = np.array([key not in hidden for key in keys])
        effects = fit(points, rows, keep=keep, start=start, prior=prior, max_steps=max_steps)
        predicted[out] = predict_log(points, rows, effects)[out]
    return predicted
