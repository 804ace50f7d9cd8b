r"""Prediction intervals from held-out errors (split conformal, by group).

The error is e = log(measured / predicted) on rows that the calibration did not see. A group's interval of level 1 - a
runs from the a/2 to the 1 - a/2 empirical quantile of e, widened to the next order statistic,
$\lceil (n + 1)(1 - a/2) \rceil$, which covers an exchangeable new row with at least that probability. Groups go from
narrow to wide; one with fewer than `FEWEST` rows leaves the answer to the next.

The rows of one machine that was never measured are not exchangeable with those of others: they err together. Their
intervals are widened on both sides by what it takes for the machines left out one at a time to be covered as stated:
the level's quantile of the distance max(low - e, e - high) by which their errors miss the others' bounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

LEVELS = {"80": 0.80, "95": 0.95}
METRICS = ("ttft", "tpot")
#: Novelties of which a GPU and engine has a spread of its own.
CELLS = ("release", "deployment", "known")
#: Rows below which a group is too small to give a 95 % interval.
FEWEST = 60


class Interval(NamedTuple):
    """Multipliers of a prediction."""

    low: float
    high: float


@dataclass(frozen=True)
class Quantiles:
    """Intervals by novelty ("release", "deployment", "known", "pair", "model") and group, and what counts as known."""

    groups: Mapping[str, Mapping[str, Mapping[str, list[float]]]]  # group -> metric -> level -> [low, high] of e
    pairs: frozenset[tuple[str, str]] = field(default_factory=frozenset)  # (model, GPU) that were measured
    provenance: str = ""

    def multipliers(
        self, novelty: str, system: str, backend: str, mode: str, stated: bool = True
    ) -> dict[str, dict[str, Interval]]:
        """Multipliers for one kind of row, from the narrowest group that is large enough."""
        found = narrowest(self.groups, group_names(novelty, system, backend, mode, stated))
        return {m: {k: Interval(*np.exp(found[m][k])) for k in LEVELS} for m in METRICS}

    def novelty(
        self, system: str, model: str, architecture: str = "", deployment: bool = False, release: bool = False
    ) -> str:
        """How new it is: "known" where the model was measured on this GPU ("deployment" where so was its deployment,
        "release" where that was its release of the engine, too), "pair" where only its architecture was measured
        somewhere, "model" where that was not."""
        from dmodels.core.errors import InputError

        from .points import family, nearest_model

        try:
            name = nearest_model(model) if model else ""
        except InputError:
            name = ""
        if (name, system) in self.pairs:
            return "known" if not deployment else "release" if release else "deployment"
        own = family(name) if name else architecture
        return "pair" if own and any(own == family(other) for other, _ in self.pairs) else "model"

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
    """Groups that a row belongs to, narrowest first. Of machines that were not measured, one GPU and engine has seen
    too few others to have a spread of its own."""
    kind = f"{novelty}/{mode}/{'stated' if stated else 'assumed'}"
    cells = [f"{kind}/{system}/{backend}", f"{kind}/{backend}"] if novelty in CELLS else []
    return [*cells, kind, f"{novelty}/{mode}", novelty, "all"]


def narrowest(found: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The entry of the first of the names that has one."""
    for name in names:
        if name in found:
            return found[name]
    raise LookupError("the interval file has no group for everything")


def calibrate(
    errors: np.ndarray,
    groups: Sequence[Sequence[str]],
    pairs: Iterable[tuple[str, str]],
    provenance: str = "",
    machines: Sequence[str] | None = None,
) -> Quantiles:
    """Quantiles of held-out errors (n, 2) of log TTFT and log TPOT, given each row's groups, narrowest first.

    `machines` names what was left out together with each row, "" for rows that were left out at random; intervals of
    rows of one novelty that have such names are widened.
    """
    found = _quantiles(errors, groups)
    for novelty, wider in _widenings(errors, groups, machines).items():
        for name in [name for name in found if name.split("/")[0] == novelty]:
            found[name] = {
                m: {k: [low - wider[m][k], high + wider[m][k]] for k, (low, high) in found[name][m].items()}
                for m in METRICS
            }
    return Quantiles(found, frozenset(pairs), provenance)


def _quantiles(errors, groups):
    members: dict[str, list[int]] = {}
    for i, names in enumerate(groups):
        for name in names:
            members.setdefault(name, []).append(i)
    return {
        name: {m: {k: bounds(errors[rows, j], level) for k, level in LEVELS.items()} for j, m in enumerate(METRICS)}
        for name, rows in members.items()
        if len(rows) >= FEWEST or name == "all"
    }


def _widenings(errors, groups, machines):
    """Novelty -> metric -> level -> distance in log by which rows of machines left out one at a time miss the bounds of
    the others, exceeded by a share of 1 - level."""
    misses: dict[str, list[list[list[float]]]] = {}
    machines = np.array([""] * len(groups) if machines is None else machines)
    for machine in sorted(set(machines) - {""}):
        rest = np.flatnonzero(machines != machine)
        found = _quantiles(errors[rest], [groups[i] for i in rest])
        for i in np.flatnonzero(machines == machine):
            bound = narrowest(found, groups[i])
            miss = [[_miss(errors[i, j], *bound[m][k]) for k in LEVELS] for j, m in enumerate(METRICS)]
            misses.setdefault(groups[i][-2], []).append(miss)
    return {
        novelty: {
            m: {
                k: max(bounds(np.array(miss)[:, j, n], 2.0 * level - 1.0)[1], 0.0)
                for n, (k, level) in enumerate(LEVELS.items())
            }
            for j, m in enumerate(METRICS)
        }
        for novelty, miss in misses.items()
    }


def _miss(error: float, low: float, high: float) -> float:
    return max(low - error, error - high)


def bounds(errors: np.ndarray, level: float) -> list[float]:
    """Equal-tailed conformal bounds of errors; the extremes where the rows are too few for the level.

    >>> bounds(np.arange(99.0), 0.80)
    [9.0, 89.0]
    """
    e = np.sort(np.asarray(errors, float))
    n = len(e)
    top = min(math.ceil((n + 1) * (1.0 + level) / 2.0), n)
    return [float(e[n - top]), float(e[top - 1])]
