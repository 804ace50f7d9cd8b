r"""Prediction intervals from held-out errors (split conformal, by group).

The error is e = log(measured / predicted) on rows that the calibration did not see. A group's interval of level 1 - a
runs from the a/2 to the 1 - a/2 empirical quantile of e, widened to the next order statistic,
$\lceil (n + 1)(1 - a/2) \rceil$, which covers an exchangeable new row with at least that probability. Groups go from
narrow to wide; one with fewer than `FEWEST` rows leaves the answer to the next.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

LEVELS = {"80": 0.80, "95": 0.95}
METRICS = ("ttft", "tpot")
#: Rows below which a group is too small to give a 95 % interval.
FEWEST = 60


class Interval(NamedTuple):
    """Multipliers of a prediction."""

    low: float
    high: float


@dataclass(frozen=True)
class Quantiles:
    """Intervals by novelty ("known", "pair", "model") and group, and what counts as known."""

    groups: Mapping[str, Mapping[str, Mapping[str, list[float]]]]  # group -> metric -> level -> [low, high] of e
    pairs: frozenset[tuple[str, str]] = field(default_factory=frozenset)  # (family, GPU) that were measured
    provenance: str = ""

    def multipliers(self, system: str, backend: str, model: str, mode: str,
                    stated: bool = True) -> dict[str, dict[str, Interval]]:  # fmt: skip
        """Multipliers for one kind of row, from the narrowest group that is large enough."""
        for name in group_names(self.novelty(system, model), system, backend, mode, stated):
            if name in self.groups:
                found = self.groups[name]
                return {m: {k: Interval(*np.exp(found[m][k])) for k in LEVELS} for m in METRICS}
        raise LookupError("the interval file has no group for everything")

    def novelty(self, system: str, model: str) -> str:
        """"known" if the pair of model family and GPU was measured, "pair" if only the family was, else "model"."""
        from dmodels.core.errors import InputError

        from .points import family

        if not model:
            return "model"
        try:
            name = family(model)
        except InputError:
            return "model"
        if (name, system) in self.pairs:
            return "known"
        return "pair" if any(name == f for f, _ in self.pairs) else "model"

    def to_json(self) -> str:
        """The text of an interval file."""
        pairs = sorted(list(pair) for pair in self.pairs)
        return json.dumps({"provenance": self.provenance, "pairs": pairs, "groups": self.groups}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Quantiles:
        """The inverse of `to_json`."""
        stored = json.loads(text)
        return cls(stored["groups"], frozenset((f, g) for f, g in stored["pairs"]), stored["provenance"])


def group_names(novelty: str, system: str, backend: str, mode: str, stated: bool) -> list[str]:
    """Groups that a row belongs to, narrowest first."""
    kind = f"{novelty}/{mode}/{'stated' if stated else 'assumed'}"
    return [f"{kind}/{system}/{backend}", f"{kind}/{backend}", kind, f"{novelty}/{mode}", novelty, "all"]


def calibrate(errors: np.ndarray, groups: Iterable[list[str]], pairs: Iterable[tuple[str, str]],
              provenance: str = "") -> Quantiles:  # fmt: skip
    """Quantiles of held-out errors (n, 2) of log TTFT and log TPOT, given each row's groups."""
    members: dict[str, list[int]] = {}
    for i, names in enumerate(groups):
        for name in names:
            members.setdefault(name, []).append(i)
    found = {}
    for name, rows in members.items():
        if len(rows) >= FEWEST or name == "all":
            e = errors[rows]
            found[name] = {m: {k: bounds(e[:, j], level) for k, level in LEVELS.items()} for j, m in enumerate(METRICS)}
    return Quantiles(found, frozenset(pairs), provenance)


def bounds(errors: np.ndarray, level: float) -> list[float]:
    """Equal-tailed conformal bounds of errors; the extremes where the rows are too few for the level.

    >>> bounds(np.arange(99.0), 0.80)
    [9.0, 89.0]
    """
    e = np.sort(np.asarray(errors, float))
    n = len(e)
    top = min(math.ceil((n + 1) * (1.0 + level) / 2.0), n)
    return [float(e[n - top]), float(e[top - 1])]
