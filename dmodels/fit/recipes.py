"""Deployments of the public benchmark runs, for rows of separate instances that leave out how many there were.

data/recipes.csv lists what ran under how many clients; a row is matched by all that it does state. Where several
deployments agree with a row (the same clients with and without speculative decoding, say), the one that agrees with
what is known of its run (`runs.settings`) is taken, else the first without speculation: which it was, the row does not
tell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from dmodels.core.files import csv_rows

from .runs import settings

KEYS = ("backend", "system", "precision", "isl", "osl")


class Layout(NamedTuple):
    """One kind of instance: parallelism, and how many instances (0: as many as match the other side's rate)."""

    tp: float = 1.0
    dp: float = 1.0
    ep: float = 1.0
    instances: float = 1.0
    batch: float = math.inf  # most requests that decode at a time, per instance or dp rank

    @property
    def gpus(self) -> float:
        """GPUs of one instance."""
        return self.tp * self.dp


class Recipe(NamedTuple):
    """One deployment."""

    prefill: Layout
    decode: Layout
    draft_tokens: float
    clients: frozenset[int]


def side(text: str, batch: str = "") -> Layout:
    """Instances of one kind: "5xtep8" is five of 8 GPUs each, tensor and expert parallel.

    >>> side("5xdep8")
    Layout(tp=1.0, dp=8.0, ep=8.0, instances=5.0, batch=inf)
    """
    count, kind, gpus = re.fullmatch(r"(\d+)x([a-z]+)(\d+)", text).groups()
    width = float(gpus)
    expert = width if "e" in kind else 1.0
    tp, dp = (1.0, width) if kind.startswith("d") else (width, 1.0)
    return Layout(tp, dp, expert, float(count), float(batch or "inf"))


def recipe(
    cell: Mapping[str, str], clients: float, prefill_gpus: float, prefill_ep: float, decode_gpus: float
) -> tuple[Recipe | None, bool]:
    """The deployment that a row ran on, and whether it is the only one that agrees with the row."""
    found = candidates(cell, clients, prefill_gpus, prefill_ep, decode_gpus)
    known = settings(cell, "disagg").draft_tokens
    if known is None:
        found.sort(key=lambda r: r.draft_tokens > 0)
    else:
        found = [r for r in found if (r.draft_tokens > 0) == (known > 0)] or found
    return (found[0] if found else None), len(found) == 1


def candidates(
    cell: Mapping[str, str], clients: float, prefill_gpus: float, prefill_ep: float, decode_gpus: float
) -> list[Recipe]:
    """Deployments that agree with what a row states, those with the row's expert parallelism of prefill if any."""
    source = cell.get("silicon_data_source", "")
    found = []
    for pattern, date, key, recipe in _recipes():
        if clients not in recipe.clients or date not in source:
            continue
        if any(cell.get(name, "") != value for name, value in zip(KEYS, key, strict=True)):
            continue
        if re.search(pattern, cell.get("model_path", ""), re.IGNORECASE) and _fits(recipe, prefill_gpus, decode_gpus):
            found.append((bool(date), min(recipe.prefill.ep, 2.0) == min(prefill_ep, 2.0), recipe))
    best = max((rank[:2] for rank in found), default=None)
    return [recipe for *rank, recipe in found if tuple(rank) == best]


def _fits(recipe: Recipe, prefill_gpus: float, decode_gpus: float) -> bool:
    """The row states the GPUs of one instance of each kind, all GPUs of the deployment (twice), or none (twice 1)."""
    if prefill_gpus == decode_gpus == 1.0:
        return True
    whole = recipe.prefill.gpus * recipe.prefill.instances + recipe.decode.gpus * recipe.decode.instances
    return (recipe.prefill.gpus, recipe.decode.gpus) == (prefill_gpus, decode_gpus) or (
        prefill_gpus == decode_gpus == whole
    )


@cache
def _recipes() -> list[tuple[str, str, tuple[str, ...], Recipe]]:
    text = files("dmodels.fit").joinpath("data/recipes.csv").read_text(encoding="utf-8")
    return [
        (
            row["model"],
            row["date"],
            tuple(row[name] for name in KEYS),
            Recipe(
                side(row["prefill"]),
                side(row["decode"], row["batch"]),
                float(row["draft_tokens"]),
                frozenset(int(n) for n in row["clients"].split()),
            ),
        )
        for row in csv_rows(text)
    ]
