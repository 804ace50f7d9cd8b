"""A `Solution` in words: why it stopped, the answer, the evidence and what it means."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dmodels.core.flags import MEANINGS as MEANING_OF_FLAGS
from dmodels.core.flags import Flag, describe
from dmodels.core.records import traced

#: What an entry of a certificate says, where its name alone does not.
MEANINGS = {
    "gap": "cost above the bound that the duals prove",
    "reduced": "least reduced cost of a free column: not negative for an optimum",
    "row_duals": "no cost is below the sum of its row's and its column's",
    "kkt_residual": "largest violation of the optimality conditions",
    "relative_residual": "the same, each condition relative to its terms: what the flags judge",
    "distance_bound": "each variable is at most this far from the equilibrium",
    "profitable_deviation": "most that a player gains by moving alone",
    "deviation_bound": "no player can gain more than this by moving alone: proved over its whole box",
    "least_eigenvalue": "positive: one equilibrium nearby",
    "strictly_monotone": "then the equilibrium is the only one",
    "convex": "each player's cost is known to be convex",
    "feasibility": "largest violation of a constraint",
    "spread": "slowest used over fastest any, relative",
    "excess": "relative difference of the loads' sum and the demand",
    "bound": "no answer costs less",
    "proved": "1: interval arithmetic shows that the list is complete",
}

#: What that flag means of a game.
_DEVIATES = "no equilibrium: a player gains by moving alone"


def printed(solution: Any) -> str:
    """The lines that `print(solution)` shows."""
    if traced(solution):
        return f"Solution(traced; value {type(solution.value).__name__}, certificate {sorted(solution.certificate)})"
    verdict = _verdict(np.asarray(solution.flags), np.asarray(solution.steps))
    if "profitable_deviation" in solution.certificate:
        verdict = verdict.replace(MEANING_OF_FLAGS[Flag.OUT_OF_DOMAIN], _DEVIATES)
    lines = [verdict]
    for title, entries in (("answer", _entries(solution.value)), ("evidence", dict(solution.certificate))):
        width = max(map(len, entries), default=0)
        lines.append(f"{title}:")
        for name, value in entries.items():
            meaning = f"   ({MEANINGS[name]})" if title == "evidence" and name in MEANINGS else ""
            lines.append(f"  {name:<{width}}  {_numbers(value)}{meaning}")
    return "\n".join(lines)


def _verdict(flags: np.ndarray, steps: np.ndarray) -> str:
    if flags.ndim == 0:
        count = f" after {int(steps)} steps" if steps.ndim == 0 else ""
        return f"Solution{count}: " + ("certified, nothing to say against it" if not flags else describe(int(flags)))
    masks, counts = np.unique(flags, return_counts=True)
    kinds = ", ".join(
        f"{n} {'certified' if not mask else describe(int(mask))}" for mask, n in zip(masks, counts, strict=True)
    )
    return f"Solutions of {flags.size} problems: {kinds or 'none'}"


def _entries(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if hasattr(value, "_asdict"):
        named: dict[str, Any] = value._asdict()
        return named
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {"value": value}


def _numbers(value: Any) -> str:
    array = np.asarray(value)
    if array.dtype == object:
        return str(value)
    if array.ndim == 0:
        return f"{array.item():.6g}" if array.dtype.kind == "f" else str(array.item())
    if array.size <= 12:
        return np.array2string(array, precision=6, separator=" ").replace("\n", "")
    finite = array[np.isfinite(array)]
    between = f", {finite.min():.6g} to {finite.max():.6g}" if finite.size else ""
    return f"array of shape {array.shape}{between}"
