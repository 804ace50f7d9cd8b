"""How well a calibration predicts rows that it did not see: random folds, and pairs of architecture and GPU,
architectures or GPUs left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .deployed import deployed
from .descent import Weighing
from .points import Points, family
from .rows import Row, measurement
from .silicon import Effects, fit, predict_log

FOLDS = 5
#: What is left out together: what the rest has not seen of a machine. Copies of a model under other names (quantised,
#: fine-tuned) are of one architecture, and would tell of one another.
LEFT_OUT: dict[str, Callable[[Row], str]] = {
    "random": lambda r: "",
    "pair": lambda r: f"{family(r.model_path)} on {r.system}",
    "architecture": lambda r: family(r.model_path),
    "gpu": lambda r: r.system,
}
PROTOCOLS = tuple(LEFT_OUT)
#: What is known of the rows that `held_out` predicts: their release, and what their deployment has of its own.
KNOWN = ((True, True), (False, True), (False, False))


def folds(rows: Sequence[Row], protocol: str, seed: int = 0) -> Iterator[np.ndarray]:
    """Masks of the rows held out, one per fold. Copies of one measurement are always held out together."""
    if protocol == "random":
        keys = [measurement(row) for row in rows]
        place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        fold_of = np.random.default_rng(seed).permutation(len(place)) % FOLDS
        part = np.array([fold_of[place[key]] for key in keys])
        yield from (part == k for k in range(FOLDS))
        return
    key = LEFT_OUT[protocol]
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
    weighing: Weighing = Weighing(),  # noqa: B008 - a tuple of constants
) -> np.ndarray:
    """(3, n, 2): log predictions of every row from the calibration of the fold that did not see it: with its engine's
    release stated, without, as a plan predicts, and as a plan predicts a deployment that was not measured.

    Where copies of held-out measurements remain among the other rows (the same run under another model's name), they
    are masked out too.
    """
    predicted = np.full((len(KNOWN), len(rows), 2), np.nan)
    keys = [measurement(row) for row in rows]
    for out in folds(rows, protocol, seed):
        hidden = {key for key, held in zip(keys, out, strict=True) if held}
        keep = np.array([key not in hidden for key in keys])
        effects = fit(points, rows, keep=keep, start=start, prior=prior, max_steps=max_steps, weighing=weighing)
        if prior is None and protocol == "random":  # nothing else that is left out shares a deployment with what is not
            effects = deployed(points, rows, effects, keep)
        for i, known in enumerate(KNOWN):
            predicted[i, out] = predict_log(points, rows, effects, *known)[out]
    return predicted
