"""Shapes of experts that an engine's Triton kernel has tuned tiles for: the rows of data/expert_tiles.csv."""

from __future__ import annotations

from functools import cache

from .tables import DATA, read_csv

Shapes = tuple[tuple[float, float], ...]


def tuned_shapes(engine: str, gpu: str, dtype: str) -> Shapes:
    """(experts that a rank holds, their width on it) that are tuned there; none where nothing is listed.

    >>> (8.0, 7168.0) in tuned_shapes("sglang", "h100_sxm", "bfloat16"), tuned_shapes("sglang", "gb200", "bfloat16")
    (True, ())
    """
    return _shipped().get((engine, gpu, dtype), ())


@cache
def _shipped() -> dict[tuple[str, str, str], Shapes]:
    rows = read_csv((DATA / "expert_tiles.csv").read_text(encoding="utf-8"), "expert_tiles.csv")
    return {(row["engine"], row["gpu"], row["dtype"]): _shapes(row["tuned"]) for row in rows}


def _shapes(text: str) -> Shapes:
    pairs = (pair.split("x") for pair in text.split())
    return tuple((float(experts), float(width)) for experts, width in pairs)
